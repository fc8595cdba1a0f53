"""The CUDA device: programs, memory and streams in the device's primary context.

Other libraries (CuPy, PyTorch, JAX) use the primary context too, so their memory can be used without a copy.

`load` puts all code on the device at once, because loading code at the first launch waits for every running kernel. A hit in the
cache leaves it to the first launch; `preload` does not. Beside a kernel that never exits other rules hold: `residents.py`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...errors import BinaryRejected, DeviceError, KernelKeepError, OutOfMemory
from ...programs.source import Source
from ..array import Array
from ..base import Binary, Device, DeviceInfo, MemoryInfo, Queue
from ..fingerprint import Fingerprint
from ..memory import AddressPart, MemoryHandle
from ..replay import Step
from ..resident_blocks import ResidentBlocks
from .architectures import fingerprints_for
from .capabilities import read_capabilities
from .code_loading import load_library, prepare_for_residents
from .context import Current, Discarded, Events
from .cubin import is_whole_cubin
from .driver import count_devices, info_of, load_driver
from .guests import CudaGuests
from .lanes import CudaLanes
from .pinned import pinned_array
from .program import CudaProgram
from .registered import RegisteredArrays
from .replay import CudaReplay
from .residents import Residents
from .streams import Streams
from .synchronization import CudaFence, CudaQueue, CudaTimer, stream_of
from .toolkit import compiler_or_none

_CLOSE_TIMEOUT_SECONDS = 10.0  # for calls of other threads: one may be this thread's own, which never ends


def open_started(index: int, cache_dir: str | os.PathLike[str] | None = None) -> CudaDevice:
    """Open a device by index."""
    count = count_devices(load_driver())
    if index >= count:
        from ..spec_hint import count_and_use

        raise DeviceError(f"there is no device cuda:{index}; CUDA has {count_and_use('cuda', count)}")
    return CudaDevice(info_of(index), cache_dir)


class CudaDevice(Device):
    """One CUDA device: its primary context and a stream of our own."""

    backend = "cuda"
    language = "cuda"
    guests = CudaGuests()
    timer_class, lanes_class, queue_class = CudaTimer, CudaLanes, CudaQueue
    replays_whole = True

    def __init__(self, info: DeviceInfo, cache_dir: str | os.PathLike[str] | None = None) -> None:
        driver = self.driver = load_driver()
        self._calls: list[None] = []  # one for each driver call under way; append and pop are atomic
        self._shutting_down = False
        self.success = driver.CUresult.CUDA_SUCCESS
        self.cu_device = self.call(driver.cuDeviceGet, info.index)
        attribute = driver.CUdevice_attribute
        major = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        self.architecture = f"sm_{major}{minor}"
        fingerprint = Fingerprint(
            backend="cuda",
            vendor="NVIDIA",
            model=info.name,
            driver=info.driver,
            compiler=compiler_or_none(cache_dir),
            architecture=self.architecture,
        )
        super().__init__(info, fingerprint, read_capabilities(self))
        self.architecture_fingerprints = fingerprints_for(self.architecture)
        self.cu_context = self.call(driver.cuDevicePrimaryCtxRetain, self.cu_device)
        self.current = Current(driver, self.cu_context)
        self.discarded = Discarded.of(info.index)
        self.residents = Residents.of(info.index)
        # Not CU_EVENT_BLOCKING_SYNC: on a busy host a sleeping thread wakes up too late to keep three stages busy.
        self.events = Events(self, driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self.timing_events = Events(self, driver.CUevent_flags.CU_EVENT_DEFAULT)
        with self.current:
            self.cu_stream = self.call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._allocations: dict[int, int] = {}  # bytes by address
        self._empty_address: int | None = None
        self.record, self.stream_wait = driver.cuEventRecord, driver.cuStreamWaitEvent
        self.streams = Streams(driver, self.cu_stream)
        self.registered = RegisteredArrays(self)
        self.residents.devices.add(self)

    @property
    def family(self) -> str:
        return f"{self.backend} {self.fingerprint.architecture}"

    # --- programs

    def compile_program(self, source: Source) -> bytes:
        from .compiler import compile_for  # what a cache has needs no compiler

        return compile_for(source, self.architecture)

    def load_program(self, binary: bytes, *, eager: bool = True) -> CudaProgram:
        program = self._load_lazily(binary)
        if eager:
            try:
                program.make_resident()
            except DeviceError:
                program.close()
                raise
        return program

    def _load_lazily(self, binary: bytes) -> CudaProgram:
        compiled = Binary.decode(binary, "cuda")
        if compiled.form == "cubin" and not is_whole_cubin(compiled.payload):
            # The driver would find out only when the code is first needed, which is too late to compile again.
            raise BinaryRejected(f"the binary of {compiled.name} is not a whole cubin")
        return CudaProgram(self, compiled, load_library(self, compiled))

    def load_all_code(self) -> None:
        """Have the code of all programs on the device, and local memory for their launches."""
        prepare_for_residents(program for program in self.list_programs() if isinstance(program, CudaProgram))

    # --- memory

    def allocate(self, nbytes: int) -> MemoryHandle:
        return MemoryHandle.of(self, self._allocate_address(nbytes))

    def _allocate_address(self, nbytes: int) -> int:
        with self.current:
            self.discarded.clear()
            way: AbstractContextManager[None] = contextlib.nullcontext()
            if self.discarded.held:
                self.residents.limit_postponed(self.info.memory_bytes)
                if nbytes > self.call(self.driver.cuMemGetInfo)[0]:  # one that fails waits for every kernel
                    way = self.residents.out_of_the_way()
            with way:
                pointer = int(self.call_freeing(self.driver.cuMemAlloc, nbytes, doing=f"allocating {nbytes:,} bytes"))
        self._allocations[pointer] = nbytes
        return pointer

    def is_aligned(self, array: Array, nbytes: int) -> bool:
        return not (isinstance(array.handle, int) and array.handle % nbytes)

    def release_memory(self, number: int, at_once: bool) -> None:
        """Free memory that nobody holds: now, or at the next call that allocates, synchronises or closes."""
        if self.lost:
            return
        with contextlib.suppress(KeyError):
            nbytes = self._allocations.pop(number)  # KeyError: closing the device has freed it
            if at_once and self.discarded.begin():
                try:
                    with self.current:
                        self.driver.cuMemFree(number)
                finally:
                    self.discarded.end()
            else:
                self.discarded.add(self.driver.cuMemFree, number, nbytes=nbytes)

    @property
    def empty_address(self) -> int:
        """A valid address for arrays without elements."""
        if self._empty_address is None:
            self._empty_address = self._allocate_address(16)
        return self._empty_address

    def upload(self, handle: int, host: np.ndarray[Any, Any]) -> None:
        self.call(self.driver.cuMemcpyHtoDAsync, handle, host.ctypes.data, host.nbytes, self.cu_stream)
        self.call(self.driver.cuStreamSynchronize, self.cu_stream)

    def download(self, handle: int, out: np.ndarray[Any, Any]) -> None:
        self.call(self.driver.cuMemcpyDtoHAsync, out.ctypes.data, handle, out.nbytes, self.cu_stream)
        self.call(self.driver.cuStreamSynchronize, self.cu_stream)

    def copy(self, target: int, origin: int, nbytes: int) -> None:
        self.call(self.driver.cuMemcpyDtoDAsync, target, origin, nbytes, self.cu_stream)

    def part_of(self, handle: int, offset: int, nbytes: int) -> AddressPart:
        return AddressPart.of(handle, offset)

    def fill(self, handle: int, value: np.ndarray[Any, Any], count: int) -> None:
        driver = self.driver
        calls = {1: driver.cuMemsetD8Async, 2: driver.cuMemsetD16Async, 4: driver.cuMemsetD32Async}
        if value.itemsize in calls:
            pattern = int.from_bytes(value.tobytes(), "little")
            self.call(calls[value.itemsize], handle, pattern, count, self.cu_stream)
        else:
            super().fill(handle, value, count)

    def pinned_empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        self.check_open()
        return pinned_array(self, shape, dtype)

    def memory_info(self) -> MemoryInfo:
        self.check_open()
        with self.current:
            self.discarded.clear()
            free, total = self.call(self.driver.cuMemGetInfo)
        return MemoryInfo(int(total), int(free))

    # --- order and time

    def fence(self) -> CudaFence:
        self.check_open()
        return CudaFence(self, self.cu_stream)

    def new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> CudaReplay:
        return CudaReplay(self, steps, stream_of(queue, self))

    def open_resident_blocks(self, *, sms: int | None = None) -> ResidentBlocks:
        self.check_open()
        from .resident_blocks import CudaResidentBlocks

        return CudaResidentBlocks(self, sms)

    def exclusive(self) -> AbstractContextManager[Any]:
        """Only makes our context current in this thread: CUDA serves all threads at once."""
        self.check_open()
        return self.current

    def synchronize(self) -> None:
        self.check_open()
        self.call(self.driver.cuStreamSynchronize, self.cu_stream)
        if self.discarded.waiting:
            with self.current:
                self.discarded.clear()

    def settle(self) -> None:
        """Wait for all work on all our streams, also on those of collected queues."""
        if not self.closed:  # closing has waited, and the streams are destroyed
            self.streams.synchronize()

    def shut_down(self) -> None:
        self._shutting_down = True
        deadline = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
        while self._calls and time.monotonic() < deadline:  # of other threads, which use the streams
            time.sleep(20e-6)
        # First: memory that is collected from now on is not found here, and so not freed twice.
        pointers, self._allocations = self._allocations, {}
        with self.current:
            self.streams.synchronize()
            self.discarded.clear()
        streams = self.streams.take_all()
        if self.discarded.begin():
            try:
                self._give_back(pointers, streams)
            finally:
                self.discarded.end()
        else:  # another device of this GPU has a kernel that never exits
            self.discarded.add(self._give_back, pointers, streams)

    def _give_back(self, pointers: dict[int, int], streams: list[Any]) -> None:
        driver = self.driver
        with self.current:
            for pointer in pointers:
                driver.cuMemFree(pointer)
            self.events.close()
            self.timing_events.close()
            for stream in streams:
                driver.cuStreamDestroy(stream)
        driver.cuDevicePrimaryCtxRelease(self.cu_device)

    # --- calls and errors

    def attribute(self, attribute: Any) -> int:
        """A number the driver states about the device."""
        return int(self.call(self.driver.cuDeviceGetAttribute, attribute, self.cu_device))

    @property
    def runs_resident(self) -> bool:
        return bool(self.residents.grids)

    def count_sms(self) -> int:
        """How many multiprocessors it has."""
        return self.attribute(self.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)

    def count_processors(self) -> int:
        return self.count_sms()

    def memory_bytes_per_second(self) -> float:
        names = self.driver.CUdevice_attribute
        try:
            kilohertz = self.attribute(names.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
            bits = self.attribute(names.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
        except (AttributeError, DeviceError):
            return 0.0
        return 2 * kilohertz * 1e3 * bits / 8  # twice a clock

    def call_freeing(self, function: Any, *args: Any, doing: str) -> Any:
        """`call` for an allocation. If there is no memory and frees are postponed, they are made and it is tried once more."""
        try:
            return self.call(function, *args, doing=doing)
        except OutOfMemory:
            if not self.residents.grids or not self.discarded.waiting:
                raise
        with self.residents.out_of_the_way():
            self.discarded.clear()
            return self.call(function, *args, doing=doing)

    def call(self, function: Any, *args: Any, doing: str = "") -> Any:
        """A driver call's results; its errors are raised as ours."""
        self._calls.append(None)
        try:
            if self._shutting_down or self.lost:
                raise DeviceError(self.lost or f"device {self.spec} is closed")
            status, *results = function(*args)
            if status is not self.success and status != self.success:
                if self._may_lack_context(status):
                    with self.current:
                        status, *results = function(*args)
                if status != self.success:
                    raise self.translated(status, doing)
            return results[0] if len(results) == 1 else results
        finally:
            self._calls.pop()

    def _may_lack_context(self, status: Any) -> bool:
        """Whether the driver may have refused because this thread has no context or another one, as older drivers do."""
        results = self.driver.CUresult
        lacking = (results.CUDA_ERROR_INVALID_CONTEXT, results.CUDA_ERROR_INVALID_HANDLE)
        return status in lacking and hasattr(self, "current")

    def translated(self, status: Any, doing: str = "") -> KernelKeepError:
        """A status of the driver as one of our errors; `doing` says during what."""
        spec = getattr(self, "spec", "cuda")
        where = f"{spec}{f', {doing}' if doing else ''}"
        _, text = self.driver.cuGetErrorString(status)
        said = f"{status.name}: {text.decode() if isinstance(text, bytes) else text}"
        if status == self.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return OutOfMemory(f"{where}: out of memory")
        return DeviceError(f"{where}: {said}")
