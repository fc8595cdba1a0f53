"""WGSL, the language of WebGPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...errors import Unsupported
from ..kernel_parts import UnwrittenKernel, Written
from .base import C_TYPES, LOOPS_THAT_END_EARLY, NO_DEVICE_CLOCK, Language

_BARE_BRANCH = re.compile(r"(if \((?:[^()]|\([^()]*\))*\)) ((?!\{)[^;]*;)")
_DECLARATION = re.compile(r"struct |@group|alias |const ")


class _Wgsl(Language):
    name = "wgsl"
    title = "WGSL"
    suffixes = (".wgsl",)
    kernel_mark = r"@compute\b"

    fixes_group = True
    has_options = False
    has_preprocessor = False
    handwritten_kernel = """\
{before}struct Scalars {{ a: {kind}, n: i32 }}
@group(0) @binding(0) var<storage, read> x: array<{kind}>;
@group(0) @binding(1) var<storage, read_write> y: array<{kind}>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn {name}(@builtin(global_invocation_id) id: vec3<u32>) {{
let i = i32(id.x);
let a = scalars.a;
let n = scalars.n;
{statement}
}}
"""

    def handwritten(self, statement: str, *, name: str, kind: str, before: str) -> str:
        statement = _BARE_BRANCH.sub(r"\1 { \2 }", statement)
        kind = {"int": "i32", "uint": "u32", "float": "f32"}.get(kind, kind)
        return super().handwritten(statement, name=name, kind=kind, before=before)

    def joined(self, texts: Sequence[str]) -> str:
        """The texts with each variable and struct declared once."""
        lines: list[str] = []
        for text in texts:
            lines += [line for line in text.split("\n") if line not in lines or not _DECLARATION.match(line)]
        return "\n".join(lines)

    def constant(self, name: str, value: int) -> str:
        return f"const {name} = {value};\n"

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

    has_fences = False
    state_helpers = NO_DEVICE_CLOCK + LOOPS_THAT_END_EARLY


LANGUAGE = _Wgsl()
