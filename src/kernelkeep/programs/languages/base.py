"""`Language`: everything that differs between the languages a kernel can be written in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import Unsupported

if TYPE_CHECKING:
    from ..kernel_parts import UnwrittenKernel, Written
    from ..task_program import TaskProgram

# NumPy's short names, and how a body spells these types.
C_TYPES = {
    "i1": "signed char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short", "i4": "int", "u4": "unsigned int",
    "i8": "long", "u8": "unsigned long", "f2": "half", "f4": "float", "f8": "double",
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
# The same for software OpenGL and Vulkan, which end all loops of a work-item, silently, after 65,535 rounds together. A loop that
# then does not run tells: its length comes with the launch, so that no compiler can see through it.
LOOPS_THAT_END_EARLY = """\
#define KK_READ(x) (x)
#define KK_WRITE(x, v) ((x) = (v))
#define KK_UNROLL
#define KK_OVERRAN (kk_atomic_exchange(kkcontrol[$OVERRUN], 0u) != 0u)
#define KK_CHECK_LOOPS { int kkrounds = 0; for (int kkj = 0; kkj < kktwo; kkj++) kkrounds++; \
if (kkrounds != kktwo) kk_atomic_or(kkcontrol[$OVERRUN], 1u); }
"""


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
    kernel_mark = (
        ""  # an expression that finds a kernel's head, in no other language's text: for a text with the wrong language
    )
    # A kernel as a user might write it, for the tests: {before}, then the kernel {name}(x, y, a, n) with x and y arrays of
    # {kind}, in which i is the number of the work-item and {statement} is all it does.
    handwritten_kernel = ""

    has_preprocessor = True  # a text can have macros and conditions

    def handwritten(self, statement: str, *, name: str, kind: str, before: str) -> str:
        """That kernel. `statement` and `kind` are C; a language that has other words for them translates."""
        return self.handwritten_kernel.format(before=before, name=name, kind=kind, statement=statement)

    def joined(self, texts: Sequence[str]) -> str:
        """Several texts with kernels as one."""
        return "".join(texts)

    def constant(self, name: str, value: int) -> str:
        """The line of a header that gives a number a name."""
        return f"#define {name} {value}\n"

    def line_marker(self, line: int, file: str) -> str:
        """The text that gives the next line a number and a file name."""
        return f'#line {line} "{_NOT_IN_FILE_NAMES.sub("_", file)}"'

    def with_macros(self, text: str, macros: Mapping[str, str]) -> str:
        """The text with macros defined before it. Its lines keep their numbers."""
        return macros_behind("", text, macros)

    # --- portable kernels

    # The types that parameters can have, by NumPy's short names.
    parameter_types: frozenset[str] = frozenset(C_TYPES)
    keeps_places = False  # a compiled program knows the file and the lines of its body, which are part of its key

    def write(self, kernel: UnwrittenKernel) -> Written:
        """A portable kernel in this language. Raises `CompileError` and `Unsupported`."""
        raise Unsupported("portable kernels", f"{self.title} has no writer for portable kernels: write a kk.Source")

    # --- resident grids

    def write_resident(self, program: TaskProgram) -> str:
        """A grid that takes tasks from a ring until it is told to end. Raises `CompileError` and `Unsupported`."""
        raise Unsupported("resident", f"there is no resident grid in {self.title}: use kk.Resident.emulated")

    # --- state programs

    has_fences = True  # kk_fence can be written
    state_helpers = ""  # macros that the kernels of state programs need; $STOPPED and so on are the control words


def macros_behind(head: str, text: str, macros: Mapping[str, str]) -> str:
    """The text with macros defined behind its first lines, `head`."""
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return f"{head}{defines}#line {head.count(chr(10)) + 1}\n{text[len(head) :]}"
