"""A kernel as every backend has it: what is checked before a driver sees a launch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..errors import ArgumentError, DeviceError
from ..programs.signature import KernelSignature, Parameter
from ..weak_set import WeakSet
from .arguments import Converter, Launcher, converters, dimensions, launcher
from .array import Array
from .guests import is_guest
from .prepared import LaunchOptions, Prepared
from .synchronization import Queue

if TYPE_CHECKING:
    from .program import Program

_SHAPES_KEPT = 256
_PLAIN = LaunchOptions()


class FastLaunch(NamedTuple):
    """Python code for the usual launch: `lines` in terms of v0, v1, … (the checked values), `shape` and `names`.

    The lines become part of the function that checks the arguments, so that a launch is one Python call. On a device that
    shares memory with other libraries, `shared` lists the arrays they use as well.
    """

    lines: list[str]
    names: dict[str, Any]


class Kernel(ABC):
    """One kernel of a loaded program. Safe to launch from several threads."""

    def __init__(self, program: Program, signature: KernelSignature) -> None:
        self.program = program
        self.device = program.device
        self.name = signature.name
        self.signature = signature
        self.group = signature.group
        self._launcher: Launcher | None = None
        self._binder: Launcher | None = None
        self._converters: tuple[Converter, ...] | None = None
        self._prepared: WeakSet[Prepared] = WeakSet()
        # Checked grids and groups in the driver's form. Emptied when the program is closed, so that one lookup tells
        # that the shape is right and that the kernel is usable.
        self._shapes: dict[Any, Any] = {}

    @property
    def params(self) -> tuple[Parameter, ...] | None:
        """The parameters, as far as they are known."""
        return self.signature.params

    # --- what a backend supplies

    @abstractmethod
    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        """Launch; need not wait.

        `values` are the checked arguments: an array's handle for a buffer, a NumPy scalar for a scalar of known dtype,
        bytes where only the size is known, a `LocalMemory`. `shape` is what `native_shape` returned. `options` passed
        `check_options`.
        """

    def native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        """A grid and group in the form `enqueue` takes; kept and used for every launch of that shape."""
        return grid, group

    def note_new_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> None:
        """Called before the first launch of a shape, and perhaps again; may raise what keeps the driver from launching."""
        return None

    def check_options(self, options: LaunchOptions) -> None:
        """Raise `ArgumentError` or `Unsupported` for options this device cannot do."""
        if options.cooperative:
            self.device.capabilities.require("cooperative")
        if options.queue is not None and not self.device.capabilities.queues:
            raise ArgumentError(f"queue must be None: {self.device.spec} has one queue only")
        if options.shared_bytes:
            raise ArgumentError(
                f"shared_bytes must be 0 on {self.device.spec}, which has no dynamic shared memory, got {options.shared_bytes}"
            )

    def bind_launch(
        self, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> Prepared:
        """A launch with everything bound, ready to be called; a backend whose driver keeps bound arguments returns its own."""
        return Prepared(self, args, values, shape, options)

    def fast_launch(self) -> FastLaunch | None:
        """Code for the usual launch, where it is measurably quicker than `enqueue`; None where it is not."""
        return None

    def launch_first(self, args: tuple[Any, ...], shape: Any) -> bool:
        """Launch before a launcher is made, where that is quicker; False if nothing was launched."""
        return False

    def native_launcher(self, slow: Launcher) -> Launcher | None:
        """`slow`, which checks and launches, for the usual arguments and without Python; None if the backend has none."""
        return None

    def count_resident_groups(self, items: int, shared_bytes: int) -> int:
        """How many groups of `items` work-items the device holds at once; for devices with cooperative launches."""
        raise NotImplementedError(f"{self.device.spec} has cooperative launches and does not count resident groups")

    def release(self) -> None:
        """The program is closed: drop what the driver holds for this kernel."""
        return None

    # --- what users call

    def launch(
        self,
        grid: int | tuple[int, ...],
        args: tuple[Any, ...] = (),
        group: int | tuple[int, ...] | None = None,
        *,
        queue: Queue | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        ordered: bool = True,
    ) -> None:
        """Run `grid` groups of `group` work-items; returns at once. Wrong arguments raise before anything runs.

        `group` may be left out where the kernel fixes it. `shared_bytes` is CUDA's dynamic shared memory. Where arrays of
        other libraries are among the arguments, the launch comes after what they have under way on their current stream,
        and before what they do next; `ordered=False` leaves that to you.
        """
        if group is None and grid.__class__ is int:
            shape = self._shapes.get(grid)
        else:
            try:
                # The classes are part of the key because 4.0 == 4, but 4.0 is not a valid grid.
                shape = self._shapes.get((grid, group, grid.__class__, group.__class__))
            except TypeError:  # a list
                shape = None
        if shape is None:
            shape = self.check_shape(grid, group)
        if queue is None and not shared_bytes and not cooperative and ordered:
            launch = self._launcher
            if launch is not None:
                launch(args, shape)
            elif not self.launch_first(args, shape):
                self._make_launcher()(args, shape)
            return
        options = LaunchOptions(queue, shared_bytes, cooperative)
        self.check_options(options)
        if queue is not None and isinstance(args, tuple | list):
            for value in args:  # before the handles are read: another thread may close an array right afterwards
                if isinstance(value, Array):
                    value.stop_recycling()
        values, shared = self.check_arguments(args)
        self.enqueue_ordered(values, shape, options, shared if ordered else ())

    def enqueue_ordered(
        self, values: Sequence[Any], shape: Any, options: LaunchOptions, shared: Sequence[Array]
    ) -> None:
        """`enqueue`, after other libraries' work on the arrays they share, and before what they do next."""
        if not shared:
            self.enqueue(values, shape, options)
            return
        with self.device.guests.ordered(self.device, shared, options.queue):
            self.enqueue(values, shape, options)

    def prepare(
        self,
        grid: int | tuple[int, ...],
        args: tuple[Any, ...] = (),
        group: int | tuple[int, ...] | None = None,
        *,
        queue: Queue | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        ordered: bool = True,
    ) -> Prepared:
        """The same launch with everything checked and bound once: call what comes back to launch, again and again.

        Each call is ordered with other libraries' work on arrays they share, as in `launch`.
        """
        shape = self.check_shape(grid, group)
        options = LaunchOptions(queue, shared_bytes, cooperative)
        self.check_options(options)
        if isinstance(args, tuple | list):
            args = tuple(self.adopt(value) for value in args)
        values, _ = self.check_arguments(args)
        prepared = self.bind_launch(args, values, shape, options)
        self._prepared.add(prepared)
        prepared.activate(ordered)
        return prepared

    def resident_groups(self, group: int | tuple[int, ...] | None = None, shared_bytes: int = 0) -> int:
        """How many groups the device holds at once: the largest grid of a cooperative launch."""
        self.device.capabilities.require("cooperative")
        return self.count_resident_groups(math.prod(self._check_group(group)), shared_bytes)

    # --- checks

    def adopt(self, value: Any) -> Any:
        """Another library's array as an array of this device that shares its memory; anything else as it is."""
        if isinstance(value, Array) or not is_guest(value):
            return value
        shared = self.device.guests.adopt(self.device, value)
        return value if shared is None else shared

    def check_arguments(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Sequence[Array]]:
        """The arguments as `enqueue` takes them, and the arrays among them that other libraries use as well."""
        if self._binder is None:
            params = self.params or ()
            values = f"return ({''.join(f'v{i}, ' for i in range(len(params)))}), shared"
            self._binder = launcher(self.device, self.name, params, [values], {})
        bound: tuple[tuple[Any, ...], Sequence[Array]] = self._binder(args, None)
        return bound

    def convert(self, index: int, value: Any) -> Any:
        """One argument, checked, as `enqueue` takes it."""
        if self._converters is None:
            self._converters = converters(self.device, self.name, self.params or ())
        return self._converters[index](value)

    def _make_launcher(self) -> Launcher:
        """The function that checks and launches, made at the first launch."""
        with self.device.creation_lock:  # once: two launchers would each remember different arguments as set
            if self.program.closed:  # by another thread, just now
                self.raise_closed()
            if self._launcher is None:
                self._launcher = self.native_launcher(self._launch_slowly) or self._make_slow_launcher()
            return self._launcher

    def _make_slow_launcher(self) -> Launcher:
        code = self.fast_launch()
        if code is None:
            return self._launch_checked
        return launcher(self.device, self.name, self.params or (), code.lines, code.names)

    def _launch_slowly(self, args: tuple[Any, ...], shape: Any) -> None:
        """The first launch with arguments that the launch in C leaves to others: many kernels never need what is made here."""
        with self.device.creation_lock:
            if self.program.closed:
                self.raise_closed()
            slow = self._make_slow_launcher()
            self._launcher = self.native_launcher(slow)
        slow(args, shape)

    def _launch_checked(self, args: tuple[Any, ...], shape: Any) -> None:
        values, shared = self.check_arguments(args)
        self.enqueue_ordered(values, shape, _PLAIN, shared)

    def check_shape(self, grid: Any, group: Any) -> Any:
        """A grid and group as `enqueue` takes them; `ArgumentError` if they do not fit the device or the kernel."""
        if self.program.closed:
            self.raise_closed()
        x, y, z = wanted = dimensions(grid, "grid")
        most = self.device.capabilities.max_grid
        if x > most[0] or y > most[1] or z > most[2]:
            raise ArgumentError(f"grid must be at most {most} on {self.device.spec}, got {grid!r}")
        checked_group = self._check_group(group)
        self.note_new_shape(wanted, checked_group)
        shape = self.native_shape(wanted, checked_group)
        if isinstance(grid, int | tuple) and (group is None or isinstance(group, int | tuple)):
            if len(self._shapes) >= _SHAPES_KEPT:
                self._shapes.clear()
            key = grid if group is None and grid.__class__ is int else (grid, group, grid.__class__, group.__class__)
            self._shapes[key] = shape
        return shape

    def _check_group(self, group: Any) -> tuple[int, int, int]:
        if group is None:
            if self.group is None:
                raise ArgumentError(f"group must be given: {self.name} does not fix its size")
            return self.group
        shape = dimensions(group, "group")
        if self.group is not None:
            if shape != self.group:
                raise ArgumentError(f"group must be {self.group}, for which {self.name} is compiled, got {group!r}")
            return shape
        limits = self.device.capabilities
        too_wide = any(n > most for n, most in zip(shape, limits.max_group, strict=True))
        if too_wide or math.prod(shape) > limits.max_group_items:
            limit = f"{limits.max_group} and {limits.max_group_items} work-items"
            raise ArgumentError(f"group must be at most {limit} on {self.device.spec}, got {group!r}")
        return shape

    # --- closing

    def raise_closed(self) -> NoReturn:
        """Raise the `DeviceError` for a closed device or program."""
        self.device.check_open()
        raise DeviceError(f"the program of kernel {self.name} is closed")

    def retire(self) -> None:
        """The program is closed: launches raise from now on, prepared ones too."""
        self._forget_launchers()
        for prepared in list(self._prepared):
            prepared.revoke(f"the program of kernel {self.name} is closed")
        self.release()

    def mark_lost(self, reason: str) -> None:
        """The device is lost to this process (`forks.py`). Nothing is given back: it is all the parent's."""
        self._forget_launchers()
        for prepared in list(self._prepared):
            prepared.mark_lost(reason)

    def _forget_launchers(self) -> None:
        # The launcher knows the kernel and the kernel the launcher: what the driver holds for both would wait for the
        # garbage collector.
        self._shapes.clear()
        self._launcher = self._binder = None

    def __repr__(self) -> str:
        params = ", ".join(_described(p) for p in self.params or ())
        return f"<Kernel {self.name}({params}) on {self.device.spec}>"


def _described(param: Parameter) -> str:
    return f"{param.name}: {param.dtype or '?'}{'[]' if param.kind == 'buffer' else ''}"
