"""Batches like the one before are not checked again: what differs must be noticed all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.execution.backlog import Backlog
from kernelkeep.execution.kit import Kit
from kernelkeep.execution.submission import Submission
from kernelkeep.testing import FakeDevice

SCALE = kk.PortableKernel(
    "scale",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("by", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) y[i] = by * x[i];",
    group=16,
)
ADD = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("total", "f4", "rw"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) total[i] = total[i] + x[i];",
    group=16,
)
WARM = 6  # batches after which memory and launch are kept


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def cache(device: FakeDevice, tmp_path: Path) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path / "cache") as opened:
        yield opened


@pytest.fixture
def executor(device: FakeDevice) -> Iterator[kk.Executor]:
    with kk.Executor(device, depth=2) as opened:
        yield opened


@pytest.fixture
def job(cache: kk.ProgramCache) -> kk.Job:
    return kk.Job(cache, SCALE, grid=4, outputs={"y": ((64,), "f4")})


def scaled(executor: kk.Executor, job: kk.Job, x: Any, by: Any = 2.0, n: Any = 64) -> Any:
    return executor.submit(job, x=x, by=by, n=n).result()["y"]


def warm_up(executor: kk.Executor, job: kk.Job) -> np.ndarray[Any, Any]:
    x = np.arange(64, dtype="f4")
    for _ in range(WARM):
        np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)
    return x


def test_alike_batches_have_their_own_contents_and_results(executor: kk.Executor, job: kk.Job) -> None:
    xs = [np.full(64, number, "f4") for number in range(30)]
    futures = [executor.submit(job, x=x, by=2.0, n=64) for x in xs]
    kept = [future.result()["y"] for future in futures]
    for number, result in enumerate(kept):
        assert (result == 2 * number).all(), "no later batch may write to it"
        result[:] = -1  # it is the user's
    assert (scaled(executor, job, xs[3]) == 6).all()


def test_an_array_that_changed_in_place_is_read_again(executor: kk.Executor, job: kk.Job) -> None:
    x = warm_up(executor, job)
    x += 1
    np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)


@pytest.mark.parametrize("by", [3.0, np.float32(3), 3, -0.0])
def test_another_scalar_takes_effect(executor: kk.Executor, job: kk.Job, by: Any) -> None:
    x = warm_up(executor, job)
    for _ in range(WARM):
        result = scaled(executor, job, x, by)
        np.testing.assert_array_equal(result, np.float32(by) * x)
        assert np.signbit(result[1]) == np.signbit(by)
    np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)


def test_a_scalar_that_can_change_is_read_again(executor: kk.Executor, job: kk.Job) -> None:
    x, by = np.ones(64, "f4"), np.array(2, "f4")
    for number in range(WARM):
        by[...] = number
        try:
            result = scaled(executor, job, x, by)
        except kk.ArgumentError:
            return  # arrays are no scalars here
        assert (result == number).all()


def test_other_shapes_and_arrays_with_gaps_take_effect(executor: kk.Executor, cache: kk.ProgramCache) -> None:
    job = kk.Job(cache, ADD, grid=4, outputs=["total"])
    for shape in [(64,)] * WARM + [(8, 8), (64,), (32,), (64,)] + [(4, 16)] * WARM:
        x = np.random.default_rng(1).random(shape, "f4")
        for total in (np.ones(shape, "f4"), np.ones((*shape, 2), "f4")[..., 0]):
            result = executor.submit(job, x=x, total=total, n=x.size).result()["total"]
            assert result.shape == shape
            np.testing.assert_array_equal(result, total + x)
            assert (total == 1).all()


def test_arrays_of_the_other_byte_order_are_converted_each_time(executor: kk.Executor, job: kk.Job) -> None:
    warm_up(executor, job)
    for number in range(12):
        x = np.arange(number, number + 64, dtype="f4")
        swapped = x.astype(x.dtype.newbyteorder())
        np.testing.assert_array_equal(scaled(executor, job, swapped), 2 * x)


def test_another_grid_takes_effect(executor: kk.Executor, cache: kk.ProgramCache) -> None:
    job = kk.Job(cache, SCALE, grid=1, outputs={"y": ((64,), "f4")})
    for number in range(WARM):
        assert (scaled(executor, job, np.full(64, number, "f4"))[:16] == 2 * number).all()
    job.grid = 4
    assert (scaled(executor, job, np.full(64, 77, "f4")) == 154).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": np.ones(64, "f8")}, "must be float32"),
        ({"by": "much"}, "by"),
        ({"z": 1}, "has no argument 'z'"),
        ({"x": None}, "x"),
    ],
)
def test_what_is_wrong_is_refused_as_before(
    executor: kk.Executor, job: kk.Job, change: dict[str, Any], match: str
) -> None:
    x = warm_up(executor, job)
    good: dict[str, Any] = {"x": x, "by": 2.0, "n": 64}
    with pytest.raises(kk.ArgumentError, match=match):
        executor.submit(job, **good | change).result()
    with pytest.raises(kk.ArgumentError, match="needs its argument 'by'"):
        executor.submit(job, x=x, n=64).result()
    np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)


def test_an_output_that_starts_as_zeros_does_so_for_every_batch(executor: kk.Executor, cache: kk.ProgramCache) -> None:
    job = kk.Job(cache, ADD, grid=4, outputs={"total": ((64,), "f4")})
    x = np.ones(64, "f4")
    for _ in range(2 * WARM):
        assert (executor.submit(job, x=x, n=64).result()["total"] == 1).all()


@pytest.mark.parametrize("call", ["launch", "run", "upload", "download"])
def test_a_failure_of_a_kept_batch_is_that_batch_alone(
    device: FakeDevice, executor: kk.Executor, job: kk.Job, call: str
) -> None:
    x = warm_up(executor, job)
    device.faults.fail(call)
    with pytest.raises(kk.DeviceError):
        scaled(executor, job, x)
    for _ in range(WARM):
        np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)


def test_a_closed_cache_fails_alike_batches(device: FakeDevice, tmp_path: Path) -> None:
    with kk.Executor(device) as executor:
        cache = kk.ProgramCache(device, tmp_path / "other")
        job = kk.Job(cache, SCALE, grid=4, outputs={"y": ((64,), "f4")})
        x = warm_up(executor, job)
        cache.close()
        with pytest.raises(kk.DeviceError, match="closed"):
            scaled(executor, job, x)


def test_nothing_is_prepared_again_for_alike_batches(
    executor: kk.Executor, job: kk.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the tests above against passing because nothing is ever kept."""
    used: list[Kit] = []
    send = Kit.send

    def noting(self: Kit, *args: Any) -> None:
        used.append(self)
        send(self, *args)

    monkeypatch.setattr(Kit, "send", noting)
    x = warm_up(executor, job)
    for _ in range(WARM):
        scaled(executor, job, x)
    assert len({id(kit) for kit in used}) == 1
    assert len(used) >= WARM


# --- large batches, whose results are lent

LARGE = 300_000  # elements, of which the kernel works on the first few


@pytest.mark.parametrize("copy", [True, False], ids=["copied", "borrowed"])
def test_large_alike_batches_have_their_own_contents_and_results(
    executor: kk.Executor, cache: kk.ProgramCache, copy: bool
) -> None:
    job = kk.Job(cache, SCALE, grid=4, outputs={"y": ((LARGE,), "f4")}, copy=copy)
    xs = [np.full(LARGE, number, "f4") for number in range(14)]
    results = list(executor.map(job, ({"x": x} for x in xs), by=2.0, n=64))
    for number, result in enumerate(results):
        assert (result["y"][:64] == 2 * number).all(), "no later batch may write to it"
    assert all((x == number).all() for number, x in enumerate(xs))
    futures = [executor.submit(job, x=x, by=2.0, n=64) for x in xs[:5]]
    assert [float(future.result()["y"][63]) for future in futures] == [0, 2, 4, 6, 8]


def test_a_large_array_that_is_changed_in_place_comes_back(executor: kk.Executor, cache: kk.ProgramCache) -> None:
    job = kk.Job(cache, ADD, grid=4, outputs=["total"])
    x, total = np.ones(LARGE, "f4"), np.arange(LARGE, dtype="f4")
    for _ in range(2 * WARM):
        result = executor.submit(job, x=x, total=total, n=64).result()["total"]
        np.testing.assert_array_equal(result[:64], total[:64] + 1)
        np.testing.assert_array_equal(result[64:], total[64:])
    assert (total == np.arange(LARGE)).all()


@pytest.mark.parametrize("call", ["launch", "run", "upload", "download"])
def test_a_failure_of_a_large_kept_batch_is_that_batch_alone(
    device: FakeDevice, executor: kk.Executor, cache: kk.ProgramCache, call: str
) -> None:
    job = kk.Job(cache, SCALE, grid=4, outputs={"y": ((LARGE,), "f4")})
    x = np.ones(LARGE, "f4")
    for _ in range(WARM):
        scaled(executor, job, x)
    device.faults.fail(call)
    with pytest.raises(kk.DeviceError):
        scaled(executor, job, x)
    for number in range(WARM):
        assert (scaled(executor, job, np.full(LARGE, number, "f4"))[:64] == 2 * number).all()


def test_memory_that_is_kept_for_one_job_is_given_up_for_another(
    device: FakeDevice, executor: kk.Executor, cache: kk.ProgramCache
) -> None:
    kept = kk.Job(cache, SCALE, grid=4, outputs={"y": ((LARGE,), "f4")})
    for _ in range(WARM):
        scaled(executor, kept, np.ones(LARGE, "f4"))
    other = kk.Job(cache, SCALE, grid=4, outputs={"y": ((2 * LARGE,), "f4")})
    device.faults.fail("allocate")  # once: what is freed meanwhile is enough
    assert (scaled(executor, other, np.ones(2 * LARGE, "f4"))[:64] == 2).all()
    assert (scaled(executor, kept, np.ones(LARGE, "f4"))[:64] == 2).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_copies_nothing_to_the_memory_of_its_parent(
    executor: kk.Executor, job: kk.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = warm_up(executor, job)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Kit, "fill", lambda *_: os._exit(3))
        try:
            executor._engine.mark_lost("forked")  # as `forks.py` does for a device with a driver
            executor.submit(job, x=x, by=2.0, n=64)
        except kk.DeviceError:
            os._exit(0)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)


def test_a_batch_that_lost_its_slot_and_finds_no_memory_fails_alone(
    executor: kk.Executor, job: kk.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = warm_up(executor, job)

    def stage_alike(submission: Submission, *_: Any) -> bool:
        submission.hasty = True
        return True

    def find_no_memory(*_: Any) -> None:
        raise kk.OutOfMemory("no page-locked memory")

    with monkeypatch.context() as patched:
        patched.setattr(Submission, "stage_alike", stage_alike)
        patched.setattr(Submission, "copy_borrowed", find_no_memory)
        patched.setattr(Backlog, "has_free_slot", False)
        future = executor.submit(job, x=x, by=2.0, n=64)
        with pytest.raises(kk.OutOfMemory, match="page-locked"):
            future.result(timeout=30)
    np.testing.assert_array_equal(scaled(executor, job, x), 2 * x)
    executor.close(timeout=30)
