"""Shader modules, pipelines and bind groups: what wgpu-native makes of a checked text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import CompileError
from ...programs.source import Source
from ...programs.translation_unit import compile_error
from .context import Context
from .native import native
from .reflection import with_immediate_scalars, with_writable_buffers
from .types import cast, new, view_of

_WGSL = 2  # WGPUSType_ShaderSourceWGSL
_UNIFORM, _STORAGE, _READ_ONLY = 2, 3, 4  # WGPUBufferBindingType
_COMPUTE = 4  # WGPUShaderStage
# Of wgpu's checks at run time, only those of bounds: those of endless loops count every round of every loop.
_BOUNDS_CHECKS = 1
_PLACE = re.compile(r"┌─ [^:\n]*:(\d+):\d+")
_LABEL = re.compile(r"│[ ^]*\^+ ([^\n]+)")
_MARKER = re.compile(r"// .*, line (\d+)\Z")


class Module:
    """A shader module; `writable` where its read-only buffers are declared as others are, `immediate` where its scalars are
    passed without a buffer.

    Mesa's software Vulkan driver needs writable buffers (`device.py`), and so does a launch that passes one array twice.
    """

    def __init__(self, context: Context, text: str, writable: bool, immediate: bool) -> None:
        lib = native().lib
        self.writable = writable
        if writable:
            text = with_writable_buffers(text)
        if immediate:
            text = with_immediate_scalars(text)
        view, _memory = view_of(text)
        code = new("WGPUShaderSourceWGSL *")
        code.chain.sType = _WGSL
        code.code = view
        descriptor = new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = cast("WGPUChainedStruct *", code)
        self.raw = lib.wgpuDeviceCreateShaderModuleTrusted(context.raw, descriptor, _BOUNDS_CHECKS)


def make_pipeline(
    context: Context,
    module: Module,
    symbol: str,
    buffers: Sequence[tuple[int, bool]],
    uniforms: Sequence[tuple[int, int]],
    immediate_bytes: int,
) -> tuple[Any, Any]:
    """The layout of bind groups, and the pipeline of an entry point.

    `buffers` are bindings, and whether they are read only; `uniforms` are bindings and their sizes.
    """
    lib = native().lib
    entries = new("WGPUBindGroupLayoutEntry[]", max(1, len(buffers) + len(uniforms)))
    for at, (binding, read_only) in enumerate(buffers):
        entries[at].binding, entries[at].visibility = binding, _COMPUTE
        entries[at].buffer.type = _READ_ONLY if read_only else _STORAGE
    for at, (binding, nbytes) in enumerate(uniforms, start=len(buffers)):
        entries[at].binding, entries[at].visibility = binding, _COMPUTE
        entries[at].buffer.type = _UNIFORM
        entries[at].buffer.hasDynamicOffset = 1
        entries[at].buffer.minBindingSize = nbytes
    count = len(buffers) + len(uniforms)
    described = new("WGPUBindGroupLayoutDescriptor *", {"entryCount": count, "entries": entries})
    layout = lib.wgpuDeviceCreateBindGroupLayout(context.raw, described)
    layouts = new("WGPUBindGroupLayout[]", [layout])
    described = new("WGPUPipelineLayoutDescriptor *", {"bindGroupLayoutCount": 1, "bindGroupLayouts": layouts})
    described.immediateSize = immediate_bytes
    whole = lib.wgpuDeviceCreatePipelineLayout(context.raw, described)
    view, _memory = view_of(symbol)
    descriptor = new("WGPUComputePipelineDescriptor *")
    descriptor.layout = whole
    descriptor.compute.module = module.raw
    descriptor.compute.entryPoint = view
    pipeline = lib.wgpuDeviceCreateComputePipeline(context.raw, descriptor)
    lib.wgpuPipelineLayoutRelease(whole)
    return layout, pipeline


def make_bind_group(context: Context, layout: Any, entries: Sequence[tuple[int, Any, int, int]]) -> Any:
    """A bind group of buffers with their bindings, sizes and offsets."""
    lib = native().lib
    given = new("WGPUBindGroupEntry[]", max(1, len(entries)))
    for at, (binding, buffer, nbytes, offset) in enumerate(entries):
        given[at].binding, given[at].buffer, given[at].size, given[at].offset = binding, buffer, nbytes, offset
    descriptor = {"layout": layout, "entryCount": len(entries), "entries": given}
    return lib.wgpuDeviceCreateBindGroup(context.raw, new("WGPUBindGroupDescriptor *", descriptor))


def compile_problem(source: Source, text: str, log: str) -> CompileError:
    """The error for wgpu's report on a text: in one line, at the line of the user's text."""
    place = _PLACE.search(log)
    if place is None:
        causes = [line.strip() for line in log.splitlines() if line.strip()]
        return CompileError(f"{source.name}: {causes[-1] if causes else 'no reason given'}", log=log, name=source.name)
    before = log[: place.start()].strip().splitlines()
    message = before[-1].strip() if before else ""
    message = re.sub(r"^Shader (?:'[^']*' )?(?:parsing|validation) error: ", "", message)
    label = _LABEL.search(log, place.end())
    if label is not None and label[1] not in message:
        message = f"{message}: {label[1]}"
    pattern = re.compile(r"\A(?P<line>\d+): (?P<message>[^\n]*)")
    locate = None if source.is_translation_unit else partial(_user_line, text)
    return compile_error(source, f"{place[1]}: {message}\n{log}", pattern, locate=locate)


def _user_line(text: str, line: int) -> int:
    """The line of the user's text for a line of the translation unit, in which headers have been pasted."""
    number = line
    for at, one in enumerate(text.split("\n")[: line - 1], start=1):
        marker = _MARKER.match(one)
        if marker:
            number = int(marker[1]) + line - at - 1
    return number
