"""From a portable kernel to a source: what every language's writer starts from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from .helper_calls import not_as_macros
from .languages import Language
from .portable import SHARED_ARRAY
from .signature import KernelSignature, Parameter, declaration, entry_symbol
from .source import Source

if TYPE_CHECKING:
    from .portable import PortableKernel

_VECTOR = re.compile(r"\bkk_(unroll|float4|make_float4|load4|store4)\b")
# What a body begins with before any code: macros, comments, empty lines.
_TOP = re.compile(r"(?:[ \t]*(?:#(?:[^\n\\]|\\\n|\\.)*|//[^\n]*)?\n)*")


def lower(kernel: PortableKernel, language: Language) -> Source:
    """The kernel in a language."""
    return language.write(
        KernelParts(
            language=language,
            source=Source("", kernel.name, language.name, tuple(kernel.options), kernel.defines),
            signature=kernel.signature,
            body=kernel.body,
            functions="" if kernel.functions is None else kernel.functions(language),
            first_line=kernel.first_line,
            nonnegative_remainders=kernel.nonnegative_remainders,
        )
    )


@dataclass(frozen=True)
class KernelParts:
    """A portable kernel, as a writer is given it."""

    language: Language
    source: Source  # without a text
    signature: KernelSignature
    body: str
    functions: str  # in the language already, to stand before the kernel
    first_line: int
    nonnegative_remainders: bool

    @property
    def params(self) -> tuple[Parameter, ...]:
        """The kernel's parameters."""
        return self.signature.params or ()

    @property
    def group(self) -> tuple[int, int, int]:
        """The size of a group."""
        return self.signature.group or (1, 1, 1)

    @property
    def declaration(self) -> str:
        """The comment that declares the kernel."""
        return declaration(self.signature)

    @cached_property
    def uses_vectors(self) -> bool:
        """Whether the text needs `Language.vector_helpers`."""
        return _VECTOR.search(self.body + self.functions) is not None

    @cached_property
    def uses_atomics(self) -> bool:
        """Whether the text has atomics."""
        return "kk_atomic_" in self.body + self.functions

    def helpers(self) -> str:
        """The helpers that not every text needs, and those that may not be macros in this one."""
        written = {p.name for p in self.params if p.kind == "buffer" and p.access != "r"}
        names = not_as_macros(
            self.language,
            (self.body, self.functions),
            tuple(self.source.macros.items()),
            frozenset(written | {name for _, name, _ in SHARED_ARRAY.findall(self.body)}),
        )
        once = "".join(f"#undef {name}\n{self.language.helper_functions[name]}" for name in sorted(names))
        return (self.language.vector_helpers if self.uses_vectors else "") + once

    def split_body(self, qualifier: str) -> tuple[str, str]:
        """The declarations of shared arrays, and the body without them, its line numbers kept."""
        declarations = []
        for kind, name, sizes in SHARED_ARRAY.findall(self.body):
            dimensions = "".join(f"[{size.strip()}]" for size in sizes.split(","))
            declarations.append(f"{qualifier} {kind} {name}{dimensions};")
        body = SHARED_ARRAY.sub(lambda match: "\n" * match.group().count("\n"), self.body)
        if declarations and "#" in (top := _top(body)):
            # The sizes may be macros that the body defines first, so these go along.
            declarations.insert(0, top.strip())
            body = "\n" * top.count("\n") + body[len(top) :]
        return "\n".join(declarations), body


def _top(body: str) -> str:
    """What a body begins with before any code, up to a condition that is still open there."""
    top = _TOP.match(body)
    kept = at = depth = 0
    for line in (top.group() if top else "").splitlines(keepends=True):
        word = re.match(r"[ \t]*#[ \t]*(if|endif)", line)
        depth += 0 if word is None else 1 if word.group(1) == "if" else -1
        at += len(line)
        kept = at if depth == 0 else kept
    return body[:kept]


def write_c(kernel: KernelParts, *, prelude: str, head: str, buffer: str, shared: str) -> Source:
    """A kernel in a language like C: `head` stands before its name, `buffer` before buffers, `shared` before shared arrays."""
    declarations, body = kernel.split_body(shared)
    parameters = []
    for p in kernel.params:
        kind = kernel.language.types[p.dtype or ""]
        if p.kind == "scalar":
            parameters.append(f"const {kind} {p.name}")
        else:
            parameters.append(f"{buffer}{'const ' if p.access == 'r' else ''}{kind}* {p.name}")
    before = f"{kernel.declaration}\n{prelude}{kernel.helpers()}{kernel.functions}"
    signature = f"{head} {entry_symbol(kernel.source.name)}({', '.join(parameters)})"
    text = f"{before}{signature} {{\n{declarations}\n#line {kernel.first_line}\n{body}\n}}\n"
    return replace(kernel.source, text=text)
