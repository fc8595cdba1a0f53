"""Lines of Python, the values in them, and the check points that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ....language.tree import Place
from ....language.types import Scalar, Type, limits


class Value(NamedTuple):
    """An expression of Python without effects. An integer is between `low` and `high`, as far as they are known.

    `is_fixed`: it is the same wherever it is evaluated later on: a literal, or a name that is assigned once.
    """

    text: str
    low: int | None = None
    high: int | None = None
    is_fixed: bool = False

    def fits(self, kind: Scalar) -> bool:
        """Whether it needs no wrapping to be of an integer type."""
        least, most = limits(kind)
        return self.low is not None and self.high is not None and least <= self.low and self.high <= most


def of_type(text: str, kind: Type, *, is_fixed: bool = False) -> Value:
    """A value that may be any of its type."""
    if isinstance(kind, Scalar) and kind.kind == "integer":
        return Value(text, *limits(kind), is_fixed)
    if isinstance(kind, Scalar) and kind.kind == "bool":
        return Value(text, 0, 1, is_fixed)
    return Value(text, None, None, is_fixed)


def python_name(prefix: str, name: str) -> str:
    """A name of the user's in generated code: never a word of Python, nor a name that the code uses itself."""
    return f"{prefix}_{name}" if name.isascii() and name.isidentifier() else f"{prefix}_{name.encode().hex()}_"


class CheckPoint(NamedTuple):
    """Where a check stands in the user's text. `array` is the array that it is about; `kind` the type of its index."""

    at: Place
    array: str = ""
    kind: Type | None = None
    does: str = ""  # what it does with an element: "read", "write" or "atomic"


class Code:
    """Lines that are being written, and the check points of the whole program."""

    def __init__(self, points: list[CheckPoint], depth: int = 0) -> None:
        self.lines: list[str] = []
        self.points = points
        self._depth = depth
        self._names = 0

    def add(self, text: str) -> None:
        """One more line."""
        self.lines.append("    " * self._depth + text)

    def insert(self, place: int, text: str) -> None:
        """A line before those that came after `place`."""
        self.lines.insert(place, "    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines below `head`."""
        self.add(head)
        self._depth += 1
        count = len(self.lines)
        yield
        if len(self.lines) == count:
            self.add("pass")
        self._depth -= 1

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Lines that will stand below a line that is inserted later."""
        self._depth += 1
        yield
        self._depth -= 1

    def new_name(self) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"t{self._names}"

    def keep(self, value: Value) -> Value:
        """The value under a name of its own, where it is not one already."""
        if value.is_fixed:
            return value
        name = self.new_name()
        self.add(f"{name} = {value.text}")
        return Value(name, value.low, value.high, True)

    def keep_before(self, mark: int, values: list[Value]) -> list[Value]:
        """Give values that may change a name, before the lines from `mark` on."""
        found = []
        for value in values:
            if value.is_fixed:
                found.append(value)
                continue
            name = self.new_name()
            self.insert(mark, f"{name} = {value.text}")
            mark += 1
            found.append(Value(name, value.low, value.high, True))
        return found

    def point(self, at: Place, array: str = "", kind: Type | None = None, does: str = "") -> int:
        """The number of a check point."""
        self.points.append(CheckPoint(at, array, kind, does))
        return len(self.points) - 1
