"""Many launches and copies, recorded once and replayed as one."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Self

import numpy as np

from ..devices.array import Array
from ..devices.base import Device
from ..devices.prepared import Prepared
from ..devices.replay import Copy, Replay, Step
from ..errors import ArgumentError, DeviceError


class Graph:
    """Prepared launches and copies in order; `launch()` replays them all, and returns at once.

    CUDA takes the whole as a graph, OpenCL as a command buffer where the driver has them, and elsewhere it is one loop
    without checks. `prepared.update(…)` between replays takes effect at the next. Host arrays are read and written while
    a replay runs: do not change them before `device.synchronize()`.
    """

    def __init__(self, device: Device) -> None:
        if not isinstance(device, Device):
            raise ArgumentError(f"device of a graph must be one that kk.open_device returned, got {device!r}")
        device.check_open()
        self.device = device
        self._steps: list[Step] = []
        self._replay: Replay | None = None
        self._stale: set[Prepared] = set()  # launches whose arguments changed since the replay was made
        self._suspect = False  # an array that is copied was closed
        self._lock = threading.Lock()
        self._closed = False
        device.add_tenant(self)  # so that a graph of copies alone is closed with the device

    def add(self, prepared: Prepared) -> Self:
        """Append a prepared launch."""
        if not isinstance(prepared, Prepared):
            raise ArgumentError(f"a graph takes what kernel.prepare(…) returned, got a {type(prepared).__name__}")
        if prepared.kernel.device is not self.device:
            raise ArgumentError(
                f"the launch is for {prepared.kernel.device.spec}, and the graph for {self.device.spec}"
            )
        prepared.add_observer(self)
        return self._append(prepared)

    def copy(self, target: Array | np.ndarray[Any, Any], origin: Array | np.ndarray[Any, Any]) -> Self:
        """Append a copy between two arrays of the same shape and dtype, one of them at least on the device."""
        for array in (target, origin):
            if isinstance(array, Array):
                array.open_handle()
                if array.device is not self.device:
                    raise ArgumentError(f"an array is on {array.device.spec}, and the graph is for {self.device.spec}")
            elif not isinstance(array, np.ndarray):
                raise ArgumentError(f"a graph copies device arrays and NumPy arrays, got a {type(array).__name__}")
            elif not array.flags.c_contiguous:
                raise ArgumentError("a graph copies contiguous arrays only; pass np.ascontiguousarray(…)")
        if not isinstance(target, Array) and not isinstance(origin, Array):
            raise ArgumentError(
                "one side of a copy in a graph must be on the device; copy from host to host with NumPy"
            )
        if isinstance(target, np.ndarray) and not target.flags.writeable:
            raise ArgumentError("the host array that a graph copies to must be writeable")
        if target.shape != origin.shape or target.dtype != origin.dtype:
            raise ArgumentError(
                f"both sides of a copy in a graph must have one dtype and shape, got {origin.dtype.name} {origin.shape} and "
                f"{target.dtype.name} {target.shape}"
            )
        if not target.nbytes or target is origin:
            return self
        for array in (target, origin):
            if isinstance(array, Array):
                array.add_observer(self)
        return self._append(Copy(target, origin))

    def _append(self, step: Step) -> Self:
        with self._lock:
            self._check_open()
            self._steps.append(step)
            self._drop()
        return self

    def launch(self) -> None:
        """Replay everything, after all that was enqueued before."""
        replay = self._replay
        if replay is None or self._stale or self._suspect:
            replay = self._refreshed()
        replay.launch()

    def _refreshed(self) -> Replay:
        with self._lock:
            self._check_open()
            for prepared in [step for step in self._steps if isinstance(step, Prepared) and step.revoked]:
                prepared.refuse()
            for step in self._steps:
                if isinstance(step, Copy):
                    for array in step:
                        if isinstance(array, Array):
                            array.open_handle()
            while self._stale and self._replay is not None:
                if not self._replay.refresh(self._stale.pop()):
                    self._drop()
            if self._replay is None:
                self._stale.clear()  # before: what another thread changes from here on counts for the next launch
                self._replay = self.device.new_replay(self._steps)
            return self._replay

    def prepared_changed(self, prepared: Prepared) -> None:
        self._stale.add(prepared)

    def revoke(self, reason: str) -> None:
        self._suspect = True

    def mark_lost(self, reason: str) -> None:
        """The device is lost to a forked process: launching raises, and waits for no thread that is not here."""
        self._lock = threading.Lock()
        self._suspect = True

    def sharing_changed(self) -> None:
        """An array that is copied is shared with another library from now on."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        replay, self._replay = self._replay, None
        if replay is not None:
            replay.close()

    def close(self) -> None:
        """Free what the driver keeps for this graph."""
        with self._lock:
            self._closed = True
            self._drop()
            self._steps.clear()

    def _check_open(self) -> None:
        self.device.check_open()
        if self._closed:
            raise DeviceError("this graph is closed")

    def __len__(self) -> int:
        return len(self._steps)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Graph of {len(self._steps)} steps on {self.device.spec}>"
