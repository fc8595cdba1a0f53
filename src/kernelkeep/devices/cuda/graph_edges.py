"""Edges of a graph that let a kernel start early (`early_start.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .early_start import WAITS_FIRST

if TYPE_CHECKING:
    from .device import CudaDevice
    from .prepared import CudaPrepared

_PROGRAMMATIC_PORT = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: the moment that all groups of a kernel have run so far


class EarlyEdges:
    """Adds such edges to a graph, as long as the driver takes them."""

    def __init__(self, device: CudaDevice) -> None:
        driver = device.driver
        self._success = device.success
        self._taken = hasattr(driver, "CUgraphEdgeData")
        self.added = False
        if not self._taken:  # bindings from before there were such edges
            return
        self._add = getattr(driver, "cuGraphAddDependencies_v2", driver.cuGraphAddDependencies)
        self._edge = driver.CUgraphEdgeData()
        self._edge.from_port = _PROGRAMMATIC_PORT
        self._edge.type = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)

    def allowed(self, before: CudaPrepared, prepared: CudaPrepared) -> bool:
        """Whether `prepared` may start before `before` has ended."""
        if not self._taken or before.options.cooperative or prepared.options.cooperative:
            return False
        return WAITS_FIRST in prepared.kernel.program.compiled.numbers

    def add(self, graph: Any, before: Any, node: Any) -> bool:
        """Have `node` come after `before`; False, with nothing changed, if the driver refuses such an edge."""
        try:
            self._taken = self._add(graph, [before], [node], [self._edge], 1)[0] is self._success
        except (RuntimeError, TypeError):  # a driver from before there were such edges
            self._taken = False
        self.added |= self._taken
        return self._taken
