"""A launch that is checked and bound once, and then called again and again.

All checks are made when it is prepared or updated, so a call is little more than the driver's own. Closing an array or the
program *revokes* every launch bound to it: calling one of those is a `DeviceError` that says why.

`Prepared` works on any device by `kernel.enqueue`. A backend whose driver keeps bound arguments overrides `__call__`,
`bind`, `arm` and `disarm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from ..errors import ArgumentError, DeviceError
from ..weak_set import WeakSet
from .array import Array

if TYPE_CHECKING:
    from .kernel import Kernel
    from .synchronization import Queue


class LaunchOptions(NamedTuple):
    """What a launch has beside its shape and arguments; `queue` None is the device's own."""

    queue: Queue | None = None
    shared_bytes: int = 0
    cooperative: bool = False


class PreparedObserver(Protocol):
    """Holds a copy of a prepared launch's arguments, as a graph does."""

    def prepared_changed(self, prepared: Prepared) -> None:
        """Its arguments changed, or it was revoked."""


class Prepared:
    """A launch that is checked and bound: calling it launches, and returns at once. Made by `kernel.prepare(grid, args)`.

    It keeps its arguments alive. Several threads may call it; `update` is not to run beside a call in another thread.
    """

    # `values` are the arguments as the driver takes them, `shape` is what `kernel.native_shape` returned. `revoked` says why
    # it may not run any more, and is empty as long as it may.

    def __init__(
        self, kernel: Kernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        self.kernel = kernel
        self.shape = shape
        self.options = options
        self.values: list[Any] = list(values)
        self.revoked = ""
        self.ordered = True  # with other libraries' work on the arrays they share
        self._args = list(args)
        self._observers: WeakSet[PreparedObserver] | None = None

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments as they are now."""
        return tuple(self._args)

    def __call__(self) -> None:
        self._enqueue(self.options)

    def _enqueue(self, options: LaunchOptions) -> None:
        values = self.values  # before the look at `revoked`: revoking sets that first, then takes the values away
        if self.revoked:
            self.refuse()
        self.kernel.enqueue_ordered(values, self.shape, options, self.shared)

    def on_device_queue(self) -> Callable[[], None]:
        """This launch as a call on the device's own queue, also where it was prepared for another."""
        options = LaunchOptions(None, self.options.shared_bytes, self.options.cooperative)
        return self if self.options.queue is None else lambda: self._enqueue(options)

    def update(self, which: int | str, value: Any) -> None:
        """Exchange one argument, by its place or its name, for the launches from now on.

        A value that does not fit is refused, and the old one stays.
        """
        index = self._index_of(which)
        if self.revoked and self.kernel.program.closed:
            self.refuse()  # no argument can change that
        value = self.kernel.adopt(value)
        before = self._args[index]
        self.bind(index, self.kernel.convert(index, value))
        self._args[index] = value
        if value is not before:
            if isinstance(before, Array) and not any(before is kept for kept in self._args):
                before.remove_observer(self)
            self._observe(value)
        if self.revoked:
            self._rearm_unless_closed()
        elif _is_shared(before) or _is_shared(value):
            self.arm()
        if self._observers is not None:
            self._notify()

    # --- what a backend may replace

    def bind(self, index: int, value: Any) -> None:
        """Bind a checked value in place of the old one."""
        self.values[index] = value

    def arm(self) -> None:
        """Have calls launch; called again when the arguments are shared with another library from now on."""

    def disarm(self) -> None:
        """Have calls `refuse()`, and drop what belongs to closed arrays or a closed program."""
        self.values = self.open_values()

    # --- what a backend uses

    @property
    def shared(self) -> list[Array]:
        """The arguments that other libraries use as well, and with whose work a call is to be ordered."""
        if not self.kernel.device.guests.supported or not self.ordered:
            return []
        return [value for value in self._args if _is_shared(value)]

    def open_values(self) -> list[Any]:
        """The bound values, with None in place of what is closed."""
        if self.kernel.program.closed:
            return [None] * len(self.values)
        return [
            None if isinstance(arg, Array) and arg.handle is None else value
            for arg, value in zip(self._args, self.values, strict=True)
        ]

    def refuse(self, *_: Any) -> NoReturn:
        """Raise the `DeviceError` that says why it was revoked."""
        name, spec = self.kernel.name, self.kernel.device.spec
        raise DeviceError(f"this prepared launch of {name} on {spec} cannot run: {self.revoked}")

    # --- what the kernel, the arrays and graphs call

    def activate(self, ordered: bool) -> None:
        """Called once, when the backend has made it: watch the arguments from now on."""
        if not ordered:
            self.ordered = False
            self.arm()
        for value in self._args:
            self._observe(value)
        # Another thread may have closed something before it was observed.
        if self.kernel.program.closed:
            self.revoke(f"the program of kernel {self.kernel.name} is closed")
        elif self._has_closed_array():
            self.revoke("an array it was prepared with is closed")

    def add_observer(self, observer: PreparedObserver) -> None:
        """Tell `observer` when the arguments change or the launch is revoked."""
        if self._observers is None:
            self._observers = WeakSet()
        self._observers.add(observer)

    def revoke(self, reason: str) -> None:
        """From now on calling this is an error, until `update` has replaced what is closed."""
        self.mark_lost(reason)
        self._notify()

    def mark_lost(self, reason: str) -> None:
        """Like `revoke`, after a fork. Observers are not told: they learn it themselves, and may wait for a lock."""
        self.revoked = reason
        self.disarm()

    def sharing_changed(self) -> None:
        """An argument is shared with another library from now on."""
        if not self.revoked:
            self.arm()
        self._notify()

    def _notify(self) -> None:
        for observer in self._observers or ():
            observer.prepared_changed(self)

    def _observe(self, value: Any) -> None:
        if isinstance(value, Array):
            value.add_observer(self)
            value.stop_recycling()  # it may be called on any queue

    def _rearm_unless_closed(self) -> None:
        if not self._has_closed_array() and not self.kernel.program.closed:
            self.revoked = ""
            self.arm()

    def _has_closed_array(self) -> bool:
        return any(isinstance(value, Array) and value.handle is None for value in self._args)

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
            raise ArgumentError(f"which must be the index or the name of an argument, got {which!r}") from None
        if not -len(self._args) <= index < len(self._args):
            raise ArgumentError(
                f"which must be below {len(self._args)}, the number of arguments of {self.kernel.name}, got {index}"
            )
        return index % len(self._args)

    def __repr__(self) -> str:
        return f"<Prepared {self.kernel.name} on {self.kernel.device.spec}>"


def _is_shared(value: Any) -> bool:
    return isinstance(value, Array) and value.peers is not None
