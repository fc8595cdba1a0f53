"""Arrays of any kind in, the same kind out: NumPy, device arrays, and whatever speaks DLPack (PyTorch, CuPy, JAX)."""

from __future__ import annotations

import importlib
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..devices.base import Device

MAX_ELEMENTS = (1 << 31) - (1 << 24)  # kernels count with 32 bits, and up to a tile past the end
FLOAT = np.dtype("f4")
ALIGNED = 16  # bytes; kernels read four floats at once


def device_of(cache: Any) -> Device:
    """The device of a cache that is open."""
    if not isinstance(cache, ProgramCache):
        raise ArgumentError(f"cache must be a kk.ProgramCache, got a {type(cache).__name__}")
    return cache.device


def to_device(
    device: Device, value: Any, name: str, dimensions: int, dtype: np.dtype[Any] = FLOAT, says: str = "float32"
) -> Array:
    """An operand as an array of the device, of floats by default: shared where it is in this device's memory, else copied."""
    array = value if isinstance(value, Array) else device.array(_packed(value))
    if array.device is not device:
        raise ArgumentError(f"{name} is on {array.device.spec}, and the cache is for {device.spec}")
    if array.dtype != dtype:
        raise ArgumentError(f"{name} is {array.dtype}, and this kernel computes in {says}: convert it first")
    if array.ndim != dimensions:
        raise ArgumentError(f"{name} must have {dimensions} dimensions, got the shape {array.shape}")
    if array.size > MAX_ELEMENTS:
        raise ArgumentError(f"{name} has {array.size:,} elements; kernels count them with 32 bits")
    return array if device.is_aligned(array, ALIGNED) else device.array(array)


def _packed(value: Any) -> Any:
    """A foreign array with its elements next to each other; `device.array` packs those of NumPy."""
    if hasattr(value, "is_contiguous"):  # PyTorch's
        return value if value.is_contiguous() else value.contiguous()
    if not isinstance(value, np.ndarray) and hasattr(value, "__cuda_array_interface__"):  # CuPy's
        flags = getattr(value, "flags", None)
        return value.copy(order="C") if flags is not None and not flags.c_contiguous else value
    return value


def output_array(
    device: Device,
    out: Any,
    shape: tuple[int, ...],
    operands: tuple[Array, ...],
    dtype: np.dtype[Any] = FLOAT,
    says: str = "float32",
) -> Array:
    """The array for a result: `out`, or a new one, which may reuse the memory of a freed result."""
    if out is None:
        if prod(shape) > MAX_ELEMENTS:
            raise ArgumentError(f"the result has {prod(shape):,} elements; kernels count them with 32 bits")
        return device.recycled_empty(shape, dtype)
    if not isinstance(out, Array):
        raise ArgumentError(f"out must be a device array, got a {type(out).__name__}")
    target = to_device(device, out, "out", len(shape), dtype, says)
    if target is not out:  # it was copied to an aligned address
        raise ArgumentError("out begins at an address that is no multiple of 16 bytes")
    if target.shape != shape:
        raise ArgumentError(f"out has the shape {target.shape}, and the result has {shape}")
    if any(operand.overlaps(target) for operand in operands):
        raise ArgumentError("out is one of the operands, which the kernel still reads while it writes")
    return target


def like_input(result: Array, like: Any) -> Any:
    """A result as the same kind of array as the input; NumPy's where that library takes no arrays through DLPack."""
    if isinstance(like, Array):
        return result
    if isinstance(like, np.ndarray) or not hasattr(like, "__dlpack__"):
        return result.numpy()
    library = type(like).__module__.partition(".")[0]
    try:
        module = sys.modules.get(library) or importlib.import_module(library)
        if not hasattr(module, "from_dlpack"):
            module = importlib.import_module("jax.dlpack" if library in ("jax", "jaxlib") else f"{library}.dlpack")
        from_dlpack = module.from_dlpack
    except (ImportError, AttributeError):
        return result.numpy()
    on_host = int(like.__dlpack_device__()[0]) == 1
    return from_dlpack(result.numpy() if on_host else result)
