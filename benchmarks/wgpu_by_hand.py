"""saxpy with wgpu-py, as a careful person writes it: everything is made once.

A launch is a command buffer of its own, or, as somebody writes it who has many, one of 64 in a command buffer. The scalars of
those are in one buffer, written at once, and each launch has an offset into it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import kernelkeep as kk
from kernelkeep.programs.signature import entry_symbol

BATCH = 64


class Way(NamedTuple):
    """`launch(groups, n)` sets all arguments each time, `launch_bound(groups)` none; `submit` what waits for a full batch."""

    launch: Callable[[int, Any], None]
    launch_bound: Callable[[int], None]
    submit: Callable[[], None]
    wait: Callable[[], None]
    result: Callable[[], np.ndarray[Any, Any]]


class ByHand:
    """A kernel (x, y, a, n) in WGSL, over arrays of ones, with a = 0.5."""

    def __init__(self, text: str, name: str, items: int, info: kk.DeviceInfo) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", "/nonexistent")  # or Mesa complains on stderr
        import wgpu

        adapters = wgpu.gpu.enumerate_adapters_sync()
        (adapter, *_) = [
            one for one in adapters if one.info["device"] == info.name and one.info["backend_type"] != "OpenGL"
        ]
        self._device = adapter.request_device_sync()
        self._usage, self._stages = wgpu.BufferUsage, wgpu.ShaderStage
        module = self._device.create_shader_module(code=text)
        self._stage = {"module": module, "entry_point": entry_symbol(name)}
        self._items = items

    def _buffers(self) -> tuple[Any, Any]:
        ones, usage = np.ones(self._items, "f4"), self._usage
        x = self._device.create_buffer_with_data(data=ones, usage=usage.STORAGE)
        return x, self._device.create_buffer_with_data(data=ones, usage=usage.STORAGE | usage.COPY_SRC)

    def _read(self, y: Any) -> Callable[[], np.ndarray[Any, Any]]:
        return lambda: np.frombuffer(self._device.queue.read_buffer(y), "f4")

    def one_by_one(self) -> Way:
        """A command buffer for each launch."""
        device, queue, usage = self._device, self._device.queue, self._usage
        x, y = self._buffers()
        pack = struct.Struct("<fi").pack
        scalars = device.create_buffer_with_data(data=pack(0.5, self._items), usage=usage.UNIFORM | usage.COPY_DST)
        pipeline = device.create_compute_pipeline(layout="auto", compute=self._stage)
        entries = [{"binding": at, "resource": buffer} for at, buffer in enumerate((x, y, scalars))]
        group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)

        def launch_bound(groups: int) -> None:
            encoder = device.create_command_encoder()
            begun = encoder.begin_compute_pass()
            begun.set_pipeline(pipeline)
            begun.set_bind_group(0, group)
            begun.dispatch_workgroups(groups)
            begun.end()
            queue.submit([encoder.finish()])

        def launch(groups: int, n: Any) -> None:
            queue.write_buffer(scalars, 0, pack(0.5, n))
            launch_bound(groups)

        # The public `on_submitted_work_done_async` of wgpu 0.32 raises TypeError.
        return Way(launch, launch_bound, lambda: None, device._poll_wait, self._read(y))

    def batched(self) -> Way:
        """64 launches in a command buffer."""
        device, queue, usage = self._device, self._device.queue, self._usage
        x, y = self._buffers()
        step = int(device.limits["min-uniform-buffer-offset-alignment"])
        pack = struct.Struct(f"<fi{step - 8}x").pack
        scalars = device.create_buffer(size=BATCH * step, usage=usage.UNIFORM | usage.COPY_DST)
        kinds = [{"type": "storage"}, {"type": "storage"}, {"type": "uniform", "has_dynamic_offset": True}]
        kinds[0] = {"type": "read-only-storage"}
        entries = [{"binding": at, "visibility": self._stages.COMPUTE, "buffer": kind} for at, kind in enumerate(kinds)]
        layout = device.create_bind_group_layout(entries=entries)
        whole = device.create_pipeline_layout(bind_group_layouts=[layout])
        pipeline = device.create_compute_pipeline(layout=whole, compute=self._stage)
        resources = [x, y, {"buffer": scalars, "offset": 0, "size": 16}]
        group = device.create_bind_group(
            layout=layout, entries=[{"binding": at, "resource": one} for at, one in enumerate(resources)]
        )
        waiting: list[tuple[int, bytes | None]] = []
        bound = pack(0.5, self._items)

        def submit() -> None:
            if not waiting:
                return
            queue.write_buffer(scalars, 0, b"".join([block for _, block in waiting if block]) or bound)
            encoder = device.create_command_encoder()
            begun = encoder.begin_compute_pass()
            begun.set_pipeline(pipeline)
            begun.set_bind_group(0, group, [0])
            for at, (groups, block) in enumerate(waiting):
                if block:
                    begun.set_bind_group(0, group, [at * step])
                begun.dispatch_workgroups(groups)
            begun.end()
            queue.submit([encoder.finish()])
            waiting.clear()

        def add(groups: int, block: bytes | None) -> None:
            waiting.append((groups, block))
            if len(waiting) == BATCH:
                submit()

        def wait() -> None:
            submit()
            device._poll_wait()

        return Way(
            lambda groups, n: add(groups, pack(0.5, n)), lambda groups: add(groups, None), submit, wait, self._read(y)
        )
