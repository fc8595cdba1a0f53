"""Every error kernelkeep raises, and its one warning.

    KernelKeepError
    ├── ArgumentError     (also ValueError)   what the caller passed cannot work; nothing was launched
    │   └── GraphError                        a graph of tasks could not run: .edge
    ├── CompileError                          the compiler said no: .log, .line, .name
    ├── DeviceError                           a driver or device failed, is missing or is closed
    │   ├── BinaryRejected                    the driver refuses this binary; compile again
    │   ├── KernelFault                       the reference device found a bug in a kernel: .kind, .line, .item
    │   ├── OutOfMemory   (also MemoryError)  the device cannot hold it
    │   └── TaskSilent                        a task of a resident grid takes long; waiting again is fine
    ├── Unsupported                           the device lacks .capability
    ├── VariantError                          every variant of a tuned kernel is known to fail: .failures
    ├── CheckpointError                       a checkpoint cannot be read or written, or does not fit
    ├── SupervisionError                      supervised work was given up: .history
    └── RemoteError                           a shared cache cannot be reached or is not to be trusted

    CacheWarning          (UserWarning)       a cache cannot be used as it should; programs stay in memory

Driver errors are translated where they happen, in `devices/`; no driver's exception type crosses that line.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for True; `typing` would take longer to load than all the rest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .words import FaultKind

__all__ = [
    "ArgumentError",
    "BinaryRejected",
    "CacheWarning",
    "CheckpointError",
    "CompileError",
    "DeviceError",
    "GraphError",
    "KernelFault",
    "KernelKeepError",
    "OutOfMemory",
    "RemoteError",
    "SupervisionError",
    "TaskSilent",
    "Unsupported",
    "VariantError",
]


class KernelKeepError(Exception):
    """The root of the tree above."""

    def _render_traceback_(self) -> list[str]:
        """IPython and Jupyter ask for what they show of an error; Python itself does not."""
        from .tracebacks import render_traceback

        return render_traceback(self)


class ArgumentError(KernelKeepError, ValueError):
    """What the caller passed cannot work."""


class GraphError(ArgumentError):
    """A graph of tasks could not run to its end, so it was not loaded.

    `edge` names the two nodes of the edge that is wrong, or is None where no single edge is.
    """

    def __init__(self, message: str, *, edge: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.edge = edge

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_graph_error, (str(self), self.edge))


def _rebuild_graph_error(message: str, edge: tuple[str, str] | None) -> GraphError:
    return GraphError(message, edge=edge)


class CompileError(KernelKeepError):
    """The compiler refused a source.

    `log` is the compiler's own text, whole. `line` is the first line it complains about, counted in the text the
    user wrote (for a portable kernel: in its body), or None when the log names no line. `problems` has the mistakes in a
    portable kernel one by one, with their places.
    """

    def __init__(
        self, message: str, *, log: str = "", line: int | None = None, name: str = "", problems: Iterable[Any] = ()
    ) -> None:
        super().__init__(message)
        self.log = log
        self.line = line
        self.name = name
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only fields do not survive the default pickling, and errors cross process pools.
        return (_rebuild_compile_error, (str(self), self.log, self.line, self.name, self.problems))


def _rebuild_compile_error(
    message: str, log: str, line: int | None, name: str, problems: tuple[Any, ...] = ()
) -> CompileError:
    return CompileError(message, log=log, line=line, name=name, problems=problems)


class DeviceError(KernelKeepError):
    """A driver or device failed, is missing or is closed."""


class TaskSilent(DeviceError):
    """A task of a resident grid takes longer than expected. It goes on; waiting for it again is fine."""


class BinaryRejected(DeviceError):
    """The driver refuses this binary; compiling again is the cure."""


class KernelFault(DeviceError):
    """The reference device found a bug in a kernel while it ran.

    `kind` is one of "out of bounds", "uninitialised", "race", "barrier", "overflow", "division by zero", "endless loop" and
    "misaligned". `line` and `column` are counted in the body, `item` is the work-item's global position. `array` and `index`
    name the element, where it is about one.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FaultKind = "",
        kernel: str = "",
        line: int = 0,
        column: int = 0,
        item: tuple[int, int, int] = (0, 0, 0),
        array: str = "",
        index: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.kernel = kernel
        self.line = line
        self.column = column
        self.item = item
        self.array = array
        self.index = index

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_kernel_fault, (str(self), dict(self.__dict__)))


def _rebuild_kernel_fault(message: str, fields: dict[str, Any]) -> KernelFault:
    return KernelFault(message, **fields)


class OutOfMemory(DeviceError, MemoryError):
    """The device cannot hold what was asked of it."""


class Unsupported(KernelKeepError):
    """The device lacks a capability; `capability` names it.

    `line` and `column` tell where the body of a portable kernel needs it, 0 where that is not known.
    """

    def __init__(self, capability: str, message: str | None = None, line: int = 0, column: int = 0) -> None:
        super().__init__(message or f"this device has no {capability}")
        self.capability = capability
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[object, ...]:
        return (Unsupported, (self.capability, str(self), self.line, self.column))


class VariantError(KernelKeepError):
    """Every variant of a tuned kernel is known to fail for a problem, so none is run.

    `failures` has (variant, class, sentence) of each; the classes are those of a tuning's report.
    """

    def __init__(self, message: str, *, failures: Iterable[tuple[dict[str, Any], str, str]] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_variant_error, (str(self), self.failures))


def _rebuild_variant_error(message: str, failures: tuple[tuple[dict[str, Any], str, str], ...]) -> VariantError:
    return VariantError(message, failures=failures)


class CheckpointError(KernelKeepError):
    """A checkpoint cannot be read or written, or does not fit."""


class SupervisionError(KernelKeepError):
    """Supervised work was given up; `history` has an `Incident` for each worker that failed, the last one last."""

    def __init__(self, message: str, *, history: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.history = tuple(history)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_supervision_error, (str(self), self.history))


def _rebuild_supervision_error(message: str, history: tuple[Any, ...]) -> SupervisionError:
    return SupervisionError(message, history=history)


class RemoteError(KernelKeepError):
    """A shared cache cannot be reached or is not to be trusted."""


class CacheWarning(UserWarning):
    """A cache cannot be used as it should; programs stay in memory."""
