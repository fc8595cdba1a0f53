"""A source becomes a checked text with its signature: what is kept of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import CompileError, KernelKeepError, Unsupported
from ...programs.signature import KernelSignature
from ...programs.source import Source
from ...programs.translation_unit import translation_unit
from ..base import Binary
from .native import native
from .pipelines import Module, compile_problem
from .program import immediate_bytes
from .reflection import reflect, shared_bytes

if TYPE_CHECKING:
    from .device import WebGPUDevice


def check(device: WebGPUDevice, source: Source) -> tuple[Binary, str, Module]:
    """What is kept of a source, its text, and the shader module. Raises `CompileError` or `Unsupported`."""
    text = translation_unit(source)
    context = device.context
    signatures: tuple[KernelSignature, ...] = ()
    problem: KernelKeepError | None = None
    try:
        signatures = reflect(text, source.name)
        _check_shared_bytes(device, text, signatures, source.name)
    except (CompileError, Unsupported) as error:
        problem = error  # what the compiler says of the text comes first
    with context.lock:
        immediate = immediate_bytes(signatures, context.max_immediate_bytes) > 0
        module = Module(context, text, device.buffers_are_writable, immediate)
        refused = context.take_error()
    if refused is None and problem is None:
        return Binary("webgpu", "wgsl", signatures, text.encode(), source.name), text, module
    device.discard([(module.raw, native().lib.wgpuShaderModuleRelease)], ())
    if refused is not None:
        context.raise_if_lost(refused[1])
        raise compile_problem(source, text, refused[1])
    assert problem is not None
    raise problem


def _check_shared_bytes(device: WebGPUDevice, text: str, signatures: tuple[KernelSignature, ...], name: str) -> None:
    """Raise `CompileError` where the kernel of a text declares more shared memory than there is: its results would be wrong."""
    declared, there_are = shared_bytes(text), device.capabilities.shared_bytes
    if len(signatures) == 1 and declared > there_are:
        raise CompileError(
            f"{name} declares {declared:,} bytes of shared memory, and {device.spec} has {there_are:,}",
            log=text,
            name=name,
        )
