"""GLSL 4.30 compute shaders."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..kernel_parts import UnwrittenKernel, Written
from .base import LOOPS_THAT_END_EARLY, NO_DEVICE_CLOCK, Language, macros_behind

_VERSION = re.compile(r"\A(?:[ \t]*(?://[^\n]*)?\n)*[ \t]*#[ \t]*version[^\n]*\n")


class _Glsl(Language):
    name = "glsl"
    title = "GLSL"
    suffixes = (".comp", ".glsl")
    kernel_mark = r"\blayout\s*\(\s*local_size_"

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

    state_helpers = NO_DEVICE_CLOCK + LOOPS_THAT_END_EARLY


LANGUAGE = _Glsl()
