"""GLSL 4.30 compute shaders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from ...errors import ArgumentError
from .base import NO_DEVICE_CLOCK, Language, macros_behind

if TYPE_CHECKING:
    from ..lowering import KernelParts
    from ..source import Source

_VERSION = re.compile(r"\A(?:[ \t]*(?://[^\n]*)?\n)*[ \t]*#[ \t]*version[^\n]*\n")
_TYPES = {"i4": "int", "u4": "uint", "i8": "int64_t", "u8": "uint64_t", "f4": "float", "f8": "double"}
_PRELUDE = """\
#define kk_global_id(d) int(gl_GlobalInvocationID[d])
#define kk_local_id(d) int(gl_LocalInvocationID[d])
#define kk_group_id(d) int(gl_WorkGroupID[d])
#define kk_group_size(d) int(gl_WorkGroupSize[d])
#define kk_group_count(d) int(gl_NumWorkGroups[d])
#define kk_global_size(d) (kk_group_size(d) * kk_group_count(d))
#define kk_barrier() { memoryBarrierShared(); memoryBarrierBuffer(); barrier(); }
#define kk_fence() memoryBarrierBuffer()
#define kk_int(v) int(v)
#define kk_uint(v) uint(v)
#define kk_float(v) float(v)
#define kk_double(v) double(v)
#define kk_atomic_add(x, v) atomicAdd(x, v)
#define kk_atomic_sub(x, v) atomicAdd(x, -(v))
#define kk_atomic_min(x, v) atomicMin(x, v)
#define kk_atomic_max(x, v) atomicMax(x, v)
#define kk_atomic_and(x, v) atomicAnd(x, v)
#define kk_atomic_or(x, v) atomicOr(x, v)
#define kk_atomic_xor(x, v) atomicXor(x, v)
#define kk_atomic_exchange(x, v) atomicExchange(x, v)
#define kk_atomic_cas(x, e, v) atomicCompSwap(x, e, v)
#define fabs(x) abs(x)
#define fabsf(x) abs(x)
#define fmin(a, b) min(a, b)
#define fmax(a, b) max(a, b)
#define fminf(a, b) min(a, b)
#define fmaxf(a, b) max(a, b)
#define fmaf(a, b, c) fma(a, b, c)
#define sqrtf(x) sqrt(x)
#define expf(x) exp(x)
#define logf(x) log(x)
#define powf(a, b) pow(a, b)
#define sinf(x) sin(x)
#define cosf(x) cos(x)
#define tanhf(x) tanh(x)
#define floorf(x) floor(x)
#define rsqrt(x) inversesqrt(x)
"""


class _Glsl(Language):
    name = "glsl"
    title = "GLSL"
    suffixes = (".comp", ".glsl")

    source_names_kernel = True  # the only entry point is `main`
    fixes_group = True
    has_options = False
    handwritten_kernel = """\
#version 430
{before}layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer X {{ {kind} x[]; }};
layout(std430, binding = 1) buffer Y {{ {kind} y[]; }};
layout(location = 0) uniform {kind} a;
layout(location = 1) uniform int n;
void main() {{
int i = int(gl_GlobalInvocationID.x);
{statement}
}}
"""

    def line_marker(self, line: int, file: str) -> str:
        return f"#line {line}"  # GLSL 4.30 takes a number only

    def with_macros(self, text: str, macros: Mapping[str, str]) -> str:
        version = _VERSION.match(text)  # nothing but comments may stand before it
        return super().with_macros(text, macros) if version is None else macros_behind(version.group(), text, macros)

    types = _TYPES
    integer_only_atomics = Language.integer_only_atomics | {"min", "max"}
    vector_helpers = """\
#define kk_unroll
#define kk_float4 vec4
#define kk_make_float4(a, b, c, d) vec4(a, b, c, d)
#define kk_load4(array, i) vec4(array[i], array[(i) + 1], array[(i) + 2], array[(i) + 3])
#define kk_store4(array, i, v) { vec4 kk_v = v; int kk_i = i; \
array[kk_i] = kk_v.x; array[kk_i + 1] = kk_v.y; array[kk_i + 2] = kk_v.z; array[kk_i + 3] = kk_v.w; }
"""
    # GLSL passes no array to a function, so the index waits in a variable of the work-item. The value to store is taken
    # first: it may be loaded itself, and so need that variable.
    helper_functions: ClassVar[Mapping[str, str]] = {
        "kk_global_size": "int kk_global_size(int d) { return kk_group_size(d) * kk_group_count(d); }\n",
        "kk_barrier": "void kk_barrier() { memoryBarrierShared(); memoryBarrierBuffer(); barrier(); }\n",
        "kk_load4": """\
int kk_load_at;
#define kk_load4(array, i) (kk_load_at = int(i), \
vec4(array[kk_load_at], array[kk_load_at + 1], array[kk_load_at + 2], array[kk_load_at + 3]))
""",
        "kk_store4": """\
int kk_store_at;
vec4 kk_stored;
#define kk_store4(array, i, v) (kk_stored = (v), kk_store_at = int(i), \
array[kk_store_at] = kk_stored.x, array[kk_store_at + 1] = kk_stored.y, \
array[kk_store_at + 2] = kk_stored.z, array[kk_store_at + 3] = kk_stored.w)
""",
    }
    block_helpers = frozenset(("kk_store4", "kk_barrier"))
    # What GLSL adds to C, and what it keeps for later.
    reserved_words = frozenset(
        """active atomic_uint attribute buffer cast centroid coherent column_major common discard external filter fixed flat
        highp in inout input interface invariant layout lowp mediump noinline noperspective out output packed partition patch
        precise precision readonly resource row_major sample shared smooth subroutine superp uniform varying
        writeonly""".split()
    )
    reserved_names = re.compile(
        r"(?:[bdfhiu]?vec|d?mat)[234](?:x[234])?\Z"
        r"|[iu]?(?:sampler|image)[123]?D\w*\Z|[iu]?(?:sampler|image)(?:Buffer|Cube\w*)\Z|gl_"
    )

    def write(self, kernel: KernelParts) -> Source:
        source, functions = kernel.source, kernel.functions
        shared, body = kernel.split_body("shared")
        helpers = kernel.helpers()
        dtypes = {p.dtype for p in kernel.params}
        if not kernel.nonnegative_remainders and any(
            "%" in text for text in (shared, functions, body, *source.macros.values())
        ):
            from ..remainders import FUNCTIONS, FUNCTIONS_64, with_c_remainders

            try:
                (shared, functions, body), macros, calls = with_c_remainders(
                    (shared, functions, body), tuple(source.macros.items())
                )
            except ArgumentError as error:
                raise ArgumentError(f"kernel {source.name}: {error}") from None
            source = replace(source, defines=dict(macros))
            helpers += (FUNCTIONS + (FUNCTIONS_64 if dtypes & {"i8", "u8"} else "")) if calls else ""
        lines = ["#version 430", kernel.declaration]
        if dtypes & {"i8", "u8"}:
            lines.append("#extension GL_ARB_gpu_shader_int64 : require")
        if kernel.uses_atomics:
            lines.append("#extension GL_NV_shader_atomic_float : enable")
        x, y, z = kernel.group
        lines.append(f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;")
        lines.append(_PRELUDE + helpers)
        binding = 0
        scalars = []
        for p in kernel.params:
            kind = self.types[p.dtype or ""]
            if p.kind == "scalar":
                scalars.append(f"{kind} {p.name};")
            else:
                access = {"r": "readonly ", "w": "writeonly ", "rw": ""}[p.access]
                lines.append(
                    f"layout(std430, binding = {binding}) {access}buffer kk_block_{p.name} {{ {kind} {p.name}[]; }};"
                )
                binding += 1
        if scalars:
            # A block, not loose uniforms: block contents belong to the launch, loose uniforms to the program, and two
            # threads launching one program would overwrite each other's.
            lines.append(f"layout(std140, binding = 0) uniform kk_scalars {{ {' '.join(scalars)} }};")
        lines.append(shared)
        lines.append(functions)
        lines.append(f"void main() {{\n#line {kernel.first_line}\n{body}\n}}\n")
        return replace(source, text="\n".join(lines))

    # Software OpenGL ends all loops of a work-item, silently, after 65,535 rounds together. A loop that then does not
    # run tells: its length comes with the launch, so that no compiler can see through it.
    state_helpers = (
        NO_DEVICE_CLOCK
        + """\
#define KK_READ(x) (x)
#define KK_WRITE(x, v) ((x) = (v))
#define KK_UNROLL
#define KK_OVERRAN (kk_atomic_exchange(kkcontrol[$OVERRUN], 0u) != 0u)
#define KK_CHECK_LOOPS { int kkrounds = 0; for (int kkj = 0; kkj < kktwo; kkj++) kkrounds++; \
if (kkrounds != kktwo) kk_atomic_or(kkcontrol[$OVERRUN], 1u); }
"""
    )


LANGUAGE = _Glsl()
