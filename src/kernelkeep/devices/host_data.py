"""What the host passes: data as NumPy arrays, shapes and dtypes.

The rule of dtypes: what has a dtype keeps it (NumPy, DLPack). Python's numbers have none. They get that of the array or parameter
they go to; where there is none yet, floats become f4, integers i4 where they fit and else i8, complex numbers c8, and bools stay
bools. Where there is nothing but a shape, it is f4. `dtype=` overrules all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError


def host_view(data: Any, dtype: Any = None, default: Any = None) -> np.ndarray[Any, Any]:
    """`data` as a contiguous NumPy array in native byte order, copied only where it must be.

    `dtype` is what it is converted to. Without one, what has a dtype keeps it, and Python's numbers get `default`.
    """
    wanted = None if dtype is None else parse_dtype(dtype)
    if not isinstance(data, np.ndarray) and hasattr(data, "__dlpack__"):
        try:
            data = np.from_dlpack(data)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(f"cannot read the {type(data).__name__} from host memory: {error}") from None
    try:
        host = np.asarray(data)
    except Exception as error:
        raise ArgumentError(f"cannot make an array of a {type(data).__name__}: {error}") from None
    _check_kind(host.dtype)
    if wanted is None and is_plain(data):
        host = narrowed(host) if default is None else _convert_exactly(host, default)
    elif wanted is not None and host.dtype != wanted:
        host = host.astype(wanted) if not is_plain(data) else _convert_exactly(host, wanted)
    if not host.dtype.isnative:
        host = host.astype(host.dtype.newbyteorder("="))
    return host if host.flags.c_contiguous else np.ascontiguousarray(host)


def is_plain(data: Any) -> bool:
    """Whether data are Python's numbers, alone or in lists, which have no dtype."""
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, int | float | complex | list | tuple) and not isinstance(data, np.generic)


def narrowed(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Python's numbers in the dtype that they get where none is named."""
    kind, info = host.dtype.kind, np.iinfo("i4")
    if kind == "i" and not (host.size and (host.min() < info.min or host.max() > info.max)):
        return host.astype("i4")
    if kind not in "fc":
        return host
    with np.errstate(over="ignore"):
        narrow = host.astype("f4" if kind == "f" else "c8")
    if (np.isinf(narrow) & ~np.isinf(host)).any():
        largest = host.flat[np.abs(host).argmax()]
        raise ArgumentError(f"a Python float becomes float32, and {largest:g} does not fit: pass np.float64")
    return narrow


def _convert_exactly(host: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers of Python's as numbers of a dtype. Rounding a fraction is fine; another whole number is not."""
    with np.errstate(all="ignore"):
        converted = host.astype(dtype)
        whole = dtype.kind in "iu"
        fits = np.array_equal(converted, host) if whole else bool(np.all(np.isfinite(converted) | ~np.isfinite(host)))
    if dtype.kind in "iufc" and host.dtype.kind in "iufc" and not fits:
        raise ArgumentError(f"the numbers must fit into {dtype.name}, got {host.flat[np.abs(host).argmax()]}")
    return converted


def convert_number(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """One value as an element of a dtype; `ArgumentError` where it does not fit."""
    try:
        host = np.asarray(value)
        if host.ndim or host.dtype.hasobject:
            raise ValueError(f"got a {type(value).__name__}")
        if host.dtype.kind in "iufcb" and dtype.kind in "iufc":
            return _convert_exactly(host, dtype)
        return np.array(value, dtype)
    except ArgumentError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"the value must be one {dtype.name}: {error}") from None


def parse_sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes of `reshape(2, -1)` or `reshape((2, -1))`."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    try:
        return tuple(int(size.__index__()) for size in sizes)
    except (AttributeError, TypeError):
        raise ArgumentError(f"shape must be integers, got {sizes!r}") from None


def parse_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of non-negative integers."""
    try:
        sizes = tuple(int(size.__index__()) for size in (shape if isinstance(shape, tuple | list) else (shape,)))
    except (AttributeError, TypeError):
        raise ArgumentError(f"shape must be an integer or a tuple of integers, got {shape!r}") from None
    if any(size < 0 for size in sizes):
        raise ArgumentError(f"shape must not have negative sizes, got {sizes}")
    return sizes


def parse_dtype(dtype: Any) -> np.dtype[Any]:
    """A dtype that a device can hold, in native byte order."""
    try:
        parsed = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise ArgumentError(f"dtype must be a NumPy dtype or its name, got {dtype!r}") from None
    _check_kind(parsed)
    native: np.dtype[Any] = parsed if parsed.isnative else parsed.newbyteorder("=")
    return native


def _check_kind(dtype: np.dtype[Any]) -> None:
    """Refuse Python objects, which have no fixed layout, and NumPy's strings, which are usually a mistake."""
    if dtype.hasobject or dtype.kind == "U":
        raise ArgumentError(
            f"dtype must be made of numbers or bytes, got {dtype}: a device has no Python objects and no strings"
        )
