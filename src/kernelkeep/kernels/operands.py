"""Arrays of any kind in, the same kind out: NumPy, device arrays, and whatever speaks DLPack (PyTorch, CuPy, JAX)."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.array import Array
from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..devices.base import Device

__all__ = ["MOST_ELEMENTS", "brought", "given_back"]

MOST_ELEMENTS = (1 << 31) - (1 << 24)  # kernels count with 32 bits, and up to a tile past the end
_ALIGNED = 16  # bytes; kernels read four floats at once


def brought(device: Device, value: Any, name: str, dimensions: int) -> Array:
    """An operand as a float32 array of the device: shared where it is this device's memory already, else copied."""
    array = value if isinstance(value, Array) else device.array(value)
    if array.device is not device:
        raise ArgumentError(f"{name} is on {array.device.spec}, and the cache is for {device.spec}")
    if array.dtype != np.float32:
        raise ArgumentError(f"{name} is {array.dtype}, and this kernel computes in float32: convert it first")
    if array.ndim != dimensions:
        raise ArgumentError(f"{name} has {dimensions} dimensions, not the shape {array.shape}")
    if array.size > MOST_ELEMENTS:
        raise ArgumentError(f"{name} has {array.size:,} elements; kernels count them with 32 bits")
    # A guest's memory may begin anywhere. Elsewhere than on CUDA a handle is no address, though it may be an int.
    if device.backend == "cuda" and isinstance(array.handle, int) and array.handle % _ALIGNED:
        return device.array(array)
    return array


def given_back(result: Array, like: Any) -> Any:
    """A result as the kind of array the operand was."""
    if isinstance(like, Array):
        return result
    if isinstance(like, np.ndarray) or not hasattr(like, "__dlpack__"):
        return result.numpy()
    library = type(like).__module__.partition(".")[0]
    module = sys.modules.get(library) or importlib.import_module(library)
    from_dlpack = getattr(module, "from_dlpack", None)
    if from_dlpack is None:
        from_dlpack = importlib.import_module("jax.dlpack" if library in ("jax", "jaxlib") else library).from_dlpack
    on_host = int(like.__dlpack_device__()[0]) == 1
    return from_dlpack(result.numpy() if on_host else result)
