"""Prepared launches and graphs on every backend, local memory on OpenCL, and the twin in plain Python on CUDA."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import DispatchTests, open_or_skip
from kernelkeep.testing.dispatch_parts.prepared import PreparedTests
from kernelkeep.testing.dispatch_parts.revoked import RevokedTests
from kernelkeep.testing.dispatch_parts.updates import UpdateTests

TURN = """extern "C" __global__ void turn(int* y) {
    extern __shared__ int part[];
    int l = threadIdx.x, last = blockDim.x - 1;
    part[last - l] = y[blockIdx.x * blockDim.x + l];
    __syncthreads();
    y[blockIdx.x * blockDim.x + l] = part[l];
}
"""


@pytest.mark.opencl
class TestOpenCL(DispatchTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(DispatchTests):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(DispatchTests):
    backend = "cuda"
    turn_in_shared_memory = kk.Source(TURN, name="turn", language="cuda")

    def test_a_call_runs_no_python_where_the_module_in_c_was_built(self, device: kk.Device, saxpy: kk.Kernel) -> None:
        native = pytest.importorskip(
            "kernelkeep._native", reason="kernelkeep._native was not built: calls go through Python"
        )
        x, y = self.ones_and_zeros(device)
        assert isinstance(saxpy.prepare(1, (x, y, 1.0, 64)), native.BoundCall)


@pytest.mark.cuda
class TestCUDAInPlainPython(RevokedTests, UpdateTests, PreparedTests):
    """The twin that is used where the module in C was not built."""

    backend = "cuda"
    turn_in_shared_memory = kk.Source(TURN, name="turn", language="cuda")

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def plain(cls) -> Iterator[None]:
        """KERNELKEEP_NATIVE=0, read anew."""
        from kernelkeep.devices.cuda.native import launch_addresses
        from kernelkeep.devices.cuda.prepared import _native_prepared

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERNELKEEP_NATIVE", "0")
            _native_prepared.cache_clear()
            launch_addresses.cache_clear()
            yield
        _native_prepared.cache_clear()
        launch_addresses.cache_clear()

    def test_the_plain_implementation_is_used(self, device: kk.Device, saxpy: kk.Kernel) -> None:
        from kernelkeep.devices.cuda.prepared import PlainPrepared

        x, y = self.ones_and_zeros(device)
        assert type(saxpy.prepare(1, (x, y, 1.0, 64))) is PlainPrepared


ROTATE = """__kernel void rotate_group(__global int* x, __local int* tile) {
    int l = get_local_id(0);
    tile[l] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = tile[(l + 1) % get_local_size(0)];
}"""


@pytest.mark.opencl
def test_local_memory_stays_bound() -> None:
    with open_or_skip("opencl") as device:
        kernel = device.load(device.compile(kk.Source(ROTATE, name="local"))).kernel()
        x = device.array(np.arange(16, dtype="i4"))
        prepared = kernel.prepare(2, (x, kk.LocalMemory(8 * 4)), 8)
        prepared()
        prepared.update("tile", kk.LocalMemory(64 * 4))
        prepared()
        assert x.numpy().tolist() == [*range(2, 8), 0, 1, *range(10, 16), 8, 9]
        with pytest.raises(kk.ArgumentError, match="LocalMemory"):
            prepared.update(1, 32)
