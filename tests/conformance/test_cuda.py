"""The conformance suite on CUDA, and what works without a GPU: compiling."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices import cuda
from kernelkeep.devices.binary import Binary
from kernelkeep.devices.cuda.code_loading import load_function
from kernelkeep.testing import DeviceTests

pytestmark = pytest.mark.cuda

SAXPY = """extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


class Guest:
    """Somebody else's view of an array: nothing but DLPack."""

    def __init__(self, array: kk.Array) -> None:
        self._array = array

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class TestCUDA(DeviceTests):
    backend = "cuda"

    def test_views_are_shared_where_they_begin(self, device: kk.Device) -> None:
        whole = device.array(np.arange(16, dtype="f4"))
        view = whole[3:9]
        interface = view.__cuda_array_interface__
        assert interface["shape"] == (6,)
        assert interface["data"][0] == whole.__cuda_array_interface__["data"][0] + 12
        guest = device.array(Guest(view))
        part = guest[1:]  # a view of another library's array
        part.fill(-1)
        del guest, view
        np.testing.assert_array_equal(whole.numpy(), [0, 1, 2, 3, -1, -1, -1, -1, -1, 9, 10, 11, 12, 13, 14, 15])
        whole.close()
        gc.collect()
        np.testing.assert_array_equal(part.numpy(), [-1] * 5)

    def test_code_is_loaded_late_from_bytes_that_stay(self, device: kk.Device) -> None:
        """The driver makes no copy of a binary: nothing else may come to lie there before the first launch, nor after it."""
        binaries = [device.compile(source(SAXPY.replace("a * x[i]", f"(a + {i}) * x[i]"))) for i in range(8)]
        kernels = [device.load(bytes(bytearray(binary)), eager=False).kernel() for binary in binaries]
        sizes = [len(binary) for binary in binaries]
        del binaries
        gc.collect()
        rubbish = [bytes([255]) * (size + more) for size in sizes for more in range(-64, 64, 8) for _ in range(20)]
        x = device.array(np.ones(64, "f4"))
        for i, kernel in enumerate(kernels):
            y = device.zeros(64)
            for _ in range(2):
                kernel.launch(1, (x, y, np.float32(1), np.int32(64)), 64)
            np.testing.assert_array_equal(y.numpy(), np.full(64, 2 * (1 + i), "f4"))
        assert len(rubbish) == 8 * 16 * 20

    def test_a_library_outlives_its_program_with_its_bytes(self, device: kk.Device) -> None:
        """As where a program is collected while a launch, or a postponed unload, still has its library."""
        binary = device.compile(source(SAXPY.replace("a * x[i]", "(a + 7) * x[i]")))
        size = len(binary)
        program: Any = device.load(bytes(bytearray(binary)), eager=False)
        library, (kernel,) = program.hold(), program.find_kernels()
        del program, binary
        gc.collect()
        rubbish = [bytes([255]) * (size + more) for more in range(-2048, 64, 8) for _ in range(20)]
        function = load_function(device, kernel, "saxpy", "saxpy")  # type: ignore[arg-type]
        x, y = device.array(np.ones(64, "f4")), device.zeros(64)
        values = (ctypes.c_uint64(int(x.handle)), ctypes.c_uint64(int(y.handle)), ctypes.c_float(1), ctypes.c_int(64))
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        cuda_device: Any = device
        with cuda_device.current:
            launch, where = cuda_device.driver.cuLaunchKernel, ctypes.addressof(pointers)
            (status,) = launch(function, 1, 1, 1, 64, 1, 1, 0, cuda_device.cu_stream, where, 0)
        assert status == cuda_device.success
        np.testing.assert_array_equal(y.numpy(), np.full(64, 8, "f4"))
        del library
        device.synchronize()  # unloads
        assert rubbish

    def test_a_prepared_launch_needs_nobody_to_hold_its_program(self, device: kk.Device) -> None:
        binary = device.compile(source(SAXPY.replace("a * x[i]", "(a + 8) * x[i]")))
        size = len(binary)
        x, y = device.array(np.ones(64, "f4")), device.zeros(64)
        kernel = device.load(bytes(bytearray(binary)), eager=False).kernel()
        launch = kernel.prepare(1, (x, y, np.float32(1), np.int32(64)), 64)
        del kernel, binary
        gc.collect()
        rubbish = [bytes([255]) * (size + more) for more in range(-2048, 64, 8) for _ in range(20)]
        for _ in range(40):  # by the end it is a graph
            launch()
        np.testing.assert_array_equal(y.numpy(), np.full(64, 9 * 40, "f4"))
        assert rubbish


def source(text: str = SAXPY, **fields: object) -> kk.Source:
    return kk.Source(text, name="saxpy", language="cuda", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_compiling_needs_no_gpu(architecture: str) -> None:
    image = Binary.decode(cuda.compile_for(source(), architecture), "cuda")
    assert (image.form, image.name) == ("cubin", "saxpy")
    assert image.payload.startswith(b"\x7fELF")
    (signature,) = image.kernels
    assert signature.name == "saxpy"
    assert [(p.name, p.kind, p.dtype) for p in signature.params or ()] == [
        ("x", "buffer", "f4"),
        ("y", "buffer", "f4"),
        ("a", "scalar", "f4"),
        ("n", "scalar", "i4"),
    ]


def test_architectures_give_different_binaries() -> None:
    assert cuda.compile_for(source(), "sm_80") != cuda.compile_for(source(), "sm_90")


def test_portable_kernels_compile_without_a_gpu() -> None:
    class Target:
        language = "cuda"
        capabilities = kk.Capabilities(float_atomics=True, float64=True, int64=True, int8=True)

    kernel = kk.PortableKernel(
        "everything",
        params=[kk.Buffer("x", "f4"), kk.Buffer("c", "i4"), kk.Buffer("d", "f8"), kk.Scalar("n", "i8")],
        body="""kk_shared(float, tile, 8, 9);
                int i = kk_global_id(0);
                tile[kk_local_id(0)][0] = x[i];
                kk_barrier();
                kk_atomic_add(x[0], 1.0f); kk_atomic_sub(x[0], 1.0f); kk_atomic_min(x[0], 1.0f);
                kk_atomic_max(x[0], 1.0f); kk_atomic_exchange(x[0], 1.0f);
                kk_atomic_add(c[0], 1); kk_atomic_cas(c[0], 1, 2); kk_atomic_xor(c[0], 3);
                d[i] = kk_double(i) + sqrt(fabs(x[i])) + rsqrt(2.0f) + kk_float(n);""",
        group=8,
    )
    image = Binary.decode(cuda.compile_for(kernel.source(Target()), "sm_90"), "cuda")
    (signature,) = image.kernels
    assert (signature.name, signature.group) == ("everything", (8, 1, 1))
    declared = [(p.name, p.kind, p.dtype, p.access) for p in kernel.signature.params or ()]
    assert [(p.name, p.kind, p.dtype, p.access) for p in signature.params or ()] == declared
    assert [(p.slot, p.nbytes) for p in signature.params or ()] == [(0, 8), (8, 8), (16, 8), (24, 8)]


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(kk.CompileError, match="saxpy, line 3") as caught:
        cuda.compile_for(source(SAXPY.replace("a * x[i]", "no_such_thing * x[i]"), defines={"A": 1}), "sm_90")
    assert caught.value.line == 3
    assert "no_such_thing" in caught.value.log


def test_the_toolkits_headers_are_found_without_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#define SCALE 2\nthis is wrong\n")
    text = '#include "scale.h"\n' + SAXPY
    with pytest.raises(kk.CompileError):
        cuda.compile_for(source(text, include_dirs=(tmp_path,)), "sm_90")
    (tmp_path / "scale.h").write_text("#define SCALE 2\n")
    assert cuda.compile_for(source(text, include_dirs=(tmp_path,)), "sm_90")


@pytest.mark.parametrize("architecture", ["sm_1", "90", "", "sm_banana"])
def test_compile_for_rejects_an_unknown_architecture(architecture: str) -> None:
    with pytest.raises((kk.ArgumentError, kk.Unsupported, kk.CompileError)):
        cuda.compile_for(source(), architecture)


def test_opening_a_device_that_is_not_there() -> None:
    if any(info.backend == "cuda" for info in kk.list_devices()):
        pytest.skip("there is a CUDA device here")
    for spec in ("cuda", "cuda:0"):
        with pytest.raises(kk.DeviceError) as caught:
            kk.open_device(spec)
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert "CUDA" in sentence or "NVIDIA" in sentence
