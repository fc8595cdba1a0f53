"""Other libraries' arrays on CUDA: using their memory, and ordering their work and ours.

A library enqueues its work on a stream. Before our work our stream waits for the stream that the library uses in this thread at
this moment; after our work that stream waits for ours. The host waits for neither. PyTorch and CuPy tell their current
stream, an array with `__cuda_array_interface__` names one, and a DLPack producer makes our stream wait by itself. If the
library's next stream is not known, the host waits for our work, which is slower but right.
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

_LEGACY = 1  # CU_STREAM_LEGACY, the default stream by its own name: 0 may mean another one
StreamOf = Callable[[int], int]  # a library's current stream in this thread, for a device by its index


class Peers(Protocol):
    """Who else uses an array's memory."""

    def streams(self, ours: Any) -> Sequence[int] | None:
        """The streams they use in this thread; makes `ours` wait for them where only they can do that.

        None: the stream they use next is not known.
        """


# --- which streams


def _stream_of_torch() -> StreamOf:
    torch: Any = sys.modules["torch"]
    torch.cuda.init()  # before that there are no streams to ask for
    try:
        find: StreamOf = torch._C._cuda_getCurrentRawStream  # fifty times faster than the public function
    except AttributeError:
        return lambda index: int(torch.cuda.current_stream(index).cuda_stream)
    return find


def _stream_of_cupy() -> StreamOf:
    current: Any = sys.modules["cupy"].cuda.get_current_stream
    try:
        current(0)
    except TypeError:  # an old CuPy: only for the thread's current device
        return lambda index: int(current().ptr)
    return lambda index: int(current(index).ptr)


_LIBRARIES: dict[str, Callable[[], StreamOf]] = {"torch": _stream_of_torch, "cupy": _stream_of_cupy}


class _Library:
    """A library that tells its current stream (PyTorch, CuPy)."""

    def __init__(self, index: int, find: StreamOf) -> None:
        self._index = index
        self._find = find

    def streams(self, ours: Any) -> Sequence[int]:
        return (self._find(self._index) or _LEGACY,)


@cache
def _library(name: str, index: int) -> _Library:
    return _Library(index, _LIBRARIES[name]())


def _is_in_use(name: str) -> bool:
    """Whether a library is loaded and can have work on a GPU: PyTorch is often used on the CPU only."""
    module: Any = sys.modules.get(name)
    if name != "torch" or module is None:
        return module is not None
    cuda = getattr(module, "cuda", None)  # another thread may be importing it
    return cuda is not None and bool(cuda.is_initialized())


class _Interface:
    """The owner of an array with `__cuda_array_interface__`, which may name a stream."""

    def __init__(self, device: CudaDevice, guest: Any) -> None:
        self._device = device
        self._guest = guest

    def streams(self, ours: Any) -> Sequence[int] | None:
        stream = self._guest.__cuda_array_interface__.get("stream")
        if stream is not None:
            return (int(stream),)
        _wait_for_streams(self._device, (_LEGACY,), ours)  # Numba names no stream for the default one
        return None


class _Producer:
    """The owner of a DLPack array: it makes a consumer's stream wait by itself."""

    def __init__(self, guest: Any) -> None:
        self._guest = guest

    def streams(self, ours: Any) -> None:
        self._guest.__dlpack__(stream=int(ours))


class _Consumers:
    """All libraries that may use an array of ours; `unknown` if one of them may not tell its stream."""

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
    """Who may use an array of ours: the library whose stream is named, else every loaded library; and those in `before`."""
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

    Returns the streams that `guests_wait` makes wait in turn; None if the host must wait.
    """
    streams, known = _streams_of(_peers_of(arrays), stream)
    if streams and not _wait_for_streams(device, streams, stream):
        streams = _InOurContext(streams)
    return streams if known else None


class _InOurContext(tuple[int, ...]):
    """Streams of our context, in a thread that has another context current."""


def _peers_of(arrays: Sequence[Array]) -> Sequence[Peers]:
    first = arrays[0].peers
    for array in arrays:
        if array.peers is not first:
            return list({array.peers for array in arrays} - {None})  # another thread may have closed one
    return () if first is None else (first,)  # usually all belong to one library


def _streams_of(peers: Sequence[Peers], ours: Any) -> tuple[Sequence[int], bool]:
    """The known streams, and whether all are known."""
    if len(peers) == 1:
        alone = peers[0].streams(ours)
        return alone or (), alone is not None
    found = [one.streams(ours) for one in peers]
    return list({stream for streams in found for stream in streams or ()}), None not in found


def _wait_for_streams(device: CudaDevice, streams: Sequence[int], stream: Any) -> bool:
    """Have `stream` wait for `streams`; returns False if that needed our context to be current."""
    event = device.events.take()
    worked = True
    for theirs in streams:
        if device.record(event, device.streams.handle(theirs))[0] is not device.success:
            worked = False
            with device.current:  # the default stream belongs to the current context
                device.call(device.record, event, theirs, doing="waiting for another library's stream")
        if device.stream_wait(stream, event, 0)[0] is not device.success:
            device.call(device.stream_wait, stream, event, 0)
    device.events.give(event)
    return worked


def guests_wait(device: CudaDevice, streams: Sequence[int] | None, stream: Any) -> None:
    """Have other libraries' streams wait for the work on a stream of ours; with None the host waits."""
    if streams is None:
        device.call(device.driver.cuStreamSynchronize, stream)
        return
    if streams.__class__ is _InOurContext:
        # In another GPU's context, the default stream of that GPU would wait instead, without an error.
        with device.current:
            return guests_wait(device, tuple(streams), stream)
    event = device.events.take()
    if device.record(event, stream)[0] is not device.success:
        device.call(device.record, event, stream)
    for theirs in streams:
        if device.stream_wait(device.streams.handle(theirs), event, 0)[0] is not device.success:
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
    """Reads the tensor's own attributes: `__dlpack__` takes ten times as long."""
    if tensor.requires_grad:
        raise ArgumentError("the tensor requires a gradient, which a kernel would not compute: pass tensor.detach()")
    if tensor.layout is not sys.modules["torch"].strided or tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(
            "the tensor must have plain memory, got a sparse or lazily conjugated or negated one: materialise it first"
        )
    index = device.info.index
    if tensor.get_device() != index:
        raise ArgumentError(f"the tensor must be on {device.spec}, got one on cuda:{tensor.get_device()}")
    if not tensor.is_contiguous():
        raise ArgumentError("the tensor must be contiguous: pass tensor.contiguous()")
    dtype = _dtype_of_torch(tensor.dtype)
    pointer = tensor.data_ptr() or device.empty_address
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
        raise ArgumentError("the array must be writable to be shared, got a read-only one: copy it first")
    if not dlpack.is_contiguous(shape, interface.get("strides"), dtype.itemsize):
        raise ArgumentError("the array must be contiguous: copy it first")
    if pointer:
        which = device.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        index = int(device.call(device.driver.cuPointerGetAttribute, which, pointer))
        if index != device.info.index:
            raise ArgumentError(f"the array must be on {device.spec}, got one on cuda:{index}")
    return Array(device, shape, dtype, pointer or device.empty_address, guest, peers)


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
            return [CudaFence(device, device.streams.handle(stream)) for stream in streams]

    def cuda_array_interface(self, array: Array) -> dict[str, Any]:
        array.open_handle()
        device: Any = array.device
        peers = _consumers_of(device, None, array.peers)
        array.share(peers)
        # Consumers should wait for the stream below. PyTorch does not, so the loaded libraries are made to wait here.
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
