"""A linked program and its kernel, whose launches wait in a batch (`device.py`)."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ...programs.signature import KernelSignature, Parameter
from ...programs.source import Source
from ...programs.translation_unit import compile_error
from ..base import Binary, FastLaunch, Kernel, LaunchOptions, Program
from .buffer_part import BufferPart
from .libgl import Constants as C
from .prepared import OpenGLPrepared

if TYPE_CHECKING:
    from .device import OpenGLDevice

_COMPLAINTS = (
    re.compile(r"^\d+:(?P<line>\d+)\(\d+\): (?:preprocessor )?error: (?P<message>[^\n]*)", re.MULTILINE),  # Mesa
    re.compile(r"^\d+\((?P<line>\d+)\) : error (?P<message>[^\n]*)", re.MULTILINE),  # NVIDIA
    re.compile(r"^ERROR: \d+:(?P<line>\d+): (?P<message>[^\n]*)", re.MULTILINE),  # the others
)
_CODES = dict(i1="i", u1="i", i2="i", u2="i", i4="i", u4="I", i8="q", u8="Q", f2="f", f4="f", f8="d")
Values = tuple[tuple[int | BufferPart, ...], bytes, tuple[Any, ...]]  # buffers, the scalar block, loose uniforms


def link(gl: Any, source: Source, text: str) -> int:
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

    device: OpenGLDevice

    def __init__(self, device: OpenGLDevice, compiled: Binary, gl_program: int) -> None:
        super().__init__(device, compiled)
        self.gl_program = gl_program

    def kernel(self, name: str | None = None) -> Kernel:
        return super().kernel(None if name == "main" else name)

    def make_kernel(self, signature: KernelSignature) -> Kernel:
        return OpenGLKernel(self, signature)

    def unload(self, *, collected: bool = False) -> None:
        device, program = self.device, self.gl_program
        if collected:
            device.delete_later(lambda gl: device.delete_program(gl, program))
            return
        with device.context.current() as gl:
            device.submit_waiting(gl)
            device.delete_program(gl, program)
            self.unloaded = True


class OpenGLKernel(Kernel):
    """A kernel: which argument goes to which binding, offset or location."""

    program: OpenGLProgram
    device: OpenGLDevice

    def __init__(self, program: OpenGLProgram, signature: KernelSignature) -> None:
        super().__init__(program, signature)
        self.gl_program = program.gl_program
        params = signature.params or ()
        self.bindings = [p.slot for p in params if p.kind == "buffer"]
        self.block_binding = program.compiled.numbers.get("block", 0)
        self.uniforms = [(p.slot, _SETTERS[p.dtype or ""]) for p in params if p.place == "uniform"]
        if self.uniforms:
            self.device.has_loose_uniforms = True

    def fast_launch(self) -> FastLaunch:
        params = self.params or ()
        lines = [
            f"values = {self._sorted_values(params)}",
            "with lock:",
            "    if program.unloaded:",  # by another thread, and OpenGL may have reused its name
            "        raise_closed()",
            "    waiting = device.waiting",
            "    waiting.append((kernel, values, shape))",
            "    if len(waiting) >= device.batch_size:",
            "        device.submit()",
        ]
        names = {"pack": self._pack(params), "lock": self.device.context.lock, "kernel": self}
        return FastLaunch(lines, names | {"program": self.program, "raise_closed": self.raise_closed})

    def _sorted_values(self, params: tuple[Parameter, ...]) -> str:
        """An expression of v0, v1, …: buffers by binding, the scalar block packed, loose uniforms."""
        block = sorted((p.slot, place) for place, p in enumerate(params) if p.place == "block")
        buffers = "".join(f"v{i}, " for i, p in enumerate(params) if p.kind == "buffer")
        packed = f"pack({', '.join(f'v{place}' for _, place in block)})" if block else 'b""'
        loose = "".join(f"v{i}, " for i, p in enumerate(params) if p.place == "uniform")
        return f"(({buffers}), {packed}, ({loose}))"

    def _pack(self, params: tuple[Parameter, ...]) -> Callable[..., bytes]:
        return struct.Struct(_layout(sorted((p for p in params if p.place == "block"), key=lambda p: p.slot))).pack

    @cached_property
    def _sorting(self) -> tuple[list[int], list[int], list[int], Callable[..., bytes]]:
        """The indices of buffers, of scalars in the block and of loose uniforms, and the function that packs the block."""
        params = self.params or ()
        buffers = [i for i, p in enumerate(params) if p.kind == "buffer"]
        block = sorted((i for i, p in enumerate(params) if p.place == "block"), key=lambda i: params[i].slot)
        return buffers, block, [i for i, p in enumerate(params) if p.place == "uniform"], self._pack(params)

    def sort_values(self, values: Sequence[Any]) -> Values:
        """The values of a launch as OpenGL takes them: buffers, the block of scalars, loose uniforms."""
        buffers, block, loose, pack = self._sorting
        packed = pack(*[values[i] for i in block]) if block else b""
        return tuple([values[i] for i in buffers]), packed, tuple([values[i] for i in loose])

    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        sorted_values = self.sort_values(values)
        device = self.device
        with device.context.lock:
            if self.program.unloaded:
                self.raise_closed()
            device.waiting.append((self, sorted_values, shape))
            if len(device.waiting) >= device.batch_size:
                device.submit()

    def bind_launch(
        self, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> OpenGLPrepared:
        return OpenGLPrepared(self, args, values, shape, options)

    def native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return grid

    def check_options(self, options: LaunchOptions) -> None:
        if options.shared_bytes:
            raise ArgumentError("shared_bytes must be 0: GLSL declares its shared memory in the shader")
        super().check_options(options)


Launch = tuple[OpenGLKernel, Values, tuple[int, int, int]]


def block_bytes(param: Parameter) -> int:
    """The room that a scalar takes in a block: GLSL has nothing smaller than an int."""
    return max(param.nbytes, 4)


def _layout(params: list[Parameter]) -> str:
    """The struct format of a std140 block of scalars, its size a multiple of 16."""
    text, at = "<", 0
    for p in params:
        text += "x" * (p.slot - at) + _CODES[p.dtype or ""]
        at = p.slot + block_bytes(p)
    return text + "x" * (-at % 16)


_SETTERS: dict[str, Callable[[Any, int, Any], None]] = {
    "i4": lambda gl, location, value: gl.glUniform1i(location, int(value)),
    "u4": lambda gl, location, value: gl.glUniform1ui(location, int(value)),
    "f4": lambda gl, location, value: gl.glUniform1f(location, float(value)),
    "f8": lambda gl, location, value: gl.glUniform1d(location, float(value)),
}
