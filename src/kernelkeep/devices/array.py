"""An array in device memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..weak_set import WeakSet

if TYPE_CHECKING:
    from .base import Device
    from .recycling import Recycler

_HOST = (1, 0)  # kDLCPU, as DLPack names the host's memory


class ArrayObserver(Protocol):
    """Something that would use an array's memory without asking again: a prepared launch, a graph."""

    def revoke(self, reason: str) -> None:
        """The array is closed; `reason` says so."""

    def sharing_changed(self) -> None:
        """Another library uses the memory as well from now on."""


class Array:
    """Made by `device.array(…)` and `device.empty(…)`; always C-contiguous.

    The memory is freed when the array is collected, or at once by `close()`. An array that shares memory with a
    guest (a CuPy or PyTorch array) keeps the guest alive and frees nothing itself.

    `peers` names the other libraries that use the memory, with whose work ours is ordered; None if there are none. `ready`
    is the handle if a launch may use it without further checks, and None if the array is closed or has peers.
    """

    __slots__ = (
        "__weakref__",
        "_guest",
        "_observers",
        "_recycler",
        "device",
        "dtype",
        "handle",
        "nbytes",
        "peers",
        "ready",
        "shape",
    )

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        handle: Any,
        guest: object = None,
        peers: Any = None,
        recycler: Recycler | None = None,
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.handle = handle
        self.peers = peers
        self.ready = handle if peers is None else None
        self._guest = guest
        self._recycler = recycler
        self._observers: WeakSet[ArrayObserver] | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def numpy(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Wait for everything launched before, and copy the contents to the host; into `out` if it is given."""
        handle = self.open_handle()
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif (
            not isinstance(out, np.ndarray)
            or out.dtype != self.dtype
            or out.shape != self.shape
            or not out.flags.c_contiguous
            or not out.flags.writeable
        ):
            raise ArgumentError(f"out must be a writable contiguous {self.dtype} array of shape {self.shape}")
        if self.nbytes:
            if self.peers is not None:
                self.device.guests.wait_for_guests(self.device, (self,))
            self.device.download(handle, out)
        return out

    def copy_from(self, other: Any) -> Array:
        """Overwrite the contents with those of a host array or of another array on this device."""
        handle = self.open_handle()
        if isinstance(other, Array):
            origin = other.open_handle()
            if other.device is not self.device:
                raise ArgumentError(
                    f"the array to copy from must be on {self.device.spec}, got one on {other.device.spec}"
                )
            self._check_like(other.shape, other.dtype)
            if self.nbytes and other is not self:
                with self.device.guests.ordered(self.device, (self, other)):
                    self.device.copy(handle, origin, self.nbytes)
            return self
        host = host_view(other)
        self._check_like(host.shape, host.dtype)
        if self.nbytes:
            with self.device.guests.ordered(self.device, (self,)):
                self.device.upload(handle, host)
        return self

    def share(self, peers: Any) -> None:
        """Note that another library uses the memory as well, and tell the observers."""
        self.stop_recycling()
        self.peers, self.ready = peers, None
        for observer in self._observers or ():
            observer.sharing_changed()

    def add_observer(self, observer: ArrayObserver) -> None:
        """Tell `observer` when the array is closed or shared; it is held weakly."""
        if self._observers is None:  # most arrays have none
            self._observers = WeakSet()
        self._observers.add(observer)

    def remove_observer(self, observer: ArrayObserver) -> None:
        """Tell `observer` nothing more."""
        if self._observers is not None:
            self._observers.discard(observer)

    def close(self) -> None:
        """Free the memory now. Using the array afterwards raises `DeviceError`."""
        self._release(collected=False)

    def _release(self, *, collected: bool) -> None:
        handle, self.handle, self.ready = self.handle, None, None
        if self.device.lost:  # the memory is the parent's
            return
        for observer in self._observers or ():
            observer.revoke("an array it was prepared with is closed")
        recycler, self._recycler = self._recycler, None
        if handle is not None and self._guest is None and not (recycler and recycler.give(self.nbytes, handle)):
            self.device.free(handle, collected=collected)
        self._guest = self.peers = None

    def stop_recycling(self) -> None:
        """Do not give the memory to another array later: somebody uses it outside the device's own order of work."""
        self._recycler = None

    def __del__(self) -> None:
        try:
            if self._guest is None or self._observers is not None:
                self._release(collected=True)
        except Exception:  # the interpreter may be half gone
            pass

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("device memory cannot be seen from the host without a copy")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype, copy=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.device.guests.cuda_array_interface(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for another library. `stream` is the consumer's: it waits for our work, the host does not."""
        self.open_handle()
        if dl_device is not None and tuple(dl_device) == _HOST:
            if copy is False:
                raise BufferError("device memory cannot be seen from the host without a copy")
            return self.numpy().__dlpack__()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device must be {self.__dlpack_device__()} or {_HOST} (the host), got {dl_device!r}")
        if copy:
            return self.device.guests.dlpack_capsule(self.device.empty(self.shape, self.dtype).copy_from(self), stream)
        return self.device.guests.dlpack_capsule(self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.guests.dlpack_device(self)

    def __repr__(self) -> str:
        state = "" if self.handle is not None else ", closed"
        return f"Array(shape={self.shape}, dtype={self.dtype.name}, device={self.device.spec!r}{state})"

    def open_handle(self) -> Any:
        """The handle; `DeviceError` if the array is closed. Another thread may close it right afterwards."""
        handle = self.handle
        if handle is None:
            raise DeviceError("this array is closed")
        self.device.check_open()
        return handle

    def _check_like(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype != self.dtype:
            raise ArgumentError(
                f"the data must be {self.dtype}, got {dtype}; convert it with .astype({str(self.dtype)!r})"
            )
        if shape != self.shape:
            raise ArgumentError(f"the data must have shape {self.shape}, got {shape}")


def host_view(data: Any) -> np.ndarray[Any, Any]:
    """`data` as a contiguous NumPy array in native byte order, copied only where it must be."""
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
    if not host.dtype.isnative:
        host = host.astype(host.dtype.newbyteorder("="))
    return host if host.flags.c_contiguous else np.ascontiguousarray(host)


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
    native: np.dtype[Any] = parsed.newbyteorder("=")
    return native


def _check_kind(dtype: np.dtype[Any]) -> None:
    """Refuse Python objects, which have no fixed layout, and NumPy's strings, which are usually a mistake."""
    if dtype.hasobject or dtype.kind == "U":
        raise ArgumentError(
            f"dtype must be made of numbers or bytes, got {dtype}: a device has no Python objects and no strings"
        )
