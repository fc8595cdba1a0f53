"""Hooks for tracing. While nobody traces, a hook is one function call that returns an object with nothing to do.

    with span("cache.compile", program=name) as current:
        …
        current.set(bytes=n)

    parent = context()                          # in the thread that asks for something
    with span("preload.load", parent): …        # in the thread that does it

`observe/tracing.py` passes them on to OpenTelemetry. Times are those of `time.perf_counter`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class Span(Protocol):
    """Something that goes on. An exception that leaves its block ends it as a failure."""

    def set(self, **attributes: Any) -> None:
        """Say more of it."""

    def fail(self, error: BaseException) -> None:
        """It did not work, although nothing is raised."""


class Tracing(Protocol):
    """What takes spans. A parent is what `context` or `record` returned, in whatever thread; None for what this thread does."""

    def span(self, name: str, attributes: dict[str, Any], parent: Any) -> AbstractContextManager[Span]:
        """A span for a block."""

    def record(
        self, name: str, start: float, end: float, attributes: dict[str, Any], parent: Any, error: BaseException | None
    ) -> Any:
        """A span that is over; returns what its own parts take as their parent."""

    def context(self) -> Any:
        """What goes on in this thread, to be the parent of what another thread does for it."""


class _NoSpan:
    __slots__ = ()

    def set(self, **attributes: Any) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


_NO_SPAN = _NoSpan()
_tracing: Tracing | None = None


def trace_to(tracing: Tracing | None) -> Tracing | None:
    """Send spans there from now on, or nowhere; returns where they went before."""
    global _tracing
    before, _tracing = _tracing, tracing
    return before


def span(name: str, parent: Any = None, **attributes: Any) -> AbstractContextManager[Span]:
    """A span for a `with` block."""
    tracing = _tracing
    return _NO_SPAN if tracing is None else tracing.span(name, attributes, parent)


def context() -> Any:
    """What goes on in this thread, for `span` and `record` in another one. None while nobody traces."""
    tracing = _tracing
    return None if tracing is None else tracing.context()


def record(
    name: str, start: float, end: float, parent: Any = None, error: BaseException | None = None, **attributes: Any
) -> Any:
    """A span that is over; what it returns is the parent of its parts. Does not raise."""
    tracing = _tracing
    return None if tracing is None else tracing.record(name, start, end, attributes, parent, error)


def is_on() -> bool:
    """Whether anybody traces."""
    return _tracing is not None
