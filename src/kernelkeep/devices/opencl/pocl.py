"""How PoCL compiles: for which instructions, and work-groups so that the results are right.

PoCL runs the work-items of a group in a loop, and by default LLVM vectorises that loop (`loopvec`). LLVM 14, 15 and 20
miscompile `c[(3 * l) & 63]` where l is the local id: they read the elements 0, 3, 6, … as one strided access without
checking that 3 * l stays below 64. LLVM 22 is right. So the loop is not vectorised (`loops`) before LLVM 22, unless the user
has set a method. PoCL reads the environment variable when it first compiles.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

_METHOD = "POCL_WORK_GROUP_METHOD"
_FIRST_RIGHT_LLVM = 22
_BINARY_SIZES = 0x1165  # CL_PROGRAM_BINARY_SIZES
_MOST_DEVICES = 64  # of one program
_BITCODE = b"BC\xc0\xde"  # how LLVM's bitcode begins
_WITHOUT_AVX512 = (
    "znver1",
    "znver2",
    "znver3",
    "haswell",
    "broadwell",
    "skylake",
    "alderlake",
    "x86-64-v3",
)  # LLVM's names
_PLATFORM_LLVM = re.compile(r"\bLLVM (\d+)")


def is_pocl(platform: Any) -> bool:
    """Whether a platform of pyopencl's is PoCL."""
    return "portable computing language" in platform.name.lower()


def lacks_program(payload: bytes) -> bool:
    """Whether PoCL wrote a binary after its files had been removed: it has no bitcode, and PoCL crashes on loading it."""
    return _BITCODE not in payload


def finish_binary(cl: Any, program: Any) -> None:
    """Have PoCL compile and link what a program's binary will hold, while other Python threads run.

    It does that when the binary is first asked for, or its size. pyopencl would keep the interpreter's lock meanwhile, for a
    second with large kernels. An error comes again when the binary is read.
    """
    sizes = (ctypes.c_size_t * _MOST_DEVICES)()
    ask = ctypes.CDLL(
        cl._cl.__file__
    ).clGetProgramInfo  # pyopencl's own module leads to the loader that it is linked with
    ask(
        ctypes.c_void_p(program.int_ptr),
        ctypes.c_uint32(_BINARY_SIZES),
        ctypes.c_size_t(ctypes.sizeof(sizes)),
        sizes,
        None,
    )


def vectors_used(compiled_for: str, of_cpu: str) -> str:
    """The widest vector instructions that PoCL compiles to, where the CPU has `of_cpu`.

    `compiled_for` is LLVM's name of a CPU, like "znver3". An LLVM that is older than the CPU takes it for an earlier model.
    """
    return "avx2" if of_cpu == "avx512f" and compiled_for in _WITHOUT_AVX512 else of_cpu


def choose_method(platform_version: str) -> str:
    """Set the method unless the user has, and return it. `platform_version` is like "OpenCL 3.0 PoCL 3.0 …, LLVM 14.0.6, …"."""
    llvm = _PLATFORM_LLVM.search(platform_version)
    if llvm is None or int(llvm.group(1)) < _FIRST_RIGHT_LLVM:
        os.environ.setdefault(_METHOD, "loops")
    return os.environ.get(_METHOD, "loopvec")


def method_chosen() -> str:
    """The method before PoCL's version is known: the user's, else the one that is right with every LLVM."""
    return os.environ.get(_METHOD, "loops")
