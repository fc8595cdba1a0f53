"""Checks a launch's arguments against the kernel's signature before the driver sees them.

Each parameter has a converter from what the caller passed to what the backend takes: the array's handle for a buffer, a
NumPy scalar for a scalar of known dtype, bytes where only the size is known. A wrong argument raises an error that says
what to pass instead.

`launcher(…)` generates one function, as `dataclasses` does, that checks all arguments and then runs the backend's lines.
The usual case of each argument is inline: a Python call for each would cost as much as the driver's launch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..programs.signature import Parameter
from .array import Array
from .guests import is_guest
from .views import CopyOnly

if TYPE_CHECKING:
    from .base import Device

Converter = Callable[..., Any]
Launcher = Callable[[tuple[Any, ...], Any], Any]


class LocalMemory:
    """`nbytes` of group-local memory, for an OpenCL kernel's `__local` pointer parameter."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        if not isinstance(nbytes, int) or nbytes <= 0:
            raise ArgumentError(f"nbytes must be a positive integer, got {nbytes!r}")
        self.nbytes = nbytes


def converters(device: Device, kernel: str, params: tuple[Parameter, ...]) -> tuple[Converter, ...]:
    """One converter for each parameter, in order."""
    makers = {"buffer": _buffer, "scalar": _scalar, "local": _local, "any": _any}
    return tuple(makers[p.kind](device, f"argument {i} ({p.name}) of {kernel}", p) for i, p in enumerate(params))


def launcher(
    device: Device, kernel: str, params: tuple[Parameter, ...], body: list[str], names: dict[str, Any]
) -> Launcher:
    """A function of a launch's arguments and shape that checks the arguments and then runs `body` (see `FastLaunch`)."""
    scope: dict[str, Any] = {
        "Array": Array,
        "ArgumentError": ArgumentError,
        "device": device,
        "as_tuple": partial(_as_tuple, kernel),
        "wrong_count": partial(_wrong_count, kernel, params),
        "convert": _when_needed(device, kernel, params),
        "shared": (),
        **names,
    }
    for i, param in enumerate(params):
        if param.dtype is not None:
            dtype = _dtype(param.dtype)
            scope[f"t{i}"] = dtype if param.kind == "buffer" else dtype.type
    kinds = tuple((param.kind, param.dtype is not None) for param in params)
    exec(_compiled(kinds, tuple(body), device.guests.supported), scope)
    made: Launcher = scope.pop("launch_checked")  # or the function and its scope would hold each other
    return made


_dtype = lru_cache(np.dtype)


def _when_needed(device: Device, kernel: str, params: tuple[Parameter, ...]) -> Converter:
    """The converters by number, made at the first unusual argument: making them takes longer than a launch."""
    made: tuple[Converter, ...] = ()

    def convert(index: int, *values: Any) -> Any:
        nonlocal made
        if not made:
            made = converters(device, kernel, params)
        return made[index](*values)

    return convert


@lru_cache(maxsize=256)
def _compiled(params: tuple[tuple[str, bool], ...], body: tuple[str, ...], takes_guests: bool) -> CodeType:
    """The code of a launcher, shared by kernels with the same kinds of parameters: compiling takes 0.2 ms.

    `params` has the kind of each parameter and whether its dtype is known; a known dtype is compared inline.
    """
    count = len(params)
    lines = [
        "def launch_checked(args, shape):",
        "    if args.__class__ is not tuple:",
        "        args = as_tuple(args)",
        f"    if len(args) != {count}:",
        "        raise wrong_count(args)",
    ]
    if params:
        lines.append(f"    {', '.join(f'a{i}' for i in range(count))}, = args")
    if takes_guests:
        lines.append("    shared = []")
    for i, (kind, typed) in enumerate(params):
        if kind == "buffer":
            same = f" and a{i}.dtype is t{i}" if typed else ""
            usual = f"a{i}.__class__ is Array and a{i}.device is device{same} and (ready := a{i}.ready) is not None"
            lines.append(f"    v{i} = ready if {usual} else convert({i}, a{i}, shared)")
        elif kind == "scalar" and typed:
            lines.append(f"    v{i} = a{i} if a{i}.__class__ is t{i} else convert({i}, a{i})")
        else:
            lines.append(f"    v{i} = convert({i}, a{i}{', shared' if kind == 'any' else ''})")
    lines.extend(f"    {line}" for line in body)
    return compile("\n".join(lines), "<kernelkeep launcher>", "exec")


def _as_tuple(kernel: str, args: Any) -> tuple[Any, ...]:
    if not isinstance(args, tuple | list):
        raise ArgumentError(f"args of {kernel} must be a tuple of arguments, got {_described(args)}: write args=(x, …)")
    return tuple(args)


def _wrong_count(kernel: str, params: tuple[Parameter, ...], args: tuple[Any, ...]) -> ArgumentError:
    names = [param.name for param in params]
    takes = f"{len(names)} argument{'' if len(names) == 1 else 's'}"
    missing = names[len(args) :]
    lacks = f"; {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
    pass_these = f"pass args=({', '.join(names)}{',' if len(names) == 1 else ''}){lacks}"
    return ArgumentError(f"{kernel} takes {takes}, got {len(args)}: {pass_these}")


def dimensions(value: Any, what: str) -> tuple[int, int, int]:
    """A grid or group as three positive integers."""
    if value.__class__ is int and value > 0:  # the usual one, on the way of a first launch
        return value, 1, 1
    sizes = value if isinstance(value, tuple | list) else (value,)
    try:
        parsed = tuple(int(size.__index__()) for size in sizes)
    except (AttributeError, TypeError):
        raise ArgumentError(f"{what} must be one to three positive integers, got {value!r}") from None
    if not 1 <= len(parsed) <= 3 or min(parsed) < 1:
        raise ArgumentError(f"{what} must be one to three positive integers, got {value!r}")
    x, y, z = (*parsed, 1, 1)[:3]
    return x, y, z


@overload
def groups(items: int, group: int = 256) -> int: ...
@overload
def groups(items: tuple[int, ...], group: tuple[int, ...]) -> tuple[int, ...]: ...
def groups(items: int | tuple[int, ...], group: int | tuple[int, ...] = 256) -> int | tuple[int, ...]:
    """How many groups of `group` work-items cover `items`, for `grid=`; for tuples, in each dimension.

    `kk.groups(1000, 256)` is 4, and `kk.groups((640, 480), (16, 16))` is (40, 30).
    """
    sizes = items if isinstance(items, tuple | list) else (items,)
    each = group if isinstance(group, tuple | list) else (group,)
    for name, given in (("items", sizes), ("group", each)):
        if not 1 <= len(given) <= 3 or any(
            isinstance(one, bool) or not hasattr(one, "__index__") or one < 1 for one in given
        ):
            raise ArgumentError(
                f"{name} must be one to three positive integers, got {items if name == 'items' else group!r}"
            )
    if len(sizes) != len(each):
        raise ArgumentError(f"items and group must have as many dimensions, got {items!r} and {group!r}")
    counts = tuple(-(-int(size) // int(one)) for size, one in zip(sizes, each, strict=True))
    return counts if isinstance(items, tuple | list) else counts[0]


def _buffer(device: Device, label: str, param: Parameter) -> Converter:
    dtype = None if param.dtype is None else np.dtype(param.dtype)

    def convert(value: Any, shared: Any = None) -> Any:
        if isinstance(value, np.ndarray):
            raise ArgumentError(
                f"{label} must be a device array, got a NumPy array in host memory: pass device.array(…) of it"
            )
        if not isinstance(value, Array):
            guest = device.guests.adopt(device, value)
            if guest is None:
                raise ArgumentError(f"{label} must be a device array, got {_described(value)}")
            value = guest
        handle = value.handle  # read once: another thread may close the array right afterwards
        if handle is None:
            raise DeviceError(f"{label} is a closed array: pass one that is open")
        if handle.__class__ is CopyOnly:
            raise handle.refusal(label)
        if value.device is not device:
            raise ArgumentError(f"{label} must be an array on {device.spec}, got one on {value.device.spec}")
        if dtype is not None and value.dtype != dtype:
            convert_it = f'device.array({param.name}.numpy().astype("{dtype.name}")) converts it'
            raise ArgumentError(f"{label} must be an array of {dtype.name}, got {value.dtype.name}: {convert_it}")
        if shared is not None and value.peers is not None:
            shared.append(value)
        return handle

    return convert


def _scalar(device: Device, label: str, param: Parameter) -> Converter:
    if param.dtype is None:
        return _opaque(label, param)
    dtype = np.dtype(param.dtype)
    exact = dtype.type
    integer = dtype.kind in "iu"
    low, high, largest = _limits(param.dtype)

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        number = value
        if isinstance(value, np.generic):
            if value.dtype == dtype:
                return value
            # NumPy's own int64 and float64 come from sums and roots: they are numbers like Python's.
            number = float(value) if value.dtype.kind == "f" else value.item() if value.dtype.kind in "biu" else None
        if isinstance(number, int):
            if integer:
                if not low <= number <= high:
                    raise ArgumentError(f"{label} must fit into {dtype.name}, got {number}")
                return exact(number)
            if not -largest <= number <= largest:
                raise ArgumentError(f"{label} must fit into {dtype.name}, got a larger integer")
            return exact(number)
        if isinstance(number, float) and not integer:
            if np.isfinite(number) and abs(number) > largest:
                raise ArgumentError(f"{label} must fit into {dtype.name}, got {number}")
            return exact(number)
        raise ArgumentError(f"{label} must be {dtype.name}, got {_described(value)}")

    return convert


@lru_cache
def _limits(dtype: str) -> tuple[int, int, float]:
    """The smallest and largest integer of a dtype, or the largest float."""
    if np.dtype(dtype).kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), 0.0
    return 0, 0, float(np.finfo(dtype).max)


def _opaque(label: str, param: Parameter) -> Converter:
    """For a scalar of unknown type (a struct by value, a typedef): only the size is checked."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            raw = value.tobytes()
        elif isinstance(value, bytes | bytearray):
            raw = bytes(value)
        else:
            raise ArgumentError(
                f"the type of {label} is not known: it must be a NumPy scalar or bytes, got {_described(value)}"
            )
        if param.nbytes and len(raw) != param.nbytes:
            raise ArgumentError(f"{label} must have {param.nbytes} bytes, got {_described(value)} with {len(raw)}")
        return raw

    return convert


def _any(device: Device, label: str, param: Parameter) -> Converter:
    """For a parameter of which only the size is known: an array if a pointer fits, else a scalar of that size."""
    as_buffer, as_scalar = _buffer(device, label, param), _opaque(label, param)

    def convert(value: Any, shared: Any = None) -> Any:
        if isinstance(value, Array) or is_guest(value):
            if param.nbytes not in (0, 8):
                raise ArgumentError(f"{label} must have {param.nbytes} bytes, got an array, which takes 8")
            return as_buffer(value, shared)
        return as_scalar(value)

    return convert


def _local(device: Device, label: str, param: Parameter) -> Converter:
    most = device.capabilities.shared_bytes

    def convert(value: Any) -> Any:
        if not isinstance(value, LocalMemory):
            raise ArgumentError(f"{label} must be kk.LocalMemory(nbytes), got {_described(value)}")
        if value.nbytes > most:
            raise ArgumentError(f"{label} must have at most {most:,} bytes on {device.spec}, got {value.nbytes:,}")
        return value

    return convert


def _described(value: Any) -> str:
    if isinstance(value, np.generic):
        return f"{value.dtype.name} {value}"
    if isinstance(value, int | float):
        return f"{type(value).__name__} {value}"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
