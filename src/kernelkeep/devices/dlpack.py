"""DLPack for CUDA memory: imports another library's tensor without a copy, and exports ours.

NumPy reads host tensors by itself. The layout below is the unversioned DLManagedTensor, which every producer supports if no
`max_version` is named.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError

CUDA = 2  # kDLCUDA
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_TENSOR, _USED = b"dltensor", b"used_dltensor"  # capsules point to their name, so these must never be freed


class _Owner:
    """Calls the producer's deleter when the last array on its memory is collected."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        managed, self._managed = self._managed, None
        if managed is not None and managed.contents.deleter:
            with contextlib.suppress(Exception):
                managed.contents.deleter(managed)


@dataclass(frozen=True)
class Taken:
    """Another library's tensor; `owner` keeps its memory alive."""

    pointer: int
    device_type: int
    device_id: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object


def take(capsule: Any) -> Taken:
    """Take a tensor out of its capsule; `ArgumentError` if an `Array` cannot represent it."""
    managed = ctypes.cast(_get(capsule, _TENSOR), ctypes.POINTER(_Managed))
    _rename(capsule, _USED)
    owner = _Owner(managed)
    tensor = managed.contents.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.code not in _KINDS or tensor.lanes != 1:
        raise ArgumentError(
            f"the tensor must have a NumPy dtype, got DLPack type code {tensor.code} with {tensor.lanes} lanes"
        )
    dtype = np.dtype(np.bool_) if _KINDS[tensor.code] == "b" else np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
        if not is_contiguous(shape, strides, dtype.itemsize):
            raise ArgumentError("the tensor must be contiguous: pass tensor.contiguous() or a copy")
    return Taken((tensor.data or 0) + tensor.byte_offset, tensor.device_type, tensor.device_id, shape, dtype, owner)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    """Whether a shape with strides in bytes lies in C order without gaps."""
    if strides is None or math.prod(shape) == 0:
        return True
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


_given: dict[int, tuple[object, ...]] = {}


def give(pointer: int, device_id: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object) -> Any:
    """A capsule over CUDA memory; `owner` stays alive until the consumer is done with it."""
    if dtype.kind not in _CODES:
        raise BufferError(f"dtype must be a number for DLPack, got {dtype}")
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    managed = _Managed()
    managed.tensor = _Tensor(
        pointer, CUDA, device_id, len(shape), _CODES[dtype.kind], dtype.itemsize * 8, 1, sizes, None, 0
    )
    managed.deleter = _forget
    address = ctypes.addressof(managed)
    _given[address] = (managed, sizes, owner)
    return _new(address, _TENSOR, ctypes.cast(_drop_unused, ctypes.c_void_p))


def _forget_given(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _drop_given(capsule: int) -> None:
    """The capsule's destructor: a tensor that nobody took is released here, because its deleter is never called."""
    if _raw_is_valid(capsule, _TENSOR):
        _given.pop(_raw_get(capsule, _TENSOR) or 0, None)


_forget = _Deleter(_forget_given)
_drop_unused = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_drop_given)
# Raw pointers, not py_object: in its destructor a capsule must not get a new reference.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_raw_get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
