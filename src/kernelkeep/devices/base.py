"""The contract of a backend: Device, Program and Kernel.

A backend is a folder with a subclass of each. These methods are required; everything else has a default that works on any
device, and a backend replaces a default where its driver does better.

| required                | does                                                          |
|-------------------------|---------------------------------------------------------------|
| Device.compile_program  | source to bytes                                               |
| Device.load_program     | bytes to a `Program`                                          |
| Device.allocate         | memory; the returned handle frees it when the last one drops it |
| Device.upload, download | copy between a handle and a NumPy array, and wait             |
| Device.copy             | copy between two handles                                      |
| Device.memory_info      | how much memory there is                                      |
| Device.synchronize      | wait for all work                                             |
| Program.make_kernel     | a `Kernel` for a signature of the program                     |
| Kernel.enqueue          | launch with checked arguments                                 |

| has a default                         | which is                                      |
|---------------------------------------|-----------------------------------------------|
| build_program                         | compile, then load                            |
| free, shut_down, Program.unload       | nothing to do                                 |
| fence                                 | synchronize                                   |
| timer_class, lanes_class, queue_class | the host's clock; one lane; no second queue   |
| new_replay, Kernel.bind_launch        | a loop; launch by launch                      |
| part_of, upload_at, download_at       | no views of parts of arrays                   |
| fill                                  | an upload                                     |
| pinned_empty                          | an ordinary NumPy array                       |
| guests                                | memory is not shared with other libraries     |
| Kernel.fast_launch                    | none: launches go through `enqueue`           |

A backend works with its driver's own handles and translates its driver's errors into those of `kernelkeep.errors`. Methods
that users call too (`memory_info`, `synchronize`, `fence`) begin with `self.check_open()`.

All work given to one device without naming a queue runs in the order it was given, whichever thread gave it.
`synchronize()` and `Array.numpy()` wait for it.
"""

from __future__ import annotations

import contextlib
import math
import platform
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

import numpy as np

from ..errors import DeviceError, OutOfMemory, Unsupported
from ..programs.portable import PortableKernel
from ..programs.source import Source, not_a_source, wrong_language
from ..weak_set import WeakSet
from . import forks
from .arguments import LocalMemory
from .array import Array
from .binary import Binary
from .fingerprint import Fingerprint, cpu_vectors
from .guests import Guests
from .host_data import host_view, parse_dtype, parse_shape
from .info import Capabilities, DeviceInfo, MemoryInfo
from .kernel import FastLaunch, Kernel
from .lanes import Lanes
from .memory import MemoryHandle
from .prepared import LaunchOptions, Prepared
from .program import Program
from .recycling import Recycler
from .replay import Replay, Step
from .resident_blocks import ResidentBlocks
from .synchronization import Fence, PassedFence, Queue, Timer

__all__ = [
    "Binary",
    "Capabilities",
    "Device",
    "DeviceInfo",
    "FastLaunch",
    "Fence",
    "Kernel",
    "LaunchOptions",
    "LocalMemory",
    "MemoryInfo",
    "Program",
    "Queue",
    "Timer",
]


class _Reliever(Protocol):
    def relieve(self, nbytes: int | None) -> bool: ...


class _Tenant(Protocol):
    def close(self) -> None: ...
    def mark_lost(self, reason: str) -> None: ...


class Device(ABC):
    """An opened device. Safe to use from several threads; a context manager that closes it.

    `info` says what it is, `capabilities` what it can do, `fingerprint` what its compiled programs belong to, and `language`
    which sources it takes.
    """

    backend: str
    language: str
    guests = Guests()  # how memory is shared with other libraries
    timer_class: type[Timer] = Timer
    lanes_class: type[Lanes] = Lanes
    queue_class: type[Queue] | None = None  # None: the device has one queue
    min_bytes = 16  # of an allocation: drivers refuse buffers of no bytes
    writer_assumes: tuple[str, ...] = ()  # what the writer of its language may rely on here, beyond the language
    replays_whole = False  # many launches cost the host as much as one
    # Under which programs that were compiled ahead for this architecture are found, the preferred ones first.
    architecture_fingerprints: tuple[Fingerprint, ...] = ()
    lost = ""  # why this process cannot use it, where it was opened before a fork

    def __init__(self, info: DeviceInfo, fingerprint: Fingerprint, capabilities: Capabilities) -> None:
        self.info = info
        self.spec = info.spec
        self.fingerprint = fingerprint
        self.capabilities = capabilities
        self.closed = self._closing = False
        self.creation_lock = threading.Lock()  # held while something is made or closed that must be made or closed once
        self.timing_lock = threading.RLock()  # two timers at once would measure each other's work
        self.recycler: Recycler | None = None
        self._programs: WeakSet[Program] = WeakSet()
        self._relievers: WeakSet[_Reliever] = WeakSet()
        self._tenants: WeakSet[_Tenant] = WeakSet()
        forks.watch(self)

    # --- what a backend must supply

    @abstractmethod
    def compile_program(self, source: Source) -> bytes:
        """Compile a source of this device's language to bytes that `load_program` takes. Raises `CompileError`."""

    @abstractmethod
    def load_program(self, binary: bytes, *, eager: bool = True) -> Program:
        """Load what `compile_program` made; `BinaryRejected` when the driver refuses it.

        With `eager=False` the code may stay in host memory until the first launch.
        """

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """Allocate device memory and return its handle; `OutOfMemory` if there is none.

        Another thread may use a handle while its array is closed, so the memory must live until the last holder drops the
        handle: return an object that frees it when it is collected (`memory.MemoryHandle` for numbers).
        """

    @abstractmethod
    def upload(self, handle: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy a contiguous host array to device memory, in order, and wait until it may be changed again."""

    @abstractmethod
    def download(self, handle: Any, out: np.ndarray[Any, Any]) -> None:
        """Copy device memory to a contiguous host array, in order, and wait until it is there."""

    @abstractmethod
    def copy(self, target: Any, origin: Any, nbytes: int) -> None:
        """Copy on the device, in order; need not wait."""

    @abstractmethod
    def memory_info(self) -> MemoryInfo:
        """How much memory the device has."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything given to the device is done, and raise what went wrong meanwhile."""

    # --- what a backend may replace

    def build_program(self, source: Source) -> Program:
        """Compile and load in one step."""
        return self.load_program(self.compile_program(source))

    def free(self, handle: Any, *, collected: bool = False) -> None:
        """The array of this memory is closed; with `collected` by the garbage collector, at any moment, in any thread."""
        if not collected and isinstance(handle, MemoryHandle):
            handle.at_once = True

    def shut_down(self) -> None:
        """Wait for all work and release everything. Programs are closed, and `self.closed` is set, so use the driver directly."""
        return None

    @property
    def family(self) -> str:
        """The kind of chip without the driver's version: the fastest variant on one device is a good guess for its family."""
        if self.info.is_gpu:
            return f"{self.backend} {self.fingerprint.vendor} {self.fingerprint.model}"
        # CPU drivers report the exact processor; what matters is the driver and the width of vector instructions.
        driver = re.sub(r"\s*\d.*", "", self.fingerprint.driver)
        return f"{self.backend} {driver} {platform.machine()} {self.vectors_used()}"

    def vectors_used(self) -> str:
        """The widest vector instructions that a driver for CPUs compiles to."""
        return cpu_vectors()

    def is_aligned(self, array: Array, nbytes: int) -> bool:
        """Whether a launch takes an array, and it begins at a multiple of `nbytes`; views and other libraries' memory may not."""
        return array.offset % max(nbytes, self.capabilities.view_alignment) == 0

    def count_processors(self) -> int:
        """How many processors run groups beside each other (multiprocessors, compute units); 0 where the driver does not say."""
        return 0

    def memory_bytes_per_second(self) -> float:
        """How fast the device's memory is by the driver's own figures; 0 where the driver does not say."""
        return 0.0

    def part_of(self, handle: Any, offset: int, nbytes: int) -> Any:
        """A handle of `nbytes` of a handle's memory, which keeps it alive; `offset` is a multiple of the `view_alignment`.

        All methods take it in place of the handles of `allocate`. `handle` is never such a part itself.
        """
        raise NotImplementedError("a backend with capabilities.view_alignment has views")

    def upload_at(self, handle: Any, offset: int, host: np.ndarray[Any, Any]) -> None:
        """`upload` behind the first `offset` bytes; for views whose offset is no multiple of the `view_alignment`."""
        raise NotImplementedError("a backend with a capabilities.view_alignment above 1 copies at any offset")

    def download_at(self, handle: Any, offset: int, out: np.ndarray[Any, Any]) -> None:
        """`download` from behind the first `offset` bytes."""
        raise NotImplementedError("a backend with a capabilities.view_alignment above 1 copies at any offset")

    def fill(self, handle: Any, value: np.ndarray[Any, Any], count: int) -> None:
        """Set the first `count` elements to a value, an array without dimensions; in order, need not wait."""
        self.upload(handle, np.full(count, value))

    def pinned_empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        """A NumPy array in host memory the device copies from and to directly, where it has such memory."""
        self.check_open()
        try:
            return np.empty(parse_shape(shape), parse_dtype(dtype))
        except (MemoryError, ValueError) as error:
            raise OutOfMemory(f"the host cannot allocate an array of shape {shape}: {error}") from None

    def fence(self) -> Fence:
        """A point after everything given to the device so far."""
        self.check_open()
        return PassedFence(self)

    def timer(self) -> Timer:
        """Device time of a `with` block."""
        self.check_open()
        return self.timer_class(self)

    def time_work(self, work: Callable[[], Any]) -> float:
        """The device time of some launches in seconds, without the host's gaps between them where the driver can do that."""
        timer = self.timer()
        with self.exclusive(), timer:
            work()
        return timer.seconds

    def queue(self) -> Queue:
        """A second queue; `Unsupported` where the device has only one."""
        self.check_open()
        self.capabilities.require("queues")
        assert self.queue_class is not None, "a backend with capabilities.queues sets queue_class"
        return self.queue_class(self)

    def open_lanes(self, *, timed: bool = True) -> Lanes:
        """Upload, compute and download beside each other, as far as the device can; `timed` for marks that tell when."""
        self.check_open()
        return self.lanes_class(self, timed)

    def new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> Replay:
        """Launches and copies as one, as far as the driver can.

        They run on the device's own queue; `queue` names another, for devices with `replays_whole` only.
        """
        return Replay(self, steps)

    @property
    def runs_resident(self) -> bool:
        """Whether kernels that stay run now. One that needs a whole processor might wait for them for ever."""
        return False

    def open_resident_blocks(self, *, sms: int | None = None) -> ResidentBlocks:
        """A place for a kernel that stays, on `sms` of the device's processors only if that is given; `Unsupported` without."""
        self.check_open()
        raise Unsupported("resident", f"{self.spec} cannot keep a kernel that never exits: use kk.Resident.emulated")

    def encode_ahead(self, launches: Sequence[Prepared]) -> Callable[[], None] | None:
        """A call that makes these launches, encoded now, so that the call itself costs less. It is used once.

        None where the driver encodes nothing: then the launches themselves are all there is.
        """
        return None

    def exclusive(self) -> AbstractContextManager[Any]:
        """For a `with` block in which this thread has the device to itself.

        OpenGL gains by it: its context stays where it is instead of being taken and released at every step, which can take longer
        than a small launch.
        """
        return contextlib.nullcontext()

    # --- programs

    def compile(self, source: Source | PortableKernel) -> bytes:
        """Compile to bytes that `load` takes, in this process or another. Raises `CompileError`."""
        return self.compile_program(self._checked_source(source))

    def build(self, source: Source | PortableKernel) -> Program:
        """Compile and load in one step; `Program.binary()` gives the bytes. Raises `CompileError`."""
        program = self.build_program(self._checked_source(source))
        self._programs.add(program)
        return program

    def load(self, binary: bytes, *, eager: bool = True) -> Program:
        """Load what `compile` made. Raises `BinaryRejected` when the driver refuses it.

        With `eager=False` a driver that can may leave the code in host memory until the first launch (CUDA; see
        `Program.make_resident`).
        """
        self.check_open()
        program = self.load_program(binary, eager=eager)
        self._programs.add(program)
        return program

    def list_programs(self) -> list[Program]:
        """The programs that are loaded and not collected."""
        return list(self._programs)

    def _checked_source(self, source: Source | PortableKernel) -> Source:
        """The source, in this device's language."""
        self.check_open()
        if isinstance(source, PortableKernel):
            source = source.source(self)
        if not isinstance(source, Source):
            raise not_a_source(source)
        if source.language != self.language:
            raise wrong_language(source, self.spec, self.language)
        return source

    # --- memory

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> Array:
        """An array with undefined contents."""
        self.check_open()
        parsed_shape, parsed_dtype = parse_shape(shape), parse_dtype(dtype)
        return Array(self, parsed_shape, parsed_dtype, self._new_handle(parsed_shape, parsed_dtype))

    def zeros(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> Array:
        """An array of zeros."""
        return self.empty(shape, dtype).fill(0)

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: Any = None) -> Array:
        """An array with a number in every element. Without `dtype` it is that of `device.array(value)`."""
        return self.empty(shape, host_view(value).dtype if dtype is None else dtype).fill(value)

    def recycled_empty(self, shape: tuple[int, ...], dtype: Any = "f4") -> Array:
        """Like `empty`, but reuses memory of a dropped array of the same size, if there is one.

        For arrays used in the device's own order of work. One that is used on another queue or by another library is freed
        as usual.
        """
        self.check_open()
        parsed = np.dtype(dtype)
        recycler = self.recycler or self._make_recycler()
        nbytes = math.prod(shape) * parsed.itemsize
        if not nbytes:
            return self.empty(shape, parsed)
        handle = recycler.take(nbytes)
        if handle is None:
            handle = self._new_handle(shape, parsed)
        return Array(self, shape, parsed, handle, recycler=recycler)

    def _new_handle(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes >= 1 << 63:
            raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes: no device can")
        nbytes = max(nbytes, self.min_bytes)  # NumPy users expect empty arrays to work
        try:
            return self.allocate(nbytes)
        except OutOfMemory:
            relieved = [reliever.relieve(nbytes) for reliever in list(self._relievers)]  # all of them, not the first
            if not any(relieved):
                raise
            return self.allocate(nbytes)

    def _make_recycler(self) -> Recycler:
        with self.creation_lock:
            if self.recycler is None:
                self.recycler = Recycler(self)
                self.add_reliever(self.recycler)
                self.add_tenant(self.recycler)
            return self.recycler

    def add_reliever(self, reliever: _Reliever) -> None:
        """Call `reliever.relieve(nbytes)` when memory runs out; if one freed some, the allocation is tried once more."""
        self._relievers.add(reliever)

    def add_tenant(self, tenant: _Tenant) -> None:
        """Call `tenant.close()` before the device closes, and `tenant.mark_lost(reason)` in a forked child."""
        self._tenants.add(tenant)

    def array(self, data: Any, dtype: Any = None, *, ordered: bool = True) -> Array:
        """A device array from NumPy, anything with DLPack or `__cuda_array_interface__`, or a nested list.

        Host data is copied. Memory of this very device is shared, not copied: the array then keeps its owner alive, and
        work on it is ordered with the owner's (PyTorch, CuPy, …): ours waits for what the owner has under way on its
        current stream, and that stream waits for ours. With `ordered=False` keeping the order is left to you.

        What has a dtype keeps it. Python's numbers have none: floats become f4, integers i4 where they fit and else i8. `dtype`
        names another one, and what has to be converted for it is copied.
        """
        self.check_open()
        if dtype is not None:
            dtype = parse_dtype(dtype)
            if isinstance(data, Array) and data.dtype != dtype:
                data = data.numpy()
        if isinstance(data, Array):
            return self.empty(data.shape, data.dtype).copy_from(data if data.device is self else data.numpy())
        guest = None if isinstance(data, np.ndarray) else self.guests.adopt(self, data)
        if guest is not None and dtype is not None and guest.dtype != dtype:
            data = guest.numpy()
        elif guest is not None:
            if not ordered:
                self.guests.wait_for_guests(self, (guest,))
                guest.peers, guest.ready = None, guest.handle
            return guest
        host = host_view(data, dtype)
        array = self.empty(host.shape, host.dtype)
        if host.nbytes:
            self.upload(array.handle, host)
        return array

    # --- life

    def close(self) -> None:
        """Wait for all work, unload the programs and release the device."""
        with self.creation_lock:
            if self.closed or self._closing:
                return  # another thread closes it, or this is a callback from closing a tenant
            self._closing = True
        try:
            for tenant in list(self._tenants):
                tenant.close()
            for program in self.list_programs():
                program.close()
            self.closed = True
            self.shut_down()
        finally:
            self._closing = False

    def check_open(self) -> None:
        """Raise `DeviceError` if the device is closed or lost."""
        if self.closed:
            raise DeviceError(self.lost or f"device {self.spec} is closed")

    def check_not_lost(self) -> None:
        """Raise `DeviceError` if the device was opened before a fork that made this process."""
        if self.lost:
            raise DeviceError(self.lost)

    def mark_lost(self, reason: str) -> None:
        """Called in a forked child: from now on nothing may call the device's driver.

        Takes no lock from before the fork: a thread that does not exist here may hold it.
        """
        self.lost = reason
        self.closed = True
        self.creation_lock = threading.Lock()
        self.timing_lock = threading.RLock()
        for program in self.list_programs():
            program.mark_lost(reason)
        for tenant in list(self._tenants):
            tenant.mark_lost(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.spec}: {self.info.name}{', closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        from .html import device_html

        return device_html(self)
