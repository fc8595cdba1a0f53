"""CuPy's kernels. NVRTC compiles for a GPU that need not be here; what CuPy hands to the driver is looked at instead of run."""

from __future__ import annotations

import pytest

from kernelkeep.testing import skip_backend

from .conftest import Guest, needs

pytestmark = needs("cupy")

# CuPy asks the device which code NVRTC can make for it, and loads the code: both need a GPU.
PROGRAM = """
import sys
from cupy.cuda import compiler
import kernelkeep.guests.cupy as guest

guest.turn_on()
compiled, given = [], []
real = compiler._compile_using_nvrtc_no_warning
def compile(*args):
    compiled.append(1)
    return real(*args)
class Module:
    def load(self, code):
        given.append(code)
    def _set_mapping(self, mapping):
        self.mapping = mapping
class Function:
    Module = Module
compiler._compile_using_nvrtc_no_warning = compile
compiler._get_arch_for_options_for_nvrtc = lambda arch=None: (f"-arch=sm_{arch}", "cubin")
compiler.function = Function
source = "template <typename T> __global__ void scale(T* y) { y[threadIdx.x] *= %s; }" % sys.argv[1]
module = compiler._compile_with_cache_cuda(source, (), "90", name_expressions=["scale<float>"])
assert given[0][:4] == b"\\x7fELF" and module.mapping == {"scale<float>": "_Z5scaleIfEvPT_"}, module.mapping
print("compiled" if compiled else "found")
"""


def test_the_next_process_finds_it(guest: Guest) -> None:
    assert guest.run(PROGRAM, "2.0f") == "compiled"
    assert guest.run(PROGRAM, "2.0f") == "found"
    assert guest.run(PROGRAM, "3.0f") == "compiled"
    fields = [stored.facts.key.fields for stored in guest.entries() if stored.facts is not None]
    assert [one["kernel"] for one in fields] == ["scale", "scale"]
    assert not list((guest.folder / "cupy_cache_dir").rglob("*.cubin"))  # CuPy's own folder is not used


def test_processes_that_start_together_compile_once(guest: Guest) -> None:
    children = [guest.start(PROGRAM, "4.0f") for _ in range(4)]
    said = [child.communicate(timeout=300)[0].strip() for child in children]
    assert sorted(said) == ["compiled", "found", "found", "found"]


def test_a_damaged_entry_is_compiled_again(guest: Guest) -> None:
    guest.run(PROGRAM, "2.0f")
    guest.flip(0.9)
    assert guest.run(PROGRAM, "2.0f") == "compiled"


def test_a_mistake_in_a_source_is_told_and_the_next_lookup_gives_its_turn_back(guest: Guest) -> None:
    mistake = """
try:
    compiler._compile_with_cache_cuda("a mistake", (), "90")
    print("no error")
except compiler.CompileException:
    pass
source ="""
    assert guest.run(PROGRAM.replace("source =", mistake, 1), "2.0f") == "compiled"


ON_A_GPU = """
import sys
import cupy
from cupy.cuda import compiler
import kernelkeep.guests.cupy as guest

guest.turn_on()
compiled = []
real = compiler._compile_using_nvrtc_no_warning
def compile(*args):
    compiled.append(1)
    return real(*args)
compiler._compile_using_nvrtc_no_warning = compile
scale = cupy.RawKernel('extern "C" __global__ void scale(float* y) { y[threadIdx.x] *= 3.0f; }', "scale")
y = cupy.arange(64, dtype="f4")
scale((1,), (64,), (y,))
assert (y.get() == [3.0 * i for i in range(64)]).all()
assert float((y + 1).sum()) == sum(3.0 * i + 1 for i in range(64))  # kernels of CuPy itself
print("compiled" if compiled else "found")
"""


@pytest.mark.cuda
def test_the_next_process_finds_it_on_a_gpu(guest: Guest) -> None:
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        skip_backend("cupy on a GPU", str(error))
    assert guest.run(ON_A_GPU) == "compiled"
    assert guest.run(ON_A_GPU) == "found"
