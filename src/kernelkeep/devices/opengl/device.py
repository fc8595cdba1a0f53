"""The OpenGL device.

Launches are gathered and submitted in batches, by whichever thread happens to be there. After a wait the first launch goes
out at once, then two together, four, up to 64: the device starts early, and a tight loop pays for one step
(`context.py`) in 64 launches. Anything that needs the results (a copy, a fence, a timer, `synchronize`) submits what is
waiting first. A batch shares one upload of its scalar arguments, and sets what is set already only once, which is why a
launch costs less here than the same calls made one by one.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import numpy as np

from ...errors import ArgumentError, BinaryRejected, DeviceError, OutOfMemory
from ...programs.signature import KernelSignature, Parameter
from ...programs.source import Source
from ...programs.unit import compile_error, translation_unit
from ..base import Capabilities, Device, DeviceInfo, Fence, Kernel, MemoryInfo, Program, Queue, Timer
from ..fingerprint import Fingerprint, cpu_identity
from ..image import Image
from .context import Context, count_devices
from .driver_cache import driver_cache_of, family_of, must_be_placed_first, place, place_by_default, remember
from .libgl import ERROR_NAMES
from .libgl import Constants as C
from .reflection import reflect

__all__ = ["OpenGLDevice", "list_devices", "open_device"]

_COMPLAINTS = (
    re.compile(r"^\d+:(?P<line>\d+)\(\d+\): (?:preprocessor )?error: (?P<message>[^\n]*)", re.MULTILINE),  # Mesa
    re.compile(r"^\d+\((?P<line>\d+)\) : error (?P<message>[^\n]*)", re.MULTILINE),  # NVIDIA
    re.compile(r"^ERROR: \d+:(?P<line>\d+): (?P<message>[^\n]*)", re.MULTILINE),  # the others
)
_CODES = dict(i1="b", u1="B", i2="h", u2="H", i4="i", u4="I", i8="q", u8="Q", f4="f", f8="d")
_LARGEST_BATCH = 64
_BLOCKS_BYTES = 1 << 16
_Values = tuple[tuple[int, ...], bytes, tuple[Any, ...]]  # buffers, the scalar block, loose uniforms


def _describe(index: int, context: Context) -> DeviceInfo:
    with context.current() as gl:
        vendor, renderer, version = (
            (gl.glGetString(name) or b"").decode("utf-8", "replace") for name in (C.VENDOR, C.RENDERER, C.VERSION)
        )
        memory = _memory(gl)[0]
    software = context.is_software or bool(re.search(r"llvmpipe|softpipe|swrast|swr", renderer, re.IGNORECASE))
    return DeviceInfo(
        spec=f"opengl:{index}",
        backend="opengl",
        name=renderer,
        vendor=vendor,
        driver=version,
        is_gpu=not software,
        index=index,
        memory_bytes=memory,
    )


def _fingerprint(info: DeviceInfo, context: Context) -> Fingerprint:
    with context.current() as gl:
        glsl = (gl.glGetString(C.SHADING_LANGUAGE_VERSION) or b"").decode("utf-8", "replace")
    return Fingerprint(
        backend="opengl",
        vendor=info.vendor,
        model=info.name,
        driver=info.driver,
        compiler=f"glsl {glsl}",
        architecture="" if info.is_gpu else cpu_identity(),
    )


def _memory(gl: Any) -> tuple[int, int | None]:
    """Total and free bytes, from the driver where it says, else the host's total."""
    total = gl.integer(C.GPU_MEMORY_INFO_TOTAL_NVX)
    free = gl.integer(C.GPU_MEMORY_INFO_FREE_NVX)
    if gl.glGetError() or total <= 0:
        while gl.glGetError():
            pass
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    return total * 1024, free * 1024


def _look_round() -> list[tuple[DeviceInfo, Fingerprint]]:
    """Every EGL device that can do OpenGL 4.3; `DeviceError` says why there is none."""
    found = []
    reasons = []
    for index in range(count_devices()):
        try:
            context = Context(index, probing=True)
        except DeviceError as error:
            reasons.append(str(error))
            continue
        try:
            info = _describe(index, context)
            found.append((info, _fingerprint(info, context)))
        finally:
            context.close()
    if not found:
        raise DeviceError("; ".join(reasons))
    return found


def folders_by_family() -> dict[str, str]:
    """The GPU folder's name for each family of drivers, by its first device."""
    try:
        found = _look_round()
    except DeviceError:
        return {}
    return {family_of(info.vendor): fingerprint.folder for info, fingerprint in reversed(found)}


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every EGL device that can do OpenGL 4.3. Where looking already fixes it, the driver's cache is placed first."""
    if must_be_placed_first():
        place_by_default(cache_dir, folders_by_family)
    return [info for info, _ in _look_round()]


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> OpenGLDevice:
    """Open a device by index, by default the first GPU, else the first.

    The driver keeps its own compiled shaders in `driver_cache_dir`, by default in the GPU's folder under `cache_dir`.
    """
    if driver_cache_dir is not None:
        place(driver_cache_dir)
    else:
        place_by_default(cache_dir, folders_by_family)
    if index is None:
        index = 0
        if count_devices() > 1:
            index = min((info for info, _ in _look_round()), key=lambda info: (not info.is_gpu, info.index)).index
    device = OpenGLDevice(index)
    if driver_cache_dir is None:
        _remember_if_changed(device)
    return device


def _remember_if_changed(device: OpenGLDevice) -> None:
    """After a driver update the folder has another name: know it next time."""
    used = device.driver_cache_dir
    if used is not None and used.parent.name != device.fingerprint.folder and used.name == "driver":
        remember(used.parent.parent, {family_of(device.info.vendor): device.fingerprint.folder})


class OpenGLDevice(Device):
    """One EGL device with one context."""

    backend = "opengl"
    language = "glsl"

    def __init__(self, index: int) -> None:
        self.context = Context(index)
        info = _describe(index, self.context)
        with self.context.current() as gl:
            capabilities = self._read_capabilities(gl)
            self._max_bytes = gl.integer(C.MAX_SHADER_STORAGE_BLOCK_SIZE)
            self._alignment = max(16, gl.integer(C.UNIFORM_BUFFER_OFFSET_ALIGNMENT))
            self._scalars = _new_buffer(gl)
        super().__init__(info, _fingerprint(info, self.context), capabilities)
        self.driver_cache_dir = driver_cache_of(info.vendor)
        self._waiting: list[_Launch] = []
        self._batch = 1
        # What is set in the context: storage buffers by binding, the program, and the block of scalars.
        self._bound: dict[int, int] = {}
        self._used = 0
        self._block_bound: tuple[int, bytes] | None = None
        self._block_at: dict[bytes, int] = {}
        self._blocks_end = self._blocks_size = 0
        # Collected buffers and programs: the collector may run inside any GL call, so they are deleted later.
        self._dead_buffers: list[int] = []
        self._dead_objects: list[Callable[[Any], None]] = []

    def _read_capabilities(self, gl: Any) -> Capabilities:
        names = {gl.glGetStringi(C.EXTENSIONS, i) for i in range(gl.integer(C.NUM_EXTENSIONS))}
        gx, gy, gz = (gl.integer(C.MAX_COMPUTE_WORK_GROUP_SIZE, i) for i in range(3))
        nx, ny, nz = (gl.integer(C.MAX_COMPUTE_WORK_GROUP_COUNT, i) for i in range(3))
        return Capabilities(
            float_atomics=b"GL_NV_shader_atomic_float" in names,
            float64=True,
            int64=b"GL_ARB_gpu_shader_int64" in names,
            program_binaries=gl.integer(C.NUM_PROGRAM_BINARY_FORMATS) > 0,
            max_group_items=gl.integer(C.MAX_COMPUTE_WORK_GROUP_INVOCATIONS),
            max_group=(gx, gy, gz),
            max_grid=(nx, ny, nz),
            shared_bytes=gl.integer(C.MAX_COMPUTE_SHARED_MEMORY_SIZE),
        )

    # --- programs

    def _compile(self, source: Source) -> bytes:
        with self._build(source) as program:
            return program.binary()

    def _build(self, source: Source) -> OpenGLProgram:
        text = translation_unit(source)
        with self.context.current() as gl:
            program = _link(gl, source, text)
            try:
                signature, binding = reflect(gl, program, source, text)
                form, number, payload = self._read_binary(gl, program, text)
            except Exception:
                gl.glDeleteProgram(program)
                raise
        numbers = {"format": number, "block": binding}
        image = Image("opengl", form, (signature,), payload, source.name, numbers)
        return OpenGLProgram(self, image, program)

    def _read_binary(self, gl: Any, program: int, text: str) -> tuple[str, int, bytes]:
        size, number = ctypes.c_int(), ctypes.c_uint()
        if self.capabilities.program_binaries:
            gl.glGetProgramiv(program, C.PROGRAM_BINARY_LENGTH, ctypes.byref(size))
        if not size.value:
            # A driver without binary formats: the text is all there is to carry, and loading compiles it.
            return "glsl", 0, text.encode()
        data = ctypes.create_string_buffer(size.value)
        written = ctypes.c_int()
        gl.glGetProgramBinary(program, size.value, ctypes.byref(written), ctypes.byref(number), data)
        self._check(gl, "reading a program's binary")
        return "gl-binary", number.value, data.raw[: written.value]

    def _load(self, binary: bytes) -> OpenGLProgram:
        image = Image.decode(binary, "opengl")
        with self.context.current() as gl:
            if image.form == "glsl":
                text = image.payload.decode()
                return OpenGLProgram(self, image, _link(gl, Source(text, image.name, "glsl"), text))
            program = gl.glCreateProgram()
            gl.glProgramBinary(program, image.numbers.get("format", 0), image.payload, len(image.payload))
            status = ctypes.c_int()
            gl.glGetProgramiv(program, C.LINK_STATUS, ctypes.byref(status))
            while gl.glGetError():
                pass
            if not status.value:
                gl.glDeleteProgram(program)
                raise BinaryRejected(f"{self.spec} refuses the binary of {image.name}")
        return OpenGLProgram(self, image, program)

    # --- launches

    def submit(self) -> None:
        """Give the driver every launch that waits, now."""
        with self.context.current() as gl:
            self._submit(gl)
            gl.glFlush()  # begin now

    def _submit(self, gl: Any) -> None:
        """Give the driver every launch that waits. The caller has the context.

        A loop launches one kernel on the same arrays again and again; what is set in the context already stays set.
        """
        waiting = self._waiting
        if waiting:
            self._waiting = []
            bound = self._bound
            if len(waiting) > 1:
                self._place_blocks(gl, {block for _, (_, block, _), _ in waiting if block})
            dispatch, barrier, everything = gl.glDispatchCompute, gl.glMemoryBarrier, C.ALL_BARRIER_BITS
            for kernel, (buffers, block, loose), (x, y, z) in waiting:
                if kernel.gl_program != self._used:
                    self._used = kernel.gl_program
                    gl.glUseProgram(self._used)
                for binding, handle in zip(kernel.bindings, buffers, strict=True):
                    if bound.get(binding) != handle:
                        bound[binding] = handle
                        gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, binding, handle)
                if block and self._block_bound != (kernel.block_binding, block):
                    if block not in self._block_at:
                        self._place_blocks(gl, {block})
                    at = self._block_at[block]
                    gl.glBindBufferRange(C.UNIFORM_BUFFER, kernel.block_binding, self._scalars, at, len(block))
                    self._block_bound = (kernel.block_binding, block)
                if loose:
                    for (location, set_uniform), value in zip(kernel.uniforms, loose, strict=True):
                        set_uniform(gl, location, value)
                dispatch(x, y, z)
                barrier(everything)
            self._batch = min(self._batch * 2, _LARGEST_BATCH)
            self._check(gl, "launching")
        if self._dead_buffers or self._dead_objects:
            self._bury(gl)

    def _place_blocks(self, gl: Any, blocks: set[bytes]) -> None:
        """Put scalar blocks that are not there yet into the buffer they are read from, behind those in use.

        A full buffer gets new storage and starts over: launches under way still read the old.
        """
        new = [block for block in blocks if block not in self._block_at]
        if not new:
            return
        padded = [block + b"\0" * (-len(block) % self._alignment) for block in new]
        size = sum(map(len, padded))
        gl.glBindBuffer(C.UNIFORM_BUFFER, self._scalars)
        if self._blocks_end + size > self._blocks_size:
            self._blocks_size = max(_BLOCKS_BYTES, size)
            self._blocks_end = 0
            self._block_at.clear()
            self._block_bound = None
            # Blocks of this batch that were there already are gone with the rest.
            if len(blocks) > len(new):
                new = list(blocks)
                padded = [block + b"\0" * (-len(block) % self._alignment) for block in new]
                size = sum(map(len, padded))
                self._blocks_size = max(_BLOCKS_BYTES, size)
            gl.glBufferData(C.UNIFORM_BUFFER, self._blocks_size, None, C.STREAM_DRAW)
        gl.glBufferSubData(C.UNIFORM_BUFFER, self._blocks_end, size, b"".join(padded))
        for block, bytes_with_padding in zip(new, padded, strict=True):
            self._block_at[block] = self._blocks_end
            self._blocks_end += len(bytes_with_padding)

    def _bury(self, gl: Any) -> None:
        dead, self._dead_buffers = self._dead_buffers, []
        if dead:
            gl.glDeleteBuffers(len(dead), (ctypes.c_uint * len(dead))(*dead))
            self._bound.clear()  # names are used again
        objects, self._dead_objects = self._dead_objects, []
        for delete in objects:
            delete(gl)

    def _delete_program(self, gl: Any, program: int) -> None:
        if self._used == program:  # the name may be used again at once
            self._used = 0
            gl.glUseProgram(0)
        gl.glDeleteProgram(program)

    # --- memory

    def _allocate(self, nbytes: int) -> int:
        if nbytes > self._max_bytes:
            raise OutOfMemory(
                f"{self.spec} cannot allocate {nbytes:,} bytes (a storage buffer holds at most {self._max_bytes:,})"
            )
        with self.context.current() as gl:
            self._submit(gl)
            handle = _new_buffer(gl)
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, handle)
            gl.glBufferData(C.COPY_WRITE_BUFFER, nbytes, None, C.DYNAMIC_COPY)
            if gl.glGetError():
                self._dead_buffers.append(handle)
                raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes")
        return handle

    def _free(self, handle: int) -> None:
        self._dead_buffers.append(handle)

    def _upload(self, handle: int, host: np.ndarray[Any, Any]) -> None:
        with self.context.current() as gl:
            self._submit(gl)
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, handle)
            gl.glBufferSubData(C.COPY_WRITE_BUFFER, 0, host.nbytes, host.ctypes.data)
            self._check(gl, "copying to the device")

    def _download(self, handle: int, out: np.ndarray[Any, Any]) -> None:
        with self.context.current() as gl:
            self._submit(gl)
            gl.glBindBuffer(C.COPY_READ_BUFFER, handle)
            gl.glGetBufferSubData(C.COPY_READ_BUFFER, 0, out.nbytes, out.ctypes.data)
            self._check(gl, "copying to the host")
            self._batch = 1

    def _copy(self, target: int, origin: int, nbytes: int) -> None:
        with self.context.current() as gl:
            self._submit(gl)
            gl.glBindBuffer(C.COPY_READ_BUFFER, origin)
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, target)
            gl.glCopyBufferSubData(C.COPY_READ_BUFFER, C.COPY_WRITE_BUFFER, 0, 0, nbytes)
            self._check(gl, "copying on the device")

    def memory_info(self) -> MemoryInfo:
        self._check_open()
        with self.context.current() as gl:
            return MemoryInfo(*_memory(gl))

    # --- order and time

    def fence(self) -> OpenGLFence:
        self._check_open()
        return OpenGLFence(self)

    def timer(self) -> OpenGLTimer:
        self._check_open()
        return OpenGLTimer(self)

    def exclusive(self) -> AbstractContextManager[Any]:
        self._check_open()
        return self.context.current()

    def synchronize(self) -> None:
        self._check_open()
        with self.context.current() as gl:
            self._submit(gl)
            gl.glFinish()
            self._check(gl, "waiting")
            self._batch = 1

    def _close(self) -> None:
        with self.context.current() as gl:
            self._submit(gl)
            gl.glFinish()
        self.context.close()

    def _check(self, gl: Any, doing: str) -> None:
        error = gl.glGetError()
        if error:
            name = ERROR_NAMES.get(error, hex(error))
            kind = OutOfMemory if error == C.OUT_OF_MEMORY else DeviceError
            raise kind(f"{self.spec}, {doing}: OpenGL error {name}")


def _new_buffer(gl: Any) -> int:
    name = ctypes.c_uint()
    gl.glGenBuffers(1, ctypes.byref(name))
    return int(name.value)


def _link(gl: Any, source: Source, text: str) -> int:
    """Compile and link a compute program whose binary can be read back."""
    shader = gl.glCreateShader(C.COMPUTE_SHADER)
    status = ctypes.c_int()
    try:
        gl.glShaderSource(shader, 1, (ctypes.c_char_p * 1)(text.encode()), None)
        gl.glCompileShader(shader)
        gl.glGetShaderiv(shader, C.COMPILE_STATUS, ctypes.byref(status))
        if not status.value:
            raise compile_error(source, gl.log(shader, gl.glGetShaderiv, gl.glGetShaderInfoLog), *_COMPLAINTS)
        program = gl.glCreateProgram()
        gl.glProgramParameteri(program, C.PROGRAM_BINARY_RETRIEVABLE_HINT, 1)
        gl.glAttachShader(program, shader)
        gl.glLinkProgram(program)
        gl.glGetProgramiv(program, C.LINK_STATUS, ctypes.byref(status))
        if not status.value:
            error = compile_error(source, gl.log(program, gl.glGetProgramiv, gl.glGetProgramInfoLog), *_COMPLAINTS)
            gl.glDeleteProgram(program)
            raise error
        gl.glDetachShader(program, shader)
        return int(program)
    finally:
        gl.glDeleteShader(shader)


class OpenGLProgram(Program):
    """A linked program; its one kernel goes by the source's name, or `main`."""

    def __init__(self, device: OpenGLDevice, image: Image, gl_program: int) -> None:
        super().__init__(device, image.name, len(image.payload))
        self._device = device
        self.image = image
        self.gl_program = gl_program

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return (self.image.kernels[0].name,)

    def kernel(self, name: str | None = None) -> Kernel:
        return super().kernel(None if name == "main" else name)

    def _make_kernel(self, name: str) -> Kernel:
        return OpenGLKernel(self, self.image.kernels[0])

    def _unload(self) -> None:
        with self._device.context.current() as gl:
            self._device._submit(gl)
            self._device._delete_program(gl, self.gl_program)

    def _abandon(self) -> None:
        device, program = self._device, self.gl_program
        device._dead_objects.append(lambda gl: device._delete_program(gl, program))

    def binary(self) -> bytes:
        return self.image.encode()


class OpenGLKernel(Kernel):
    """A kernel: which argument goes to which binding, offset or location."""

    def __init__(self, program: OpenGLProgram, signature: KernelSignature) -> None:
        self._device = program._device
        self.gl_program = program.gl_program
        params = signature.params or ()
        self.bindings = [p.slot for p in params if p.kind == "buffer"]
        self.block_binding = program.image.numbers.get("block", 0)
        self.uniforms = [(p.slot, _SETTERS[p.dtype or ""]) for p in params if p.place == "uniform"]
        super().__init__(program, signature)

    def _launch_body(self, params: tuple[Parameter, ...]) -> tuple[list[str], dict[str, Any]]:
        """Buffers by binding, the scalar block packed, loose uniforms; then wait for the others of the batch."""
        block = sorted((p.slot, place, p) for place, p in enumerate(params) if p.place == "block")
        buffers = "".join(f"v{i}, " for i, p in enumerate(params) if p.kind == "buffer")
        packed = f"pack({', '.join(f'v{place}' for _, place, _ in block)})" if block else 'b""'
        loose = "".join(f"v{i}, " for i, p in enumerate(params) if p.place == "uniform")
        lines = [
            f"values = (({buffers}), {packed}, ({loose}))",
            "with lock:",
            "    waiting = device._waiting",
            "    waiting.append((kernel, values, shape))",
            "    if len(waiting) >= device._batch:",
            "        device.submit()",
        ]
        pack = struct.Struct(_layout([p for _, _, p in block])).pack
        return lines, {"pack": pack, "lock": self._device.context.lock, "kernel": self}

    def _native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return grid

    def _launch_specially(
        self, values: tuple[Any, ...], shape: Any, queue: Queue | None, shared_bytes: int, cooperative: bool
    ) -> None:
        if queue is not None:
            raise ArgumentError(f"{self._device.spec} has one queue only")
        raise ArgumentError("GLSL declares its shared memory in the shader: shared_bytes has no meaning here")


_Launch = tuple[OpenGLKernel, _Values, tuple[int, int, int]]


def _layout(params: list[Parameter]) -> str:
    """The struct format of a std140 block of scalars, its size a multiple of 16."""
    text, at = "<", 0
    for p in params:
        text += "x" * (p.slot - at) + _CODES[p.dtype or ""]
        at = p.slot + p.nbytes
    return text + "x" * (-at % 16)


_SETTERS: dict[str, Callable[[Any, int, Any], None]] = {
    "i4": lambda gl, location, value: gl.glUniform1i(location, int(value)),
    "u4": lambda gl, location, value: gl.glUniform1ui(location, int(value)),
    "f4": lambda gl, location, value: gl.glUniform1f(location, float(value)),
    "f8": lambda gl, location, value: gl.glUniform1d(location, float(value)),
}


class OpenGLFence(Fence):
    """A sync object."""

    def __init__(self, device: OpenGLDevice) -> None:
        self._device = device
        self._finished = False
        with device.context.current() as gl:
            device._submit(gl)
            self._sync = gl.glFenceSync(C.SYNC_GPU_COMMANDS_COMPLETE, 0)
            gl.glFlush()
            device._batch = 1

    @property
    def done(self) -> bool:
        return self._look(0)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        # Short looks, because other threads need the context meanwhile.
        while not self._look(1_000_000):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _look(self, nanoseconds: int) -> bool:
        if self._finished:
            return True
        self._device._check_open()
        with self._device.context.current() as gl:
            status = gl.glClientWaitSync(self._sync, C.SYNC_FLUSH_COMMANDS_BIT, nanoseconds)
        if status == C.WAIT_FAILED:
            raise DeviceError(f"{self._device.spec}: waiting for a fence failed")
        self._finished = status != C.TIMEOUT_EXPIRED
        return self._finished

    def __del__(self) -> None:
        sync = getattr(self, "_sync", None)
        if sync:
            self._device._dead_objects.append(lambda gl: gl.glDeleteSync(sync))


class OpenGLTimer(Timer):
    """Two timestamps of the device."""

    def __init__(self, device: OpenGLDevice) -> None:
        self._device = device
        self._queries = (ctypes.c_uint * 2)()
        self._seconds: float | None = None
        self._ended = False

    def __enter__(self) -> Self:
        with self._device.context.current() as gl:
            self._device._submit(gl)
            gl.glGenQueries(2, self._queries)
            gl.glQueryCounter(self._queries[0], C.TIMESTAMP)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._device.context.current() as gl:
            self._device._submit(gl)
            gl.glQueryCounter(self._queries[1], C.TIMESTAMP)
            gl.glFlush()
        self._ended = True

    @property
    def seconds(self) -> float:
        if not self._ended:
            raise DeviceError("the timer's block has not ended")
        if self._seconds is None:
            self._device._check_open()
            start, end = ctypes.c_uint64(), ctypes.c_uint64()
            with self._device.context.current() as gl:
                gl.glGetQueryObjectui64v(self._queries[0], C.QUERY_RESULT, ctypes.byref(start))
                gl.glGetQueryObjectui64v(self._queries[1], C.QUERY_RESULT, ctypes.byref(end))
                gl.glDeleteQueries(2, self._queries)
            self._seconds = (end.value - start.value) * 1e-9
        return self._seconds
