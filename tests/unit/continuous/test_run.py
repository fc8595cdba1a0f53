"""What runs and strategies do when the device fails, at exactly the moment a test wants."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import FakeDevice
from kernelkeep.words import StrategyName

ITEMS = 8
ITERATIONS = 40
STRATEGIES = ("redispatch", "buffered", "mega", "checkpointed")
COUNT = kk.StateProgram(
    "count",
    coupling="neighbours",
    items=ITEMS,
    state={"u": np.arange(ITEMS, dtype="u4")},
    body="int i = kk_item();\nu_next[i] = u[i] * 3u + u[(i + 1) % kk_items()];",
    group=ITEMS,
)


def expected(iterations: int) -> Any:
    u = np.arange(ITEMS, dtype="u4")
    for _ in range(iterations):
        u = u * np.uint32(3) + np.roll(u, -1)
    return u


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def cache(device: FakeDevice, tmp_path: Path) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path / "cache") as opened:
        yield opened


@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto"])
def test_every_strategy_computes_the_same(cache: kk.ProgramCache, strategy: StrategyName) -> None:
    with kk.run(cache, COUNT, ITERATIONS, strategy) as run:
        assert run.report.iteration == ITERATIONS
        np.testing.assert_array_equal(run.state["u"].numpy(), expected(ITERATIONS))


@pytest.mark.parametrize(
    ("strategy", "call"),
    [(strategy, call) for strategy in STRATEGIES for call in ("launch", "run")],
)
def test_a_launch_that_fails_ends_the_run_and_the_next_one_resumes(
    device: FakeDevice, cache: kk.ProgramCache, tmp_path: Path, strategy: StrategyName, call: str
) -> None:
    path = tmp_path / "count.kkpt"
    kk.run(cache, COUNT, ITERATIONS // 2, strategy, checkpoint=path).close()
    device.faults.fail(call, after=1)
    with pytest.raises(kk.DeviceError):
        kk.run(cache, COUNT, ITERATIONS, strategy, checkpoint=path, resume=True)
    assert kk.read_checkpoint(path).iteration >= ITERATIONS // 2
    with kk.resume(path, cache, COUNT, ITERATIONS, strategy) as run:
        np.testing.assert_array_equal(run.state["u"].numpy(), expected(ITERATIONS))


@pytest.mark.parametrize("after", range(6))
def test_a_dispatch_that_was_skipped_never_reaches_a_checkpoint(
    device: FakeDevice, cache: kk.ProgramCache, tmp_path: Path, after: int
) -> None:
    """The dispatches behind it run, on a copy of the state that was never written."""
    path = tmp_path / "count.kkpt"
    device.faults.fail("run", after=after)
    with pytest.raises(kk.DeviceError):
        kk.run(cache, COUNT, ITERATIONS, "buffered", checkpoint=path)
    if path.exists():
        saved = kk.read_checkpoint(path)
        np.testing.assert_array_equal(saved.state["u"], expected(saved.iteration))


def test_no_memory_for_the_state_is_an_error_before_anything_runs(device: FakeDevice, cache: kk.ProgramCache) -> None:
    device.faults.fail("allocate")
    with pytest.raises(kk.OutOfMemory):
        kk.run(cache, COUNT, ITERATIONS, "redispatch")
    assert device.faults.counts["run"] == 0
    with kk.run(cache, COUNT, ITERATIONS, "redispatch") as run:
        np.testing.assert_array_equal(run.state["u"].numpy(), expected(ITERATIONS))


def test_a_program_that_does_not_compile_ends_the_run(device: FakeDevice, cache: kk.ProgramCache) -> None:
    device.faults.fail("compile")
    with pytest.raises(kk.CompileError):
        kk.run(cache, COUNT, ITERATIONS, "redispatch")


def test_a_run_waits_for_a_slow_device(device: FakeDevice, cache: kk.ProgramCache) -> None:
    device.faults.delay("run", 0.02, times=5)
    with kk.run(cache, COUNT, ITERATIONS, "redispatch") as run:
        np.testing.assert_array_equal(run.state["u"].numpy(), expected(ITERATIONS))


def test_a_device_that_hangs_and_goes_on_loses_nothing(device: FakeDevice, cache: kk.ProgramCache) -> None:
    hang = device.faults.hang("run", after=5)
    finished: list[Any] = []

    def work() -> None:
        with kk.run(cache, COUNT, ITERATIONS, "redispatch") as run:
            finished.append(run.state["u"].numpy())

    thread = threading.Thread(target=work)
    thread.start()
    hang.wait_until_reached()
    assert not finished
    hang.release()
    thread.join(30)
    np.testing.assert_array_equal(finished[0], expected(ITERATIONS))


def test_the_last_state_is_written_once_where_a_checkpoint_is_due_too(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "count.kkpt"
    with kk.run(cache, COUNT, ITERATIONS, "redispatch", checkpoint=path, checkpoint_iterations=ITERATIONS) as done:
        assert done.report.checkpoints == 1
    assert kk.read_checkpoint(path).iteration == ITERATIONS


TURNED = kk.StateProgram(
    "turned",
    coupling="neighbours",
    items=4,
    state={"u": np.zeros(4, "i4"), "wheel": np.zeros(1, "i4")},
    body="int i = kk_item(); u_next[i] = u[i] + wheel[0];",
    group=4,
)


def test_until_is_asked_once_for_each_state_and_a_resumed_run_repeats_what_it_steered(
    cache: kk.ProgramCache, tmp_path: Path
) -> None:
    asked: list[int] = []

    def until(run: kk.Run) -> bool:
        asked.append(run.iteration)
        if run.iteration and run.iteration % 10 == 0:
            run.steer(wheel=run.state["wheel"].numpy() + 1)
        return False

    options: dict[str, Any] = {"until": until, "on_state": lambda _, state: None, "state_iterations": 10}
    with kk.run(cache, TURNED, 60, "redispatch", **options) as whole:
        wanted = whole.state["u"].numpy()
    assert sorted(set(asked)) == asked, "once each"
    path, left = tmp_path / "turned.kkpt", tmp_path / "left.kkpt"

    class Killed(BaseException):
        pass

    def until_killed(run: kk.Run) -> bool:
        until(run)
        if run.iteration == 40:
            deadline = time.monotonic() + 30
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            shutil.copy(path, left)  # what a kill would leave
            raise Killed
        return False

    saved: dict[str, Any] = {
        "checkpoint": path,
        "checkpoint_every": None,
        "checkpoint_iterations": 10,
        "keep_checkpoints": 1,
    }
    with pytest.raises(Killed):
        kk.run(cache, TURNED, 60, "redispatch", **{**options, "until": until_killed}, **saved)
    assert kk.read_checkpoint(left).iteration in (10, 20, 30, 40)
    with kk.resume(left, cache, TURNED, iterations=60, **options) as run:
        np.testing.assert_array_equal(run.state["u"].numpy(), wanted)


@pytest.mark.parametrize("ends", ["says so", "raises"])
def test_what_was_steered_before_anything_ran_is_saved(cache: kk.ProgramCache, tmp_path: Path, ends: str) -> None:
    path = tmp_path / "turned.kkpt"
    kk.run(cache, TURNED, 10, checkpoint=path).close()

    def until(run: kk.Run) -> bool:
        run.steer(wheel=np.array([7], "i4"))
        if ends == "raises":
            raise ValueError("over")
        return True

    with contextlib.suppress(ValueError):
        kk.resume(path, cache, TURNED, iterations=20, until=until).close()
    saved = kk.read_checkpoint(path)
    assert (saved.iteration, saved.state["wheel"].tolist()) == (10, [7])
