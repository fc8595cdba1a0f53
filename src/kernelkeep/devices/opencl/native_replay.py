"""A graph without command buffers: the launches between two copies are one call in C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..prepared import Prepared
from ..replay import Replay, Step
from .native import packed_launch
from .prepared import OpenCLPrepared

if TYPE_CHECKING:
    from ..._enqueue import Target
    from .device import OpenCLDevice


@cache
def _run_class() -> Any:
    from ..._enqueue import BoundLaunches

    class Run(BoundLaunches):
        """Launches in a row. It keeps their kernels and arguments alive, whatever is closed meanwhile."""

        def __init__(self, device: OpenCLDevice, target: Target, launches: Sequence[OpenCLPrepared]) -> None:
            self._device, self._launches = device, launches
            kept = []
            packed = []
            for prepared in launches:
                _, kernel, values = prepared.bound
                if kernel is None:
                    prepared.refuse()
                kept.append((kernel, values))
                packed.append(packed_launch(kernel, prepared.items, prepared.group))
            self.bind_launches(target, b"".join(packed), kept)

        def call_failed(self, place: int, status: int) -> None:
            for prepared in self._launches[place:]:
                prepared.launch_on(self._device.cl_queue)

    return Run


class NativeReplay(Replay):
    """The loop in C. It lets go of everything as soon as a launch is changed or revoked, and binds anew at the next replay."""

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, target: Target, steps: Sequence[Step]) -> None:
        super().__init__(device, steps)
        self._target = target
        self._steps = list(steps)
        self._lock = threading.Lock()
        self._bound: list[Callable[[], Any]] | None = None
        for step in self._steps:
            if isinstance(step, Prepared):
                step.add_observer(self)

    def launch(self) -> None:
        self.device.check_not_lost()
        for part in self._bound or self._bind():  # what another thread changes meanwhile counts for the next replay
            part()

    def _bind(self) -> list[Callable[[], Any]]:
        with self._lock:
            parts: list[Callable[[], Any]] = []
            run: list[OpenCLPrepared] = []
            for step, call in zip(self._steps, self.calls, strict=True):
                if isinstance(step, OpenCLPrepared):
                    run.append(step)
                    continue
                self._end(run, parts)
                run = []
                parts.append(call)
            self._end(run, parts)
            self._bound = parts
            return parts

    def _end(self, run: list[OpenCLPrepared], parts: list[Callable[[], Any]]) -> None:
        if run:
            parts.append(_run_class()(self.device, self._target, run))

    def prepared_changed(self, prepared: Prepared) -> None:
        """Its arguments changed, or it was revoked."""
        with self._lock:
            self._bound = None

    def close(self) -> None:
        self._bound = None
