"""Names that mean something in CUDA C, OpenCL C or GLSL, and would break a parameter there only.

Built-in functions are not among them: a parameter `step` or `min` hides the function, in all three.
"""

from __future__ import annotations

import re

__all__ = ["is_reserved"]

_WORDS = frozenset(
    # C, C++ and what CUDA adds
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double
    dynamic_cast else enum explicit export extern false float for friend goto if inline int long main mutable namespace new
    noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return
    short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    NULL threadIdx blockIdx blockDim gridDim warpSize"""
    # OpenCL C, and the functions and macros that it or the lowered text needs
    """ HUGE_VAL HUGE_VALF INFINITY MAXFLOAT NAN get_global_id get_global_size get_group_id get_local_id get_local_size
    get_num_groups complex constant event_t generic global half imaginary kernel local pipe quad read_only read_write
    sampler_t size_t intptr_t uintptr_t ptrdiff_t uchar uint ulong ushort write_only"""
    # GLSL, with what it keeps for later
    """ active atomic_uint attribute buffer cast centroid coherent column_major common discard external filter fixed flat
    highp in inout input interface invariant layout lowp mediump noinline noperspective out output packed partition patch
    precise precision readonly resource row_major sample shared smooth subroutine superp uniform varying
    writeonly""".split()
)
_FAMILIES = re.compile(
    r"(?:[bdfhiu]?vec|d?mat)[234](?:x[234])?\Z"
    r"|[iu]?(?:sampler|image)[123]?D\w*\Z|[iu]?(?:sampler|image)(?:Buffer|Cube\w*)\Z|image[123]d_\w+\Z"
    r"|M_(?:E|PI|LN|LOG|SQRT|[12]_)\w*\Z|(?:U?(?:CHAR|SHRT|INT|LONG)|FLT|DBL|HALF|CL|CLK)_[A-Z0-9_]+\Z"
    r"|kk_|gl_|__"
)


def is_reserved(name: str) -> bool:
    """Whether no parameter can have this name on every backend."""
    return name in _WORDS or _FAMILIES.match(name) is not None
