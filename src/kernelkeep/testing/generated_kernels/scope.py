"""What a generated statement can name, and how large a program may become."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .choices import Choices

# C's names of integer types; those of 64 bits are used where the device has them.
SMALL_INTEGERS = ("unsigned char", "char", "short", "unsigned short", "bool")
INTEGERS = ("int", "unsigned", *SMALL_INTEGERS)
LONG_INTEGERS = ("long", "unsigned long")
FLOATS = ("half", "float", "double")
SHORT_NAMES = {
    "int": "i4", "unsigned": "u4", "unsigned char": "u1", "char": "i1", "short": "i2", "unsigned short": "u2", "long": "i8",
    "unsigned long": "u8", "float": "f4", "double": "f8", "half": "f2",
}  # fmt: skip


class Features(NamedTuple):
    """What the devices have that a program is for."""

    float64: bool = True
    int64: bool = True


ALL = Features()


class ArrayName(NamedTuple):
    """An array that can be indexed with any value below `length`, a power of two."""

    name: str
    element: str
    length: int
    is_writable: bool = False
    is_local: bool = False


class StructName(NamedTuple):
    """A struct's name; the type of each field."""

    name: str
    fields: tuple[tuple[str, str], ...]


class FunctionName(NamedTuple):
    """A helper function: its result, its parameters (a type with [] is an array), and how many statements a call runs."""

    name: str
    result: str
    parameters: tuple[str, ...]
    cost: int


class Scope:
    """Names, by what they are. A block's own names go away with it."""

    def __init__(self, *, is_kernel: bool) -> None:
        self.is_kernel = is_kernel
        self.integers: list[tuple[str, str]] = []  # variables that can be assigned to
        self.readable: list[str] = []  # further integers
        self.floats: list[tuple[str, str]] = []
        self.vectors: list[tuple[str, str]] = []
        self.arrays: list[ArrayName] = []
        self.structs: list[tuple[str, StructName]] = []
        self.loops = 0  # of those around, how many `continue` belongs to
        self.breakable = 0
        self.switches = 0  # around a statement, inside of the innermost loop
        self.rounds = 1  # how often a statement here is run, at most

    @contextmanager
    def block(self) -> Iterator[None]:
        """Names that are declared inside are forgotten behind it."""
        lists: tuple[list[object], ...] = (
            self.integers, self.readable, self.floats, self.vectors, self.arrays, self.structs,
        )  # type: ignore[assignment]  # fmt: skip
        marks = [len(one) for one in lists]
        yield
        for one, mark in zip(lists, marks, strict=True):
            del one[mark:]


class Base:
    """What all parts of the generator share."""

    MOST_ROUNDS = 48  # of a statement, with all loops around it

    def __init__(self, choices: Choices, features: Features, size: int) -> None:
        self.choices = choices
        self.features = features
        self.statements_left = size
        self.scope = Scope(is_kernel=False)
        self.functions: list[FunctionName] = []
        self.struct_types: list[StructName] = []
        self.constants: list[ArrayName] = []  # arrays outside of all functions
        self.macros: list[str] = []
        self.lines: list[str] = []
        self.depth = 0
        self.is_pure = False  # no assignments and calls in expressions
        self._names = 0

    def name(self, prefix: str) -> str:
        """A new name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def line(self, text: str) -> None:
        """One more line."""
        self.lines.append("    " * self.depth + text)

    def integer_type(self) -> str:
        """An integer type that the devices have."""
        found: str = self.choices.pick(*INTEGERS, *(LONG_INTEGERS if self.features.int64 else ()))
        return found

    def integer(self, depth: int = 0) -> str:
        """An integer expression, which binds tightly enough to stand anywhere."""
        raise NotImplementedError

    def index(self, length: int, depth: int = 0) -> str:
        """An index into an array of that length."""
        raise NotImplementedError
