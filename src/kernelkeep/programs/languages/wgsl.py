"""WGSL. Portable kernels are written in it; there is no device for it."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import Unsupported
from ..kernel_parts import UnwrittenKernel, Written
from .base import C_TYPES, Language


class _Wgsl(Language):
    name = "wgsl"
    title = "WGSL"
    suffixes = (".wgsl",)

    fixes_group = True
    has_options = False
    handwritten_kernel = """\
{before}struct Scalars {{ a: {kind}, n: i32 }}
@group(0) @binding(0) var<storage, read> x: array<{kind}>;
@group(0) @binding(1) var<storage, read_write> y: array<{kind}>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn {name}(@builtin(global_invocation_id) id: vec3<u32>) {{
let i = i32(id.x);
{statement}
}}
"""

    def line_marker(self, line: int, file: str) -> str:
        return f"// {file}, line {line}"  # there is no preprocessor

    def with_macros(self, text: str, macros: Mapping[str, str]) -> str:
        """The text with constants behind it: WGSL has no macros, and takes declarations in any order."""
        for name, value in macros.items():
            if not value:
                raise Unsupported("macros", f"WGSL has no macros: defines[{name!r}] must have a value, for a constant")
        return "\n".join([text, *(f"const {name} = {value};" for name, value in macros.items()), ""])

    parameter_types = frozenset(C_TYPES) - {"i8", "u8", "f8"}

    def write(self, kernel: UnwrittenKernel) -> Written:
        return kernel.written_in(self.name)


LANGUAGE = _Wgsl()
