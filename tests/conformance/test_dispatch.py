"""Prepared launches and graphs on every backend, local memory on OpenCL, and the twin in plain Python on CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import DispatchTests, open_or_skip
from kernelkeep.testing.dispatch_parts.called_often import OFTEN, CalledOftenTests
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

    def test_what_is_called_often_launches_a_graph_until_it_is_updated(
        self, device: kk.Device, saxpy: kk.Kernel
    ) -> None:
        pytest.importorskip("kernelkeep._native", reason="kernelkeep._native was not built: there are no such graphs")
        x, y = self.ones_and_zeros(device)
        prepared: Any = saxpy.prepare(1, (x, y, 1.0, 64))
        seen = []
        for turn in range(3 * OFTEN):
            if turn == OFTEN:
                prepared.update("a", 2.0)
            seen.append(prepared.launches_graph)
            prepared()
        assert not any(seen[:16]) and all(seen[17:OFTEN]), "a graph once it was called often"
        assert not any(seen[OFTEN : OFTEN + 16]) and seen[-1], "a kernel after the update, and then a graph again"
        assert y.numpy()[0] == OFTEN + 2 * OFTEN * 2.0

    def test_cooperative_launches_stay_kernels(self, device: kk.Device, saxpy: kk.Kernel) -> None:
        pytest.importorskip("kernelkeep._native", reason="kernelkeep._native was not built: there are no such graphs")
        x, y = self.ones_and_zeros(device)
        prepared: Any = saxpy.prepare(1, (x, y, 1.0, 64), cooperative=True)
        for _ in range(OFTEN):
            prepared()
        assert not prepared.launches_graph and y.numpy()[0] == OFTEN

    def test_so_many_launches_have_a_graph_and_no_more(self, device: kk.Device, saxpy: kk.Kernel) -> None:
        pytest.importorskip("kernelkeep._native", reason="kernelkeep._native was not built: there are no such graphs")
        from kernelkeep.devices.cuda.launch_graph import MOST_GRAPHS

        x, y = self.ones_and_zeros(device)
        many: list[Any] = [saxpy.prepare(1, (x, y, 1.0, 64)) for _ in range(MOST_GRAPHS + 8)]
        for prepared in many:
            for _ in range(OFTEN):
                prepared()
        assert 0 < sum(prepared.launches_graph for prepared in many) <= MOST_GRAPHS
        assert y.numpy()[0] == len(many) * OFTEN


@pytest.mark.cuda
class TestCUDAInPlainPython(CalledOftenTests, RevokedTests, UpdateTests, PreparedTests):
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
