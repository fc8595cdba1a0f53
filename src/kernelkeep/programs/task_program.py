"""The program of a resident grid: tasks, and a grid that runs them as the host asks for them.

Like a portable kernel it is plain data until a compiler asks for its text, and its key is made from that data, so a program that
is found in a cache is neither read nor written.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from .kernel_parts import KernelParts, UnwrittenKernel
from .languages import find_language
from .portable_source import WRITERS_VERSION
from .signature import DTYPES, KernelSignature, Parameter, declaration
from .source import Source

if TYPE_CHECKING:
    from .includes import Header

# Raised by 1 when the text around the tasks changes.
GRID_VERSION = 17

KERNEL = "resident"


class TaskArray(msgspec.Struct, frozen=True):
    """An array that tasks use by name."""

    name: str
    dtype: str


class TaskParts(msgspec.Struct, frozen=True):
    """One task: a portable kernel whose arrays are those of the grid, or a function in the grid's own language.

    `arguments` are its scalars, with their offsets in a record.
    """

    name: str
    signature: KernelSignature
    arguments: tuple[tuple[str, str, int], ...]  # name, dtype, offset
    portable: KernelParts | None
    macros: dict[str, str]
    text: str = ""  # of a function in the grid's own language
    result: str = ""  # the parameter that is an array of one element, for the result

    def unwritten(self) -> UnwrittenKernel:
        """The kernel, for a writer."""
        assert self.portable is not None
        return UnwrittenKernel(self.portable, self.macros)


class TaskProgram(msgspec.Struct, frozen=True):
    """All tasks, the arrays, and the numbers that host and grid must agree about."""

    tasks: tuple[TaskParts, ...]
    arrays: tuple[TaskArray, ...]
    constants: dict[str, int]

    @property
    def signature(self) -> KernelSignature:
        """Of the grid's kernel: where the ring, the memory of the grid and the traces are, and then the arrays."""
        # Arrays are given by their addresses: a launch that knew them would be ordered with other libraries' work, which would
        # then wait for a kernel that does not end.
        names = ("ring", "grid", "traces", *(f"a{i}" for i in range(len(self.arrays))))
        words = tuple(Parameter(name, "scalar", "u8", "r", DTYPES["u8"]) for name in names)
        return KernelSignature(KERNEL, words, (self.constants["THREADS"] + 64, 1, 1))


class TaskProgramSource(Source):
    """A task program in a language."""

    program: TaskProgram

    def __init__(self, program: TaskProgram, language: str, name: str) -> None:
        super().__init__("", name, language)
        self.__dict__["program"] = program
        del self.__dict__["text"]  # it is written when it is asked for

    @cached_property
    def text(self) -> str:
        """The whole text."""
        return f"{declaration(self.program.signature)}\n{find_language(self.language).write_resident(self.program)}"

    @cached_property
    def key_text(self) -> str:
        return msgspec.json.encode(self.program, order="deterministic").decode()

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """None."""
        return ()

    @property
    def writer(self) -> str:
        return f"{self.language} {WRITERS_VERSION} resident {GRID_VERSION}"

    @property
    def is_translation_unit(self) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskProgramSource, (self.program, self.language, self.name)

    def __repr__(self) -> str:
        return f"TaskProgramSource({self.name!r}, language={self.language!r}, {len(self.program.tasks)} tasks)"
