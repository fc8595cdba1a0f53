"""Importing kernelkeep costs next to nothing."""

from __future__ import annotations

from kernelkeep.testing import run_python


def loaded_by(statement: str) -> set[str]:
    return set(run_python(f"{statement}\nimport sys\nprint(*sys.modules)").stdout.split())


def test_import_loads_no_library() -> None:
    heavy = {"numpy", "pyopencl", "cuda", "msgspec", "OpenGL", "moderngl", "glcontext", "dataclasses", "asyncio"}
    assert not heavy & (loaded_by("import kernelkeep") - loaded_by("pass"))


def test_a_source_needs_no_gpu_library() -> None:
    loaded = loaded_by("import kernelkeep as kk; kk.Source('text').headers; kk.PortableKernel('f', [], '')")
    assert not {"numpy", "pyopencl", "cuda", "OpenGL"} & loaded


def test_a_library_that_is_not_installed_is_a_backend_without_devices() -> None:
    script = """
import sys
for name in ("pyopencl", "cuda", "cuda.bindings"):
    sys.modules[name] = None
import kernelkeep as kk
assert {info.backend for info in kk.list_devices()} <= {"opengl"}, kk.list_devices()
for spec in ("cuda", "opencl", "cuda:0", "opencl:0"):
    try:
        kk.open_device(spec)
    except kk.DeviceError as error:
        print(error)
"""
    lines = run_python(script).stdout.splitlines()
    assert len(lines) == 4
    for extra, line in zip(("cuda", "opencl") * 2, lines, strict=True):
        assert f"kernelkeep[{extra}]" in line
