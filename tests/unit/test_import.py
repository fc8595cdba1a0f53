"""Importing kernelkeep costs next to nothing."""

from __future__ import annotations

from kernelkeep.testing import run_python


def loaded_by(statement: str) -> set[str]:
    return set(run_python(f"{statement}\nimport sys\nprint(*sys.modules)").stdout.split())


def test_import_loads_no_library() -> None:
    heavy = set(
        "numpy pyopencl cuda msgspec OpenGL moderngl glcontext dataclasses asyncio sqlite3 jinja2 matplotlib".split()
    )
    assert not heavy & (loaded_by("import kernelkeep") - loaded_by("pass"))


def test_a_free_threaded_python_before_3_14_is_refused() -> None:
    script = """
import sys
sys.version, sys.version_info = "3.13.0 experimental free-threading build", (3, 13, 0)
try:
    import kernelkeep
except ImportError as error:
    print(error)
"""
    assert "needs Python 3.14 or newer" in run_python(script).stdout


def test_a_source_needs_no_gpu_library() -> None:
    loaded = loaded_by("import kernelkeep as kk; kk.Source('text').headers; kk.PortableKernel('f', [], '')")
    assert not {"numpy", "pyopencl", "cuda", "OpenGL", "wgpu"} & loaded


def test_kernels_and_templates_load_what_they_need_when_they_need_it() -> None:
    kernels = loaded_by("from kernelkeep.kernels import conv2d, gemm; assert callable(gemm) and callable(conv2d)")
    assert not {"numpy", "sqlite3", "jinja2", "matplotlib", "pyopencl", "cuda"} & kernels
    statement = """import kernelkeep as kk
template = kk.Template("y[0] = {{ A }};", [kk.Buffer("y", "f4")], arrays={"y": 1})
kk.Tuned("f", template, kk.VariantSpace(A=[1, 2])).space.default()"""
    assert not {"jinja2", "matplotlib", "pyopencl", "cuda", "subprocess"} & loaded_by(statement)


def test_a_library_that_is_not_installed_is_a_backend_without_devices() -> None:
    script = """
import sys
for name in ("pyopencl", "cuda", "cuda.bindings", "wgpu"):
    sys.modules[name] = None
import kernelkeep as kk
assert {info.backend for info in kk.list_devices()} <= {"opengl", "reference"}, kk.list_devices()
for spec in ("cuda", "opencl", "webgpu", "cuda:0", "opencl:0", "webgpu:0"):
    try:
        kk.open_device(spec)
    except kk.DeviceError as error:
        print(error)
"""
    lines = run_python(script).stdout.splitlines()
    assert len(lines) == 6
    for extra, line in zip(("cuda", "opencl", "webgpu") * 2, lines, strict=True):
        assert f"[{extra}]'" in line
