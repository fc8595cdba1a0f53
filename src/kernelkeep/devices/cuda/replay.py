"""CUDA graphs: a chain of kernel and copy nodes, made node by node."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DeviceError
from ..array import Array
from ..prepared import Prepared
from ..replay import Copy, Replay, Step
from .graph_edges import EarlyEdges
from .graph_nodes import destroy_graph, node_parameters
from .guests import guests_wait, wait_for_guests
from .prepared import CudaPrepared

if TYPE_CHECKING:
    from .device import CudaDevice


class CudaReplay(Replay):
    """An instantiated graph."""

    device: CudaDevice

    def __init__(self, device: CudaDevice, steps: Sequence[Step], stream: Any) -> None:
        self.device = device
        self._stream = stream
        self._nodes: dict[Prepared, list[Any]] = {}
        self._kept = list(steps)  # keeps alive the memory that the driver reads and writes
        self._graph: Any = None
        self._executable: Any = None
        self._lock = threading.RLock()  # reentrant: a library that is asked for its stream may change the graph
        self._broken = False  # an array or a program of it is closed
        # Held until closing an array breaks the graph: the driver must not find memory of a copy freed while it makes the graph.
        ends = (end for step in steps if isinstance(step, Copy) for end in step)
        held = [end.open_handle() for end in ends if isinstance(end, Array)]
        with device.residents.out_of_the_way(), device.current:
            if not self._build(steps, EarlyEdges(device)):
                self._build(steps, None)
        self._note_shared()
        self._watch()
        del held

    def _build(self, steps: Sequence[Step], edges: EarlyEdges | None) -> bool:
        """Make the graph; False, with nothing made, if the driver refuses one with early starts."""
        device = self.device
        driver, call = device.driver, device.call
        self._graph = call(driver.cuGraphCreate, 0)
        last: list[Any] = []
        before: Step | None = None
        for step in steps:
            if isinstance(step, Copy):
                copied = _copy_parameters(driver, step)
                node = call(driver.cuGraphAddMemcpyNode, self._graph, last, len(last), copied, device.cu_context)
            else:
                assert isinstance(step, CudaPrepared)
                parameters = node_parameters(step)
                node = None
                if edges is not None and isinstance(before, CudaPrepared) and edges.allowed(before, step):
                    node = call(driver.cuGraphAddKernelNode, self._graph, [], 0, parameters)
                    if not edges.add(self._graph, last[0], node):
                        call(driver.cuGraphDestroyNode, node)
                        node = None
                if node is None:
                    node = call(driver.cuGraphAddKernelNode, self._graph, last, len(last), parameters)
                if step.options.cooperative:
                    self._make_cooperative(node)
                self._nodes.setdefault(step, []).append(node)
            last, before = [node], step
        status, self._executable = driver.cuGraphInstantiate(self._graph, 0)
        if status is not device.success:
            if edges is None or not edges.added:
                raise device.translated(status, "making a graph")
            driver.cuGraphDestroy(self._graph)
            self._graph = self._executable = None
            self._nodes.clear()
            return False
        call(driver.cuGraphUpload, self._executable, self._stream)
        return True

    def _note_shared(self) -> None:
        """Collect the arrays of the graph that other libraries use as well."""
        self._shared = [array for step in self._kept if isinstance(step, Prepared) for array in step.shared]
        copied = (array for step in self._kept if isinstance(step, Copy) for array in step)
        self._shared += [array for array in copied if isinstance(array, Array) and array.peers is not None]

    def launch(self) -> None:
        device = self.device
        device.check_not_lost()
        with self._lock:
            executable = self._executable
            if self._broken or executable is None:
                raise DeviceError("this graph was closed or changed by another thread")
            streams = wait_for_guests(device, self._shared, self._stream) if self._shared else None
            device.call(device.driver.cuGraphLaunch, executable, self._stream, doing="launching a graph")
            if self._shared:
                guests_wait(device, streams, self._stream)

    def _watch(self) -> None:
        """Observe what the graph uses: closing it waits for a launch under way, and breaks the graph."""
        for step in self._kept:
            if isinstance(step, Prepared):
                step.add_observer(self)
            else:
                for end in step:
                    if isinstance(end, Array):
                        end.add_observer(self)
                        self._broken |= end.handle is None
        self._broken |= self._has_revoked()

    def _has_revoked(self) -> bool:
        return any(isinstance(step, Prepared) and bool(step.revoked) for step in self._kept)

    def prepared_changed(self, prepared: Prepared) -> None:
        if prepared.revoked:
            self.revoke(prepared.revoked)

    def revoke(self, reason: str) -> None:
        with self._lock:
            self._broken = True

    def sharing_changed(self) -> None:
        """Nothing to do: the graph is told as well, and has this replay made ready."""

    def refresh(self, prepared: Prepared) -> bool:
        assert isinstance(prepared, CudaPrepared)
        with self.device.current:
            parameters = node_parameters(prepared)
            for node in self._nodes.get(prepared, ()):
                self.device.call(self.device.driver.cuGraphExecKernelNodeSetParams, self._executable, node, parameters)
        self._broken = self._has_revoked()
        self._note_shared()
        return True

    def _make_cooperative(self, node: Any) -> None:
        driver = self.device.driver
        which = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        value = driver.CUlaunchAttributeValue()
        value.cooperative = 1
        self.device.call(driver.cuGraphKernelNodeSetAttribute, node, which, value)

    def close(self) -> None:
        if self.device.lost:
            return
        with contextlib.suppress(Exception), self._lock:  # the interpreter may be half gone
            executable, graph, self._executable, self._graph = self._executable, self._graph, None, None
            if self.device.closed:
                return
            self.device.discarded.add(destroy_graph, self.device.driver, executable, graph)


def _copy_parameters(driver: Any, copy: Copy) -> Any:
    parameters = driver.CUDA_MEMCPY3D()
    host, on_device = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    target, origin = copy
    if isinstance(origin, np.ndarray):
        parameters.srcMemoryType, parameters.srcHost = host, origin.ctypes.data
    else:
        parameters.srcMemoryType, parameters.srcDevice = on_device, driver.CUdeviceptr(int(origin.open_handle()))
    if isinstance(target, Array):
        parameters.dstMemoryType, parameters.dstDevice = on_device, driver.CUdeviceptr(int(target.open_handle()))
    else:
        parameters.dstMemoryType, parameters.dstHost = host, target.ctypes.data
    parameters.WidthInBytes, parameters.Height, parameters.Depth = target.nbytes, 1, 1
    return parameters
