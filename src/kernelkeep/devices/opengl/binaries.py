"""Texts for the driver's compiler, and the binaries it makes of them."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from ...errors import DeviceError
from .libgl import ERROR_NAMES
from .libgl import Constants as C

# Mesa's software renderer (22.3) loads an element of a read-only buffer once, inside a loop whose condition reads it, and
# uses 0 for it after the loop. Without `readonly` it loads it again.
_READ_ONLY = re.compile(r"\breadonly\b(?=[^;{}()]*\bbuffer\b)")


def text_for_driver(text: str, is_gpu: bool) -> str:
    """The text that the compiler gets."""
    return text if is_gpu else _READ_ONLY.sub("", text)


def read_binary(gl: Any, program: int, text: str, has_formats: bool) -> tuple[str, int, bytes]:
    """The form of a program's binary, the number of its format, and the binary."""
    size, number = ctypes.c_int(), ctypes.c_uint()
    if has_formats:
        gl.glGetProgramiv(program, C.PROGRAM_BINARY_LENGTH, ctypes.byref(size))
    if not size.value:
        # A driver without binary formats: the text stands for the binary, and loading compiles it.
        return "glsl", 0, text.encode()
    data = ctypes.create_string_buffer(size.value)
    written = ctypes.c_int()
    gl.glGetProgramBinary(program, size.value, ctypes.byref(written), ctypes.byref(number), data)
    error = gl.glGetError()
    if error:
        raise DeviceError(f"reading a program's binary: OpenGL error {ERROR_NAMES.get(error, hex(error))}")
    return "gl-binary", number.value, data.raw[: written.value]
