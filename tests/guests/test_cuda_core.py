"""cuda.core's compiled programs in our cache, with `Program.compile(cache=…)`: NVRTC needs no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Guest, needs

pytestmark = needs("cuda.core")

PROGRAM = """
import sys
import cuda.core._program as program
from cuda.core import Program, ProgramOptions
from kernelkeep.guests.cuda_core import KernelkeepProgramCache

compiled = []
real = program._program_compile_uncached
def compile(*args, **settings):
    compiled.append(1)
    return real(*args, **settings)
program._program_compile_uncached = compile
source = 'extern "C" __global__ void scale(float* y) { y[threadIdx.x] *= %s; }' % sys.argv[1]
with KernelkeepProgramCache() as cache:
    code = Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=cache)
    assert bytes(code.code)[:4] == b"\\x7fELF"
print("compiled" if compiled else "found")
"""


def test_the_next_process_finds_it(guest: Guest) -> None:
    assert guest.run(PROGRAM, "2.0f") == "compiled"
    assert guest.run(PROGRAM, "2.0f") == "found"
    assert guest.run(PROGRAM, "3.0f") == "compiled"


def test_processes_that_start_together_compile_once(guest: Guest) -> None:
    children = [guest.start(PROGRAM, "4.0f") for _ in range(4)]
    said = [child.communicate(timeout=300)[0].strip() for child in children]
    assert sorted(said) == ["compiled", "found", "found", "found"]


def test_a_damaged_entry_is_compiled_again(guest: Guest) -> None:
    guest.run(PROGRAM, "2.0f")
    guest.flip(0.9)
    assert guest.run(PROGRAM, "2.0f") == "compiled"


def test_it_is_a_mapping_of_bytes(tmp_path: Path) -> None:
    from kernelkeep.guests.cuda_core import KernelkeepProgramCache

    with KernelkeepProgramCache(tmp_path / "cache") as cache:
        cache["k"] = b"one"
        cache[b"k"] = bytearray(b"two")
        assert cache[b"k"] == cache["k"] == b"two" and len(cache) == 1
        assert cache.get("other") is None and cache.get("other", b"-") == b"-"
        cache.update({"a": b"1", "b": memoryview(b"2")})
        assert len(cache) == 3
        del cache["a"]
        with pytest.raises(KeyError):
            del cache["a"]
        with pytest.raises(TypeError, match="keys must be bytes or str"):
            cache[5] = b"x"
        with pytest.raises(TypeError, match="values must be bytes-like or ObjectCode"):
            cache["x"] = 5
        cache.clear()
        assert len(cache) == 0
