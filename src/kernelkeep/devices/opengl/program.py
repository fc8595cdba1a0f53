"""A linked program, and a launch of its kernel as it waits for the others of its batch."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ...programs.signature import KernelSignature, Parameter
from ...programs.source import Source
from ...programs.translation_unit import compile_error
from ..base import Kernel, Program, Queue
from ..image import Image
from .libgl import Constants as C
from .prepared import OpenGLPrepared

if TYPE_CHECKING:
    from .device import OpenGLDevice

__all__ = ["Launch", "OpenGLKernel", "OpenGLProgram", "link"]

_COMPLAINTS = (
    re.compile(r"^\d+:(?P<line>\d+)\(\d+\): (?:preprocessor )?error: (?P<message>[^\n]*)", re.MULTILINE),  # Mesa
    re.compile(r"^\d+\((?P<line>\d+)\) : error (?P<message>[^\n]*)", re.MULTILINE),  # NVIDIA
    re.compile(r"^ERROR: \d+:(?P<line>\d+): (?P<message>[^\n]*)", re.MULTILINE),  # the others
)
_CODES = dict(i1="b", u1="B", i2="h", u2="H", i4="i", u4="I", i8="q", u8="Q", f4="f", f8="d")
_Values = tuple[tuple[int, ...], bytes, tuple[Any, ...]]  # buffers, the scalar block, loose uniforms


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

    def __init__(self, device: OpenGLDevice, image: Image, gl_program: int) -> None:
        super().__init__(device, image.name, len(image.payload))
        self._device = device
        self.image = image
        self.gl_program = gl_program
        self.unloaded = False

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
            self.unloaded = True

    def _abandon(self) -> None:
        device, program = self._device, self.gl_program
        device._dead_objects.append(lambda gl: device._delete_program(gl, program))

    def binary(self) -> bytes:
        return self.image.encode()


class OpenGLKernel(Kernel):
    """A kernel: which argument goes to which binding, offset or location."""

    def __init__(self, program: OpenGLProgram, signature: KernelSignature) -> None:
        self._device = program._device
        self.owner = program
        self.gl_program = program.gl_program
        params = signature.params or ()
        self.bindings = [p.slot for p in params if p.kind == "buffer"]
        self.block_binding = program.image.numbers.get("block", 0)
        self.uniforms = [(p.slot, _SETTERS[p.dtype or ""]) for p in params if p.place == "uniform"]
        super().__init__(program, signature)

    def _launch_body(self, params: tuple[Parameter, ...]) -> tuple[list[str], dict[str, Any]]:
        """Sort the values as GL takes them; then wait for the others of the batch."""
        lines = [
            f"values = {self._sorted_values(params)}",
            "with lock:",
            "    if program.unloaded:",  # by another thread, and its name may be another's by now
            "        explain_closed()",
            "    waiting = device._waiting",
            "    waiting.append((kernel, values, shape))",
            "    if len(waiting) >= device._batch:",
            "        device.submit()",
        ]
        helpers = {"pack": self._pack(params), "lock": self._device.context.lock, "kernel": self}
        return lines, helpers | {"program": self.owner, "explain_closed": self._explain_closed}

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
        """Which arguments are buffers, in the scalar block and loose uniforms, and how the block is packed."""
        params = self.params or ()
        buffers = [i for i, p in enumerate(params) if p.kind == "buffer"]
        block = sorted((i for i, p in enumerate(params) if p.place == "block"), key=lambda i: params[i].slot)
        return buffers, block, [i for i, p in enumerate(params) if p.place == "uniform"], self._pack(params)

    def sort_values(self, values: list[Any]) -> _Values:
        """The values of a launch as GL takes them, without generated code: for launches that are sorted once."""
        buffers, block, loose, pack = self._sorting
        packed = pack(*[values[i] for i in block]) if block else b""
        return tuple([values[i] for i in buffers]), packed, tuple([values[i] for i in loose])

    def _prepare_launch(
        self,
        args: tuple[Any, ...],
        values: tuple[Any, ...],
        shape: Any,
        queue: Queue | None,
        shared_bytes: int,
        cooperative: bool,
    ) -> OpenGLPrepared:
        if queue is not None or shared_bytes:
            self._launch_specially(values, shape, queue, shared_bytes, cooperative)
        return OpenGLPrepared(self, args, values, shape)

    def _native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return grid

    def _launch_specially(
        self, values: tuple[Any, ...], shape: Any, queue: Queue | None, shared_bytes: int, cooperative: bool
    ) -> None:
        if queue is not None:
            raise ArgumentError(f"{self._device.spec} has one queue only")
        raise ArgumentError("GLSL declares its shared memory in the shader: shared_bytes has no meaning here")


Launch = tuple[OpenGLKernel, _Values, tuple[int, int, int]]


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
