"""Bound launches on OpenGL: entries for the next batch, made once, one by one or many together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..prepared import Prepared
from ..replay import LoopReplay, Step

if TYPE_CHECKING:
    from .device import OpenGLDevice
    from .program import OpenGLKernel

__all__ = ["OpenGLPrepared", "OpenGLReplay"]


class OpenGLPrepared(Prepared):
    """What a launch adds to its batch: the kernel, its values sorted as GL takes them, the grid."""

    kernel: OpenGLKernel

    def __init__(self, kernel: OpenGLKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any) -> None:
        super().__init__(kernel, args)
        self._device = kernel._device
        self._lock = self._device.context.lock
        self._values = list(values)
        self._shape = shape
        self._stop: Callable[..., NoReturn] | None = None
        self._entry: Any = None

    def __call__(self) -> None:
        entry = self.entry
        device = self._device
        with self._lock:
            if self.kernel.owner.unloaded:
                self.kernel._explain_closed()
            waiting = device._waiting
            waiting.append(entry)
            if len(waiting) >= device._batch:
                device.submit()

    @property
    def entry(self) -> Any:
        """What is added to the batch; put together when it is first needed after a change."""
        if self._entry is None:
            if self._stop is not None:
                self._stop()
            entry = (self.kernel, self.kernel.sort_values(self._values), self._shape)
            self._entry = entry
            if self._stop is not None:  # since a moment ago
                self._entry = None
                self._stop()
            return entry
        return self._entry

    def _put(self, index: int, native: Any) -> None:
        self._values[index] = native
        self._entry = None

    def _arm(self) -> None:
        self._stop = self._entry = None

    def _disarm(self, refuse: Callable[..., NoReturn]) -> None:
        self._stop = refuse
        self._entry = None
        self._values = self._still_open(self._values)


class OpenGLReplay(LoopReplay):
    """The loop, with the launches between two copies added to the batch at once."""

    def __init__(self, device: OpenGLDevice, steps: Sequence[Step]) -> None:
        super().__init__(device, steps)
        self._gl_device = device
        self._runs: list[list[OpenGLPrepared] | Callable[[], None]] = []
        for step in self._steps:
            if not isinstance(step, OpenGLPrepared):
                self._runs.append(step)
            elif self._runs and isinstance(self._runs[-1], list):
                self._runs[-1].append(step)
            else:
                self._runs.append([step])

    def launch(self) -> None:
        device = self._gl_device
        with device.context.current():
            for run in self._runs:
                if isinstance(run, list):
                    for prepared in run:
                        if prepared.kernel.owner.unloaded:
                            prepared.kernel._explain_closed()
                    device._waiting.extend([prepared.entry for prepared in run])
                else:
                    run()
            device.submit()
