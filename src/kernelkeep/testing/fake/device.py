"""`FakeDevice`: a device without a driver. Its programs are Python over NumPy, and it fails when it is told to.

Work runs in order in a thread of its own, as a driver's does: launches return at once, and a kernel that hangs blocks what
comes after it and nobody else.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...devices import forks
from ...devices.ahead import architecture_fingerprint
from ...devices.base import (
    Binary,
    Capabilities,
    Device,
    DeviceInfo,
    Fence,
    Kernel,
    LaunchOptions,
    MemoryInfo,
    Program,
)
from ...devices.fingerprint import Fingerprint
from ...devices.lanes import Block, Lane, Lanes
from ...errors import BinaryRejected, DeviceError, OutOfMemory
from ...programs.signature import KernelSignature
from ...programs.source import Source
from ...programs.translation_unit import translation_unit
from .faults import Faults
from .language import LANGUAGE, PythonKernel, read_kernels
from .runtime import Launch

__all__ = ["BACKEND", "FakeDevice", "device_info"]

BACKEND = "fake"
_MEMORY_BYTES = 1 << 30
_COMPILE_SECONDS = 0.02  # more than loading takes, or keeping programs would save nothing
_MOST_WAITING = 64  # then a launch waits, as drivers have it


def device_info(index: int = 0, memory_bytes: int = _MEMORY_BYTES) -> DeviceInfo:
    """How a fake device is listed."""
    return DeviceInfo(f"{BACKEND}:{index}", BACKEND, "Fake device", "kernelkeep", "Python", False, index, memory_bytes)


def compile_source(source: Source) -> bytes:
    """Compile for any fake device."""
    time.sleep(_COMPILE_SECONDS)
    text = translation_unit(source)
    kernels = read_kernels(text, source)
    payload = text.encode()
    signatures = tuple(kernel.signature for kernel in kernels.values())
    digest = hashlib.sha256(payload).digest()
    return Binary(BACKEND, "python", signatures, digest + payload, source.name).encode()


class FakeAhead:
    """Compiles for fake devices that are not here. There are two architectures; devices are of the first."""

    language = LANGUAGE.name

    def version(self) -> str:
        """The compiler."""
        return "Python"

    def architectures(self) -> tuple[str, ...]:
        """Those that it compiles for."""
        return ("any", "other")

    def compile(self, source: Source, architecture: str) -> bytes:
        """The bytes for an architecture."""
        return compile_source(source)

    def fingerprint(self, architecture: str) -> Fingerprint:
        """That of an architecture."""
        return architecture_fingerprint(BACKEND, "kernelkeep", architecture)


ahead = FakeAhead()


class FakeDevice(Device):
    """A device for tests. `device.faults` orders failures; `memory_bytes` is all the memory it has."""

    backend = BACKEND
    language = LANGUAGE.name

    def __init__(self, index: int = 0, *, memory_bytes: int = _MEMORY_BYTES, **capabilities: Any) -> None:
        forks.before_driver(BACKEND)
        info = device_info(index, memory_bytes)
        able = {"float_atomics": True, "float64": True, "int64": True, "int8": True, "shared_bytes": 1 << 16}
        super().__init__(
            info,
            Fingerprint(BACKEND, info.vendor, info.name, info.driver, "Python", "any"),
            Capabilities(**(able | capabilities)),
        )
        self.architecture_fingerprints = (ahead.fingerprint("any"),)
        self.faults = Faults()
        self._memory_changes: list[
            int
        ] = []  # in bytes; memory is given back by the garbage collector, which takes no lock
        self._counting = threading.Lock()
        self._failure: Exception | None = None
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=_work_through, args=(self._work,), name=info.spec, daemon=True)
        self._thread.start()

    # --- programs

    def compile_program(self, source: Source) -> bytes:
        self.faults.meet("compile")
        return compile_source(source)

    def load_program(self, binary: bytes, *, eager: bool = True) -> Program:
        self.faults.meet("load")
        compiled = Binary.decode(binary, BACKEND)
        digest, payload = compiled.payload[:32], compiled.payload[32:]
        if hashlib.sha256(payload).digest() != digest:
            raise BinaryRejected(f"the program {compiled.name} is damaged")
        text = payload.decode()
        return FakeProgram(self, compiled, read_kernels(text, Source(text, compiled.name, self.language)))

    # --- memory

    def allocate(self, nbytes: int) -> FakeMemory:
        self.faults.meet("allocate")
        with self._counting:
            known = len(self._memory_changes)  # more may come at any moment
            used = sum(self._memory_changes[:known])
            self._memory_changes[:known] = [used]
            if used + nbytes > self.info.memory_bytes:
                raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes: {used:,} are in use")
            self._memory_changes.append(nbytes)
        memory = FakeMemory(nbytes)
        weakref.finalize(memory, _give_back, self._memory_changes, nbytes)
        return memory

    def upload(self, handle: FakeMemory, host: np.ndarray[Any, Any]) -> None:
        self.enqueue_upload(handle, host)
        self.synchronize()

    def download(self, handle: FakeMemory, out: np.ndarray[Any, Any]) -> None:
        self.enqueue_download(handle, out)
        self.synchronize()

    def enqueue_upload(self, handle: FakeMemory, host: np.ndarray[Any, Any]) -> None:
        """Copy to the device, without waiting."""

        def work() -> None:
            self.faults.meet("upload")
            handle.data[: host.nbytes] = host.reshape(-1).view("u1")

        self.enqueue_work(work)

    def enqueue_download(self, handle: FakeMemory, out: np.ndarray[Any, Any]) -> None:
        """Copy from the device, without waiting."""

        def work() -> None:
            self.faults.meet("download")
            out.reshape(-1).view("u1")[:] = handle.data[: out.nbytes]

        self.enqueue_work(work)

    def copy(self, target: FakeMemory, origin: FakeMemory, nbytes: int) -> None:
        def work() -> None:
            target.data[:nbytes] = origin.data[:nbytes]

        self.enqueue_work(work)

    def memory_info(self) -> MemoryInfo:
        self.check_open()
        return MemoryInfo(self.info.memory_bytes, self.info.memory_bytes - sum(self._memory_changes))

    # --- order

    def enqueue_work(self, work: Callable[[], None]) -> None:
        """Have the device's thread do something, after all it was given before; the next fence raises what goes wrong."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._failure = self._failure or error

        self._work.put(guarded)

    def fence(self) -> Fence:
        self.check_open()
        made = FakeFence(self)

        def pass_by() -> None:
            failure, self._failure = self._failure, None
            made.pass_by(failure)

        self._work.put(pass_by)
        return made

    def synchronize(self) -> None:
        self.fence().wait()

    def open_lanes(self, *, timed: bool = True) -> Lanes:
        self.check_open()
        return FakeLanes(self, timed)

    def shut_down(self) -> None:
        self._work.put(None)
        self._thread.join()


class FakeMemory:
    """Device memory: bytes that are freed when nobody holds them."""

    def __init__(self, nbytes: int) -> None:
        self.data = np.zeros(nbytes, "u1")


class FakeFence(Fence):
    """Passed when the device's thread comes to it. Raises what went wrong since the fence before."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._event = threading.Event()
        self._failure: Exception | None = None

    def pass_by(self, failure: Exception | None) -> None:
        """Called by the device's thread."""
        self._failure = failure
        self._event.set()

    @property
    def done(self) -> bool:
        return self.wait(0)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self._device.check_not_lost()
        passed = self._event.wait(timeout_seconds)
        if self._failure is not None:
            raise DeviceError(f"work on {self._device.spec} failed: {self._failure}") from self._failure
        return passed


class FakeLane(Lane):
    """Copies that return at once."""

    device: FakeDevice

    def upload_from(self, handle: FakeMemory, host: np.ndarray[Any, Any]) -> None:
        self.device.enqueue_upload(handle, host)

    def download(self, handle: FakeMemory, block: Block) -> None:
        self.device.enqueue_download(handle, block.host)


class FakeLanes(Lanes):
    """One lane under three names."""

    def open_lanes(self) -> None:
        self.upload = self.compute = self.download = FakeLane(self.device)


class FakeProgram(Program):
    """Python functions that are kernels."""

    def __init__(self, device: FakeDevice, compiled: Binary, kernels: dict[str, PythonKernel]) -> None:
        super().__init__(device, compiled)
        self.functions = kernels

    def make_kernel(self, signature: KernelSignature) -> Kernel:
        return FakeKernel(self, signature)


class FakeKernel(Kernel):
    """One of them."""

    program: FakeProgram
    device: FakeDevice

    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        device = self.device
        if self.program.closed:
            self.raise_closed()
        device.faults.meet("launch")
        function, dtypes, given = self.program.functions[self.name], [p.dtype for p in self.params or ()], tuple(values)

        def work() -> None:
            device.faults.meet("run")
            arrays = [
                value.data[: value.data.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)
                if isinstance(value, FakeMemory)
                else value
                for value, dtype in zip(given, dtypes, strict=True)
            ]
            function.run(Launch(*shape), arrays)

        device.enqueue_work(work)


def _work_through(work: queue.Queue[Callable[[], None] | None]) -> None:
    while (each := work.get()) is not None:
        each()


def _give_back(used: list[int], nbytes: int) -> None:
    used.append(-nbytes)
