"""Views: parts of an array that share its memory.

A view has a handle of its own, made by `Device.part_of`. Drivers bind memory for a launch only at multiples of
`capabilities.view_alignment` bytes. A view that begins elsewhere has a `CopyOnly` handle: it can be read, written and filled
from the host, and a launch refuses it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, Unsupported

if TYPE_CHECKING:
    from .array import Array
    from .base import Device


class Origin(NamedTuple):
    """Where a view's memory comes from: the array that was allocated, all that keeps its memory alive, and the place in it."""

    array: Array
    handle: Any
    guest: object
    offset: int


class CopyOnly(NamedTuple):
    """The handle of a view that the driver cannot bind: the memory it is in, and where."""

    base: Any
    offset: int
    alignment: int

    def refusal(self, what: str) -> Unsupported:
        """The error of a launch that was given this view."""
        return Unsupported(
            "view_alignment",
            f"{what} is a view that begins {self.offset:,} bytes into its memory, and launches here take views at multiples of "
            f"{self.alignment} bytes (capabilities.view_alignment): begin it there, or copy it with device.array(view)",
        )


def part_handle(device: Device, handle: Any, offset: int, nbytes: int) -> Any:
    """The handle of a part of an array's memory, `nbytes` > 0."""
    alignment = device.capabilities.view_alignment
    if not alignment:
        raise Unsupported(
            "view_alignment", f"{device.spec} has no views of parts of an array: slice what array.numpy() returns"
        )
    return CopyOnly(handle, offset, alignment) if offset % alignment else device.part_of(handle, offset, nbytes)


def upload(device: Device, handle: Any, host: np.ndarray[Any, Any]) -> None:
    """`Device.upload` to any handle."""
    if isinstance(handle, CopyOnly):
        device.upload_at(handle.base, handle.offset, host)
    else:
        device.upload(handle, host)


def download(device: Device, handle: Any, out: np.ndarray[Any, Any]) -> None:
    """`Device.download` from any handle."""
    if isinstance(handle, CopyOnly):
        device.download_at(handle.base, handle.offset, out)
    else:
        device.download(handle, out)


def copy(device: Device, target: Any, origin: Any, nbytes: int) -> None:
    """`Device.copy` between any handles of memory that does not overlap; by way of the host where one is `CopyOnly`."""
    if isinstance(target, CopyOnly) or isinstance(origin, CopyOnly):
        host = np.empty(nbytes, "u1")
        download(device, origin, host)
        upload(device, target, host)
    else:
        device.copy(target, origin, nbytes)


def fill(device: Device, handle: Any, value: np.ndarray[Any, Any], count: int) -> None:
    """`Device.fill` of any handle."""
    if isinstance(handle, CopyOnly):
        device.upload_at(handle.base, handle.offset, np.full(count, value))
    else:
        device.fill(handle, value, count)


def find_part(shape: tuple[int, ...], key: Any) -> tuple[int, tuple[int, ...]]:
    """Where `array[key]` begins, in elements, and its shape; `ArgumentError` where it is not contiguous."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(one is Ellipsis for one in keys):
        at = next(i for i, one in enumerate(keys) if one is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(shape) - len(keys) + 1)
    if len(keys) > len(shape):
        raise ArgumentError(f"the array has {len(shape)} dimensions, got {len(keys)} indices")
    keys += [slice(None)] * (len(shape) - len(keys))
    begin, found, lengths = 0, [], []
    for size, one in zip(shape, keys, strict=True):
        start, length = _range(size, one)
        begin = begin * size + start
        lengths.append(length)
        if isinstance(one, slice):
            found.append(length)
    first = next((i for i, length in enumerate(lengths) if length != 1), len(lengths))
    if 0 not in lengths and tuple(lengths[first + 1 :]) != shape[first + 1 :]:
        raise ArgumentError(
            f"a view must be contiguous: behind a slice every dimension must be whole, got lengths {tuple(lengths)} of {shape}; "
            "slice what array.numpy() returns"
        )
    return begin if 0 not in lengths else 0, tuple(found)


def _range(size: int, key: Any) -> tuple[int, int]:
    """Where an index or a slice of a dimension begins, and its length."""
    if isinstance(key, slice):
        try:
            start, stop, step = key.indices(size)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"a slice of an array must be made of integers, got {key}: {error}") from None
        if step != 1:
            raise ArgumentError(f"a view must be contiguous, got a slice with the step {step}")
        return start, max(0, stop - start)
    if isinstance(key, bool | np.bool_) or not hasattr(key, "__index__"):
        raise ArgumentError(f"an index must be an integer or a slice, got a {type(key).__name__}")
    index = int(key.__index__())
    if not -size <= index < size:
        raise ArgumentError(f"the index {index} must be in a dimension of {size} elements")
    return index % size, 1


def find_shape(size: int, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `size` elements, in which one dimension may be -1."""
    if wanted.count(-1) == 1:
        others = -math.prod(wanted)
        if others > 0 and size % others == 0:
            wanted = tuple(size // others if one == -1 else one for one in wanted)
    if any(one < 0 for one in wanted) or math.prod(wanted) != size:
        raise ArgumentError(f"shape must be one of {size:,} elements, got {wanted}")
    return wanted
