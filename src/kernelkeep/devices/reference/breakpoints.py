"""Breakpoints in the bodies of kernels.

    device.breakpoints.set(3)                                    # opens Python's debugger; `stop` is there
    device.breakpoints.set(3, seen.append, kernel="saxpy", when=lambda stop: stop.item[0] == 7)

A breakpoint is on a line of the body. Each work-item that comes to a statement on that line stops before it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...errors import ArgumentError


class Stop(NamedTuple):
    """A work-item that came to a breakpoint: its place, its variables, and the arrays of the launch."""

    kernel: str
    line: int
    item: tuple[int, int, int]
    variables: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray[Any, Any]]


class _Breakpoint(NamedTuple):
    line: int
    call: Callable[[Stop], object]
    kernel: str | None
    when: Callable[[Stop], object] | None


class Breakpoints:
    """The breakpoints of one device."""

    def __init__(self) -> None:
        self._all: list[_Breakpoint] = []

    def set(
        self,
        line: int,
        call: Callable[[Stop], object] | None = None,
        *,
        kernel: str | None = None,
        when: Callable[[Stop], object] | None = None,
    ) -> None:
        """Call `call` with a `Stop` before each statement on a line; without it, open Python's debugger.

        `kernel` names the one kernel it is for, and `when` decides for each work-item.
        """
        if not isinstance(line, int) or line < 1:
            raise ArgumentError(f"line must be the number of a line of the body, got {line!r}")
        self._all.append(_Breakpoint(line, call or _debug, kernel, when))

    def clear(self) -> None:
        """Remove all."""
        self._all.clear()

    def lines(self, kernel: str) -> frozenset[int]:
        """The lines of a kernel that have one."""
        return frozenset(one.line for one in self._all if one.kernel in (None, kernel))

    def meet(self, stop: Stop) -> None:
        """A work-item came to a line."""
        for one in list(self._all):
            if one.line == stop.line and one.kernel in (None, stop.kernel) and (one.when is None or one.when(stop)):
                one.call(stop)


def _debug(stop: Stop) -> None:
    builtins.breakpoint()  # `stop` has the work-item's variables; `up` shows nothing of use
