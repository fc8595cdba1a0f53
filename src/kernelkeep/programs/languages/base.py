"""`Language`: everything that differs between the languages a kernel can be written in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...errors import Unsupported

if TYPE_CHECKING:
    from ..lowering import KernelParts
    from ..source import Source

# `types` of C on a 64-bit machine, as CUDA has them.
C_TYPES = {
    "i1": "signed char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short", "i4": "int", "u4": "unsigned int",
    "i8": "long long", "u8": "unsigned long long", "f4": "float", "f8": "double",
}  # fmt: skip
_NOT_IN_FILE_NAMES = re.compile(r"[^\w. /-]")
# `state_helpers` of a language whose kernels cannot read a clock.
NO_DEVICE_CLOCK = """\
#define KK_BEGIN_CLOCK
#define KK_IS_LATE false
#define KK_COUNT_LATE(n)
#define KK_LATE_TASKS 0u
#define KK_FORGET_CLOCK
"""


class Pointers(NamedTuple):
    """How a language with pointers writes a function and the pointers it takes."""

    function: str  # before a function that returns nothing
    address_space: str  # before a pointer to a buffer, with a space behind it
    restrict: str  # promises that no other pointer reaches the same memory


class Language:
    """A kernel language. A subclass overrides what differs; its one instance is registered (`register_language`).

    Only `name` and `title` are required. The rest is needed by what uses it: portable kernels, state programs, the tests in
    `kernelkeep.testing`.
    """

    name: str  # as in Source(language=name)
    title: str  # as people write it
    suffixes: tuple[str, ...] = ()  # of source files

    # --- texts that a user writes

    has_options = True  # the compiler takes options
    has_system_headers = False  # `#include <…>` may name a header that comes with the compiler
    # The text cannot name its kernel: the source's name does, is part of its key, and a source has one kernel only.
    source_names_kernel = False
    fixes_group = False  # the text fixes the group size of every kernel, so a launch cannot choose it
    # A kernel as a user might write it, for the tests: {before}, then the kernel {name}(x, y, a, n) with x and y arrays of
    # {kind}, in which i is the number of the work-item and {statement} is all it does.
    handwritten_kernel = ""

    def line_marker(self, line: int, file: str) -> str:
        """The text that gives the next line a number and a file name."""
        return f'#line {line} "{_NOT_IN_FILE_NAMES.sub("_", file)}"'

    def with_macros(self, text: str, macros: Mapping[str, str]) -> str:
        """The text with macros defined before it. Its lines keep their numbers."""
        return macros_behind("", text, macros)

    # --- portable kernels

    types: ClassVar[
        Mapping[str, str]
    ] = {}  # by NumPy's short names; a type that is missing is one that the language lacks
    integer_only_atomics = frozenset(("and", "or", "xor", "cas"))
    vector_helpers = ""  # kk_float4, kk_load4 and so on; only bodies that use them get this
    # Helpers that are macros and write an argument out more than once, or are a block in braces: here as an expression that
    # evaluates each argument once. Bodies that need it get this in place of the macro (`helper_calls.py`).
    helper_functions: ClassVar[Mapping[str, str]] = {}
    block_helpers: frozenset[str] = frozenset()  # those of them that are blocks
    reserved_words: frozenset[str] = frozenset()  # no parameter can have these names
    reserved_names: re.Pattern[str] | None = None  # nor names that match this

    def write(self, kernel: KernelParts) -> Source:
        """A portable kernel in this language."""
        raise Unsupported("portable kernels", f"{self.title} has no writer for portable kernels: write a kk.Source")

    def reserves(self, name: str) -> bool:
        """Whether no parameter of a portable kernel can have this name."""
        return name in self.reserved_words or (
            self.reserved_names is not None and self.reserved_names.match(name) is not None
        )

    # --- state programs

    state_helpers = ""  # macros that the kernels of state programs need; $STOPPED and so on are the control words
    pointers: Pointers | None = None  # None: a function is given arrays by macros that name them


def macros_behind(head: str, text: str, macros: Mapping[str, str]) -> str:
    """The text with macros defined behind its first lines, `head`."""
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return f"{head}{defines}#line {head.count(chr(10)) + 1}\n{text[len(head) :]}"
