"""Other libraries' arrays on CUDA: finding their memory, and keeping their work and ours in order.

A library queues its work on a stream. Before our work our stream waits for the stream the library uses in this thread at this
moment; after it that stream waits for ours. The host waits for neither. Which stream that is, PyTorch and CuPy tell; an array
with `__cuda_array_interface__` names one; a producer of DLPack makes our stream wait itself. Where nobody can say on which
stream the library will work next, the host waits for our work: slower, and right.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import ArgumentError
from .. import dlpack
from ..array import Array
from .order import CudaFence

if TYPE_CHECKING:
    from .device import CudaDevice

__all__ = ["Peers", "adopted", "consumers_of", "fences_of", "guests_wait", "wait_for_guests"]

_LEGACY = 1  # CU_STREAM_LEGACY, the default stream by its own name: 0 may mean another one
StreamOf = Callable[[int], int]  # a library's current stream in this thread, for a device by its index


class Peers(Protocol):
    """Who else uses an array's memory."""

    def streams(self, ours: Any) -> Sequence[int] | None:
        """The streams of their work in this thread, after `ours` was made to wait where only they can do that.

        None: nobody knows on which stream they work next.
        """


# --- which streams


def _stream_of_torch() -> StreamOf:
    torch: Any = sys.modules["torch"]
    torch.cuda.init()  # before that there are no streams to ask for
    try:
        find: StreamOf = torch._C._cuda_getCurrentRawStream  # a fiftieth of the time of the public way
    except AttributeError:
        return lambda index: int(torch.cuda.current_stream(index).cuda_stream)
    return find


def _stream_of_cupy() -> StreamOf:
    current: Any = sys.modules["cupy"].cuda.get_current_stream
    return lambda index: int(current().ptr)


_LIBRARIES: dict[str, Callable[[], StreamOf]] = {"torch": _stream_of_torch, "cupy": _stream_of_cupy}


class _Library:
    """A library that tells its current stream."""

    def __init__(self, index: int, find: StreamOf) -> None:
        self._index = index
        self._find = find

    def streams(self, ours: Any) -> Sequence[int]:
        return (self._find(self._index) or _LEGACY,)


@cache
def _library(name: str, index: int) -> _Library:
    return _Library(index, _LIBRARIES[name]())


def _is_in_use(name: str) -> bool:
    """Whether a library is loaded and can have work on a GPU. PyTorch is often loaded for its CPU part alone."""
    module: Any = sys.modules.get(name)
    return module is not None and (name != "torch" or module.cuda.is_initialized())


class _Interface:
    """An array that names its stream, if it has one."""

    def __init__(self, guest: Any) -> None:
        self._guest = guest

    def streams(self, ours: Any) -> Sequence[int] | None:
        stream = self._guest.__cuda_array_interface__.get("stream")
        return None if stream is None else (int(stream),)


class _Producer:
    """An array that makes a consumer's stream wait by itself."""

    def __init__(self, guest: Any) -> None:
        self._guest = guest

    def streams(self, ours: Any) -> None:
        self._guest.__dlpack__(stream=int(ours))


class _Consumers:
    """Libraries that may use memory of ours; `unknown` where there may be one that does not tell its stream."""

    def __init__(self, libraries: Sequence[_Library], device: CudaDevice, unknown: bool) -> None:
        self._libraries = libraries
        self._device = device
        self._unknown = unknown

    def streams(self, ours: Any) -> Sequence[int] | None:
        streams = [stream for library in self._libraries for stream in library.streams(ours)] or [_LEGACY]
        if not self._unknown:
            return streams
        _wait_for_streams(self._device, streams, ours)
        return None


def consumers_of(device: CudaDevice, stream: int | None) -> Peers:
    """Who may use memory that is given away: the library whose stream is named, else every library that is loaded."""
    loaded = [_library(name, device.info.index) for name in _LIBRARIES if _is_in_use(name)]
    if stream is None:
        return _Consumers(loaded, device, unknown=not loaded)
    named = [library for library in loaded if stream in library.streams(None)]
    return _Consumers(named or loaded, device, unknown=not named)


# --- order


def wait_for_guests(device: CudaDevice, arrays: Sequence[Array], stream: Any) -> Sequence[int] | None:
    """Have a stream of ours wait for what others do with these arrays at the moment.

    Gives the streams that are to wait in turn, for `guests_wait`; None where the host has to.
    """
    streams = _streams_of(arrays, stream)
    if streams:
        _wait_for_streams(device, streams, stream)
    return streams


def _streams_of(arrays: Sequence[Array], stream: Any) -> Sequence[int] | None:
    first = arrays[0].peers
    for array in arrays:
        if array.peers is not first:
            break
    else:  # all of one library, as a rule
        alone: Sequence[int] | None = first.streams(stream)
        return alone
    found = [peers.streams(stream) for peers in {array.peers for array in arrays}]
    return None if None in found else list({one for streams in found for one in streams})


def _wait_for_streams(device: CudaDevice, streams: Sequence[int], stream: Any) -> None:
    event = device.events.take()
    for theirs in streams:
        if device.record(event, device.stream_handle(theirs))[0] is not device.success:
            with device.current:  # the default stream is that of the current context
                device.call(device.record, event, theirs, doing="waiting for another library's stream")
        if device.stream_wait(stream, event, 0)[0] is not device.success:
            device.call(device.stream_wait, stream, event, 0)
    device.events.give(event)


def guests_wait(device: CudaDevice, streams: Sequence[int] | None, stream: Any) -> None:
    """Have others' streams wait for what a stream of ours was given; the host, where nobody knows them."""
    if streams is None:
        device.call(device.driver.cuStreamSynchronize, stream)
        return
    event = device.events.take()
    if device.record(event, stream)[0] is not device.success:
        device.call(device.record, event, stream)
    for theirs in streams:
        if device.stream_wait(device.stream_handle(theirs), event, 0)[0] is not device.success:
            with device.current:
                device.call(device.stream_wait, theirs, event, 0, doing="another library's stream")
    device.events.give(event)


def fences_of(device: CudaDevice, arrays: Sequence[Array]) -> list[CudaFence]:
    """Points after what others do with these arrays at the moment."""
    streams = _streams_of(arrays, device.cu_stream)
    with device.current:
        return [CudaFence(device, device.stream_handle(stream)) for stream in streams or ()]


# --- memory


def adopted(device: CudaDevice, guest: Any) -> Array | None:
    """An array on another library's memory; None where that is not memory of this device."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(guest, torch.Tensor):
        return _of_torch(device, guest) if guest.is_cuda else None
    cupy: Any = sys.modules.get("cupy")
    name = "cupy" if cupy is not None and isinstance(guest, getattr(cupy, "ndarray", ())) else None
    if name is None and hasattr(guest, "__dlpack__") and hasattr(guest, "__dlpack_device__"):
        with contextlib.suppress(BufferError, RuntimeError, TypeError):
            if guest.__dlpack_device__() == (dlpack.CUDA, device.info.index):
                taken = dlpack.take(guest.__dlpack__(stream=int(device.cu_stream)))
                return Array(device, taken.shape, taken.dtype, taken.pointer, (taken.owner, guest), _Producer(guest))
    interface = getattr(guest, "__cuda_array_interface__", None)
    if interface is None:
        return None
    return _of_interface(
        device, guest, interface, _Interface(guest) if name is None else _library(name, device.info.index)
    )


def _of_torch(device: CudaDevice, tensor: Any) -> Array:
    """Read from the tensor itself: its `__dlpack__` takes ten times as long."""
    if tensor.requires_grad:
        raise ArgumentError("the tensor requires a gradient, which a kernel would not compute: pass tensor.detach()")
    if tensor.layout is not sys.modules["torch"].strided or tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(
            "the tensor has no plain memory (sparse, conjugated or negated lazily): materialise it first"
        )
    index = device.info.index
    if tensor.get_device() != index:
        raise ArgumentError(f"the tensor is on cuda:{tensor.get_device()}, not on {device.spec}")
    if not tensor.is_contiguous():
        raise ArgumentError("the tensor is not contiguous; make it so first (for example with .contiguous())")
    dtype = _dtype_of_torch(tensor.dtype)
    pointer = tensor.data_ptr() or device.nowhere
    return Array(device, tuple(tensor.shape), dtype, pointer, tensor, _library("torch", index))


@cache
def _dtype_of_torch(dtype: Any) -> np.dtype[Any]:
    try:
        return np.dtype(str(dtype).removeprefix("torch."))
    except TypeError:
        raise ArgumentError(f"a tensor of {dtype} has no NumPy dtype") from None


def _of_interface(device: CudaDevice, guest: Any, interface: dict[str, Any], peers: Peers) -> Array:
    pointer, read_only = interface["data"]
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    if read_only:
        raise ArgumentError("the array is read-only and cannot be shared")
    if not dlpack.is_contiguous(shape, interface.get("strides"), dtype.itemsize):
        raise ArgumentError("the array is not contiguous; copy it first")
    if pointer:
        which = device.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        index = int(device.call(device.driver.cuPointerGetAttribute, which, pointer))
        if index != device.info.index:
            raise ArgumentError(f"the array is on cuda:{index}, not on {device.spec}")
    return Array(device, shape, dtype, pointer or device.nowhere, guest, peers)
