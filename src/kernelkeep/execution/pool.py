"""Memory that is used again: blocks and device arrays, by their size.

Taking and giving back are single operations on a list, so that the garbage collector can give a result's memory back at any
moment, in any thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..devices.lanes import Block

if TYPE_CHECKING:
    from .buffers import Buffers

T = TypeVar("T")

_SIZES = 16  # how many different sizes are kept at once


class Pool(Generic[T]):
    """Idle things that `make(nbytes)` made, the last in first out; at most `most` of each size are kept."""

    def __init__(self, make: Callable[[int], T], most: int) -> None:
        self._make = make
        self.most = most
        self._idle: dict[int, list[T]] = {}

    def take(self, nbytes: int) -> T:
        idle = self._idle.pop(nbytes, None)
        if idle is not None:
            self._idle[nbytes] = idle  # the size used last is the last to go
            try:
                return idle.pop()
            except IndexError:
                pass
        return self._make(nbytes)

    def give(self, nbytes: int, thing: T) -> None:
        idle = self._idle.get(nbytes)
        if idle is None:
            while len(self._idle) >= _SIZES:
                self._idle.pop(next(iter(self._idle), None), None)  # type: ignore[arg-type]
            idle = self._idle.setdefault(nbytes, [])
        if len(idle) < self.most:
            idle.append(thing)

    def clear(self) -> bool:
        """Drop everything idle; returns whether there was anything."""
        idle, self._idle = self._idle, {}
        return any(idle.values())


class Loan:
    """A block whose memory is a result of the user. It returns to its owner when the last array on it is collected."""

    __slots__ = ("__array_interface__", "_block", "_lender")

    def __init__(self, block: Block, lender: Buffers) -> None:
        self._block = block
        self._lender = weakref.ref(lender)  # a result may be kept long after the executor is gone
        self.__array_interface__ = {
            "shape": (block.nbytes,),
            "typestr": "|u1",
            "data": (block.address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        lender = self._lender()
        if lender is not None:
            lender.take_back(self._block)
