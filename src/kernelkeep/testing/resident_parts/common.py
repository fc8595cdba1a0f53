"""What the parts share: tasks whose effects can be counted, and a resident grid that is stopped whatever happens."""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.checkpoint import Checkpoint
from ...devices.base import Device
from ...errors import DeviceError, TaskSilent
from ...resident.resident import Resident
from ...resident.task import Task
from ..device_parts.common import DevicePart

__all__ = ["LOG", "TASKS", "TIMEOUT", "ResidentPart", "result_of", "silence_of"]

TIMEOUT = 60.0  # for every wait: long enough for a busy machine, short enough to end a test that hangs
LOG = 4096

# One program for most of the tests, so that each device compiles it once.
TASKS: dict[str, Any] = {
    # Elements that several blocks may change are changed by atomics.
    "count": "(int at, int by) { if (kk_local_id(0) == 0) kk_atomic_add(total[at], by); }",
    # A log for each producer, which shows the order; one block runs all tasks of a producer.
    "note": """(int producer, int value) {
        if (kk_local_id(0) == 0) {
            int n = tail[producer];
            log[producer * 512 + n % 512] = value;
            tail[producer] = n + 1;
        }
    }""",
    "fill": "(int from, int n, float value) { for (int i = kk_local_id(0); i < n; i += kk_group_size(0)) x[from + i] = value; }",
    "sum": Task(
        "if (kk_local_id(0) == 0) { float s = 0.0f; for (int i = 0; i < n; i++) s += x[i]; kk_result(s); }",
        args={"n": "i4"},
        result="f4",
    ),
    "twice": Task("if (kk_local_id(0) == 0) kk_result(2 * v);", args={"v": "i4"}, result="i4"),
    "nothing": "() { }",
    "tell": Task("if (kk_local_id(0) == 0) { if (v > 0) kk_result(v); }", args={"v": "u4"}, result="u4"),
    # All blocks: each adds to an element of its own, and the first work-item of all says how many there are.
    "everywhere": Task(
        """if (kk_local_id(0) == 0) kk_atomic_add(part[kk_group_id(0)], by);
           if (kk_global_id(0) == 0) kk_result(kk_group_count(0));""",
        args={"by": "i4"},
        result="i4",
        whole_grid=True,
    ),
}


def result_of(future: Any) -> Any:
    """A task's result. On a busy machine any task may be silent for a moment."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return future.result(TIMEOUT)
        except TaskSilent:
            if time.monotonic() > deadline:
                raise


def silence_of(future: Any, task: str) -> str:
    """What is said when this task, a pattern, is silent. On a busy machine the one before it may be, for a moment."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        with pytest.raises(TaskSilent) as caught:
            future.result(TIMEOUT)
        said = str(caught.value)
        if re.search(task, said):
            return said
        assert time.monotonic() < deadline, said


class ResidentPart(DevicePart):
    """A part of the suite: a cache for the class, and a resident grid for each test."""

    emulated: ClassVar[bool] = True
    blocks: ClassVar[int] = 2

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramCache]:
        """One for the class, so that each program is compiled once."""
        with ProgramCache(device, tmp_path_factory.mktemp("cache")) as opened:
            yield opened

    @pytest.fixture
    def no_garbage(self) -> Iterator[None]:
        """Nothing is collected in the test. For tests with a kernel that runs until the host says so: when memory is released,
        NVIDIA's OpenCL waits for every kernel, and pyopencl lets no other thread run meanwhile."""
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    @pytest.fixture
    def resident(self, cache: ProgramCache) -> Iterator[Resident]:
        """With the tasks above."""
        with self.opened(cache) as made:
            yield made

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        cache: ProgramCache,
        tasks: Mapping[str, Any] = TASKS,
        arrays: Mapping[str, Any] | Checkpoint | None = None,
        **options: Any,
    ) -> Iterator[Resident]:
        """A resident grid of the kind under test, stopped at the end."""
        made = cls.make(cache, tasks, arrays, **options)
        try:
            yield made
        finally:
            with contextlib.suppress(DeviceError):
                made.stop(TIMEOUT)

    @classmethod
    def make(
        cls,
        cache: ProgramCache,
        tasks: Mapping[str, Any] = TASKS,
        arrays: Mapping[str, Any] | Checkpoint | None = None,
        **options: Any,
    ) -> Resident:
        """A resident grid of the kind under test."""
        options.setdefault("blocks", cls.blocks)
        given = cls.arrays() if arrays is None else arrays
        return (Resident.emulated if cls.emulated else Resident)(cache, tasks, given, **options)

    @classmethod
    def arrays(cls) -> dict[str, Any]:
        """What the tasks above use."""
        return {
            "total": np.zeros(64, "i4"),
            "log": np.zeros(LOG, "i4"),
            "tail": np.zeros(8, "i4"),
            "x": np.zeros(256, "f4"),
            "part": np.zeros(4096, "i4"),
        }

    @staticmethod
    def read(resident: Resident, name: str) -> np.ndarray[Any, Any]:
        """An array, at rest."""
        assert resident.drain(TIMEOUT)
        with resident.paused():
            return resident.arrays[name].numpy()
