"""Without the place for a cache that we know, a guest is refused in one sentence; an untried version is used, and logged."""

from __future__ import annotations

import pytest

from .conftest import Guest, needs
from .test_triton import ON as TRITON_ON
from .test_triton import PROGRAM as TRITON_PROGRAM

# What is tried with the library as it is, under a version that nobody tried, and then after a change of the library.
START = """
import logging, sys
import kernelkeep as kk

lines = []
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("kernelkeep").addHandler(Lines())
logging.getLogger("kernelkeep").setLevel("INFO")
"""
END = """
logged = [line for line in lines if "was not tried" in line]
assert len(logged) == 1 and " 99.1 " in logged[0], lines
change()
try:
    turn_on()
except kk.Unsupported as error:
    print(error)
"""
CASES = {
    "jax": (
        """
import jax
from jax._src import compilation_cache
jax.__version__ = "99.1"
from kernelkeep.guests.jax import turn_on
turn_on()
assert jax.jit(lambda x: x + 1)(1) == 2
def change():
    del compilation_cache._cache_initialized
""",
        "JAX 99.1 cannot use this cache (it has no jax._src.compilation_cache._cache_initialized); JAX 0.10, 0.11 can",
    ),
    "cupy": (
        """
import cupy
from cupy.cuda import compiler
cupy.__version__ = "99.1"
from kernelkeep.guests.cupy import turn_on
turn_on()
def change():
    del compiler._set_kernel_cache_backend
""",
        "CuPy 99.1 cannot use this cache (it has no cupy.cuda.compiler._set_kernel_cache_backend); CuPy 14.2 can",
    ),
    "cuda.core": (
        """
import cuda.core
cuda.core.__version__ = "99.1"
import importlib
import kernelkeep.guests.cuda_core as guest
with guest.KernelkeepProgramCache() as cache:
    cache["k"] = b"x"
    assert cache["k"] == b"x"
def change():
    class Other(cuda.core.utils.ProgramCacheResource):
        pass
    Other.__abstractmethods__ |= {"flush"}
    cuda.core.utils.ProgramCacheResource = Other
    importlib.reload(guest)
turn_on = lambda: guest.KernelkeepProgramCache()
""",
        "cuda.core 99.1 cannot use this cache (ProgramCacheResource wants a method flush); cuda.core 1.2 can",
    ),
    "pyopencl": (
        """
import pyopencl as cl
cl.VERSION_TEXT = "99.1"
import kernelkeep.guests.pyopencl as guest
context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
turn_on = lambda: guest.build(context, "__kernel void f() {}")
turn_on()
def change():
    cl.Program.build = lambda self, options: None
    guest.check.cache_clear()
""",
        "PyOpenCL 99.1 cannot use this cache (Program.build takes (self, options)); PyOpenCL 2026.1 can",
    ),
    "moderngl": (
        """
import moderngl
moderngl.__version__ = "99.1"
import kernelkeep.guests.moderngl as guest
turn_on = guest.turn_on
turn_on()
def change():
    del moderngl.Context.compute_shader
    guest.check.cache_clear()
""",
        "moderngl 99.1 cannot use this cache (it has no Context.compute_shader); moderngl 5.13 can",
    ),
    "torch": (
        """
import torch
from torch._inductor import remote_cache
torch.__version__ = "99.1"
from kernelkeep.guests.inductor import turn_on
turn_on()
def change():
    del remote_cache.RemoteAOTAutogradCache
    remote_cache.RemoteCacheBackend._put = lambda self, key, data, when: None
""",
        "torch.compile 99.1 cannot use this cache (RemoteCacheBackend._put takes (self, key, data, when); "
        "it has no torch._inductor.remote_cache.RemoteAOTAutogradCache); torch.compile 2.15 can",
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in CASES])
def test_another_place_is_refused_and_the_same_one_of_another_version_is_used(guest: Guest, name: str) -> None:
    program, refusal = CASES[name]
    assert guest.run(START + program + END) == refusal


WARNED = """
import warnings
warnings.simplefilter("always")
shown = []
warnings.showwarning = lambda message, category, *place: shown.append((category.__name__, str(message)))
"""
# Triton is turned on by a variable of the environment, so nothing that is wrong may end the program.
TRITON_ENDS = """
ours = [text for kind, text in shown if kind == "CacheWarning"]
print(len(ours), ours[0])
print(type(triton.runtime.cache.get_cache_manager("ab" * 32)).__name__)
"""


@needs("triton")
def test_another_place_in_triton_is_a_warning_and_triton_goes_on(guest: Guest) -> None:
    change = "import triton.runtime.cache\ntriton.runtime.cache.CacheManager.put_group = lambda self, group: None\n"
    said = guest.run(WARNED + change + TRITON_PROGRAM + TRITON_ENDS, "64", **TRITON_ON).splitlines()
    assert said == [
        "compiled",
        f"1 Triton {_version('triton')} cannot use this cache (CacheManager.put_group takes (self, group)); Triton 3.6, 3.9 can; "
        "Triton uses a cache of its own",
        "FileCacheManager",
    ]
    assert not guest.entries()


@needs("triton")
def test_settings_that_are_wrong_are_a_warning_and_triton_goes_on(guest: Guest) -> None:
    remote = {"KERNELKEEP_REMOTE": "redis://127.0.0.1:1/0"}  # and no key that is trusted
    said = guest.run(WARNED + TRITON_PROGRAM + TRITON_ENDS, "64", **TRITON_ON, **remote).splitlines()
    assert said[0] == "compiled"
    assert said[1].startswith("1 remote redis://127.0.0.1:1/0: signing_key must be given")
    assert said[1].endswith("Triton uses a cache of its own")


@needs("triton")
def test_a_version_of_triton_that_nobody_tried_is_used(guest: Guest) -> None:
    change = "import triton\ntriton.__version__ = '99.1'\n"
    shows = "print([line for line in lines if 'not tried' in line][0].partition(': ')[2])\n"
    said = guest.run(START + change + TRITON_PROGRAM + shows, "64", **TRITON_ON).splitlines()
    assert said == [
        "compiled",
        "Triton: version 99.1 was not tried with this cache, and has the same place as 3.6, 3.9",
    ]
    assert len(guest.entries()) == 1


def _version(distribution: str) -> str:
    from importlib.metadata import version

    return version(distribution)
