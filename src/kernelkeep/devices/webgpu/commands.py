"""Command buffers. One is submitted once; it can be encoded before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .native import native
from .prepared import WebGPUPrepared
from .timestamps import Stamp, describe_pass

if TYPE_CHECKING:
    from .device import WebGPUDevice
    from .program import Launch


def encode(device: WebGPUDevice, fill: Callable[[Any], None]) -> Any:
    """A command buffer that `fill` has encoded. The caller has the lock."""
    ffi, lib = native()
    encoder = lib.wgpuDeviceCreateCommandEncoder(device.context.raw, ffi.NULL)
    try:
        fill(encoder)
        commands = lib.wgpuCommandEncoderFinish(encoder, ffi.NULL)
    finally:
        lib.wgpuCommandEncoderRelease(encoder)
    try:
        device.context.check("launching")
    except BaseException:
        lib.wgpuCommandBufferRelease(commands)
        raise
    return commands


def encode_launches(
    device: WebGPUDevice,
    encoder: Any,
    launches: Sequence[Launch],
    stamp: Stamp | None = None,
    begin: Stamp | None = None,
) -> None:
    """A compute pass of these launches, with a timestamp at its end, and maybe one at its beginning. The caller has the lock."""
    ffi, lib = native()
    set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
    set_immediates = lib.wgpuComputePassEncoderSetImmediates
    dispatch, nothing, found = lib.wgpuComputePassEncoderDispatchWorkgroups, ffi.NULL, device.groups.found
    device.blocks.place({block for kernel, _, block, _ in launches if kernel.parts})
    described, _memory = describe_pass(stamp, begin) if stamp is not None else (nothing, None)
    begun = lib.wgpuCommandEncoderBeginComputePass(encoder, described)
    used = last_bound = last_block = None
    for kernel, buffers, block, (x, y, z) in launches:
        bound = found.get((kernel.number, *buffers))
        if bound is None:
            bound = device.groups.keep((kernel.number, *map(int, buffers)), *kernel.bind(buffers))
        group, pipeline = bound
        if pipeline is not used:
            used, last_block = pipeline, None
            set_pipeline(begun, pipeline)
        if bound is not last_bound or block != last_block:
            last_bound, last_block = bound, block
            parts = kernel.parts
            set_group(begun, 0, group, len(parts), device.blocks.offsets(block, parts) if parts else nothing)
            if kernel.immediate_bytes:
                set_immediates(begun, 0, block, kernel.immediate_bytes)
        dispatch(begun, x, y, z)
    lib.wgpuComputePassEncoderEnd(begun)
    lib.wgpuComputePassEncoderRelease(begun)


class EncodedAhead:
    """Launches in a command buffer that was encoded before it is needed. A call launches them; only the first uses the buffer."""

    def __init__(self, device: WebGPUDevice, launches: Sequence[WebGPUPrepared]) -> None:
        self._device, self._launches = device, launches
        self.commands: Any = None
        with device.context.lock:
            self._entries = [one.entry for one in launches]
            self.commands = encode(device, lambda encoder: encode_launches(device, encoder, self._entries))
            self._rounds = device.blocks.rounds

    def __call__(self) -> None:
        device = self._device
        with device.context.lock:
            for one in self._launches:
                one.kernel.check_loaded()
            now = [one.entry for one in self._launches]
            if self.commands is None or self._rounds != device.blocks.rounds or now != self._entries:
                for one in self._launches:  # something was bound anew since
                    one()
                return
            device.launch_encoded(self)

    def take(self) -> Any:
        """The command buffer, once."""
        commands, self.commands = self.commands, None
        return commands

    def __del__(self) -> None:
        if self.commands is not None:
            self._device.discard([(self.take(), native().lib.wgpuCommandBufferRelease)], ())
