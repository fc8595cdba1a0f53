"""The OpenGL device: programs, memory, and launches in batches.

Launches are collected and submitted in batches, by the thread that fills a batch. After a wait the first launch is
submitted at once, then two together, four, up to 64: the device starts early, and a tight loop pays for one step
(`context.py`) in 64 launches. Anything that needs the results (a copy, a fence, a timer, `synchronize`) submits the
waiting launches first. A batch uploads its scalar arguments together and skips state that is already set, so a launch costs
less than the same OpenGL calls made one by one.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...errors import BinaryRejected, DeviceError, OutOfMemory
from ...programs.source import Source
from ...programs.translation_unit import translation_unit
from ..base import Binary, Capabilities, Device, DeviceInfo, MemoryInfo, Queue
from ..driver_cache import driver_cache_of
from ..fingerprint import cpu_vectors
from ..memory import MemoryHandle
from ..replay import Step
from .binaries import read_binary, text_for_driver
from .buffer_part import BufferPart, name_and_offset
from .calls import Recorder
from .context import Context
from .discarded import Discarded
from .lanes import OpenGLLanes
from .libgl import ERROR_NAMES
from .libgl import Constants as C
from .listing import describe, fingerprint_of, memory_of
from .prepared import OpenGLReplay
from .program import Launch, OpenGLKernel, OpenGLProgram, Values, link
from .reflection import reflect
from .scalar_blocks import ScalarBlocks
from .synchronization import OpenGLFence, OpenGLTimer

_MAX_BATCH = 64


class OpenGLDevice(Device):
    """One EGL device with one context."""

    backend = "opengl"
    language = "glsl"
    timer_class, lanes_class = OpenGLTimer, OpenGLLanes

    def __init__(self, index: int) -> None:
        self.context = Context(index)
        info = describe(index, self.context)
        with self.context.current() as gl:
            capabilities = self._read_capabilities(gl, info)
            self._max_bytes = gl.integer(C.MAX_SHADER_STORAGE_BLOCK_SIZE)
            self._blocks = ScalarBlocks(gl, _new_buffer(gl))
            if b"GL_NV_shader_atomic_float" in _extensions(gl):
                self.writer_assumes = ("native_float_atomics",)
        super().__init__(info, fingerprint_of(info, self.context), capabilities)
        self.driver_cache_dir = driver_cache_of(info.vendor)
        self.waiting: list[Launch] = []
        self.has_loose_uniforms = False  # a kernel was loaded that has such
        # A software renderer computes inside the calls, so nothing begins earlier if the first launch is submitted at once.
        self._first_batch = self.batch_size = 1 if info.is_gpu else _MAX_BATCH
        # State of the context: storage buffers by binding, and the program.
        self._bound: dict[int, int | tuple[int, ...]] = {}
        self._used = 0
        self._discarded = Discarded()

    @property
    def family(self) -> str:
        if self.info.is_gpu:
            return super().family
        return f"{self.backend} Mesa llvmpipe {platform.machine()} {cpu_vectors()}"

    def _read_capabilities(self, gl: Any, info: DeviceInfo) -> Capabilities:
        gx, gy, gz = (gl.integer(C.MAX_COMPUTE_WORK_GROUP_SIZE, i) for i in range(3))
        nx, ny, nz = (gl.integer(C.MAX_COMPUTE_WORK_GROUP_COUNT, i) for i in range(3))
        return Capabilities(
            float_atomics=True,  # by compare-and-swap, where the driver has none
            float64=True,
            int8=True,  # portable kernels pack them into words
            int64=b"GL_ARB_gpu_shader_int64" in _extensions(gl),
            timestamps=info.is_gpu,
            max_loop_rounds=None if info.is_gpu else 65_535,  # llvmpipe's
            program_binaries=gl.integer(C.NUM_PROGRAM_BINARY_FORMATS) > 0,
            max_group_items=gl.integer(C.MAX_COMPUTE_WORK_GROUP_INVOCATIONS),
            max_group=(gx, gy, gz),
            max_grid=(nx, ny, nz),
            shared_bytes=gl.integer(C.MAX_COMPUTE_SHARED_MEMORY_SIZE),
            view_alignment=max(4, gl.integer(C.SHADER_STORAGE_BUFFER_OFFSET_ALIGNMENT)),
        )

    # --- programs

    def compile_program(self, source: Source) -> bytes:
        with self.build_program(source) as program:
            return program.binary()

    def build_program(self, source: Source) -> OpenGLProgram:
        text = translation_unit(source)
        with self.context.current() as gl:
            program = link(gl, source, text_for_driver(text, self.info.is_gpu))
            try:
                signature, binding = reflect(gl, program, source, text)
                form, number, payload = read_binary(gl, program, text, self.capabilities.program_binaries)
            except Exception:
                gl.glDeleteProgram(program)
                raise
        numbers = {"format": number, "block": binding}
        compiled = Binary("opengl", form, (signature,), payload, source.name, numbers)
        return OpenGLProgram(self, compiled, program)

    def load_program(self, binary: bytes, *, eager: bool = True) -> OpenGLProgram:
        compiled = Binary.decode(binary, "opengl")
        with self.context.current() as gl:
            if compiled.form == "glsl":
                text = compiled.payload.decode()
                return OpenGLProgram(
                    self,
                    compiled,
                    link(gl, Source(text, compiled.name, "glsl"), text_for_driver(text, self.info.is_gpu)),
                )
            program = gl.glCreateProgram()
            gl.glProgramBinary(program, compiled.numbers.get("format", 0), compiled.payload, len(compiled.payload))
            status = ctypes.c_int()
            gl.glGetProgramiv(program, C.LINK_STATUS, ctypes.byref(status))
            while gl.glGetError():
                pass
            if not status.value:
                gl.glDeleteProgram(program)
                raise BinaryRejected(f"{self.spec} refuses the binary of {compiled.name}")
        return OpenGLProgram(self, compiled, program)

    # --- launches

    def submit(self) -> None:
        """Give the driver every waiting launch and have it begin."""
        with self.context.lock:
            recorder = self._recorder()
            if recorder is not None:
                self.submit_waiting(recorder)
                if not self.context.kept:
                    recorder.glFlush()  # the thread that keeps the context does it by itself
                self.context.make(recorder, wait=False)
                return
            with self.context.for_launch() as gl:
                self.submit_waiting(gl)
                gl.glFlush()

    def _do(self, work: Callable[[Any], None], doing: str, *, wait: bool = True) -> None:
        """Give the driver every waiting launch, and then the calls that `work` makes; `wait` if these use host memory."""
        with self.context.lock:
            recorder = self._recorder()
            if recorder is not None:
                self.submit_waiting(recorder)
                work(recorder)
                recorder.glGetError()
                self.context.make(recorder, wait)
                return
            with self.context.for_launch() as gl:
                self.submit_waiting(gl)
                work(gl)
                self.check_errors(gl, doing)

    def start_batches(self) -> None:
        """The next launch begins early, because the device has nothing to do. The caller has the lock."""
        self.batch_size = self._first_batch

    def _recorder(self) -> Recorder | None:
        """Where the waiting launches can be recorded; None if they are to be made in this thread. The caller has the lock."""
        if not self.context.records_next():
            return None
        if self._discarded.urgent:
            return None
        # Uniforms outside of a block are set by functions that take floats.
        return None if self.has_loose_uniforms else self.context.recorder

    def submit_waiting(self, gl: Any) -> None:
        """Give the driver every waiting launch. The caller has the context.

        A loop launches one kernel on the same arrays again and again, so state that is already set is not set again.
        """
        waiting = self.waiting
        if waiting:
            self.waiting = []
            if len(waiting) > 1:
                self._blocks.place(gl, {block for _, (_, block, _), _ in waiting if block})
            dispatch = gl.dispatch
            last = values = None
            for kernel, values, (x, y, z) in waiting:
                # Loose uniforms are always set: 0.0 equals -0.0.
                if values != last or values[2] or kernel.gl_program != self._used:
                    self._set_state(gl, kernel, values)
                    last = values
                dispatch(x, y, z)
            waiting.clear()
            last = values = None  # or arrays closed meanwhile would stay until the next batch
            self.batch_size = min(self.batch_size * 2, _MAX_BATCH)
            self.check_errors(gl, "launching")
        if not isinstance(gl, Recorder) and self._discarded.delete(gl):
            self._bound.clear()  # OpenGL reuses the names of deleted buffers

    def _set_state(self, gl: Any, kernel: OpenGLKernel, values: Values) -> None:
        """Use a program and bind what it is given, as far as it is not bound already."""
        bound, blocks = self._bound, self._blocks
        buffers, block, loose = values
        if kernel.gl_program != self._used:
            self._used = kernel.gl_program
            gl.glUseProgram(self._used)
        for binding, handle in zip(kernel.bindings, buffers, strict=True):
            if bound.get(binding) != handle:
                if isinstance(handle, BufferPart):
                    bound[binding] = name, offset, nbytes = tuple(handle)
                    gl.glBindBufferRange(C.SHADER_STORAGE_BUFFER, binding, name, offset, nbytes)
                    continue
                bound[binding] = int(handle)  # the context does not hold the buffer
                gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, binding, handle)
        if block and blocks.bound != (kernel.block_binding, block):
            blocks.bind(gl, kernel.block_binding, block)
        if loose:
            for (location, set_uniform), value in zip(kernel.uniforms, loose, strict=True):
                set_uniform(gl, location, value)

    def delete_later(self, delete: Callable[[Any], None]) -> None:
        """Have `delete(gl)` called at the next submission. For finalisers: the collector may run inside any GL call."""
        self._discarded.objects.append(delete)

    def release_memory(self, number: int, at_once: bool = False) -> None:
        """Delete a buffer at the next submission. For finalisers too."""
        self._discarded.buffers.append(number)

    def delete_program(self, gl: Any, program: int) -> None:
        """Delete a program now."""
        if self._used == program:  # OpenGL may reuse the name at once
            self._used = 0
            gl.glUseProgram(0)
        gl.glDeleteProgram(program)

    # --- memory

    def allocate(self, nbytes: int) -> MemoryHandle:
        if nbytes > self._max_bytes:
            raise OutOfMemory(
                f"{self.spec} cannot allocate {nbytes:,} bytes (at most {self._max_bytes:,} in a storage buffer)"
            )
        with self.context.current() as gl:
            self.submit_waiting(gl)
            handle = _new_buffer(gl)
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, handle)
            # Whole words: kernels read bytes out of these, and what is beyond the end of a buffer reads as 0.
            gl.glBufferData(C.COPY_WRITE_BUFFER, -(-nbytes // 4) * 4, None, C.DYNAMIC_COPY)
            if gl.glGetError():
                self.release_memory(handle)
                raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes")
        return MemoryHandle.of(self, handle)

    def upload(self, handle: Any, host: np.ndarray[Any, Any]) -> None:
        self.upload_at(*name_and_offset(handle), host)

    def upload_at(self, handle: int, offset: int, host: np.ndarray[Any, Any]) -> None:
        def work(gl: Any) -> None:
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, handle)
            gl.glBufferSubData(C.COPY_WRITE_BUFFER, offset, host.nbytes, host.ctypes.data)

        self._do(work, "copying to the device")

    def download(self, handle: Any, out: np.ndarray[Any, Any]) -> None:
        self.download_at(*name_and_offset(handle), out)

    def download_at(self, handle: int, offset: int, out: np.ndarray[Any, Any]) -> None:
        def work(gl: Any) -> None:
            gl.glBindBuffer(C.COPY_READ_BUFFER, handle)
            gl.glGetBufferSubData(C.COPY_READ_BUFFER, offset, out.nbytes, out.ctypes.data)
            self.start_batches()

        self._do(work, "copying to the host")

    def copy(self, target: Any, origin: Any, nbytes: int) -> None:
        (target, target_offset), (origin, offset) = name_and_offset(target), name_and_offset(origin)

        def work(gl: Any) -> None:
            gl.glBindBuffer(C.COPY_READ_BUFFER, origin)
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, target)
            gl.glCopyBufferSubData(C.COPY_READ_BUFFER, C.COPY_WRITE_BUFFER, offset, target_offset, nbytes)

        self._do(work, "copying on the device", wait=False)

    def part_of(self, handle: int, offset: int, nbytes: int) -> BufferPart:
        return BufferPart.of(handle, offset, nbytes)

    def memory_info(self) -> MemoryInfo:
        self.check_open()
        with self.context.current() as gl:
            return MemoryInfo(*memory_of(gl))

    # --- order and time

    def fence(self) -> OpenGLFence:
        self.check_open()
        return OpenGLFence(self)

    def exclusive(self) -> AbstractContextManager[Any]:
        self.check_open()
        return self.context.exclusive()

    def new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> OpenGLReplay:
        return OpenGLReplay(self, steps)

    def synchronize(self) -> None:
        self.check_open()
        self._do(self._finish, "waiting")

    def _finish(self, gl: Any) -> None:
        gl.glFinish()
        self.start_batches()

    def shut_down(self) -> None:
        with self.context.current() as gl:
            self.submit_waiting(gl)
            gl.glFinish()
        self.context.close()

    def mark_lost(self, reason: str) -> None:
        self.context.mark_lost(reason)
        super().mark_lost(reason)

    def check_errors(self, gl: Any, doing: str) -> None:
        """Raise what went wrong in OpenGL calls since the last look."""
        error = gl.glGetError()
        if error:
            name = ERROR_NAMES.get(error, hex(error))
            kind = OutOfMemory if error == C.OUT_OF_MEMORY else DeviceError
            raise kind(f"{self.spec}, {doing}: OpenGL error {name}")


def _new_buffer(gl: Any) -> int:
    name = ctypes.c_uint()
    gl.glGenBuffers(1, ctypes.byref(name))
    return int(name.value)


def _extensions(gl: Any) -> set[bytes]:
    return {gl.glGetStringi(C.EXTENSIONS, i) for i in range(gl.integer(C.NUM_EXTENSIONS))}
