"""The source that a portable kernel becomes in a language.

Its text is written when something asks for it: to compile, to show. The key is made from what the kernel was written from, so a
program that is found in a cache is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from .kernel_parts import KernelParts, UnwrittenKernel, Written
from .languages import find_language
from .signature import declaration
from .source import Source

if TYPE_CHECKING:
    from .includes import Header

# Raised by 1 when readers or writers change what they write: then programs are compiled again. A test notices.
WRITERS_VERSION = 2

# What a line in generated functions begins with that only says where they come from, for errors.
PLACES = "#pragma kk places "


class PortableSource(Source):
    """A portable kernel in a language."""

    kernel: KernelParts

    def __init__(
        self, kernel: KernelParts, language: str, options: tuple[str, ...], defines: Mapping[str, Any]
    ) -> None:
        super().__init__("", kernel.signature.name, language, options, defines)
        self.__dict__["kernel"] = kernel
        del self.__dict__["text"]  # it is written when it is asked for

    @cached_property
    def text(self) -> str:
        """The whole text."""
        return self._written.text

    @cached_property
    def _written(self) -> Written:
        try:
            return find_language(self.language).write(UnwrittenKernel(self.kernel, self.macros, self.options))
        except Unsupported as error:
            if error.line:
                raise _with_line(error, self.kernel) from None
            raise

    @cached_property
    def key_text(self) -> str:
        parts, functions = self.kernel, self.kernel.functions
        keeps_places = find_language(self.language).keeps_places
        if PLACES in functions and not keeps_places:
            functions = "\n".join(line for line in functions.split("\n") if not line.startswith(PLACES))
        lines = [declaration(parts.signature), f"//kk: {parts.reader} {len(functions)} {' '.join(parts.assumes)}"]
        if keeps_places:
            lines.append(f"//kk: places {parts.first_line} {parts.file!r}")
        return "\n".join([*lines, functions, parts.body])

    @property
    def may_include(self) -> bool:
        """No: a body cannot include, and the text need not be written yet."""
        return False

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """None: a body cannot include."""
        return ()

    @property
    def writer(self) -> str:
        return f"{self.language} {WRITERS_VERSION}"

    @property
    def is_translation_unit(self) -> bool:
        return True

    def place(self, line: int) -> tuple[int | None, str]:
        lines = self._written.lines
        number = lines[line - 1] if 0 < line <= len(lines) else 0
        if not number:
            return None, super().place(line)[1]
        return number, self.kernel.shown_line(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return PortableSource, (self.kernel, self.language, self.options, dict(self.defines))

    def __repr__(self) -> str:
        return f"PortableSource({self.name!r}, language={self.language!r})"


def _with_line(error: Unsupported, parts: KernelParts) -> Unsupported:
    """The error with the line of the user's text that needs what is lacking, and a caret."""
    from ..language.problems import Problem

    told, line = str(error), error.line
    if f"line {line}:" not in told:
        told = f"{told}; line {line}:"
    picture = Problem("", line, error.column, parts.shown_line(line)).picture
    return Unsupported(error.capability, f"{told}{picture}", line, error.column)
