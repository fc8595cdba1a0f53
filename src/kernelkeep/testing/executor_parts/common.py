"""What the parts share: jobs whose results tell batches apart, and an executor that can be stalled."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import DeviceError
from ...execution.executor import Executor, open_executors
from ...execution.job import Job
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, SAXPY, DevicePart, groups

__all__ = [
    "CHAIN",
    "ITEMS",
    "RAMP",
    "TALLY",
    "TIMEOUT",
    "ExecutorPart",
    "eventually",
    "our_threads",
    "saxpy_batch",
    "saxpy_result",
    "stalled",
]

TIMEOUT = 60.0  # for every wait: long enough for a busy machine, short enough to end a test that hangs
ITEMS = 1001

# An output that is nowhere an input.
RAMP = PortableKernel(
    "ramp",
    params=[Buffer("numbers", "i4", "w"), Scalar("start", "i4"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) numbers[i] = start + i;",
    group=GROUP,
)
# One that is read as well, so that its initial values show.
TALLY = PortableKernel(
    "tally",
    params=[Buffer("total", "i4", "rw"), Scalar("by", "i4"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) total[i] = total[i] + by;",
    group=GROUP,
)
# A chain of dependent steps that no compiler shortens.
CHAIN = PortableKernel(
    "chain",
    params=[Buffer("y", "u4", "rw"), Scalar("steps", "i4")],
    body="""int i = kk_global_id(0);
            uint v = y[i];
            for (int k = 0; k < steps; k = k + 1) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
            y[i] = v;""",
    group=GROUP,
)


class ExecutorPart(DevicePart):
    """A part of the suite: a cache, a few jobs, and an executor for each test."""

    @pytest.fixture(autouse=True)
    def rescue(self) -> Iterator[None]:
        """A test that hangs in `submit` fails: closing its executor wakes it."""

        def close_all() -> None:
            for executor in list(open_executors):
                with contextlib.suppress(DeviceError):
                    executor.close(cancel=True, timeout=0)

        timer = threading.Timer(2 * TIMEOUT, close_all)
        timer.daemon = True
        timer.start()
        yield
        timer.cancel()

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramCache]:
        """One for the class, so that each kernel is compiled once."""
        with ProgramCache(device, tmp_path_factory.mktemp("cache")) as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, cache: ProgramCache) -> Job:
        """saxpy on arrays of any size."""
        return Job(cache, SAXPY, grid=lambda batch: groups(max(batch["n"], 1)), outputs=["y"])

    @pytest.fixture(scope="class")
    @classmethod
    def ramp(cls, cache: ProgramCache) -> Job:
        """start, start + 1, start + 2, …"""
        return Job(
            cache,
            RAMP,
            grid=lambda batch: groups(max(batch["n"], 1)),
            outputs={"numbers": lambda batch: (batch["n"], "i4")},
        )

    @pytest.fixture(scope="class")
    @classmethod
    def tally(cls, cache: ProgramCache) -> Job:
        """Adds to an array; with a device array, which batches ran shows there."""
        return Job(cache, TALLY, grid=1, outputs={"total": (GROUP, "i4")})

    @pytest.fixture(scope="class")
    @classmethod
    def chain(cls, cache: ProgramCache) -> Job:
        """Work of any length."""
        return Job(cache, CHAIN, grid=lambda batch: groups(len(batch["y"])), outputs=["y"])

    @pytest.fixture
    def executor(self, device: Device) -> Iterator[Executor]:
        """An executor of depth 3; closing it ends with the test even if its work does not."""
        opened = Executor(device)
        yield opened
        opened.close(timeout=TIMEOUT)

    @classmethod
    def slow_batch(cls, device: Device, chain: Job, seconds: float) -> dict[str, Any]:
        """A batch of the chain that keeps the device busy for at least so long."""
        items, steps = GROUP, 20_000
        with Executor(device) as executor:
            while True:
                batch = {"y": np.arange(items, dtype="u4"), "steps": steps}
                executor.submit(chain, **batch | {"steps": 1}).result(TIMEOUT)
                start = time.perf_counter()
                executor.submit(chain, **batch).result(TIMEOUT)
                took = time.perf_counter() - start
                if took >= seconds:
                    return batch
                factor = min(16, max(2, int(1.5 * seconds / took)))
                # A GPU does more items in the same time; llvmpipe leaves every loop after 65,535 rounds.
                if device.info.is_gpu:
                    steps *= factor
                else:
                    items *= factor
                assert steps < 1 << 30 and items < 1 << 26, "the device is too fast to be true"


def saxpy_batch(number: int, items: int = ITEMS) -> dict[str, Any]:
    """A batch that has its number in its result, and in no other."""
    x = np.arange(items, dtype="f4")
    return {"x": x, "y": np.full(items, number, "f4"), "a": 2.0, "n": items}


def saxpy_result(number: int, items: int = ITEMS) -> np.ndarray[Any, Any]:
    """The result of that batch."""
    return 2 * np.arange(items, dtype="f4") + np.float32(number)


def eventually(holds: Callable[[], Any], seconds: float = TIMEOUT, *, collects: bool = True) -> bool:
    """Whether a condition becomes true before the timeout; garbage is collected meanwhile."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        if collects:
            gc.collect()
        time.sleep(0.005)
    return True


def our_threads() -> list[str]:
    """The names of the executors' threads that run now."""
    names = ("kernelkeep-executor", "kernelkeep-feeder", "kernelkeep-copy")
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(names))


@contextmanager
def stalled(executor: Executor, job: Job, **batch: Any) -> Iterator[threading.Event]:
    """For a `with` block, no batch of the executor completes; it takes, sends and cancels batches as usual.

    The thread that hands over results is kept inside a future's callback, so this needs no guess at how long a kernel
    takes, and works where a driver computes inside the call (llvmpipe). Setting the event ends it early.
    """
    here, go_on, held = threading.current_thread(), threading.Event(), threading.Event()
    too_late = False

    def hold(_: Future[Any]) -> None:
        nonlocal too_late
        if threading.current_thread() is here:  # done already, so the callback is run by whoever adds it
            too_late = True
            return
        held.set()
        go_on.wait(TIMEOUT)

    for _ in range(1000):
        too_late = False
        executor.submit(job, **batch).add_done_callback(hold)
        if not too_late:
            break
    else:
        pytest.fail("no batch could be caught before it was done")
    assert held.wait(TIMEOUT)
    try:
        yield go_on
    finally:
        go_on.set()
