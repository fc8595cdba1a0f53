"""A set of objects held weakly, which one thread may go through while others add to it.

`weakref.WeakSet` raises `RuntimeError: Set changed size during iteration` then, also through `list(…)`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class WeakSet(Generic[T]):
    """Objects compared by identity; one that nobody else holds is gone from the set.

    Every operation is one call of a dict, which is atomic, so none needs a lock: a finalizer may use the set too.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, member: T) -> None:
        """Add `member`, or do nothing if it is there."""
        identity, references = id(member), self._references
        references[identity] = weakref.ref(member, lambda _: references.pop(identity, None))

    def discard(self, member: T) -> None:
        """Take `member` out, if it is there."""
        self._references.pop(id(member), None)

    def clear(self) -> None:
        """Take everything out."""
        self._references.clear()

    def __iter__(self) -> Iterator[T]:
        """The members of this moment."""
        alive = (reference() for reference in self._references.copy().values())
        return iter([member for member in alive if member is not None])
