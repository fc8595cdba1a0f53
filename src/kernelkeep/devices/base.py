"""The small base every backend fulfils: Device, Program, Kernel, Fence, Queue, Timer.

A backend is one file (or folder) with a subclass of `Device`, `Program` and `Kernel`. The base does what is the same
everywhere, above all the checks that come before a driver call; a backend supplies the methods marked abstract, works
in its driver's own handles, and translates its driver's errors into those of `kernelkeep.errors`.

Order of work: everything given to one device without naming a queue runs in the order it was given, whichever thread
gave it. `synchronize()` and `Array.numpy()` wait for it.
"""

from __future__ import annotations

import contextlib
import math
import platform
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from ..errors import ArgumentError, DeviceError, OutOfMemory, Unsupported
from ..programs.source import Source
from . import forks
from .arguments import LocalMemory
from .array import Array, host_view, parse_dtype, parse_shape
from .fingerprint import Fingerprint, cpu_vectors
from .lanes import Lanes
from .order import Fence, Queue, Timer
from .program import Kernel, Program
from .recycling import Recycler
from .replay import LoopReplay, Replay, Step

__all__ = [
    "Capabilities",
    "Device",
    "DeviceInfo",
    "Fence",
    "Kernel",
    "LocalMemory",
    "MemoryInfo",
    "Program",
    "Queue",
    "Timer",
]


@dataclass(frozen=True)
class DeviceInfo:
    """A device as it is listed, before it is opened."""

    spec: str
    backend: str
    name: str
    vendor: str
    driver: str
    is_gpu: bool
    index: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True)
class Capabilities:
    """What a device can do; what it cannot is refused by name with `Unsupported`."""

    cooperative: bool = False  # a launch whose groups are all resident and may wait for each other
    device_clock: bool = False  # a kernel can read a clock
    mapped_ring: bool = False  # host memory a running kernel reads and writes while the host does
    forward_progress: bool = False  # groups that are resident all make progress
    float_atomics: bool = False  # 32-bit float add and exchange
    float64: bool = False
    int64: bool = False
    int8: bool = False  # 8- and 16-bit integers
    queues: bool = False  # more than one queue
    pinned_memory: bool = False  # host memory the device copies from and to directly
    program_binaries: bool = True  # a compiled program can be read back
    ripening_binaries: bool = False  # a binary read back after a launch holds more native code than before
    timestamps: bool = False  # the device tells when work began and ended
    cheap_polling: bool = False  # asking whether work is done takes less than a microsecond or two
    wide_vectors: bool = False  # kernels may use float8 and float16, and gain by it
    max_loop_rounds: int | None = None  # loops end, silently, after so many rounds of a work-item
    max_group_items: int = 1024
    max_group: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (65535, 65535, 65535)
    shared_bytes: int = 0

    def require(self, name: str) -> None:
        """Raise `Unsupported` unless the device has the capability `name`."""
        if not getattr(self, name):
            raise Unsupported(name, f"this device cannot do that: capabilities.{name} is False")


@dataclass(frozen=True)
class MemoryInfo:
    """Device memory; `free_bytes` is None where the driver does not say."""

    total_bytes: int
    free_bytes: int | None


class _Reliever(Protocol):
    def relieve(self, nbytes: int | None) -> bool: ...


class _Closable(Protocol):
    def close(self) -> None: ...


@runtime_checkable
class _Losable(Protocol):
    def _lose(self, reason: str) -> None: ...


class Device(ABC):
    """An opened device. Safe to use from several threads; a context manager that closes it."""

    backend: str
    language: str
    replays_whole = False  # many launches cost the host as much as one
    takes_guests = False  # other libraries' arrays can be arguments, and ours can be theirs
    lost = ""  # why this process cannot use it, where it was opened before a fork

    def __init__(self, info: DeviceInfo, fingerprint: Fingerprint, capabilities: Capabilities) -> None:
        self.info = info
        self.spec = info.spec
        self.fingerprint = fingerprint
        self.capabilities = capabilities
        self.closed = self._closing = False
        self._programs: weakref.WeakSet[Program] = weakref.WeakSet()
        self._relievers: weakref.WeakSet[_Reliever] = weakref.WeakSet()
        self._tenants: weakref.WeakSet[_Closable] = weakref.WeakSet()
        self._making = threading.Lock()
        self._recycler: Recycler | None = None
        self._timing = threading.RLock()  # two timers at once would measure each other's work
        forks.watch(self)

    @property
    def family(self) -> str:
        """The kind of chip, whatever the driver's version: what is fastest on one device is a good guess for its family."""
        if self.info.is_gpu:
            return f"{self.backend} {self.fingerprint.vendor} {self.fingerprint.model}"
        # CPU drivers name the very processor; what decides is the driver and how wide the instructions are.
        driver = re.sub(r"\s*\d.*", "", self.fingerprint.driver)
        return f"{self.backend} {driver} {platform.machine()} {cpu_vectors()}"

    # --- programs

    def compile(self, source: Source) -> bytes:
        """Compile to bytes that `load` takes, in this process or another. Raises `CompileError`."""
        self._check_open()
        self._check_language(source)
        return self._compile(source)

    def build(self, source: Source) -> Program:
        """Compile and load in one step; `Program.binary()` gives the bytes. Raises `CompileError`."""
        self._check_open()
        self._check_language(source)
        program = self._build(source)
        self._programs.add(program)
        return program

    def load(self, binary: bytes, *, eager: bool = True) -> Program:
        """Load what `compile` made. Raises `BinaryRejected` when the driver refuses it.

        With `eager=False` a driver that can may leave the code in host memory until the first launch (CUDA; see
        `Program.make_resident`).
        """
        self._check_open()
        program = self._load(binary) if eager else self._load_lazily(binary)
        self._programs.add(program)
        return program

    @abstractmethod
    def _compile(self, source: Source) -> bytes: ...

    @abstractmethod
    def _build(self, source: Source) -> Program: ...

    @abstractmethod
    def _load(self, binary: bytes) -> Program: ...

    def _load_lazily(self, binary: bytes) -> Program:
        return self._load(binary)

    def _check_language(self, source: Source) -> None:
        if not isinstance(source, Source):
            raise ArgumentError(f"a kk.Source is compiled, not a {type(source).__name__}")
        if source.language != self.language:
            raise ArgumentError(f"source {source.name} is {source.language}, and {self.spec} takes {self.language}")

    # --- memory

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> Array:
        """An array with undefined contents."""
        self._check_open()
        parsed_shape, parsed_dtype = parse_shape(shape), parse_dtype(dtype)
        nbytes = math.prod(parsed_shape) * parsed_dtype.itemsize
        if nbytes >= 1 << 63:
            raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes: no device can")
        # Drivers refuse buffers of no bytes; NumPy users expect empty arrays to work.
        return Array(self, parsed_shape, parsed_dtype, self._allocate_or_relieve(max(nbytes, 16)))

    def recycled_empty(self, shape: tuple[int, ...], dtype: Any = "f4") -> Array:
        """Like `empty`, with memory of an array of the same size that was dropped, where there is one.

        Both belong to the device's own order of work. An array that leaves it, to another queue or another library, is
        freed in the ordinary way.
        """
        self._check_open()
        parsed = np.dtype(dtype)
        recycler = self._recycler or self._make_recycler()
        handle = recycler.take(math.prod(shape) * parsed.itemsize)
        array = self.empty(shape, parsed) if handle is None else Array(self, shape, parsed, handle)
        if array.nbytes:
            array._recycler = recycler
        return array

    def _make_recycler(self) -> Recycler:
        with self._making:
            if self._recycler is None:
                self._recycler = Recycler(self)
                self.add_reliever(self._recycler)
                self.add_tenant(self._recycler)
            return self._recycler

    def add_reliever(self, reliever: _Reliever) -> None:
        """When memory runs out, `reliever.relieve(nbytes)` is asked to free some; if any did, it is tried once more."""
        self._relievers.add(reliever)

    def add_tenant(self, tenant: _Closable) -> None:
        """`tenant.close()` is called before the device closes: it has work on the device, or threads that use it."""
        self._tenants.add(tenant)

    def _allocate_or_relieve(self, nbytes: int) -> Any:
        try:
            return self._allocate(nbytes)
        except OutOfMemory:
            relieved = [reliever.relieve(nbytes) for reliever in list(self._relievers)]  # all of them, not the first
            if not any(relieved):
                raise
            return self._allocate(nbytes)

    def array(self, data: Any, *, ordered: bool = True) -> Array:
        """A device array from NumPy, anything with DLPack or `__cuda_array_interface__`, or a nested list.

        Host data is copied. Memory of this very device is shared, not copied: the array then keeps its owner alive, and
        work on it is ordered with the owner's (PyTorch, CuPy, …): ours waits for what the owner has under way on its
        current stream, and that stream waits for ours. With `ordered=False` keeping the order is left to you.
        """
        self._check_open()
        if isinstance(data, Array):
            if data.device is not self:
                return self.empty(data.shape, data.dtype).copy_from(data.numpy())
            return self.empty(data.shape, data.dtype).copy_from(data)
        guest = None if isinstance(data, np.ndarray) else self._guest_array(data)
        if guest is not None:
            if not ordered:
                self.wait_for_guests((guest,))
                guest.peers, guest.ready = None, guest.handle
            return guest
        host = host_view(data)
        array = self.empty(host.shape, host.dtype)
        if host.nbytes:
            self._upload(array.handle, host)
        return array

    def pinned_empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        """A NumPy array in host memory the device copies from and to directly, where it has such memory."""
        self._check_open()
        try:
            return np.empty(parse_shape(shape), parse_dtype(dtype))
        except (MemoryError, ValueError) as error:
            raise OutOfMemory(f"the host cannot allocate an array of shape {shape}: {error}") from None

    @abstractmethod
    def memory_info(self) -> MemoryInfo:
        """How much memory the device has."""

    @abstractmethod
    def _allocate(self, nbytes: int) -> Any: ...

    @abstractmethod
    def _free(self, handle: Any) -> None:
        """Free memory. May be called by the garbage collector, at any moment, in any thread."""

    def is_aligned(self, array: Array, nbytes: int) -> bool:
        """Whether an array begins at a multiple of `nbytes`; only memory of other libraries may not."""
        return True

    def _free_later(self, handle: Any) -> None:
        """Free memory of an array that was collected: at once, or with the next call where a driver's state is in the way."""
        self._free(handle)

    @abstractmethod
    def _upload(self, handle: Any, host: np.ndarray[Any, Any]) -> None: ...

    @abstractmethod
    def _download(self, handle: Any, out: np.ndarray[Any, Any]) -> None: ...

    @abstractmethod
    def _copy(self, target: Any, origin: Any, nbytes: int) -> None: ...

    def _guest_array(self, data: Any) -> Array | None:
        """`data` as an array that shares its memory, or None where it is not memory of this device."""
        return None

    def _cuda_array_interface(self, array: Array) -> dict[str, Any] | None:
        return None

    def _dlpack(self, array: Array, stream: Any) -> Any:
        raise BufferError(f"memory of {self.spec} cannot be shared through DLPack: use .numpy()")

    def _dlpack_device(self) -> tuple[int, int]:
        raise BufferError(f"memory of {self.spec} cannot be shared through DLPack: use .numpy()")

    def wait_for_guests(self, arrays: Sequence[Array], queue: Queue | None = None) -> Any:
        """Have work from now on wait for what other libraries do with these arrays at the moment.

        Gives what `have_guests_wait` is to be given once the work is on its way.
        """
        return None

    def have_guests_wait(self, waited_for: Any, queue: Queue | None = None) -> None:
        """Have other libraries wait for all work so far."""
        return None

    def guest_fences(self, arrays: Sequence[Array]) -> list[Fence]:
        """Points after what other libraries do with these arrays at the moment, to be waited for later."""
        return []

    @contextlib.contextmanager
    def ordered_with_guests(self, arrays: Sequence[Array], queue: Queue | None = None) -> Iterator[None]:
        """For work on arrays of which some may be shared with other libraries: after theirs, and before what they do next."""
        shared = [array for array in arrays if array.peers is not None]
        waited_for = self.wait_for_guests(shared, queue) if shared else None
        yield
        if shared:
            self.have_guests_wait(waited_for, queue)

    # --- order and time

    @abstractmethod
    def fence(self) -> Fence:
        """A point after everything given to the device so far."""

    @abstractmethod
    def timer(self) -> Timer:
        """Device time of a `with` block."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything given to the device is done, and raise what went wrong meanwhile."""

    def queue(self) -> Queue:
        """A second queue; `Unsupported` where the device has only one."""
        self._check_open()
        self.capabilities.require("queues")
        raise AssertionError("a device with queues overrides this")

    @abstractmethod
    def _open_lanes(self, *, timed: bool = True) -> Lanes:
        """Upload, compute and download beside each other, as far as the device can; `timed` for marks that tell when."""

    def _new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> Replay:
        """Launches and copies as one, as far as the driver can; on the device's own queue, or where the driver takes them
        whole (`replays_whole`) on another."""
        return LoopReplay(self, steps)

    def _time(self, work: Callable[[], Any]) -> float:
        """The device time of some launches in seconds, without the host's gaps between them where the driver can do that."""
        timer = self.timer()
        with self.exclusive(), timer:
            work()
        return timer.seconds

    def exclusive(self) -> AbstractContextManager[Any]:
        """For a `with` block in which this thread has the device to itself, and other threads wait.

        Only OpenGL gains by it: its context then stays with the thread instead of being taken up and put down at every
        step, which is a third of the time of a small launch and the wait for it.
        """
        return contextlib.nullcontext()

    # --- life

    def close(self) -> None:
        """Finish what is running, unload the programs and let the device go."""
        with self._making:
            if self.closed or self._closing:
                return  # another thread, or a callback of what is being closed
            self._closing = True
        try:
            for tenant in list(self._tenants):
                tenant.close()
            for program in list(self._programs):
                program.close()
            self.closed = True
            self._close()
        finally:
            self._closing = False

    @abstractmethod
    def _close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.spec}: {self.info.name}{', closed' if self.closed else ''}>"

    def _check_open(self) -> None:
        if self.closed:
            raise DeviceError(self.lost or f"device {self.spec} is closed")

    def _check_not_lost(self) -> None:
        if self.lost:
            raise DeviceError(self.lost)

    def _lose(self, reason: str) -> None:
        """This process was forked from the one that opened the device. From here on nothing may call its driver.

        Takes no lock that was there before the fork: a thread that is not here may hold it.
        """
        self.lost = reason
        self.closed = True
        self._making = threading.Lock()
        self._timing = threading.RLock()
        for program in list(self._programs):
            program._lose(reason)
        for tenant in list(self._tenants):
            if isinstance(tenant, _Losable):
                tenant._lose(reason)
