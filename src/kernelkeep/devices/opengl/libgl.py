"""EGL and OpenGL through ctypes: the functions and constants that this backend uses."""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ssize_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from ...errors import DeviceError
from ...installation import install_command


class Constants:
    """The numbers of the EGL and GL headers."""

    # EGL
    NONE = 0x3038
    EGL_EXTENSIONS = 0x3055
    EGL_VENDOR = 0x3053
    EGL_VERSION = 0x3054
    EGL_SURFACE_TYPE = 0x3033
    EGL_PBUFFER_BIT = 0x0001
    EGL_RENDERABLE_TYPE = 0x3040
    EGL_OPENGL_BIT = 0x0008
    EGL_OPENGL_API = 0x30A2
    EGL_PLATFORM_DEVICE_EXT = 0x313F
    EGL_CONTEXT_MAJOR_VERSION = 0x3098
    EGL_CONTEXT_MINOR_VERSION = 0x30FB
    EGL_CONTEXT_OPENGL_PROFILE_MASK = 0x30FD
    EGL_CORE_PROFILE_BIT = 0x0001
    # strings and limits
    VENDOR = 0x1F00
    RENDERER = 0x1F01
    VERSION = 0x1F02
    EXTENSIONS = 0x1F03
    NUM_EXTENSIONS = 0x821D
    SHADING_LANGUAGE_VERSION = 0x8B8C
    MAX_COMPUTE_WORK_GROUP_COUNT = 0x91BE
    MAX_COMPUTE_WORK_GROUP_SIZE = 0x91BF
    MAX_COMPUTE_WORK_GROUP_INVOCATIONS = 0x90EB
    MAX_COMPUTE_SHARED_MEMORY_SIZE = 0x8262
    MAX_SHADER_STORAGE_BLOCK_SIZE = 0x90DE
    UNIFORM_BUFFER_OFFSET_ALIGNMENT = 0x8A34
    NUM_PROGRAM_BINARY_FORMATS = 0x87FE
    GPU_MEMORY_INFO_TOTAL_NVX = 0x9048
    GPU_MEMORY_INFO_FREE_NVX = 0x9049
    # errors
    OUT_OF_MEMORY = 0x0505
    # programs
    COMPUTE_SHADER = 0x91B9
    COMPILE_STATUS = 0x8B81
    LINK_STATUS = 0x8B82
    INFO_LOG_LENGTH = 0x8B84
    PROGRAM_BINARY_RETRIEVABLE_HINT = 0x8257
    PROGRAM_BINARY_LENGTH = 0x8741
    COMPUTE_WORK_GROUP_SIZE = 0x8267
    UNIFORM = 0x92E1
    UNIFORM_BLOCK = 0x92E2
    SHADER_STORAGE_BLOCK = 0x92E6
    ACTIVE_RESOURCES = 0x92F5
    TYPE = 0x92FA
    OFFSET = 0x92FC
    BLOCK_INDEX = 0x92FD
    BUFFER_BINDING = 0x9302
    LOCATION = 0x930E
    # buffers
    COPY_READ_BUFFER = 0x8F36
    COPY_WRITE_BUFFER = 0x8F37
    UNIFORM_BUFFER = 0x8A11
    SHADER_STORAGE_BUFFER = 0x90D2
    SHADER_STORAGE_BUFFER_OFFSET_ALIGNMENT = 0x90DF
    DYNAMIC_COPY = 0x88EA
    STREAM_DRAW = 0x88E0
    ALL_BARRIER_BITS = 0xFFFFFFFF
    R8 = 0x8229
    RED = 0x1903
    UNSIGNED_BYTE = 0x1401
    # time
    SYNC_GPU_COMMANDS_COMPLETE = 0x9117
    SYNC_FLUSH_COMMANDS_BIT = 0x0001
    TIMEOUT_EXPIRED = 0x911B
    WAIT_FAILED = 0x911D
    TIMESTAMP = 0x8E28
    QUERY_RESULT = 0x8866


ERROR_NAMES = {0x0500: "INVALID_ENUM", 0x0501: "INVALID_VALUE", 0x0502: "INVALID_OPERATION", 0x0505: "OUT_OF_MEMORY"}

_P = c_void_p
# name → result, arguments
_EGL: dict[str, tuple[Any, ...]] = {
    "eglGetError": (c_int,),
    "eglInitialize": (c_uint, _P, _P, _P),
    "eglTerminate": (c_uint, _P),
    "eglQueryString": (c_char_p, _P, c_int),
    "eglBindAPI": (c_uint, c_uint),
    "eglChooseConfig": (c_uint, _P, _P, _P, c_int, _P),
    "eglCreateContext": (_P, _P, _P, _P, _P),
    "eglDestroyContext": (c_uint, _P, _P),
    "eglMakeCurrent": (c_uint, _P, _P, _P, _P),
    "eglGetCurrentContext": (_P,),
    "eglGetCurrentDisplay": (_P,),
    "eglGetCurrentSurface": (_P, c_int),
}
_EGL_EXTENSIONS: dict[str, tuple[Any, ...]] = {
    "eglQueryDevicesEXT": (c_uint, c_int, _P, _P),
    "eglQueryDeviceStringEXT": (c_char_p, _P, c_int),
    "eglGetPlatformDisplayEXT": (_P, c_uint, _P, _P),
}
_GL: dict[str, tuple[Any, ...]] = {
    "glGetError": (c_uint,),
    "glGetString": (c_char_p, c_uint),
    "glGetStringi": (c_char_p, c_uint, c_uint),
    "glGetIntegerv": (None, c_uint, _P),
    "glGetInteger64v": (None, c_uint, _P),
    "glGetIntegeri_v": (None, c_uint, c_uint, _P),
    "glCreateShader": (c_uint, c_uint),
    "glShaderSource": (None, c_uint, c_int, POINTER(c_char_p), _P),
    "glCompileShader": (None, c_uint),
    "glGetShaderiv": (None, c_uint, c_uint, _P),
    "glGetShaderInfoLog": (None, c_uint, c_int, _P, _P),
    "glDeleteShader": (None, c_uint),
    "glCreateProgram": (c_uint,),
    "glProgramParameteri": (None, c_uint, c_uint, c_int),
    "glAttachShader": (None, c_uint, c_uint),
    "glDetachShader": (None, c_uint, c_uint),
    "glLinkProgram": (None, c_uint),
    "glGetProgramiv": (None, c_uint, c_uint, _P),
    "glGetProgramInfoLog": (None, c_uint, c_int, _P, _P),
    "glGetProgramBinary": (None, c_uint, c_int, _P, _P, _P),
    "glProgramBinary": (None, c_uint, c_uint, c_char_p, c_int),
    "glDeleteProgram": (None, c_uint),
    "glUseProgram": (None, c_uint),
    "glGetProgramInterfaceiv": (None, c_uint, c_uint, c_uint, _P),
    "glGetProgramResourceiv": (None, c_uint, c_uint, c_uint, c_int, _P, c_int, _P, _P),
    "glGetProgramResourceName": (None, c_uint, c_uint, c_uint, c_int, _P, _P),
    "glUniform1i": (None, c_int, c_int),
    "glUniform1ui": (None, c_int, c_uint),
    "glUniform1f": (None, c_int, ctypes.c_float),
    "glUniform1d": (None, c_int, ctypes.c_double),
    "glGenBuffers": (None, c_int, _P),
    "glDeleteBuffers": (None, c_int, _P),
    "glBindBuffer": (None, c_uint, c_uint),
    "glBindBufferBase": (None, c_uint, c_uint, c_uint),
    "glBindBufferRange": (None, c_uint, c_uint, c_uint, c_ssize_t, c_ssize_t),
    "glBufferData": (None, c_uint, c_ssize_t, _P, c_uint),
    "glBufferSubData": (None, c_uint, c_ssize_t, c_ssize_t, _P),
    "glGetBufferSubData": (None, c_uint, c_ssize_t, c_ssize_t, _P),
    "glCopyBufferSubData": (None, c_uint, c_uint, c_ssize_t, c_ssize_t, c_ssize_t),
    "glBufferStorage": (None, c_uint, c_ssize_t, _P, c_uint),
    "glMapBufferRange": (_P, c_uint, c_ssize_t, c_ssize_t, c_uint),
    "glClearBufferData": (None, c_uint, c_uint, c_uint, c_uint, _P),
    "glDispatchCompute": (None, c_uint, c_uint, c_uint),
    "glMemoryBarrier": (None, c_uint),
    "glFlush": (None,),
    "glFinish": (None,),
    "glFenceSync": (_P, c_uint, c_uint),
    "glDeleteSync": (None, _P),
    "glClientWaitSync": (c_uint, _P, c_uint, c_uint64),
    "glGenQueries": (None, c_int, _P),
    "glDeleteQueries": (None, c_int, _P),
    "glQueryCounter": (None, c_uint, c_uint),
    "glGetQueryObjectui64v": (None, c_uint, c_uint, _P),
}


class Library:
    """libEGL and the GL functions that it finds; each is an attribute with its own name."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            hint = f"on Windows and macOS open a webgpu device ({install_command('webgpu')})"
            raise DeviceError(f"OpenGL is used through EGL, and only on Linux; {hint}")
        try:
            egl = ctypes.CDLL("libEGL.so.1")
        except OSError:
            hint = "on Debian: apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"
            raise DeviceError(f"OpenGL needs libEGL.so.1, which is not installed ({hint})") from None
        lookup = egl.eglGetProcAddress
        lookup.restype, lookup.argtypes = _P, [c_char_p]
        for name, (result, *arguments) in _EGL.items():
            function = getattr(egl, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        for name, (result, *arguments) in (_EGL_EXTENSIONS | _GL).items():
            address = lookup(name.encode())
            # A missing function is a missing attribute; only EGL extensions may be missing.
            if address:
                setattr(self, name, ctypes.CFUNCTYPE(result, *arguments)(address))

    def __getattr__(self, name: str) -> Any:
        raise DeviceError(f"this machine's EGL or OpenGL has no {name}")

    def dispatch(self, x: int, y: int, z: int) -> None:
        """Launch groups whose results all later commands see."""
        self.glDispatchCompute(x, y, z)
        self.glMemoryBarrier(Constants.ALL_BARRIER_BITS)

    def integer(self, name: int, index: int | None = None) -> int:
        """An integer from glGetIntegerv; needs a current context."""
        value = (ctypes.c_int64 * 2)()
        if index is None:
            self.glGetInteger64v(name, value)
            return int(value[0])
        small = (c_int * 2)()
        self.glGetIntegeri_v(name, index, small)
        return int(small[0])

    def log(self, object_id: int, read_size: Any, read: Any) -> str:
        """A shader's or program's log."""
        size = c_int()
        read_size(object_id, Constants.INFO_LOG_LENGTH, ctypes.byref(size))
        if size.value <= 1:
            return ""
        text = ctypes.create_string_buffer(size.value)
        read(object_id, size.value, None, text)
        return text.value.decode("utf-8", "replace")


@cache
def library() -> Library:
    """The loaded libraries; `DeviceError` if they are not installed."""
    return Library()


assert ctypes.sizeof(c_size_t) == 8, "kernelkeep's OpenGL backend is for 64-bit machines"
