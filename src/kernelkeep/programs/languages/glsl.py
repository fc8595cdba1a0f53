"""GLSL 4.30 compute shaders."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..kernel_parts import UnwrittenKernel, Written
from .base import NO_DEVICE_CLOCK, Language, macros_behind

_VERSION = re.compile(r"\A(?:[ \t]*(?://[^\n]*)?\n)*[ \t]*#[ \t]*version[^\n]*\n")


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

    def write(self, kernel: UnwrittenKernel) -> Written:
        return kernel.written_in(self.name, "native_float_atomics", "nonnegative_remainders")

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
