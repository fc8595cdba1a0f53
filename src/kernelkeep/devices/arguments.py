"""Checking a launch's arguments against the kernel's signature, before the driver sees anything.

Each parameter has a converter from what the caller passed to what the backend needs: the array's handle for a buffer, a
NumPy scalar for a scalar of known dtype, raw bytes where only the size is known. Whatever cannot work ends in a sentence
a person can act on.

`launcher(…)` makes one function of checking all arguments and handing them to the driver. It is generated, as `dataclasses`
does it, with the usual case of every argument inline: this runs on every launch, and a call for each argument would cost
as much as the driver's launch itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..programs.signature import Parameter
from .array import Array
from .guests import is_guest

if TYPE_CHECKING:
    from .base import Device

__all__ = ["Converter", "Launcher", "LocalMemory", "converters", "dimensions", "launcher"]

Converter = Callable[..., Any]
Launcher = Callable[[tuple[Any, ...], Any], Any]


class LocalMemory:
    """`nbytes` of group-local memory, for an OpenCL kernel's `__local` pointer parameter."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        if not isinstance(nbytes, int) or nbytes <= 0:
            raise ArgumentError(f"local memory takes a positive number of bytes, not {nbytes!r}")
        self.nbytes = nbytes


def converters(device: Device, kernel: str, params: tuple[Parameter, ...]) -> tuple[Converter, ...]:
    """One converter for each parameter, in order."""
    makers = {"buffer": _buffer, "scalar": _scalar, "local": _local, "any": _any}
    return tuple(makers[p.kind](device, f"argument {i} ({p.name}) of {kernel}", p) for i, p in enumerate(params))


def launcher(
    device: Device, kernel: str, params: tuple[Parameter, ...], body: list[str], helpers: dict[str, Any]
) -> Launcher:
    """A function of a launch's arguments and shape: it checks the arguments, then does what `body` says.

    `body` is lines of Python in terms of v0, v1, … (the checked values), `shape` and `helpers`. On a device that shares
    memory with other libraries, `shared` lists the arrays they use as well.
    """
    # The kernel's name is data, not code: a GLSL kernel is called whatever its source is called.
    names: dict[str, Any] = {
        "Array": Array,
        "ArgumentError": ArgumentError,
        "device": device,
        "kernel_name": kernel,
        "as_tuple": partial(_as_tuple, kernel),
        "shared": (),
        **helpers,
    }
    for i, (param, convert) in enumerate(zip(params, converters(device, kernel, params), strict=True)):
        names[f"c{i}"] = convert
        if param.dtype is not None:
            dtype = np.dtype(param.dtype)
            names[f"t{i}"] = dtype if param.kind == "buffer" else dtype.type
    kinds = tuple((param.kind, param.dtype is not None) for param in params)
    exec(_compiled(kinds, tuple(body), device.guests.supported), names)
    made: Launcher = names.pop("launch_checked")  # or the two would hold each other
    return made


@lru_cache(maxsize=256)
def _compiled(params: tuple[tuple[str, bool], ...], body: tuple[str, ...], takes_guests: bool) -> CodeType:
    """The code of a launcher; kernels whose parameters are alike share it. Compiling takes a fifth of a millisecond.

    `params` is the kind of each and whether its dtype is known: then the usual case is told by it, inline.
    """
    count = len(params)
    message = f'f"{{kernel_name}} takes {count} arguments, and {{len(args)}} were given"'
    lines = [
        "def launch_checked(args, shape):",
        "    if args.__class__ is not tuple:",
        "        args = as_tuple(args)",
        f"    if len(args) != {count}:",
        f"        raise ArgumentError({message})",
    ]
    if params:
        lines.append(f"    {', '.join(f'a{i}' for i in range(count))}, = args")
    if takes_guests:
        lines.append("    shared = []")
    for i, (kind, typed) in enumerate(params):
        if kind == "buffer":
            same = f" and a{i}.dtype is t{i}" if typed else ""
            usual = f"a{i}.__class__ is Array and a{i}.device is device{same} and a{i}.ready"
            lines.append(f"    v{i} = ({usual}) or c{i}(a{i}, shared)")
        elif kind == "scalar" and typed:
            lines.append(f"    v{i} = a{i} if a{i}.__class__ is t{i} else c{i}(a{i})")
        else:
            lines.append(f"    v{i} = c{i}(a{i}{', shared' if kind == 'any' else ''})")
    lines.extend(f"    {line}" for line in body)
    return compile("\n".join(lines), "<kernelkeep launcher>", "exec")


def _as_tuple(kernel: str, args: Any) -> tuple[Any, ...]:
    if not isinstance(args, tuple | list):
        raise ArgumentError(f"args of {kernel} is a tuple of arguments, not {_described(args)}: write args=(x, …)")
    return tuple(args)


def dimensions(value: Any, what: str) -> tuple[int, int, int]:
    """A grid or group as three positive integers."""
    sizes = value if isinstance(value, tuple | list) else (value,)
    try:
        parsed = tuple(int(size.__index__()) for size in sizes)
    except (AttributeError, TypeError):
        raise ArgumentError(f"{what} is an integer or up to three, not {value!r}") from None
    if not 1 <= len(parsed) <= 3 or min(parsed) < 1:
        raise ArgumentError(f"{what} is one to three positive integers, not {value!r}")
    x, y, z = (*parsed, 1, 1)[:3]
    return x, y, z


def _buffer(device: Device, label: str, param: Parameter) -> Converter:
    dtype = None if param.dtype is None else np.dtype(param.dtype)

    def convert(value: Any, shared: Any = None) -> Any:
        if isinstance(value, np.ndarray):
            raise ArgumentError(f"{label} is a NumPy array in host memory: pass device.array(…) of it")
        if not isinstance(value, Array):
            guest = device.guests.adopt(device, value)
            if guest is None:
                raise ArgumentError(f"{label} is a buffer and takes a device array, not {_described(value)}")
            value = guest
        handle = value.handle  # looked at once: another thread may close the array right afterwards
        if handle is None:
            raise DeviceError(f"{label} is a closed array")
        if value.device is not device:
            raise ArgumentError(f"{label} is an array on {value.device.spec}, and the kernel runs on {device.spec}")
        if dtype is not None and value.dtype != dtype:
            raise ArgumentError(f"{label} is {dtype.name}, and the array is {value.dtype.name}")
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
                    raise ArgumentError(f"{label} is {dtype.name}, and {number} does not fit")
                return exact(number)
            if not -largest <= number <= largest:
                raise ArgumentError(f"{label} is {dtype.name}, and so large an integer does not fit")
            return exact(number)
        if isinstance(number, float) and not integer:
            if np.isfinite(number) and abs(number) > largest:
                raise ArgumentError(f"{label} is {dtype.name}, and {number} does not fit")
            return exact(number)
        raise ArgumentError(f"{label} is {dtype.name}, not {_described(value)}")

    return convert


@lru_cache
def _limits(dtype: str) -> tuple[int, int, float]:
    """The smallest and largest integer of a dtype, or the largest float."""
    if np.dtype(dtype).kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), 0.0
    return 0, 0, float(np.finfo(dtype).max)


def _opaque(label: str, param: Parameter) -> Converter:
    """A scalar whose type nobody knows (a struct by value, a typedef): right by size, or refused."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            raw = value.tobytes()
        elif isinstance(value, bytes | bytearray):
            raw = bytes(value)
        else:
            raise ArgumentError(
                f"{label} has a type that is not known here: pass a NumPy scalar, not {_described(value)}"
            )
        if param.nbytes and len(raw) != param.nbytes:
            raise ArgumentError(f"{label} takes {param.nbytes} bytes, and {_described(value)} has {len(raw)}")
        return raw

    return convert


def _any(device: Device, label: str, param: Parameter) -> Converter:
    """A parameter of which only the size is known: an array where a pointer fits, else a scalar by size."""
    as_buffer, as_scalar = _buffer(device, label, param), _opaque(label, param)

    def convert(value: Any, shared: Any = None) -> Any:
        if isinstance(value, Array) or is_guest(value):
            if param.nbytes not in (0, 8):
                raise ArgumentError(f"{label} takes {param.nbytes} bytes and cannot be an array")
            return as_buffer(value, shared)
        return as_scalar(value)

    return convert


def _local(device: Device, label: str, param: Parameter) -> Converter:
    most = device.capabilities.shared_bytes

    def convert(value: Any) -> Any:
        if not isinstance(value, LocalMemory):
            raise ArgumentError(f"{label} is local memory and takes kk.LocalMemory(nbytes), not {_described(value)}")
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
