"""Compiles CUDA C for AMD GPUs with HIPRTC, which needs no GPU.

HIPRTC crashes the process for an architecture that it does not know, so its code object manager (comgr) is asked first which it
knows. A program object keeps what it was first compiled for: each architecture gets a new one.
"""

from __future__ import annotations

import ctypes
import re
import threading
from functools import cache

import msgspec

from ...errors import ArgumentError, CompileError, DeviceError
from ...programs.signature import KernelSignature, declared, declared_kernel, read_heads, same_kernel
from ...programs.source import Source
from ...programs.translation_unit import compile_error, translation_unit
from ..ahead import architecture_fingerprint
from ..binary import Binary
from ..fingerprint import Fingerprint

HOW_TO_GET_IT = "apt-get install libamdhip64-5 libhiprtc-builtins5 (80 MB), or ROCm from AMD"
_COMPILERS = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.6", "libamdhip64.so.5")
_MANAGERS = ("libamd_comgr.so", "libamd_comgr.so.3", "libamd_comgr.so.2")
_COMPLAINT = re.compile(r":(?P<line>\d+):\d+: (?:fatal )?error: (?P<message>[^\n]*)")
# A kernel's descriptor is a symbol of its own.
_DESCRIPTOR = re.compile(rb"\0(\w+)\.kd(?=\0)")
_compiling = threading.Lock()  # nothing says that HIPRTC compiles in two threads at once


class HipAhead:
    """HIPRTC, which needs no GPU and no driver."""

    language = "cuda"

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        name, library = _load(_COMPILERS)
        library.hiprtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"hiprtc {major.value}.{minor.value} ({name})"

    def architectures(self) -> tuple[str, ...]:
        _load(_COMPILERS)
        return _architectures()

    def compile(self, source: Source, architecture: str) -> bytes:
        if source.language != self.language:
            raise ArgumentError(f"source {source.name} must be in {self.language}, got {source.language}")
        if architecture not in self.architectures():
            raise ArgumentError(f"architecture must be one of {', '.join(self.architectures())}, got {architecture!r}")
        with _compiling:
            payload = _compile(source, architecture)
        return Binary("hip", "code object", _signatures(source, payload), payload, source.name).encode()

    def fingerprint(self, architecture: str) -> Fingerprint:
        return architecture_fingerprint("hip", "AMD", architecture)


ahead = HipAhead()


@cache
def _load(names: tuple[str, ...]) -> tuple[str, ctypes.CDLL]:
    for name in names:
        try:
            return name, ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(f"compiling for AMD GPUs needs HIPRTC ({names[-1]} was not found); to get it: {HOW_TO_GET_IT}")


@cache
def _architectures() -> tuple[str, ...]:
    _, manager = _load(_MANAGERS)
    count = ctypes.c_size_t()
    found = []
    if manager.amd_comgr_get_isa_count(ctypes.byref(count)) == 0:
        for index in range(count.value):
            name = ctypes.c_char_p()
            if manager.amd_comgr_get_isa_name(ctypes.c_size_t(index), ctypes.byref(name)) == 0 and name.value:
                found.append(name.value.decode().rpartition("-")[2])  # amdgcn-amd-amdhsa--gfx90a
    return tuple(found)


def _compile(source: Source, architecture: str) -> bytes:
    _, library = _load(_COMPILERS)
    text = translation_unit(source).encode()
    program = ctypes.c_void_p()
    status = library.hiprtcCreateProgram(
        ctypes.byref(program), text, f"{source.name}.cu".encode("utf-8", "replace"), 0, None, None
    )
    if status:
        raise DeviceError(f"HIPRTC cannot begin with {source.name}: error {status}")
    try:
        options = [f"--gpu-architecture={architecture}", "-std=c++17", *source.options]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.hiprtcCompileProgram(program, len(options), array)
        if status:
            log = _read(library, "hiprtcGetProgramLog", program).decode("utf-8", "replace")
            raise compile_error(source, log or f"HIPRTC: error {status}", _COMPLAINT)
        payload = _read(library, "hiprtcGetCode", program)
    finally:
        library.hiprtcDestroyProgram(ctypes.byref(program))
    if payload[:4] != b"\x7fELF":
        raise CompileError(f"{source.name}: HIPRTC gave no code", name=source.name)
    return payload


def _read(library: ctypes.CDLL, name: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"{name}Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(max(1, size.value))
    getattr(library, name)(program, data)
    return data.raw[: size.value]


def _signatures(source: Source, payload: bytes) -> tuple[KernelSignature, ...]:
    symbols = sorted({symbol.decode() for symbol in _DESCRIPTOR.findall(payload)})
    written = declared(source.text)
    known = read_heads(source.text) | written
    found = []
    for symbol in symbols:
        if (portable := declared_kernel(symbol, written)) is not None:
            found.append(msgspec.structs.replace(portable, symbol=symbol))
            continue
        name = next((name for name in known if same_kernel(symbol, name)), symbol)
        facts = known.get(name, KernelSignature(name))
        found.append(KernelSignature(name, facts.params, facts.group, symbol))
    return tuple(found)
