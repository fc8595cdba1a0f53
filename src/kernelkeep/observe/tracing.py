"""Spans for OpenTelemetry: what kernelkeep does, beside the spans of the program that calls it.

Needs opentelemetry-api: the extra `otel`; and in the program an SDK that exports spans. Nothing that goes wrong
there reaches the program.
"""

from __future__ import annotations

import contextlib
import time
from importlib import import_module
from types import ModuleType
from typing import Any, Self

from .. import __version__
from ..activity import spans
from ..errors import ArgumentError, Unsupported
from ..installation import install_command

_PREFIX = "kernelkeep."
_CLOCK_SET_NS = 1_000_000


def trace_to_opentelemetry(tracer_provider: Any = None) -> OpenTelemetryTracing:
    """Make spans of what kernelkeep does in this process from now on, with `tracer_provider` or the global one.

    What it returns ends that with `close()`, and as a context manager. Calling it again replaces the provider.
    """
    if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
        raise ArgumentError(f"tracer_provider must be one of OpenTelemetry, got a {type(tracer_provider).__name__}")
    tracing = OpenTelemetryTracing(tracer_provider)
    spans.trace_to(tracing)
    return tracing


class OpenTelemetryTracing:
    """Where spans go, until `close()`. A context manager that closes it."""

    def __init__(self, tracer_provider: Any = None) -> None:
        self._trace = _load("opentelemetry.trace")
        self._context = _load("opentelemetry.context")
        self._tracer = self._trace.get_tracer("kernelkeep", __version__, tracer_provider)
        self._offset_ns = 0

    def _clock_offset(self) -> int:
        """From `time.perf_counter_ns` to `time.time_ns`; the same as before unless the clock was set: spans stay in order."""
        offset = time.time_ns() - time.perf_counter_ns()
        if abs(offset - self._offset_ns) > _CLOCK_SET_NS:
            self._offset_ns = offset
        return self._offset_ns

    def span(self, name: str, attributes: dict[str, Any], parent: Any) -> _OpenSpan:
        """A span for a block."""
        return _OpenSpan(self, name, attributes, parent)

    def record(
        self, name: str, start: float, end: float, attributes: dict[str, Any], parent: Any, error: BaseException | None
    ) -> Any:
        """A span that is over, with times of `time.perf_counter`; returns what its parts take as their parent."""
        with contextlib.suppress(Exception):
            offset = self._clock_offset()
            found = self.start(name, attributes, parent, offset + round(start * 1e9))
            if error is not None:
                self.note_failure(found, error)
            found.end(offset + round(end * 1e9))
            return self._trace.set_span_in_context(found, parent)
        return parent

    def context(self) -> Any:
        """What goes on in this thread."""
        with contextlib.suppress(Exception):
            return self._context.get_current()
        return None

    def start(self, name: str, attributes: dict[str, Any], parent: Any, start_ns: int | None = None) -> Any:
        """A span that has begun and is not the current one of any thread."""
        return self._tracer.start_span(_PREFIX + name, parent, attributes=_plain(attributes), start_time=start_ns)

    def enter(self, span: Any, parent: Any) -> Any:
        """Make a span the current one of this thread; returns what `leave` takes."""
        return self._context.attach(self._trace.set_span_in_context(span, parent))

    def leave(self, token: Any) -> None:
        """Make the one before the current one."""
        self._context.detach(token)

    def note_failure(self, span: Any, error: BaseException) -> None:
        """Have the span say what went wrong."""
        span.record_exception(error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))

    def close(self) -> None:
        """No more spans. Doing it twice is fine."""
        other = spans.trace_to(None)
        if other is not self:
            spans.trace_to(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _OpenSpan:
    """A span that goes on in the thread that opened it."""

    def __init__(self, tracing: OpenTelemetryTracing, name: str, attributes: dict[str, Any], parent: Any) -> None:
        self._tracing, self._name, self._attributes, self._parent = tracing, name, attributes, parent
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> _OpenSpan:
        with contextlib.suppress(Exception):
            self._span = self._tracing.start(self._name, self._attributes, self._parent)
            self._token = self._tracing.enter(self._span, self._parent)
        return self

    def set(self, **attributes: Any) -> None:
        """Say more of it."""
        with contextlib.suppress(Exception):
            self._span.set_attributes(_plain(attributes))

    def fail(self, error: BaseException) -> None:
        """It did not work."""
        with contextlib.suppress(Exception):
            self._tracing.note_failure(self._span, error)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.fail(error)
        if self._token is not None:
            with contextlib.suppress(Exception):
                self._tracing.leave(self._token)
        with contextlib.suppress(Exception):
            self._span.end()


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        _PREFIX + name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in attributes.items()
        if value is not None
    }


def _load(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise Unsupported(
            "opentelemetry", f"spans need opentelemetry-api ({error}); install it with: {install_command('otel')}"
        ) from None
