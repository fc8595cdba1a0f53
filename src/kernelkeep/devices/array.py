"""An array in device memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..weak_set import WeakSet
from . import views
from .host_data import convert_number, host_view, parse_sizes

if TYPE_CHECKING:
    from .base import Device
    from .recycling import Recycler

_HOST = (1, 0)  # kDLCPU, as DLPack names the host's memory
# NumPy's own object for each of its types. An equal dtype may be another object, and a launch looks whether it is this one.
_DTYPES = {dtype: dtype for dtype in map(np.dtype, "?bBhHiIqQlLefdFD")}


class ArrayObserver(Protocol):
    """Something that would use an array's memory without asking again: a prepared launch, a graph."""

    def revoke(self, reason: str) -> None:
        """The array is closed; `reason` says so."""

    def sharing_changed(self) -> None:
        """Another library uses the memory as well from now on."""


class Array:
    """An array in the device's memory: `shape`, `dtype`, `nbytes`. Made by `device.array(…)`, `empty`, `zeros` and `full`.

    It is always C-contiguous. `array[2:5]`, `array[0]` and `array.reshape(…)` are views: arrays that share its memory. The
    memory is freed when the array and all its views are collected, or at once by `close()` of the last of them. An array that
    shares memory with a guest (a CuPy or PyTorch array) keeps the guest alive and frees nothing itself.
    """

    # `peers` names the other libraries that use the memory, with whose work ours is ordered; None if there are none. `ready`
    # is the handle if a launch may use it without further checks, and None if the array is closed or has peers.

    __slots__ = (
        "__weakref__",
        "_guest",
        "_observers",
        "_origin",
        "_recycler",
        "_views",
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
        origin: views.Origin | None = None,
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = _DTYPES.get(dtype, dtype)
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.handle = handle
        self.peers = peers
        self.ready = handle if peers is None and handle.__class__ is not views.CopyOnly else None
        self._guest = guest if origin is None else origin  # a view frees nothing either
        self._origin = origin
        self._views: WeakSet[Array] | None = None  # of an array that is not a view itself
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
        handle = self._open_any_handle()
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
            views.download(self.device, handle, out)
        return out

    def copy_from(self, other: Any) -> Array:
        """Overwrite the contents with those of a host array or of another array on this device.

        Python's numbers and lists of them become numbers of this array's dtype.
        """
        handle = self._open_any_handle()
        if isinstance(other, Array):
            origin = other._open_any_handle()
            if other.device is not self.device:
                raise ArgumentError(
                    f"the array to copy from must be on {self.device.spec}, got one on {other.device.spec}"
                )
            self._check_like(other.shape, other.dtype)
            if self.nbytes and other is not self:
                if self.overlaps(other):  # which drivers do not copy
                    return self.copy_from(other.numpy())
                with self.device.guests.ordered(self.device, (self, other)):
                    views.copy(self.device, handle, origin, self.nbytes)
            return self
        host = host_view(other, default=self.dtype)
        self._check_like(host.shape, host.dtype)
        if self.nbytes:
            with self.device.guests.ordered(self.device, (self,)):
                views.upload(self.device, handle, host)
        return self

    def fill(self, value: Any) -> Array:
        """Set every element to a number, which must fit the dtype; returns the array."""
        handle = self._open_any_handle()
        number = convert_number(value, self.dtype)
        if self.nbytes:
            with self.device.guests.ordered(self.device, (self,)):
                views.fill(self.device, handle, number, self.size)
        return self

    # --- views

    def __getitem__(self, key: Any) -> Array:
        """A contiguous part as a view: `x[2:5]`, `x[0]`, `x[3, 1:]`. Indices and slices without a step."""
        begin, shape = views.find_part(self.shape, key)
        return self._view(begin * self.dtype.itemsize, shape)

    def __iter__(self) -> Iterator[Array]:
        return (self[index] for index in range(len(self)))

    def reshape(self, *shape: int | Sequence[int]) -> Array:
        """The same memory in another shape, as a view; one size may be -1."""
        return self._view(0, views.find_shape(self.size, parse_sizes(shape)))

    def words(self, first: int, count: int) -> Array:
        """`count` 32-bit words of the memory from byte `first` on as a view, whatever the dtype is."""
        if first < 0 or count < 0 or first + 4 * count > self.nbytes:
            raise ArgumentError(f"the words must be within {self.nbytes:,} bytes, got {count:,} from byte {first:,} on")
        return self._view(first, (count,), np.dtype("u4"))

    def _view(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> Array:
        handle = self._open_any_handle()
        dtype = dtype or self.dtype
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return self.device.empty(shape, dtype)  # there is nothing to share
        self.stop_recycling()
        base = self._origin or views.Origin(self, handle, self._guest, 0)
        origin = base._replace(offset=base.offset + offset)
        if nbytes != self.nbytes:
            handle = views.part_handle(self.device, origin.handle, origin.offset, nbytes)
        made = Array(self.device, shape, dtype, handle, peers=self.peers, origin=origin)
        if base.array._views is None:
            base.array._views = WeakSet()
        base.array._views.add(made)
        return made

    @property
    def offset(self) -> int:
        """How many bytes behind the beginning of its memory the array begins: 0 if it is not a view."""
        return 0 if self._origin is None else self._origin.offset

    def overlaps(self, other: Array) -> bool:
        """Whether the two have bytes of memory in common, as far as they are views of one array, or one array."""
        mine = self if self._origin is None else self._origin.array
        theirs = other if other._origin is None else other._origin.array
        if mine is not theirs:
            handle = self.handle
            return handle is not None and (handle is other.handle or handle == other.handle)
        return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes

    def share(self, peers: Any) -> None:
        """Note that another library uses the memory as well, and tell the observers; so for all views of it."""
        whole = self if self._origin is None else self._origin.array
        for array in (whole, *(whole._views or ())):
            array.stop_recycling()
            array.peers, array.ready = peers, None
            for observer in array._observers or ():
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
        """Free the memory now, unless views of it are in use. Using the array afterwards raises `DeviceError`."""
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
        self._guest = self.peers = self._origin = None

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
        self._open_any_handle()  # a copy can be made of any view
        if dl_device is not None and tuple(dl_device) == _HOST:
            if copy is False:
                raise BufferError("device memory cannot be seen from the host without a copy")
            return self.numpy().__dlpack__()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device must be {self.__dlpack_device__()} or {_HOST} (the host), got {dl_device!r}")
        if copy:
            return self.device.guests.dlpack_capsule(self.device.empty(self.shape, self.dtype).copy_from(self), stream)
        self.open_handle()
        return self.device.guests.dlpack_capsule(self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.guests.dlpack_device(self)

    def __repr__(self) -> str:
        state = "" if self.handle is not None else ", closed"
        return f"Array(shape={self.shape}, dtype={self.dtype.name}, device={self.device.spec!r}{state})"

    def _repr_html_(self) -> str:
        from .html import array_html

        return array_html(self)

    def open_handle(self) -> Any:
        """The handle; `DeviceError` if the array is closed. Another thread may close it right afterwards."""
        handle = self._open_any_handle()
        if handle.__class__ is views.CopyOnly:
            raise handle.refusal("this array")
        return handle

    def _open_any_handle(self) -> Any:
        handle = self.handle
        if handle is None:
            shape = " × ".join(map(str, self.shape)) or "one element"
            raise DeviceError(
                f"this array ({shape}, {self.dtype.name}, on {self.device.spec}) is closed: use it before it is closed"
            )
        self.device.check_open()
        return handle

    def _check_like(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype != self.dtype:
            raise ArgumentError(
                f"the data must be {self.dtype}, got {dtype}; convert it with .astype({str(self.dtype)!r})"
            )
        if shape != self.shape:
            raise ArgumentError(f"the data must have shape {self.shape}, got {shape}")
