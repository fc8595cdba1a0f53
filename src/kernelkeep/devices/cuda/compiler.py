"""Compiles CUDA C with NVRTC, which needs no GPU and no driver.

NVRTC comes from PyPI and compiles for any architecture it knows. The names of the kernels are read from its output, and their
parameters from the source.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...errors import ArgumentError, DeviceError
from ...programs.portable_source import PortableSource
from ...programs.signature import KernelSignature, declared, declared_kernel, read_heads, same_kernel
from ...programs.source import Source
from ...programs.translation_unit import compile_error, translation_unit
from ..binary import Binary
from .bindings import load_bindings
from .early_start import WAITS_FIRST, waits_first, with_early_start
from .param_layout import param_layout, placed
from .toolkit import find_toolkit

_COMPLAINT = re.compile(r"\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>[^\n]*)")
# Every kernel has its own parameter bank in the cubin, and nothing else has one.
_KERNEL_SECTION = re.compile(rb"\.nv\.constant0\.(\w+)\0")
_PTX_ENTRY = re.compile(rb"\.entry\s+(\w+)")


def compile_for(source: Source, architecture: str) -> bytes:
    """Compile CUDA C for an architecture such as "sm_90"; no GPU is needed. Returns what `device.load` takes."""
    if source.language != "cuda":
        raise ArgumentError(f"source {source.name} must be in cuda, got {source.language}")
    if not re.fullmatch(r"sm_\d+[af]?", architecture):
        raise ArgumentError(f"architecture must be like sm_90, got {architecture!r}")
    toolkit = find_toolkit()  # raises a clear error if there is no NVRTC
    nvrtc = load_bindings("nvrtc")
    text = translation_unit(source)
    if isinstance(source, PortableSource):
        text = with_early_start(text, architecture)
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), f"{source.name}.cu".encode("utf-8", "replace"), 0, [], [])
    _check_nvrtc(nvrtc, status)
    try:
        form, target = _target(nvrtc, architecture)
        options = [f"--gpu-architecture={target}", "--std=c++17"]
        options += [f"--include-path={folder}" for folder in toolkit.headers]
        options += source.options
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode("utf-8", "replace")
            raise compile_error(source, log.strip("\0") or f"NVRTC: {status.name}", _COMPLAINT)
        if form == "cubin":
            payload = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        else:
            payload = _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    numbers = {WAITS_FIRST: 1} if form == "cubin" and waits_first(payload) else {}
    return Binary("cuda", form, _signatures(source, payload, form), payload, source.name, numbers).encode()


def _target(nvrtc: Any, architecture: str) -> tuple[str, str]:
    """A cubin for the architecture, or PTX for the newest known one if the GPU is newer than the compiler."""
    _, known = nvrtc.nvrtcGetSupportedArchs()
    number = int(re.sub(r"\D", "", architecture))
    if number in known or number < min(known):
        return "cubin", architecture
    return "ptx", f"compute_{max(arch for arch in known if arch < number)}"


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    _, size = size_of(program)
    # The bindings fill it in place. One byte would be an object that all of Python shares, as an empty log needs.
    raw: bytes = b" " * max(size, 2)
    read(program, raw)
    return raw[:size]


def _check_nvrtc(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"NVRTC: {status.name}")


def _signatures(source: Source, payload: bytes, form: str) -> tuple[KernelSignature, ...]:
    pattern = _KERNEL_SECTION if form == "cubin" else _PTX_ENTRY
    symbols = sorted({symbol.decode() for symbol in pattern.findall(payload)})
    written = declared(source.text)
    known = read_heads(source.text) | written
    found = []
    for symbol in symbols:
        if (portable := declared_kernel(symbol, written)) is not None:
            found.append(msgspec.structs.replace(portable, symbol=symbol))
            continue
        name = next((name for name in known if same_kernel(symbol, name)), _demangled(symbol))
        facts = known.get(name, KernelSignature(name))
        found.append(KernelSignature(name, facts.params, facts.group, symbol))
    return tuple(_with_layout(signature, payload) for signature in found) if form == "cubin" else tuple(found)


def _with_layout(signature: KernelSignature, cubin: bytes) -> KernelSignature:
    """The signature with the offsets of its parameters, if the cubin tells them and they are as declared."""
    layout = param_layout(cubin, signature.symbol)
    params = placed(signature.params or (), layout) if layout is not None else None
    return signature if params is None else msgspec.structs.replace(signature, params=params)


def _demangled(symbol: str) -> str:
    """`axpy` from `_Z4axpyPff`; a symbol with more to it (templates, namespaces) keeps its full name."""
    match = re.match(r"_Z(\d+)", symbol)
    return symbol[match.end() : match.end() + int(match.group(1))] if match else symbol
