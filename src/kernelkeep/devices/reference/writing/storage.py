"""Checked reads and writes of memory that work-items share: buffers, and shared arrays.

The element x[i] has a stamp of who wrote it last, x_W[i], and of who read it since, x_R[i] (`../stamps.py`). Stamps up to B are
older than the launch; `me` is that of this work-item, those below `lo` were before the last barrier of the group. What is right
is seen here, in the text; what may be wrong is looked at again by a function of `../checks.py`.
"""

from __future__ import annotations

from typing import Literal as OneOf

from msgspec import Struct

from ....language.tree import Place
from ....language.types import F4, Array, Buffer, Type
from .code import Code, Value, of_type


class Storage(Struct, frozen=True, eq=False):
    """An array of the kernel. `prefix` begins the names of all that generated code has for it.

    `is_watched`: other work-items may write to it, so who reads and writes is noted. `must_be_written`: reading an element that
    was not written is a bug: in this launch, or since the array was made.
    """

    prefix: str
    title: str
    element: Type
    is_shared: bool = False
    is_watched: bool = False
    must_be_written: OneOf["", "launch", "ever"] = ""
    has_atomics: bool = False

    @property
    def rounds(self) -> bool:
        """Whether storing rounds a float."""
        return self.element is F4


class Binding(Struct, frozen=True, eq=False):
    """The array that a parameter of a helper function is: one of the kernel, or else the list of that name.

    `has_offset`: it is passed from an element on.
    """

    storage: Storage | None
    name: str
    has_offset: bool

    @property
    def key(self) -> tuple[str, bool]:
        """What the text of the function depends on."""
        return ("" if self.storage is None else self.storage.prefix, self.has_offset)


def flat_element(kind: Type) -> Type:
    """The type of the elements of an array, whatever its dimensions."""
    while isinstance(kind, Array | Buffer):
        kind = kind.element
    return kind


def count_elements(kind: Type) -> int:
    """How many elements an array has in all its dimensions."""
    return kind.length * count_elements(kind.element) if isinstance(kind, Array) else 1


class StorageAccess:
    """Writes reads and writes of one function."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def check_bounds(
        self, index: Value, length: str | int, at: Place, title: str, kind: Type, *, count: int = 1
    ) -> None:
        """An index of an array, and `count - 1` after it, must be below `length`, a number or the text of one."""
        low, high = index.low, index.high
        if isinstance(length, int) and low is not None and high is not None and low >= 0 and high + count <= length:
            return
        point = self._code.point(at, title, kind)
        end = f"{length}" if count == 1 else f"{length} - {count - 1}"
        fits = f"0 <= {index.text} < {end}" if low is None or low < 0 else f"{index.text} < {end}"
        self._code.add(f"if not {fits}: bounds({point}, me, {index.text}, {length})")

    def read(self, storage: Storage, index: str, at: Place) -> Value:
        """The value of an element."""
        x = storage.prefix
        if storage.is_watched or storage.must_be_written:
            point = self._code.point(at, storage.title, does="read")
            self._code.add(f"if {_suspicious_read(storage, index)}: check_read({point}, {x}_S, {index}, me)")
        if storage.is_watched:
            # Most elements are read once, or by this work-item only, or by several since the last barrier.
            with self._code.block(f"if (r := {x}_R[{index}]) <= B:"):
                self._code.add(f"{x}_R[{index}] = me")
            self._code.add(f"elif r != me and r != many: note_read({x}_S, {index}, me)")
        return of_type(f"{x}[{index}]", storage.element)

    def write(self, storage: Storage, index: str, value: Value, at: Place) -> None:
        """Set an element."""
        self.note_write(storage, index, at, value)
        self._code.add(f"{storage.prefix}[{index}] = {value.text}")

    def note_write(self, storage: Storage, index: str, at: Place, value: Value | None = None) -> None:
        """An element is about to be set, to a value or in a part of it."""
        x = storage.prefix
        if storage.is_watched:
            point = self._code.point(at, storage.title, does="write")
            wrong = f"(w := {x}_W[{index}]) > B and w != me or (r := {x}_R[{index}]) > B and r != me"
            if storage.has_atomics:
                wrong += f" or {x}_A[{index}] > B"
            new = "UNSET" if value is None else value.text
            self._code.add(f"if {wrong}: check_write({point}, {x}_S, {index}, me, {new})")
        if storage.is_watched or storage.must_be_written:
            self._code.add(f"{x}_W[{index}] = me")

    def atomic(self, storage: Storage, index: str, at: Place, *, reads: bool) -> None:
        """An element is about to be changed atomically."""
        if storage.is_watched or storage.must_be_written:
            point = self._code.point(at, storage.title, does="atomic")
            self._code.add(f"check_atomic({point}, {storage.prefix}_S, {index}, me, {reads})")


def _suspicious_read(storage: Storage, index: str) -> str:
    x = storage.prefix
    if storage.is_shared:
        wrong = f"not B < (w := {x}_W[{index}]) < lo and w != me"
    elif storage.must_be_written == "launch":
        wrong = f"(w := {x}_W[{index}]) != me"
    elif storage.must_be_written == "ever":
        wrong = f"not (w := {x}_W[{index}]) or w > B and w != me" if storage.is_watched else f"not {x}_W[{index}]"
    else:
        wrong = f"(w := {x}_W[{index}]) > B and w != me"
    return f"{wrong} or {x}_A[{index}] > B" if storage.has_atomics else wrong
