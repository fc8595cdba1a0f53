"""The WebGPU device: programs, memory, and launches in batches.

Launches are collected, and encoded and submitted in batches: after a wait the first launch at once, then four together, 16,
up to 64. Anything that needs the results (a copy, a fence, a timer, `synchronize`) submits the waiting launches first. A launch
costs the host a bind group that is made once, three calls of wgpu-native, and its share of a command buffer.

wgpu-native panics when work is submitted to a device that is lost, or waited for there (`_guard.c`). So a command buffer is only
submitted if it could be finished, which fails on a device that is known to be lost.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BinaryRejected, CompileError, DeviceError, OutOfMemory
from ...programs.source import Source
from ..base import Binary, Device, DeviceInfo, MemoryInfo, Queue
from ..fingerprint import Fingerprint, cpu_vectors
from ..memory import MemoryHandle
from ..prepared import Prepared
from ..replay import Step
from .bindings import COPY_TO, BindGroups, ScalarBlocks, new_buffer
from .capabilities import capabilities_of
from .checking import check
from .commands import EncodedAhead, encode, encode_launches
from .context import Context
from .copies import Buffer, Copies
from .lanes import WebGPULanes
from .native import native
from .pipelines import Module
from .prepared import WebGPUPrepared, WebGPUReplay
from .program import Launch, WebGPUProgram
from .staging import words
from .synchronization import WebGPUFence, WebGPUTimer
from .timestamps import Stamp, Timestamps

_MAX_BATCH = 64
_STORAGE = 0x80 | 0x04 | COPY_TO  # WGPUBufferUsage: for kernels, and to be copied from and to


class WebGPUDevice(Device):
    """One adapter, with one device and its queue."""

    backend = "webgpu"
    language = "wgsl"
    driver_cache_dir: Path | None = None
    lanes_class = WebGPULanes

    def __init__(self, context: Context, info: DeviceInfo, fingerprint: Fingerprint) -> None:
        self.context = context
        self._max_bytes = min(int(context.limits.maxStorageBufferBindingSize), int(context.limits.maxBufferSize)) & ~3
        super().__init__(info, fingerprint, capabilities_of(context, info))
        # Mesa's software drivers (22.3) load an element of a read-only buffer once, inside a loop whose condition reads it, and
        # use 0 for it after the loop.
        self.buffers_are_writable = not info.is_gpu
        if context.has_timestamps:
            self.timer_class = WebGPUTimer
        self.memory: dict[int, Buffer] = {}  # by the number of a handle
        self.waiting: list[Launch] = []
        self.ready: list[EncodedAhead] = []  # launched, and to be submitted before those that wait
        self._timestamps: Timestamps | None = None
        self.batch_size = 1
        self._numbers = itertools.count(1)
        self._discarded: deque[int] = deque()
        self._discarded_objects: deque[tuple[Any, Callable[[Any], None]]] = deque()
        with context.lock:
            self.blocks = ScalarBlocks(context)
            self.groups = BindGroups()
            self.copies = Copies(context, self.encode)
            context.check("opening the device")

    @property
    def family(self) -> str:
        if self.info.is_gpu:
            return super().family
        return f"{self.backend} Mesa llvmpipe {platform.machine()} {cpu_vectors()}"

    @property
    def timestamps(self) -> Timestamps:
        """The device's clock, where `capabilities.timestamps` says that it has one."""
        found = self._timestamps
        if found is None:
            with self.context.lock:
                found = self._timestamps = self._timestamps or Timestamps(self)
        return found

    def new_number(self) -> int:
        """A number that no buffer and no kernel had before."""
        return next(self._numbers)

    # --- programs

    def compile_program(self, source: Source) -> bytes:
        with self.build_program(source) as program:
            return program.binary()

    def build_program(self, source: Source) -> WebGPUProgram:
        compiled, text, module = check(self, source)
        try:
            return self._load(compiled, text, module)
        except BinaryRejected as error:
            raise CompileError(str(error), log=str(error), name=source.name) from None

    def load_program(self, binary: bytes, *, eager: bool = True) -> WebGPUProgram:
        compiled = Binary.decode(binary, "webgpu")
        try:
            text = compiled.payload.decode()
        except UnicodeDecodeError:
            raise BinaryRejected(f"the text of {compiled.name} is damaged") from None
        if compiled.form != "wgsl":
            raise BinaryRejected(f"{self.spec} cannot load {compiled.name}, whose form is {compiled.form}")
        return self._load(compiled, text)

    def _load(self, compiled: Binary, text: str, module: Module | None = None) -> WebGPUProgram:
        program = WebGPUProgram(self, compiled, text, module)
        try:
            with self.context.lock:
                for name in program.kernel_names:
                    program.kernel(name)  # which compiles it
        except BaseException:
            program.close()
            raise
        return program

    # --- launches

    def submit(self) -> None:
        """Give the driver every waiting launch."""
        with self.context.lock:
            self.submit_waiting()

    def submit_waiting(
        self, stamp: Stamp | None = None, then: Callable[[Any], None] | None = None, *, begin: Stamp | None = None
    ) -> None:
        """Encode and submit every waiting launch, with a timestamp behind and maybe one before them, and what else `then`
        encodes. The caller has the lock."""
        waiting, launched = self.waiting, bool(self.waiting or self.ready)
        if waiting and self.ready:  # encoding those that wait may overwrite scalars of those that are ready
            self._submit()
        if waiting or stamp is not None or then is not None:
            self.waiting = []

            def fill(encoder: Any) -> None:
                if waiting or stamp is not None:
                    encode_launches(self, encoder, waiting, stamp, begin)
                if then is not None:
                    then(encoder)

            self._submit(encode(self, fill))
        elif self.ready:
            self._submit()
        waiting.clear()
        if launched:
            self.batch_size = min(self.batch_size * 4, _MAX_BATCH)
        if self._discarded or self._discarded_objects:
            self.release_discarded()

    def encode_ahead(self, launches: Sequence[Prepared]) -> EncodedAhead:
        return EncodedAhead(self, [one for one in launches if isinstance(one, WebGPUPrepared)])

    def launch_encoded(self, encoded: EncodedAhead) -> None:
        """Have a command buffer wait to be submitted, behind all that waits already. The caller has the lock."""
        if self.waiting:
            self.submit_waiting()
        self.ready.append(encoded)
        if self.batch_size == 1:
            self.submit_waiting()

    def encode(self, fill: Callable[[Any], None]) -> None:
        """Submit a command buffer that `fill` has encoded. The caller has the lock."""
        self._submit(encode(self, fill))

    def _submit(self, *encoded: Any) -> None:
        ready, self.ready = self.ready, []
        self.context.submit([*(one.take() for one in ready), *encoded])
        self.copies.pending_bytes = 0

    # --- what is not needed any more

    def discard(self, objects: Iterable[tuple[Any, Callable[[Any], None]]], numbers: Iterable[int]) -> None:
        """Release objects, and the bind groups of these kernels, at the next submission. For finalisers, too."""
        self._discarded.extend(numbers)
        self._discarded_objects.extend(objects)

    def release_memory(self, number: int, at_once: bool = False) -> None:
        """Release a buffer that nobody holds, now or at the next submission. For finalisers, too."""
        self._discarded.append(number)
        if at_once and self.context.lock.acquire(blocking=False):
            try:
                self.release_discarded()
            finally:
                self.context.lock.release()

    def release_discarded(self) -> None:
        """Release what was discarded. The caller has the lock."""
        lib = native().lib
        while self._discarded:
            number = self._discarded.popleft()
            self.groups.forget(number)
            buffer = self.memory.pop(number, None)
            if buffer is not None:
                lib.wgpuBufferRelease(buffer.raw)
        while self._discarded_objects:
            raw, release = self._discarded_objects.popleft()
            release(raw)

    # --- memory

    def allocate(self, nbytes: int) -> MemoryHandle:
        if nbytes > self._max_bytes:
            raise OutOfMemory(
                f"{self.spec} cannot allocate {nbytes:,} bytes (at most {self._max_bytes:,} in a storage buffer)"
            )
        with self.context.lock:
            if self._discarded:
                self.release_discarded()
            buffer = new_buffer(self.context, words(nbytes), _STORAGE)
            try:
                self.context.check(f"allocating {nbytes:,} bytes")
            except BaseException:
                native().lib.wgpuBufferRelease(buffer)
                raise
            number = self.new_number()
            self.memory[number] = Buffer(buffer, words(nbytes))
            return MemoryHandle.of(self, number)

    def upload(self, handle: int, host: np.ndarray[Any, Any]) -> None:
        with self.context.lock:
            self.submit_waiting()
            self.copies.upload(self.memory[handle], host)

    def download(self, handle: int, out: np.ndarray[Any, Any]) -> None:
        with self.context.lock:
            self.submit_waiting()
            transfer = self.copies.begin_download(self.memory[handle], out.nbytes)
            self.batch_size = 1
        transfer.finish(out.ctypes.data)

    def copy(self, target: int, origin: int, nbytes: int) -> None:
        with self.context.lock:
            self.submit_waiting()
            self.copies.copy(self.memory[target], self.memory[origin], nbytes)

    def part_of(self, handle: int, offset: int, nbytes: int) -> MemoryHandle:
        with self.context.lock:
            whole = self.memory[handle]
            native().lib.wgpuBufferAddRef(whole.raw)
            number = self.new_number()
            self.memory[number] = Buffer(whole.raw, words(nbytes), offset, is_part=True)
            return MemoryHandle.of(self, number)

    def upload_at(self, handle: int, offset: int, host: np.ndarray[Any, Any]) -> None:
        before = offset % 4
        with self.context.lock:  # nothing comes between reading words and writing them
            if before:
                covering = np.empty(before + host.nbytes, "u1")
                self.download_at(handle, offset - before, covering)
                covering[before:] = host.reshape(-1).view("u1")
                host = covering
            self.submit_waiting()
            whole = self.memory[handle]
            self.copies.upload(Buffer(whole.raw, words(host.nbytes), offset - before, is_part=True), host)

    def download_at(self, handle: int, offset: int, out: np.ndarray[Any, Any]) -> None:
        before = offset % 4
        covering = np.empty(before + out.nbytes, "u1")
        with self.context.lock:
            self.submit_waiting()
            transfer = self.copies.begin_download(self.memory[handle], covering.nbytes, offset - before)
            self.batch_size = 1
        transfer.finish(covering.ctypes.data)
        out.reshape(-1).view("u1")[:] = covering[before:]

    def clear(self, handle: int, nbytes: int) -> None:
        """Fill an array with zeros."""
        with self.context.lock:
            self.submit_waiting()
            self.copies.clear(self.memory[handle], nbytes)

    def memory_info(self) -> MemoryInfo:
        self.check_open()
        return MemoryInfo(self.info.memory_bytes, None)

    # --- order and time

    def fence(self) -> WebGPUFence:
        self.check_open()
        return WebGPUFence(self)

    def new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> WebGPUReplay:
        return WebGPUReplay(self, steps)

    def synchronize(self) -> None:
        self.check_open()
        with self.context.lock:
            self.submit_waiting()
            point = self.context.note_point()
            self.batch_size = 1
        self.context.wait(point)
        with self.context.lock:
            self.context.check("waiting")

    def shut_down(self) -> None:
        with self.context.lock:
            with contextlib.suppress(DeviceError):  # it is lost
                self.submit_waiting()
                self.context.wait(self.context.note_point())
            self.waiting.clear()
            self.ready.clear()
            if self._timestamps is not None:
                self._timestamps.close()
            self.release_discarded()
            self.groups.forget_all()
        self.context.close()
