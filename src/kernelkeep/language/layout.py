"""How elements of buffers lie in memory: as C has it, and the same on every target.

A number is aligned to its size, a vector of two or four to its own size, an array and a struct to what its parts need. Vectors of
three take 12 bytes in some targets and 16 in others, and a bool or a half is kept in a word where the target has no such type:
there are none in the structs of buffers.
"""

from __future__ import annotations

from collections.abc import Iterator

from .types import BOOL, F2, Array, Scalar, StructType, Type, Vector


def alignment(kind: Type) -> int:
    """The address of an element is a multiple of this."""
    if isinstance(kind, StructType):
        return max((alignment(part) for _, part in kind.fields), default=1)
    if isinstance(kind, Array):
        return alignment(kind.element)
    return size(kind)


def size(kind: Type) -> int:
    """How many bytes an element takes, those up to the next one included."""
    if isinstance(kind, StructType):
        parts = list(places(kind, 0))
        end = parts[-1][1] + size(parts[-1][0]) if parts else 0
        return _up(end, alignment(kind))
    if isinstance(kind, Array):
        return kind.length * size(kind.element)
    if isinstance(kind, Vector):
        return kind.length * kind.element.size
    assert isinstance(kind, Scalar)
    return kind.size


def places(kind: StructType | Array, at: int) -> Iterator[tuple[Type, int]]:
    """The type and the address of each field of a struct, or each element of an array, that begins at an address."""
    if isinstance(kind, Array):
        each = size(kind.element)
        yield from ((kind.element, at + number * each) for number in range(kind.length))
        return
    for _, part in kind.fields:
        at = _up(at, alignment(part))
        yield part, at
        at += size(part)


def has_no_layout(kind: Type) -> Type | None:
    """The first part of a type that lies differently in memory on different targets; None where there is none."""
    if isinstance(kind, Array):
        return has_no_layout(kind.element)
    if isinstance(kind, StructType):
        return next((found for _, part in kind.fields if (found := has_no_layout(part)) is not None), None)
    if isinstance(kind, Vector):
        return kind if kind.length == 3 else None
    return kind if kind is BOOL or kind is F2 else None


def _up(address: int, multiple: int) -> int:
    return -(-address // multiple) * multiple
