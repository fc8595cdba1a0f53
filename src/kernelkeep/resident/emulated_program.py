"""The tasks of an emulated grid: each is an ordinary kernel, launched as one group, or as many as there are blocks."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..cache.lease import Lease
from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..devices.base import Device
from ..devices.synchronization import Queue
from ..errors import Unsupported
from ..programs.source import Source
from ..programs.task_program import TaskArray
from .task import PreparedTask, as_kernel_text


class EmulatedTask:
    """A task's kernel, and where each of its parameters comes from."""

    def __init__(self, task: PreparedTask, lease: Lease, arrays: Sequence[TaskArray]) -> None:
        self.task = task
        self.lease = lease
        self._kernel = lease.kernel()
        places = {one.name: i for i, one in enumerate(arrays)}
        offsets = {name: (code, at) for code, (name, _, at) in zip(task.codes, task.parts.arguments, strict=True)}
        self._scalars: list[tuple[str, int] | None] = []
        self._buffers: list[int | None] = []  # None: the result
        for one in task.parts.signature.params or ():
            is_buffer = one.kind == "buffer"
            self._scalars.append(None if is_buffer else offsets[one.name])
            self._buffers.append(places[one.name] if is_buffer and one.name != task.parts.result else None)

    def run(
        self,
        record: bytes,
        groups: int,
        threads: int,
        arrays: Sequence[Array],
        queue: Queue | None,
        result: Array | None,
    ) -> Any:
        """Launch it with the arguments of a record and wait; the result, if it has one."""
        if result is not None:
            result.copy_from(np.zeros(1, result.dtype))
        given = tuple(
            struct.unpack_from("<" + scalar[0], record, scalar[1])[0]
            if scalar is not None
            else (result if buffer is None else arrays[buffer])
            for scalar, buffer in zip(self._scalars, self._buffers, strict=True)
        )
        device = self._kernel.device
        if queue is None:
            self._kernel.launch(groups, given, threads)
            device.synchronize()
        else:
            if result is not None:
                device.synchronize()  # the 0 is written on the device's own queue
            self._kernel.launch(groups, given, threads, queue=queue)
            queue.synchronize()
        return None if result is None else result.numpy()[0].item()


class EmulatedProgram:
    """All tasks by their numbers, leased from the cache until `release`."""

    def __init__(self, tasks: Sequence[EmulatedTask], threads: int) -> None:
        self.tasks = tuple(tasks)
        self.threads = threads

    def release(self) -> None:
        for one in self.tasks:
            one.lease.release()


def open_program(
    cache: ProgramCache, tasks: Sequence[PreparedTask], arrays: Sequence[TaskArray], threads: int
) -> EmulatedProgram:
    """Compile the tasks, or find them in the cache."""
    found: list[EmulatedTask] = []
    try:
        for task in tasks:
            found.append(EmulatedTask(task, cache.get(_source(task, cache.device, threads)), arrays))
    except BaseException:
        for one in found:
            one.lease.release()
        raise
    return EmulatedProgram(found, threads)


def _source(task: PreparedTask, device: Device, threads: int) -> Source:
    if task.kernel is not None:
        return dataclasses.replace(task.kernel, group=threads).source(device)
    name = task.parts.name
    text = as_kernel_text(task)
    if text is None:
        raise Unsupported(
            "tasks in the device's own language",
            f"task {name}: {device.spec} cannot run a function of {device.language} as a kernel: write it as a portable body",
        )
    return Source(text, name, device.language)
