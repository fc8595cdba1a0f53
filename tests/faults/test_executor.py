"""An executor under load, short of memory and made again and again: every error at its own future, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.programs.languages import find_language
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.device_parts.common import handwritten_saxpy
from kernelkeep.testing.executor_parts.common import RAMP, TALLY

TIMEOUT = 120
BACKENDS = [
    pytest.param("opencl", marks=pytest.mark.opencl),
    pytest.param("opengl", marks=pytest.mark.opengl),
    pytest.param("cuda", marks=pytest.mark.cuda),
]


@pytest.fixture(params=BACKENDS)
def device(request: pytest.FixtureRequest) -> Iterator[kk.Device]:
    with open_or_skip(request.param) as opened:
        yield opened


@pytest.fixture
def cache(device: kk.Device, tmp_path: Path) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path / "cache") as opened:
        yield opened


@pytest.mark.slow
def test_five_thousand_submits_from_sixteen_threads(device: kk.Device, cache: kk.ProgramCache) -> None:
    ramp = kk.Job(cache, RAMP, grid=1, outputs={"numbers": (16, "i4")})
    tally = kk.Job(cache, TALLY, grid=1, outputs=["total"])
    numbers = np.arange(16, dtype="i4")
    with kk.Executor(device) as executor:

        def work(thread: int) -> int:
            waiting, right = [], 0
            for turn in range(320):
                value = thread * 1000 + turn
                if turn % 2:
                    future = executor.submit(ramp, start=value, n=16)
                else:
                    future = executor.submit(tally, total=numbers, by=value, n=16)
                waiting.append((value, future))
                if turn % 5 == thread % 5:  # some threads look at once, others run ahead
                    right += sum(_is_right(value, future.result(TIMEOUT)) for value, future in waiting)
                    waiting.clear()
            return right + sum(_is_right(value, future.result(TIMEOUT)) for value, future in waiting)

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(work, range(16))) == 16 * 320
        assert {span.batch for span in executor.timeline.spans} == set(range(16 * 320))


def _is_right(value: int, result: dict[str, np.ndarray]) -> bool:
    (array,) = result.values()
    return bool((array == value + np.arange(16)).all())


@pytest.mark.parametrize("shape", [(1 << 44,), (1 << 32, 1 << 32)], ids=["64 TiB", "2**64 items"])
def test_a_batch_without_memory_fails_alone(device: kk.Device, cache: kk.ProgramCache, shape: tuple[int, ...]) -> None:
    good = kk.Job(cache, RAMP, grid=4, outputs={"numbers": (256, "i4")})
    greedy = kk.Job(cache, RAMP, grid=4, outputs={"numbers": (shape, "i4")})
    with kk.Executor(device) as executor:
        futures = [executor.submit(greedy if k % 3 == 1 else good, start=k, n=256) for k in range(20)]
        for k, future in enumerate(futures):
            if k % 3 == 1:
                problem = future.exception(TIMEOUT)
                assert isinstance(problem, kk.OutOfMemory), repr(problem)
                assert isinstance(problem, MemoryError)
            else:
                np.testing.assert_array_equal(future.result(TIMEOUT)["numbers"], k + np.arange(256))


def test_a_launch_that_the_device_refuses_fails_alone(device: kk.Device, cache: kk.ProgramCache) -> None:
    if find_language(device.language).fixes_group:
        pytest.skip("GLSL fixes its group when it is compiled")
    source, most = handwritten_saxpy(device.language), device.capabilities.max_group_items
    good, bad = (kk.Job(cache, source, grid=1, outputs=["y"], group=group) for group in (64, 2 * most))
    batch = {"x": np.ones(64, "f4"), "y": np.zeros(64, "f4"), "a": np.float32(2), "n": np.int32(64)}
    with kk.Executor(device) as executor:
        futures = [executor.submit(bad if k % 2 else good, **batch) for k in range(20)]
        for k, future in enumerate(futures):
            if k % 2:
                assert isinstance(future.exception(TIMEOUT), kk.ArgumentError)
            else:
                assert (future.result(TIMEOUT)["y"] == 2).all()


LEAKS = """
import asyncio, gc, json, os, sys, threading, time
import numpy as np
import kernelkeep as kk
from kernelkeep.testing.device_parts.common import SAXPY

spec, root, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])

def resident_bytes():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def settled():
    # An error's traceback and its future know each other, and through their frames the executor: a collector's work.
    deadline, kept = time.monotonic() + 60, ["Engine"]
    while set(kept) - {"Job"} and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
        kept = [type(o).__name__ for o in gc.get_objects() if str(type(o).__module__).startswith("kernelkeep.execution")]
    return {
        "threads": sorted(t.name for t in threading.enumerate() if not t.name.startswith("kernelkeep-save")),
        "files": len(os.listdir("/proc/self/fd")),
        "kept": sorted(kept),
    }

with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
    job = kk.Job(cache, SAXPY, grid=1563, outputs=["y"])
    x = np.ones(100_000, "f4")

    def one_round(number):
        executor = kk.Executor(device)
        futures = [executor.submit(job, x=x, y=x * k, a=2.0, n=x.size) for k in range(6)]
        if number % 3 == 0:
            asyncio.run(executor.run(job, x=x, y=x, a=2.0, n=x.size))
            bad = executor.submit(job, x=x, y=x, a="2", n=x.size)
            assert bad.exception(60) is not None
        if number % 2:
            executor.close()
        else:
            del executor
        for k, future in enumerate(futures):
            assert (future.result(60)["y"] == 2 + k).all()

    for number in range(30):
        one_round(number)
    before, bytes_before = settled(), resident_bytes()
    for number in range(rounds):
        one_round(number)
    after = settled()
    grown = resident_bytes() - bytes_before
    cache.trim(0)
    print(json.dumps({"before": before, "after": after, "grown": grown, "programs": cache.stats().programs}))
"""


@pytest.mark.slow
def test_many_executors_leave_no_threads_or_memory_behind(device: kk.Device, tmp_path: Path) -> None:
    # A lease that was lost would be a ResourceWarning, and is an error here.
    # Without the threads of the diary and of `kernelkeep top`, which open a file and a socket when it suits them.
    strict = {"PYTHONWARNINGS": "error::ResourceWarning", "KERNELKEEP_LIVE": "0", "KERNELKEEP_DIARY": "0"}
    said = run_python(LEAKS, device.spec, tmp_path / "cache", 120, environment=strict)
    assert said.stderr == ""
    found = json.loads(said.stdout)
    assert found["after"] == found["before"]
    assert found["programs"] == 0, "a lease is still held"
    assert found["grown"] < 24 << 20, "120 rounds that each forgot one block of 400 kB would be twice this"


FORKED = """
import os, sys, time
import numpy as np
import kernelkeep as kk
from kernelkeep.testing.executor_parts.common import RAMP

device = kk.open_device(sys.argv[1])
cache = kk.ProgramCache(device, sys.argv[2])
job = kk.Job(cache, RAMP, grid=1, outputs={"numbers": (16, "i4")})
executor = kk.Executor(device)
executor.submit(job, start=1, n=16).result(60)
child = os.fork()
if child == 0:
    try:
        executor.submit(job, start=2, n=16)
    except kk.DeviceError as error:
        executor.close()
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(1)
deadline = time.monotonic() + 30
while not (done := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > deadline:
        os.kill(child, 9)
        sys.exit("the child hangs")
    time.sleep(0.01)
assert done[1] == 0, done
assert executor.submit(job, start=3, n=16).result(60)["numbers"][0] == 3
"""


@pytest.mark.opencl
def test_a_forked_child_is_refused(pocl: str, tmp_path: Path) -> None:
    run_python(FORKED, pocl, tmp_path / "cache")
