"""Programs and kernels as every backend has them: what is checked before a driver sees a launch."""

from __future__ import annotations

import contextlib
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..programs.signature import KernelSignature, Parameter
from .arguments import Converter, Launcher, converters, dimensions, launcher
from .array import Array
from .guests import is_guest
from .order import Queue
from .prepared import Prepared

if TYPE_CHECKING:
    from .base import Device

__all__ = ["Kernel", "Program"]

_SHAPES_KEPT = 256


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
        self._prepared: weakref.WeakSet[Prepared] = weakref.WeakSet()
        # Grids and groups that were found right, in the driver's own form. Empty when the program is closed, so that
        # one look says both that the shape is right and that the kernel is alive.
        self._shapes: dict[Any, Any] = {}

    @property
    def params(self) -> tuple[Parameter, ...] | None:
        """The parameters, as far as they are known."""
        return self.signature.params

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
        """Run `grid` groups of `group` work-items; returns at once, errors in the arguments raise before anything runs.

        `group` may be left out where the kernel fixes it. `shared_bytes` is CUDA's dynamic shared memory. Where arrays of
        other libraries are among the arguments, the launch comes after what they have under way on their current stream,
        and before what they do next; `ordered=False` leaves that to you.
        """
        try:
            # With the classes, because 4.0 is equal to 4 and is no grid all the same.
            shape = self._shapes.get((grid, group, grid.__class__, group.__class__))
        except TypeError:  # a list
            shape = None
        if shape is None:
            shape = self._check_shape(grid, group)
        if queue is None and not shared_bytes and not cooperative and ordered:
            (self._launcher or self._make_launcher())(args, shape)
            return
        if queue is not None:
            for value in args:
                if isinstance(value, Array):
                    value._leave_order()
        values, shared = self._bind(args, cooperative)
        if not ordered or not shared:
            self._launch_specially(values, shape, queue, shared_bytes, cooperative)
            return
        with self.device.ordered_with_guests(shared, queue):
            self._launch_specially(values, shape, queue, shared_bytes, cooperative)

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
        shape = self._check_shape(grid, group)
        if isinstance(args, tuple | list):
            args = tuple(self._adopted(value) for value in args)
        values, _ = self._bind(args, cooperative)
        prepared = self._prepare_launch(args, values, shape, queue, shared_bytes, cooperative)
        if not ordered:
            prepared.ordered = False
            prepared._rebind()
        prepared._hold_arguments()
        self._prepared.add(prepared)
        # By another thread, before it was there to be told.
        if self.program.closed:
            prepared._revoke(f"the program of kernel {self.name} is closed")
        elif any(isinstance(value, Array) and value.handle is None for value in args):
            prepared._revoke("an array it was prepared with is closed")
        return prepared

    def _adopted(self, value: Any) -> Any:
        """Another library's array as an array of this device that shares its memory; anything else as it is."""
        if isinstance(value, Array | np.ndarray | np.generic) or not is_guest(value):
            return value
        shared = self.device._guest_array(value)
        return value if shared is None else shared

    def _bind(self, args: tuple[Any, ...], cooperative: bool) -> tuple[tuple[Any, ...], Sequence[Array]]:
        """The arguments, checked, as the backend's driver takes them; and those that other libraries share."""
        if cooperative:
            self.device.capabilities.require("cooperative")
        if self._binder is None:
            params = self.params or ()
            values = f"return ({''.join(f'v{i}, ' for i in range(len(params)))}), shared"
            self._binder = launcher(self.device, self.name, params, [values], {})
        bound: tuple[tuple[Any, ...], Sequence[Array]] = self._binder(args, None)
        return bound

    def _convert(self, index: int, value: Any) -> Any:
        """One argument, checked, as the backend's driver takes it."""
        if self._converters is None:
            self._converters = converters(self.device, self.name, self.params or ())
        return self._converters[index](value)

    @abstractmethod
    def _prepare_launch(
        self,
        args: tuple[Any, ...],
        values: tuple[Any, ...],
        shape: Any,
        queue: Queue | None,
        shared_bytes: int,
        cooperative: bool,
    ) -> Prepared:
        """Everything bound, ready to be called."""

    def resident_groups(self, group: int | tuple[int, ...] | None = None, shared_bytes: int = 0) -> int:
        """How many groups the device holds at once: the largest grid of a cooperative launch."""
        self.device.capabilities.require("cooperative")
        return self._resident_groups(math.prod(self._check_group(group)), shared_bytes)

    def _resident_groups(self, items: int, shared_bytes: int) -> int:
        raise AssertionError("a device with cooperative launches overrides this")

    def _make_launcher(self) -> Launcher:
        """Made at the first launch: a kernel that is never launched needs none."""
        with self.device._making:  # once: two launchers would each think they know the kernel's arguments
            if self.program.closed:  # by another thread, just now
                self._explain_closed()
            if self._launcher is None:
                params = self.params or ()
                body, helpers = self._launch_body(params)
                self._launcher = launcher(self.device, self.name, params, body, helpers)
            return self._launcher

    def _retire(self) -> None:
        """The program is closed. The launcher knows the kernel and the kernel the launcher: let one of them go, or what
        the driver holds for both would wait for the garbage collector."""
        self._shapes.clear()
        self._launcher = self._binder = None
        for prepared in list(self._prepared):
            prepared._revoke(f"the program of kernel {self.name} is closed")

    def _lose(self, reason: str) -> None:
        """The device is lost to this process (`forks.py`). Nothing is given back: it is all the parent's."""
        self._shapes.clear()
        self._launcher = self._binder = None
        for prepared in list(self._prepared):
            prepared._lose(reason)

    @abstractmethod
    def _launch_body(self, params: tuple[Parameter, ...]) -> tuple[list[str], dict[str, Any]]:
        """Lines of Python that hand v0, v1, … and `shape` to the driver, and the helpers they use."""

    @abstractmethod
    def _launch_specially(
        self, values: tuple[Any, ...], shape: Any, queue: Queue | None, shared_bytes: int, cooperative: bool
    ) -> None:
        """A launch with anything out of the ordinary."""

    def _native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        """A grid and group as this backend's driver takes them."""
        return grid, group

    def _check_shape(self, grid: Any, group: Any) -> Any:
        if self.program.closed:
            self._explain_closed()
        limits = self.device.capabilities
        wanted = dimensions(grid, "grid")
        if any(n > most for n, most in zip(wanted, limits.max_grid, strict=True)):
            raise ArgumentError(f"grid {grid!r} is larger than {limits.max_grid}, the limit of {self.device.spec}")
        shape = self._native_shape(wanted, self._check_group(group))
        if isinstance(grid, int | tuple) and (group is None or isinstance(group, int | tuple)):
            if len(self._shapes) >= _SHAPES_KEPT:
                self._shapes.clear()
            self._shapes[grid, group, grid.__class__, group.__class__] = shape
        return shape

    def _check_group(self, group: Any) -> tuple[int, int, int]:
        if group is None:
            if self.group is None:
                raise ArgumentError(f"{self.name} does not fix its group size: pass group=…")
            return self.group
        shape = dimensions(group, "group")
        if self.group is not None:
            if shape != self.group:
                raise ArgumentError(f"{self.name} is compiled for groups of {self.group}, not {group!r}")
            return shape
        limits = self.device.capabilities
        too_wide = any(n > most for n, most in zip(shape, limits.max_group, strict=True))
        if too_wide or math.prod(shape) > limits.max_group_items:
            limit = f"{limits.max_group_items} work-items, {limits.max_group}"
            raise ArgumentError(f"group {group!r} is larger than {self.device.spec} allows ({limit})")
        return shape

    def _explain_closed(self) -> None:
        self.device._check_open()
        raise DeviceError(f"the program of kernel {self.name} is closed")

    def __repr__(self) -> str:
        params = ", ".join(_described(p) for p in self.params or ())
        return f"<Kernel {self.name}({params}) on {self.device.spec}>"


def _described(param: Parameter) -> str:
    return f"{param.name}: {param.dtype or '?'}{'[]' if param.kind == 'buffer' else ''}"


class Program(ABC):
    """A program loaded on a device."""

    def __init__(self, device: Device, name: str, nbytes: int) -> None:
        self.device = device
        self.name = name
        self.nbytes = nbytes
        self.closed = False
        self.on_ripening: Callable[[], None] | None = None  # called when `ripeness` has grown
        self._kernels: dict[str, Kernel] = {}

    @property
    @abstractmethod
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels in this program."""

    @abstractmethod
    def _make_kernel(self, name: str) -> Kernel:
        """A kernel known to be in `kernel_names`."""

    @abstractmethod
    def _unload(self) -> None:
        """Give the driver its program back."""

    def kernel(self, name: str | None = None) -> Kernel:
        """A kernel by name; the only one if there is one and no name is given."""
        if name is None and len(self.kernel_names) == 1:
            name = self.kernel_names[0]
        found = self._kernels.get(name or "")
        if found is not None and not self.closed:
            return found
        self.device._check_open()
        if self.closed:
            raise DeviceError(f"program {self.name} is closed")
        if name not in self.kernel_names:
            known = ", ".join(self.kernel_names) or "none"
            raise ArgumentError(f"program {self.name} has no kernel {name!r}; it has: {known}")
        return self._kernels.setdefault(name, self._make_kernel(name))

    def make_resident(self) -> None:
        """Have all code on the device now. Beside a kernel that never exits, code that is not there yet cannot be loaded."""
        return None

    @abstractmethod
    def binary(self) -> bytes:
        """The program as bytes that `device.load` takes, as ripe as it is now."""

    @property
    def ripeness(self) -> int:
        """Grows whenever a launch made the driver compile something that `binary()` would now hold."""
        return 0

    def close(self) -> None:
        """Unload; launching its kernels afterwards is a `DeviceError`."""
        with self.device._making:  # once, though several threads may come to close
            if self.closed:
                return
            self.closed = True
        for kernel in list(self._kernels.values()):
            kernel._retire()
        self._kernels.clear()
        self._unload()

    def _lose(self, reason: str) -> None:
        self.closed = True
        for kernel in list(self._kernels.values()):
            kernel._lose(reason)

    def _abandon(self) -> None:
        """Unload a forgotten program. Called by the garbage collector, at any moment, in any thread."""
        self._unload()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.closed = True
            with contextlib.suppress(Exception):  # the interpreter may be half gone
                self._abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Program {self.name} on {self.device.spec}: {', '.join(self.kernel_names)}>"
