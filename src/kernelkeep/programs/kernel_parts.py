"""A portable kernel as plain data, for one language, and what a language is given to write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import CompileError, Unsupported
from .signature import KernelSignature, declaration, entry_symbol

if TYPE_CHECKING:
    from ..language.readers.c import Reading
    from ..language.tree import Module, Variable
    from ..language.writers import Entry

# The capability that a type needs, and what a device without it lacks. Types by NumPy's short names.
NEEDS = {
    **dict.fromkeys(("i1", "u1", "i2", "u2"), ("int8", "8- and 16-bit types")),
    **dict.fromkeys(("i8", "u8"), ("int64", "int64")),
    "f8": ("float64", "float64"),
}
_DEFINE = re.compile(r"-D\s*([A-Za-z_]\w*)(?:=(.*))?\Z", re.DOTALL)


class KernelParts(msgspec.Struct, frozen=True):
    """What a portable kernel consists of. It travels to other processes, and all of it that matters is in the key.

    `functions` is portable text that was generated to stand before the body. `reader` is the module in `language/readers/` that
    reads body and functions, and `file` the file that the body comes from, for its errors. `assumes` has what the writer may
    rely on (`Device.writer_assumes`), `lacks` the capabilities that the device does not have.
    """

    signature: KernelSignature
    body: str
    functions: str = ""
    first_line: int = 1
    reader: str = "c"
    file: str = ""
    assumes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def is_c(self) -> bool:
        """Whether the body is C."""
        return self.reader == "c"

    def shown_line(self, number: int) -> str:
        """The line of the user's text with this number, or nothing."""
        from ..language.lines import line_with_number

        found = line_with_number(self.body, number, self.first_line)
        if found or not self.is_c:
            return found
        if "#pragma kk python" in self.functions:
            from ..language.readers.python_body import python_line

            return python_line(self.functions, number)
        return line_with_number(self.functions, number)


class Written(NamedTuple):
    """A text, and for each of its lines the line of the user's text that it came from; 0 where it came from none."""

    text: str
    lines: tuple[int, ...]


class UnwrittenKernel:
    """A portable kernel that is to be written in one language, or in several. `macros` are those of `defines` and options."""

    def __init__(self, parts: KernelParts, macros: Mapping[str, str], options: Iterable[str] = ()) -> None:
        self.parts = parts
        self.macros = {**macros, **_macros_in(options)}
        self.signature = parts.signature

    @property
    def group(self) -> tuple[int, int, int]:
        """The size of a group."""
        return self.signature.group or (1, 1, 1)

    @property
    def declaration(self) -> str:
        """The comment that declares the kernel."""
        return declaration(self.signature)

    @property
    def entry(self) -> Entry:
        """What devices expect around the kernel."""
        from ..language.writers import Entry

        return Entry(self.declaration, entry_symbol(self.signature.name), self.group)

    @cached_property
    def reading(self) -> Reading:
        """The typed tree, and warnings. Raises `CompileError` for what is no kernel."""
        parts = self.parts
        read = import_module(f"...language.readers.{parts.reader}", __name__).read_kernel
        found: Reading = read(
            self.signature.name,
            parameters_of(self.signature),
            parts.body,
            functions=parts.functions,
            defines=self.macros,
            group=self.group,
            first_line=parts.first_line,
            file=parts.file,
        )
        return found

    @cached_property
    def module(self) -> Module:
        """The typed tree. Raises `Unsupported` where it uses what the device lacks."""
        found = self.reading.module
        if self.parts.lacks:
            from ..language.requirements import first_use, requirements
            from ..language.types import SCALARS

            used = requirements(found)
            for dtype in sorted(used.types):
                needed, words = NEEDS.get(dtype, ("", ""))
                if needed in self.parts.lacks:
                    message = f"kernel {self.signature.name} uses {dtype}, and this device has no {words}"
                    node = first_use(found, SCALARS[dtype])
                    raise Unsupported(needed, message, *((node.at.line, node.at.column) if node is not None else ()))
            if "float_atomics" in self.parts.lacks and any(dtype in ("f4", "f8") for _, dtype in used.atomics):
                message = f"kernel {self.signature.name} uses atomics on floats, which this device lacks"
                raise Unsupported("float_atomics", message)
        return found

    def written_in(self, target: str, *may_assume: str) -> Written:
        """The text by one of the writers in `language/writers/`, which asks whether it may assume certain things."""
        from ..language.problems import nested_too_deeply
        from ..language.writers import write

        options = {name: name in self.parts.assumes for name in may_assume}
        try:
            found = write(target, self.module, self.entry, None, **options)
        except RecursionError:
            raise nested_too_deeply(self.signature.name) from None
        return Written(found.text, found.lines)


def parameters_of(signature: KernelSignature) -> list[Variable]:
    """A kernel's parameters, as readers take them."""
    from ..language.tree import kernel_parameter

    found = []
    for one in signature.params or ():
        dtype = one.element or one.dtype
        if dtype is None or one.kind not in ("buffer", "scalar"):
            raise CompileError(f"{signature.name}: parameter {one.name} must be a buffer or scalar of a known type")
        found.append(kernel_parameter(one.name, dtype, one.access if one.kind == "buffer" else None))  # type: ignore[arg-type]
    return found


def _macros_in(options: Iterable[str]) -> dict[str, str]:
    """The macros that a compiler's options define."""
    found: dict[str, str] = {}
    given = list(options)
    for at, option in enumerate(given):
        whole = f"-D{given[at + 1]}" if option == "-D" and at + 1 < len(given) else option
        if (define := _DEFINE.match(whole)) is not None:
            found[define.group(1)] = "1" if define.group(2) is None else define.group(2)
    return found
