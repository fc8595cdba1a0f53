"""Arrays of vectors and structs in device memory. An element is what it is in a variable: a tuple, or a list of its fields."""

from __future__ import annotations

from typing import Any

from ...language import layout
from ...language.types import Array, Scalar, StructType, Type, Vector
from .memory import FORMATS


class Elements:
    """Memory as vectors or structs."""

    def __init__(self, memory: bytearray | memoryview, kind: Type) -> None:
        self.itemsize = layout.size(kind)
        self._kind = kind
        self._count = len(memory) // self.itemsize
        self._bytes = memoryview(memory)
        self._numbers: dict[str, memoryview] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self.get(self._kind, index * self.itemsize)

    def __setitem__(self, index: int, value: Any) -> None:
        self.set(self._kind, index * self.itemsize, value)

    def get(self, kind: Type, at: int) -> Any:
        """What begins at an address."""
        if isinstance(kind, Scalar):
            return self._view(kind)[at // kind.size]
        if isinstance(kind, Vector):
            first = at // kind.element.size
            return tuple(self._view(kind.element)[first : first + kind.length])
        assert isinstance(kind, (StructType, Array))
        return Record(self, kind, at)

    def set(self, kind: Type, at: int, value: Any) -> None:
        """Put a value at an address."""
        if isinstance(kind, Scalar):
            self._view(kind)[at // kind.size] = value
        elif isinstance(kind, Vector):
            view, first = self._view(kind.element), at // kind.element.size
            for number, one in enumerate(value):
                view[first + number] = one
        else:
            assert isinstance(kind, (StructType, Array))
            for (part, place), one in zip(layout.places(kind, at), value, strict=True):
                self.set(part, place, one)

    def _view(self, kind: Scalar) -> memoryview:
        """The memory as numbers of a type."""
        found = self._numbers.get(kind.name)
        if found is None:
            whole = len(self._bytes) // kind.size * kind.size
            found = self._numbers[kind.name] = self._bytes[:whole].cast(FORMATS[kind.name])
        return found


class Record(list[Any]):
    """A struct in memory, or an array in one: what is assigned to a part of it is written there."""

    def __init__(self, elements: Elements, kind: StructType | Array, at: int) -> None:
        self._elements = elements
        self._places = list(layout.places(kind, at))
        super().__init__(elements.get(part, place) for part, place in self._places)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        part, place = self._places[index]
        self._elements.set(part, place, value)
