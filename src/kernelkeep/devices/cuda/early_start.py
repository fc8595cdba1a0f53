"""Kernels that may be started before the kernel in front of them in a graph has ended (programmatic dependent launch).

A node of a graph costs less if the next kernel's groups are set up while the last ones of this kernel still run. That is safe if
the next kernel touches memory only after `griddepcontrol.wait`, which waits for the end of the kernel in front of it and for all
it has written. Portable kernels are compiled with that instruction first, for architectures that have it. A compiler might move
a load in front of it, so the machine code is looked at: only what `waits_first` confirms gets such an edge.
"""

from __future__ import annotations

import re

from .cubin import machine_codes

WAITS_FIRST = "waits_first"  # among the numbers of a binary: `waits_first` confirmed its kernels
_FIRST_ARCHITECTURE = 90
# If this kernel has few groups, the next one may be set up as soon as all of them run; else as they end. On an H200 a node
# with few took 0.77 of its time. With 4,096, which do not run all at once, it took 1.55 times as long, and outside of graphs
# 1.45 times. Then this kernel waits for the one in front of it.
_FEW_GROUPS = 132
_SET_UP_NEXT = (
    f' asm volatile("{{ .reg .pred p; setp.le.u32 p, %0, {_FEW_GROUPS}; @p griddepcontrol.launch_dependents; }}"'
    ' :: "r"(gridDim.x * gridDim.y * gridDim.z) : "memory");'
)
_WAIT = ' asm volatile("griddepcontrol.wait;" ::: "memory");'
# Groups with shared memory work long as a rule. The next kernel's groups would be set up two by two on the processors that are
# left, and work there while others have nothing to do: matrix products of 72 to 124 groups took 1.4 times as long.
_LONG = "__shared__"
_HEAD = re.compile(r'(extern "C" __global__ void __launch_bounds__\(\d+\)\n\w+\([^{};]*\) \{)$', re.MULTILINE)

# Machine code: an instruction has 16 bytes. Its lowest 9 bits tell what it does, the next 3 where its operands are.
_ACQBULK = 0x02E  # griddepcontrol.wait
_ALWAYS = 7  # the predicate of an instruction that is not conditional
# What works on registers and constants alone, where a kernel's arguments are too. Anything else in front of the wait, such as a
# load or a branch, means: not confirmed.
_HARMLESS = {
    0x02D,  # PREEXIT: griddepcontrol.launch_dependents
    0x182, 0x0B9, 0x1AC,  # LDC, ULDC, LDCU
    0x119, 0x1C3, 0x005, 0x1C2,  # S2R, S2UR, CS2R, R2UR
    0x002, 0x082, 0x031, 0x035, 0x007,  # MOV, UMOV, HFMA2 (of constants), SEL
    0x00C, 0x08C, 0x010, 0x090, 0x024, 0x025, 0x0A4, 0x0A5,  # ISETP, UISETP, IADD3, UIADD3, IMAD, UIMAD
    0x011, 0x091, 0x012, 0x092, 0x019, 0x099,  # LEA, ULEA, LOP3, ULOP3, SHF, USHF
    0x118,  # NOP
}  # fmt: skip


def with_early_start(text: str, architecture: str) -> str:
    """The text of a portable kernel with the prologue, on the same lines; unchanged for older architectures."""
    number = re.match(r"sm_(\d+)", architecture)
    if number is None or int(number[1]) < _FIRST_ARCHITECTURE:
        return text
    prologue = _WAIT if _LONG in text else _SET_UP_NEXT + _WAIT
    return _HEAD.sub(lambda head: head[1] + prologue, text, count=1)


def waits_first(cubin: bytes) -> bool:
    """Whether each kernel of a cubin waits for the kernel in front of it before it touches memory."""
    codes = machine_codes(cubin)
    return bool(codes) and all(map(_code_waits_first, codes))


def _code_waits_first(code: bytes) -> bool:
    for at in range(0, len(code) - 15, 16):
        word = code[at] | code[at + 1] << 8
        if word & 0x1FF == _ACQBULK:
            return word >> 12 == _ALWAYS
        if word & 0x1FF not in _HARMLESS:
            return False
    return False
