"""saxpy with wgpu-py, as a careful person writes it: everything is made once, and a launch is a command buffer of its own."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import kernelkeep as kk
from kernelkeep.programs.signature import entry_symbol


class ByHand(NamedTuple):
    """`launch(groups, n)` sets all arguments each time, `launch_bound(groups)` none."""

    launch: Callable[[int, Any], None]
    launch_bound: Callable[[int], None]
    wait: Callable[[], None]
    result: Callable[[], np.ndarray[Any, Any]]


def wgpu_by_hand(text: str, name: str, items: int, info: kk.DeviceInfo) -> ByHand:
    """A kernel (x, y, a, n) in WGSL, over arrays of ones, with a = 0.5."""
    os.environ.setdefault("XDG_RUNTIME_DIR", "/nonexistent")  # or Mesa complains on stderr
    import wgpu

    adapters = wgpu.gpu.enumerate_adapters_sync()
    (adapter, *_) = [
        one for one in adapters if one.info["device"] == info.name and one.info["backend_type"] != "OpenGL"
    ]
    device = adapter.request_device_sync()
    queue, usage = device.queue, wgpu.BufferUsage
    ones = np.ones(items, "f4")
    x = device.create_buffer_with_data(data=ones, usage=usage.STORAGE)
    y = device.create_buffer_with_data(data=ones, usage=usage.STORAGE | usage.COPY_SRC)
    block = struct.Struct("<fi")
    scalars = device.create_buffer_with_data(data=block.pack(0.5, items), usage=usage.UNIFORM | usage.COPY_DST)
    module = device.create_shader_module(code=text)
    stage = {"module": module, "entry_point": entry_symbol(name)}
    pipeline = device.create_compute_pipeline(layout="auto", compute=stage)
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
        queue.write_buffer(scalars, 0, block.pack(0.5, n))
        launch_bound(groups)

    # The public `on_submitted_work_done_async` of wgpu 0.32 raises TypeError.
    return ByHand(launch, launch_bound, device._poll_wait, lambda: np.frombuffer(queue.read_buffer(y), "f4"))
