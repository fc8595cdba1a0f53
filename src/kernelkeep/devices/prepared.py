"""A launch that is checked and bound once, and then called again and again.

All checks are made when it is prepared or updated, so a call is little more than the driver's own. What could make a
bound launch unsafe later announces itself instead: closing an array or the program *revokes* every launch bound to it,
and calling one of those is a `DeviceError` that says why.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..errors import ArgumentError, DeviceError
from .array import Array

if TYPE_CHECKING:
    from .program import Kernel

__all__ = ["Prepared"]


class _Watcher(Protocol):
    """A graph, as far as a prepared launch needs to know it."""

    def _changed(self, prepared: Prepared) -> None: ...


class Prepared(ABC):
    """Made by `kernel.prepare(grid, args)`. Calling it launches, and returns at once.

    It keeps its arguments alive. Several threads may call it; `update` is not to run beside a call in another thread.
    """

    def __init__(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        self.kernel = kernel
        self._args = list(args)
        self._graphs: weakref.WeakSet[_Watcher] | None = None  # those that hold a copy of the arguments
        self._reason = ""  # why it may not run any more
        self.ordered = True  # with other libraries' work on the arrays they share

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments as they are now."""
        return tuple(self._args)

    @abstractmethod
    def __call__(self) -> None: ...

    def update(self, which: int | str, value: Any) -> None:
        """Exchange one argument, by its place or its name, for the launches from now on.

        A value that does not fit is refused, and the old one stays.
        """
        index = self._index_of(which)
        if self._reason and self.kernel.program.closed:
            self._refuse()  # nothing can mend that
        value = self.kernel._adopted(value)
        before = self._args[index]
        self._put(index, self.kernel._convert(index, value))
        self._args[index] = value
        if value is not before:
            self._let_go(before)
            self._hold(value)
        if self._reason:
            self._mend()
        elif _is_shared(before) or _is_shared(value):
            self._arm()
        if self._graphs is not None:
            for graph in self._graphs:
                graph._changed(self)

    @abstractmethod
    def _put(self, index: int, native: Any) -> None:
        """Bind a checked value in place of the old one."""

    @abstractmethod
    def _arm(self) -> None:
        """Have calls launch."""

    @abstractmethod
    def _disarm(self, refuse: Callable[..., NoReturn]) -> None:
        """Have calls do `refuse` instead."""

    @property
    def shared(self) -> list[Array]:
        """The arguments that other libraries use as well, and with whose work a call is to be ordered."""
        return [value for value in self._args if _is_shared(value)] if self.ordered else []

    def _rebind(self) -> None:
        """An argument is shared with another library from now on, or no longer to be ordered with it."""
        if not self._reason:
            self._arm()
        for graph in self._graphs or ():
            graph._changed(self)

    def _in_order(self) -> Callable[[], None]:
        """This launch as a step of a list that keeps its order: on the device's own queue, whichever it was bound to."""
        return self

    def _watch(self, graph: _Watcher) -> None:
        if self._graphs is None:
            self._graphs = weakref.WeakSet()
        self._graphs.add(graph)

    def _hold_arguments(self) -> None:
        """Be told from now on when one of them is closed."""
        for value in self._args:
            self._hold(value)

    def _hold(self, value: Any) -> None:
        if isinstance(value, Array):
            value._tell_when_closed(self)
            value._leave_order()  # it may be called on any queue

    def _let_go(self, value: Any) -> None:
        if isinstance(value, Array) and value._bound_in is not None and not any(value is kept for kept in self._args):
            value._bound_in.discard(self)

    def _revoke(self, reason: str) -> None:
        """From now on calling this is an error, until `update` has put something else in the place of what is closed."""
        self._reason = reason
        self._disarm(self._refuse)
        for graph in self._graphs or ():
            graph._changed(self)

    def _lose(self, reason: str) -> None:
        """Like `_revoke`, for good, and without a word to graphs: they learn it themselves, and may wait for a lock."""
        self._reason = reason
        self._disarm(self._refuse)

    def _still_open(self, natives: list[Any]) -> list[Any]:
        """What is bound, without the memory of arrays that are closed."""
        if self.kernel.program.closed:
            return [None] * len(natives)
        return [
            None if isinstance(value, Array) and value.handle is None else native
            for value, native in zip(self._args, natives, strict=True)
        ]

    def _refuse(self, *_: Any) -> NoReturn:
        name, spec = self.kernel.name, self.kernel.device.spec
        raise DeviceError(f"this prepared launch of {name} on {spec} cannot run: {self._reason}")

    def _mend(self) -> None:
        closed = any(isinstance(value, Array) and value.handle is None for value in self._args)
        if not closed and not self.kernel.program.closed:
            self._reason = ""
            self._arm()

    def _index_of(self, which: Any) -> int:
        if which.__class__ is int and 0 <= which < len(self._args):
            return which
        names = [param.name for param in self.kernel.params or ()]
        if isinstance(which, str):
            if which in names:
                return names.index(which)
            raise ArgumentError(f"{self.kernel.name} has no argument {which!r}; it has: {', '.join(names) or 'none'}")
        try:
            index = int(which.__index__())
        except AttributeError:
            raise ArgumentError(f"an argument goes by its place or its name, not by {which!r}") from None
        if not -len(self._args) <= index < len(self._args):
            raise ArgumentError(f"{self.kernel.name} has {len(self._args)} arguments, and none at {index}")
        return index % len(self._args)

    def __repr__(self) -> str:
        return f"<Prepared {self.kernel.name} on {self.kernel.device.spec}>"


def _is_shared(value: Any) -> bool:
    return isinstance(value, Array) and value.peers is not None
