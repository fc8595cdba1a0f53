"""A shader module with its pipelines, and kernels, whose launches wait in a batch (`device.py`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, BinaryRejected
from ...programs.signature import KernelSignature, Parameter
from ..base import Binary, FastLaunch, Kernel, LaunchOptions, Program
from .context import last_line
from .native import native
from .pipelines import Module, make_bind_group, make_pipeline
from .prepared import WebGPUPrepared

if TYPE_CHECKING:
    from .device import WebGPUDevice

_CODES = dict(i1="i", u1="i", i2="i", u2="i", i4="i", u4="I", f2="f", f4="f")
_SCALAR_BYTES = 4
_Values = tuple[tuple[int, ...], bytes]  # buffers by binding, and the block of scalars


class WebGPUProgram(Program):
    """A checked text, compiled by the driver."""

    device: WebGPUDevice

    def __init__(self, device: WebGPUDevice, compiled: Binary, text: str, module: Module | None = None) -> None:
        super().__init__(device, compiled)
        self.text = text
        self.immediate_bytes = immediate_bytes(compiled.kernels, device.context.max_immediate_bytes)
        self._objects: list[tuple[Any, Callable[[Any], None]]] = []
        self._modules: dict[bool, Module] = {}
        self.numbers: list[int] = []  # of its kernels
        if module is not None:
            self._add(module)

    def make_kernel(self, signature: KernelSignature) -> Kernel:
        return WebGPUKernel(self, signature)

    def module(self, aliased: bool) -> Module:
        """The text as a shader module; `aliased` for launches that pass one array twice. The caller has the lock."""
        writable = aliased or self.device.buffers_are_writable
        found = self._modules.get(writable)
        if found is None:
            found = self._add(Module(self.device.context, self.text, writable, self.immediate_bytes > 0))
        return found

    def _add(self, module: Module) -> Module:
        self._modules[module.writable] = module
        self.own(module.raw, native().lib.wgpuShaderModuleRelease)
        return module

    def own(self, raw: Any, release: Callable[[Any], None]) -> Any:
        """Release an object with the program."""
        self._objects.append((raw, release))
        return raw

    def unload(self, *, collected: bool = False) -> None:
        if collected:
            self.device.discard(self._objects, self.numbers)
            return
        with self.device.context.lock:
            self.device.submit_waiting()
            self.unloaded = True
            self.device.discard(self._objects, self.numbers)
            self.device.release_discarded()


class WebGPUKernel(Kernel):
    """A kernel: which argument goes to which binding and offset."""

    program: WebGPUProgram
    device: WebGPUDevice

    def __init__(self, program: WebGPUProgram, signature: KernelSignature) -> None:
        super().__init__(program, signature)
        params = signature.params or ()
        self.number = self.device.new_number()
        program.numbers.append(self.number)
        self.symbol = signature.symbol or signature.name
        self.buffers = sorted((p for p in params if p.kind == "buffer"), key=lambda p: p.slot)
        self._blocks = _uniforms(params, self.device.blocks.alignment)
        self.immediate_bytes = program.immediate_bytes
        self.uniforms = [] if self.immediate_bytes else self._blocks
        self.parts = tuple(offset for _, offset, _ in self.uniforms)
        self._layouts: dict[bool, tuple[Any, Any]] = {}
        with self.device.context.lock:
            self._layout(aliased=False)  # compiled now: the first launch should not wait for it

    def _layout(self, aliased: bool) -> tuple[Any, Any]:
        """The layout of bind groups, and the pipeline. The caller has the lock."""
        found = self._layouts.get(aliased)
        if found is None:
            module = self.program.module(aliased)
            bindings = [(p.slot, p.access == "r" and not module.writable) for p in self.buffers]
            sizes = [(binding, nbytes) for binding, _, nbytes in self.uniforms]
            layout, pipeline = make_pipeline(
                self.device.context, module, self.symbol, bindings, sizes, self.immediate_bytes
            )
            lib = native().lib
            self.program.own(layout, lib.wgpuBindGroupLayoutRelease)
            self.program.own(pipeline, lib.wgpuComputePipelineRelease)
            error = self.device.context.take_error()
            if error is not None:
                self.device.context.raise_if_lost(error[1])
                raise BinaryRejected(f"{self.device.spec} refuses {self.name}: {last_line(error[1])}")
            found = self._layouts[aliased] = layout, pipeline
        return found

    def bind(self, buffers: tuple[int, ...]) -> tuple[Any, Any]:
        """A new bind group for these buffers, and the pipeline that goes with it. The caller has the lock."""
        bound = [self.device.memory[int(number)] for number in buffers]
        aliased = len({buffer.raw for buffer in bound}) < len(bound)
        layout, pipeline = self._layout(aliased and any(p.access == "r" for p in self.buffers))
        entries = [(p.slot, b.raw, b.nbytes, b.offset) for p, b in zip(self.buffers, bound, strict=True)]
        entries += [(binding, self.device.blocks.buffer, nbytes, 0) for binding, _, nbytes in self.uniforms]
        return make_bind_group(self.device.context, layout, entries), pipeline

    # --- arguments

    @cached_property
    def _sorting(self) -> tuple[list[int], list[int], Callable[..., bytes]]:
        """The indices of buffers by binding and of scalars by place, and the function that packs the scalars."""
        params = self.params or ()
        buffers = sorted((i for i, p in enumerate(params) if p.kind == "buffer"), key=lambda i: params[i].slot)
        starts = {str(binding): offset for binding, offset, _ in self._blocks}
        places = {i: starts[p.place] + p.slot for i, p in enumerate(params) if p.kind == "scalar"}
        scalars = sorted(places, key=places.__getitem__)
        layout, at = "<", 0
        for i in scalars:
            layout += "x" * (places[i] - at) + _CODES[params[i].dtype or ""]
            at = places[i] + _SCALAR_BYTES
        end = max((offset + nbytes for _, offset, nbytes in self._blocks), default=0)
        return buffers, scalars, struct.Struct(layout + "x" * (end - at)).pack

    def sort_values(self, values: Sequence[Any]) -> _Values:
        """The values of a launch: buffers by binding, the block of scalars."""
        buffers, scalars, pack = self._sorting
        return tuple([values[i] for i in buffers]), pack(*[values[i] for i in scalars]) if scalars else b""

    def fast_launch(self) -> FastLaunch:
        buffers, scalars, pack = self._sorting
        packed = f"pack({', '.join(f'v{i}' for i in scalars)})" if scalars else 'b""'
        lines = [
            f"entry = (kernel, ({''.join(f'v{i}, ' for i in buffers)}), {packed}, shape)",
            "with lock:",
            "    if program.unloaded:",
            "        raise_closed()",
            "    waiting = device.waiting",
            "    waiting.append(entry)",
            "    if len(waiting) >= device.batch_size:",
            "        device.submit_waiting()",
        ]
        names = {"pack": pack, "lock": self.device.context.lock, "kernel": self}
        return FastLaunch(lines, names | {"program": self.program, "raise_closed": self.raise_closed})

    def check_loaded(self) -> None:
        """Raise `DeviceError` if the program was closed. The caller has the lock."""
        if self.program.unloaded:
            self.raise_closed()

    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        self.add_to_batch((self, *self.sort_values(values), shape))

    def add_to_batch(self, entry: Any) -> None:
        """Have a launch wait in the batch; a full batch is submitted."""
        device = self.device
        with device.context.lock:
            self.check_loaded()
            device.waiting.append(entry)
            if len(device.waiting) >= device.batch_size:
                device.submit_waiting()

    def bind_launch(
        self, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> WebGPUPrepared:
        return WebGPUPrepared(self, args, values, shape, options)

    def native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return grid

    def check_options(self, options: LaunchOptions) -> None:
        if options.shared_bytes:
            raise ArgumentError("shared_bytes must be 0: WGSL declares its shared memory in the shader")
        super().check_options(options)


Launch = tuple[WebGPUKernel, tuple[int, ...], bytes, tuple[int, int, int]]


def immediate_bytes(signatures: Sequence[KernelSignature], most: int) -> int:
    """The size of the scalars of a text, where all are in one block that needs no buffer; else 0."""
    sizes = {sum(nbytes for *_, nbytes in blocks) if len(blocks) == 1 else 0 for blocks in _blocks_of(signatures)}
    found = sizes.pop() if len(sizes) == 1 else 0
    return found if found <= most else 0


def _blocks_of(signatures: Sequence[KernelSignature]) -> list[list[tuple[int, int, int]]]:
    return [_uniforms(signature.params or (), 16) for signature in signatures]


def _uniforms(params: tuple[Parameter, ...], alignment: int) -> list[tuple[int, int, int]]:
    """The uniform bindings: their number, where their part of the block begins, and its size."""
    sizes: dict[int, int] = {}
    for p in params:
        if p.kind == "scalar":
            sizes[int(p.place)] = max(sizes.get(int(p.place), 0), p.slot + _SCALAR_BYTES)
    found, at = [], 0
    for binding in sorted(sizes):
        nbytes = -(-sizes[binding] // 16) * 16
        found.append((binding, at, nbytes))
        at += -(-nbytes // alignment) * alignment
    return found
