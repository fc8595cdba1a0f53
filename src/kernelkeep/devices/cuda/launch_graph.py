"""A graph of one kernel: the driver launches it in less time than the kernel itself, and in the same order on the stream.

The driver allows one thread at a time to use a graph, so calls of it wait for each other; `_native.c` does that. A graph holds a
copy of its arguments: what is updated is launched as a kernel again, until it has been called often with the same arguments.

A graph takes about 100 KiB of device memory, so only so many launches get one; the others go on as kernels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from ...weak_set import WeakSet
from .graph_nodes import destroy_graph, node_parameters
from .synchronization import stream_of

if TYPE_CHECKING:
    from .device import CudaDevice
    from .prepared import CudaPrepared

MOST_GRAPHS = 64  # of a process


class LaunchGraph:
    """The graph of a prepared launch."""

    alive: ClassVar[WeakSet[LaunchGraph]] = WeakSet()

    executable: Any = None

    @classmethod
    def of(cls, prepared: CudaPrepared) -> LaunchGraph | None:
        """Make one; None if there are enough, or beside a kernel that never exits, which the driver may wait for.

        `DeviceError` if the driver refuses.
        """
        device = prepared.kernel.device
        if len(list(cls.alive)) >= MOST_GRAPHS or not device.discarded.begin():
            return None
        try:
            return cls(prepared)
        finally:
            device.discarded.end()

    def __init__(self, prepared: CudaPrepared) -> None:
        self._library = prepared.kernel.program.hold()  # unloaded after the graph is destroyed
        self._device = prepared.kernel.device
        driver, call = self._device.driver, self._device.call
        self._graph: Any = None
        with _apart_from_captures(self._device):
            self._graph = call(driver.cuGraphCreate, 0)
            self._node = call(driver.cuGraphAddKernelNode, self._graph, [], 0, node_parameters(prepared))
            self.executable = call(driver.cuGraphInstantiate, self._graph, 0, doing="making a graph")
            # Now, because the first launch would do it, and a kernel that never exits may run by then.
            call(driver.cuGraphUpload, self.executable, stream_of(prepared.options.queue, self._device))
        self.alive.add(self)

    def refresh(self, prepared: CudaPrepared) -> None:
        """Take the arguments as they are now. No call of the graph may be under way."""
        driver = self._device.driver
        with _apart_from_captures(self._device):
            parameters = node_parameters(prepared)
            self._device.call(driver.cuGraphExecKernelNodeSetParams, self.executable, self._node, parameters)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half made, or the interpreter is half gone
            if not self._device.lost and not self._device.closed:
                self._device.discarded.add(destroy_graph, self._device.driver, self.executable, self._graph)


@contextlib.contextmanager
def _apart_from_captures(device: CudaDevice) -> Iterator[None]:
    """Our context is current, and what is called here does not disturb a graph that another library is capturing."""
    driver = device.driver
    with device.current:
        relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = device.call(driver.cuThreadExchangeStreamCaptureMode, relaxed)
        try:
            yield
        finally:
            device.call(driver.cuThreadExchangeStreamCaptureMode, before)
