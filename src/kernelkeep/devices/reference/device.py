"""`ReferenceDevice`: runs kernels work-item by work-item in Python, and reports what is wrong with them."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import BinaryRejected, CompileError, OutOfMemory
from ...platforms import system
from ...programs.signature import KernelSignature
from ...programs.source import Source
from ...programs.translation_unit import translation_unit
from .. import forks
from ..base import Binary, Capabilities, Device, DeviceInfo, Kernel, LaunchOptions, MemoryInfo, Program
from ..fingerprint import Fingerprint
from .breakpoints import Breakpoints
from .lanes import ReferenceLanes
from .memory import Memory, MemoryPart, copy_stamps

if TYPE_CHECKING:
    from .kernel_code import KernelCode

BACKEND = "reference"
ReferenceSpec = Literal["reference"]
_FORM = "text"
_MAX_LOOP_ROUNDS = 1_000_000
_DIGEST_BYTES = 32


def device_info() -> DeviceInfo:
    """How the reference device is listed."""
    memory_bytes = system.memory_bytes() // 2 or 1 << 31
    name = "Reference interpreter (slow: it checks kernels)"
    return DeviceInfo(
        f"{BACKEND}:0", BACKEND, name, "kernelkeep", "Python", False, memory_bytes=memory_bytes, is_interpreter=True
    )


class ReferenceDevice(Device):
    """Runs the body of a kernel in Python, as the language defines it, and raises `KernelFault` for a bug.

    A launch has ended when it returns. `max_loop_rounds` is how many rounds a loop may have; `print` is called with each line
    of `kk_print`; `breakpoints` stop work-items on a line.
    """

    backend = language = BACKEND
    lanes_class = ReferenceLanes
    min_bytes = 0  # so that the end of a small array is where it ends

    def __init__(self) -> None:
        forks.before_driver(BACKEND)  # a forked child may find the locks of this device taken
        info = device_info()
        super().__init__(
            info,
            Fingerprint(BACKEND, info.vendor, "Reference interpreter", "1", "", "any"),
            Capabilities(
                float_atomics=True, float64=True, int64=True, int8=True, view_alignment=1, shared_bytes=1 << 16
            ),
        )
        self.breakpoints = Breakpoints()
        self.max_loop_rounds = _MAX_LOOP_ROUNDS
        self.print: Callable[[str], None] = _print
        self.last_stamp = 1  # of all accesses so far (`checks.py`)
        self.running = threading.RLock()  # held by what uses memory; a breakpoint may use the device again
        self._memory_changes: list[int] = []  # in bytes; the garbage collector adds to it, and takes no lock
        self._counting = threading.Lock()

    # --- programs

    def compile_program(self, source: Source) -> bytes:
        from .kernel_code import KernelCode
        from .text import kernel_texts, signatures_in

        text = translation_unit(source)
        try:
            signatures = signatures_in(text, source.name)
            for kernel in kernel_texts(text).values():
                self._check_size(KernelCode(kernel))
        except CompileError as error:
            error.name = error.name or source.name
            raise
        payload = text.encode()
        return Binary(BACKEND, _FORM, signatures, hashlib.sha256(payload).digest() + payload, source.name).encode()

    def load_program(self, binary: bytes, *, eager: bool = True) -> Program:
        compiled = Binary.decode(binary, BACKEND)
        digest, payload = compiled.payload[:_DIGEST_BYTES], compiled.payload[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            raise BinaryRejected(f"the program {compiled.name} is damaged")
        return ReferenceProgram(self, compiled, payload.decode())

    def _check_size(self, kernel: KernelCode) -> None:
        nbytes, most = kernel.shared_bytes, self.capabilities.shared_bytes
        if nbytes > most:
            name = kernel.text.signature.name
            raise CompileError(
                f"kernel {name} has {nbytes:,} bytes of shared arrays, and {most:,} are allowed", name=name
            )

    # --- memory

    def allocate(self, nbytes: int) -> Memory:
        with self._counting:
            known = len(self._memory_changes)  # more may come at any moment
            used = sum(self._memory_changes[:known])
            self._memory_changes[:known] = [used]
            if used + nbytes > self.info.memory_bytes:
                raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes: {used:,} are in use")
            try:
                memory = Memory(nbytes)
            except MemoryError:
                raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes: the host is out of memory") from None
            self._memory_changes.append(nbytes)
        weakref.finalize(memory, self._memory_changes.append, -nbytes)
        return memory

    def upload(self, handle: Memory | MemoryPart, host: np.ndarray[Any, Any]) -> None:
        with self.running:
            memoryview(handle.bytes)[: host.nbytes] = host.reshape(-1).view("u1").data
            handle.set_all(host.itemsize)

    def download(self, handle: Memory | MemoryPart, out: np.ndarray[Any, Any]) -> None:
        with self.running:
            out.reshape(-1).view("u1")[:] = np.frombuffer(handle.bytes, "u1", out.nbytes)

    def copy(self, target: Memory | MemoryPart, origin: Memory | MemoryPart, nbytes: int) -> None:
        with self.running:
            memoryview(target.bytes)[:nbytes] = memoryview(origin.bytes)[:nbytes]
            copy_stamps(target, origin, nbytes)

    def part_of(self, handle: Memory, offset: int, nbytes: int) -> MemoryPart:
        return MemoryPart(handle, offset, nbytes)

    def memory_info(self) -> MemoryInfo:
        self.check_open()
        return MemoryInfo(self.info.memory_bytes, self.info.memory_bytes - sum(self._memory_changes))

    def synchronize(self) -> None:
        self.check_open()
        with self.running:  # another thread's launch may be under way
            pass

    def mark_lost(self, reason: str) -> None:
        super().mark_lost(reason)
        self.running = threading.RLock()
        self._counting = threading.Lock()


class ReferenceProgram(Program):
    """A text. It is read when a kernel of it is launched for the first time."""

    def __init__(self, device: ReferenceDevice, compiled: Binary, text: str) -> None:
        super().__init__(device, compiled)
        self._text = text
        self._codes: dict[str, KernelCode] = {}

    def make_kernel(self, signature: KernelSignature) -> Kernel:
        return ReferenceKernel(self, signature)

    def code(self, name: str) -> KernelCode:
        """The Python of a kernel."""
        if name not in self._codes:
            from .kernel_code import KernelCode
            from .text import kernel_texts

            self._codes[name] = KernelCode(kernel_texts(self._text)[name])
        return self._codes[name]


class ReferenceKernel(Kernel):
    """One of them."""

    program: ReferenceProgram
    device: ReferenceDevice

    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        if self.program.closed:
            self.raise_closed()
        with self.device.running:
            self.program.code(self.name).run(self.device, values, *shape)


def _print(line: str) -> None:
    print(line, flush=True)
