"""What graphs of prepared launches share: the parameters of a node, and their end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .prepared import CudaPrepared

_destroying = threading.Lock()


def node_parameters(prepared: CudaPrepared) -> Any:
    """The parameters of a launch's node. The driver copies the arguments out of them."""
    kernel = prepared.kernel
    parameters = kernel.device.driver.CUDA_KERNEL_NODE_PARAMS()
    parameters.func = kernel.program.load_kernel(kernel.cu_kernel, kernel.name)
    (
        parameters.gridDimX,
        parameters.gridDimY,
        parameters.gridDimZ,
        parameters.blockDimX,
        parameters.blockDimY,
        parameters.blockDimZ,
    ) = prepared.shape
    parameters.sharedMemBytes = prepared.options.shared_bytes
    parameters.kernelParams = prepared.pointers
    return parameters


def destroy_graph(driver: Any, executable: Any, graph: Any) -> None:
    """Destroy a graph and what was made of it, one after the other: the driver leaves it to the caller that no two threads do."""
    with _destroying:
        if executable is not None:
            driver.cuGraphExecDestroy(executable)
        if graph is not None:
            driver.cuGraphDestroy(graph)
