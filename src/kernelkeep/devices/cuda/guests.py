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
from ..guests import Guests, is_guest
from ..synchronization import Fence, Queue
from .synchronization import CudaFence, stream_of

if TYPE_CHECKING:
    from .device import CudaDevice

__all__ = ["CudaGuests", "Peers", "guests_wait", "wait_for_guests"]

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
    try:
        current(0)
    except TypeError:  # an old one, which tells only that of the thread's current device
        return lambda index: int(current().ptr)
    return lambda index: int(current(index).ptr)


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
    if name != "torch" or module is None:
        return module is not None
    cuda = getattr(module, "cuda", None)  # another thread may be importing it
    return cuda is not None and bool(cuda.is_initialized())


class _Interface:
    """An array that names its stream, if it has one."""

    def __init__(self, device: CudaDevice, guest: Any) -> None:
        self._device = device
        self._guest = guest

    def streams(self, ours: Any) -> Sequence[int] | None:
        stream = self._guest.__cuda_array_interface__.get("stream")
        if stream is not None:
            return (int(stream),)
        _wait_for_streams(self._device, (_LEGACY,), ours)  # Numba names no stream where it works on the default one
        return None


class _Producer:
    """An array that makes a consumer's stream wait by itself."""

    def __init__(self, guest: Any) -> None:
        self._guest = guest

    def streams(self, ours: Any) -> None:
        self._guest.__dlpack__(stream=int(ours))


class _Consumers:
    """All that use memory which was given away; `unknown` where there may be one that does not tell its stream."""

    def __init__(self, members: Sequence[Peers], device: CudaDevice, unknown: bool) -> None:
        self.members = members
        self.unknown = unknown
        self._device = device

    def streams(self, ours: Any) -> Sequence[int] | None:
        streams, known = _streams_of(self.members, ours)
        if known and not self.unknown:
            return streams
        _wait_for_streams(self._device, streams or (_LEGACY,), ours)
        return None


def _consumers_of(device: CudaDevice, stream: int | None, before: Peers | None) -> Peers:
    """Who may use memory that is given away: the library whose stream is named, else every library that is loaded.

    Those who use it already, `before`, go on doing so.
    """
    loaded: list[Peers] = [_library(name, device.info.index) for name in _LIBRARIES if _is_in_use(name)]
    named = [library for library in loaded if stream in (library.streams(None) or ())]
    unknown = not (loaded if stream is None else named)
    members: Sequence[Peers] = () if before is None else (before,)
    if isinstance(before, _Consumers):
        members, unknown = before.members, unknown or before.unknown
    return _Consumers(tuple(dict.fromkeys((*members, *(named or loaded)))), device, unknown)


# --- order


def wait_for_guests(device: CudaDevice, arrays: Sequence[Array], stream: Any) -> Sequence[int] | None:
    """Have a stream of ours wait for what others do with these arrays at the moment.

    Gives the streams that are to wait in turn, for `guests_wait`; None where the host has to.
    """
    streams, known = _streams_of(_peers_of(arrays), stream)
    if streams and not _wait_for_streams(device, streams, stream):
        streams = _InOurContext(streams)
    return streams if known else None


class _InOurContext(tuple[int, ...]):
    """Streams, for a thread that has another context current."""


def _peers_of(arrays: Sequence[Array]) -> Sequence[Peers]:
    first = arrays[0].peers
    for array in arrays:
        if array.peers is not first:
            return list({array.peers for array in arrays} - {None})  # another thread may have closed one
    return () if first is None else (first,)  # all of one library, as a rule


def _streams_of(peers: Sequence[Peers], ours: Any) -> tuple[Sequence[int], bool]:
    """The streams that are known, and whether those are all."""
    if len(peers) == 1:
        alone = peers[0].streams(ours)
        return alone or (), alone is not None
    found = [one.streams(ours) for one in peers]
    return list({stream for streams in found for stream in streams or ()}), None not in found


def _wait_for_streams(device: CudaDevice, streams: Sequence[int], stream: Any) -> bool:
    """Whether that worked in the context that is current."""
    event = device.events.take()
    worked = True
    for theirs in streams:
        if device.record(event, device.stream_handle(theirs))[0] is not device.success:
            worked = False
            with device.current:  # the default stream is that of the current context
                device.call(device.record, event, theirs, doing="waiting for another library's stream")
        if device.stream_wait(stream, event, 0)[0] is not device.success:
            device.call(device.stream_wait, stream, event, 0)
    device.events.give(event)
    return worked


def guests_wait(device: CudaDevice, streams: Sequence[int] | None, stream: Any) -> None:
    """Have others' streams wait for what a stream of ours was given; the host, where nobody knows them."""
    if streams is None:
        device.call(device.driver.cuStreamSynchronize, stream)
        return
    if streams.__class__ is _InOurContext:
        # With another GPU's context, that one's default stream would wait, and without an error.
        with device.current:
            return guests_wait(device, tuple(streams), stream)
    event = device.events.take()
    if device.record(event, stream)[0] is not device.success:
        device.call(device.record, event, stream)
    for theirs in streams:
        if device.stream_wait(device.stream_handle(theirs), event, 0)[0] is not device.success:
            with device.current:
                device.call(device.stream_wait, theirs, event, 0, doing="another library's stream")
    device.events.give(event)


# --- memory


def _adopted(device: CudaDevice, guest: Any) -> Array | None:
    """An array on another library's memory; None where that is not memory of this device."""
    tensors: Any = getattr(sys.modules.get("torch"), "Tensor", ())
    if isinstance(guest, tensors):
        return _of_torch(device, guest) if guest.is_cuda else None
    name = "cupy" if isinstance(guest, getattr(sys.modules.get("cupy"), "ndarray", ())) else None
    if name is None and hasattr(guest, "__dlpack__") and hasattr(guest, "__dlpack_device__"):
        with contextlib.suppress(BufferError, RuntimeError, TypeError):
            if guest.__dlpack_device__() == (dlpack.CUDA, device.info.index):
                taken = dlpack.take(guest.__dlpack__(stream=int(device.cu_stream)))
                return Array(device, taken.shape, taken.dtype, taken.pointer, (taken.owner, guest), _Producer(guest))
    interface = getattr(guest, "__cuda_array_interface__", None)
    if interface is None:
        return None
    return _of_interface(
        device, guest, interface, _Interface(device, guest) if name is None else _library(name, device.info.index)
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


# --- what the device offers


class CudaGuests(Guests):
    """Memory is shared with every library that uses the device's primary context."""

    supported = True

    def adopt(self, device: Any, value: Any) -> Array | None:
        return _adopted(device, value) if is_guest(value) else None

    def wait_for_guests(self, device: Any, arrays: Sequence[Array], queue: Queue | None = None) -> Any:
        return wait_for_guests(device, arrays, stream_of(queue, device))

    def guests_wait(self, device: Any, waited_for: Any, queue: Queue | None = None) -> None:
        guests_wait(device, waited_for, stream_of(queue, device))

    def fences(self, device: Any, arrays: Sequence[Array]) -> list[Fence]:
        streams, _ = _streams_of(_peers_of(arrays), device.cu_stream)
        with device.current:
            return [CudaFence(device, device.stream_handle(stream)) for stream in streams]

    def cuda_array_interface(self, array: Array) -> dict[str, Any]:
        array.open_handle()
        device: Any = array.device
        peers = _consumers_of(device, None, array.peers)
        array.share(peers)
        # The stream below is the consumer's to wait for. PyTorch does not, so the libraries that are loaded wait already.
        with device.current:
            if (streams := peers.streams(device.cu_stream)) is not None:
                guests_wait(device, streams, device.cu_stream)
        return {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (int(array.handle), False),
            "strides": None,
            "stream": int(device.cu_stream),
            "version": 3,
        }

    def dlpack_capsule(self, array: Array, stream: Any) -> Any:
        device: Any = array.device
        if stream is None:
            stream = 1  # CU_STREAM_LEGACY, as DLPack says
        if not isinstance(stream, int) or isinstance(stream, bool) or stream < -1 or stream == 0:
            raise BufferError(f"stream must be None, -1, 1, 2 or the address of a CUDA stream, got {stream!r}")
        array.share(_consumers_of(device, None if stream == -1 else stream, array.peers))
        if stream not in (-1, int(device.cu_stream)):
            with device.current:
                guests_wait(device, (stream,), device.cu_stream)
        return dlpack.give(int(array.handle), device.info.index, array.shape, array.dtype, array)

    def dlpack_device(self, array: Array) -> tuple[int, int]:
        return dlpack.CUDA, array.device.info.index
