"""What the executor decides, on a device that fails at exactly the moment a test wants."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import FakeDevice

ITEMS = 16
DEPTH = 2
TRIPLE = kk.PortableKernel(
    "triple",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4", "w")],
    body=f"int i = kk_global_id(0);\nif (i < {ITEMS}) y[i] = 3 * x[i];",
    group=ITEMS,
)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def job(device: FakeDevice, tmp_path: Path) -> Iterator[kk.Job]:
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        yield kk.Job(cache, TRIPLE, grid=1, outputs={"y": ((ITEMS,), "i4")})


def batch(number: int) -> dict[str, Any]:
    return {"x": np.full(ITEMS, number, "i4")}


def results(futures: list[Any]) -> list[Any]:
    """The first element of each result, or the name of its error."""
    found: list[Any] = []
    for future in futures:
        error = future.exception(30)
        found.append(int(future.result()["y"][0]) if error is None else type(error).__name__)
    return found


def test_map_takes_few_batches_ahead_of_a_device_that_hangs(device: FakeDevice, job: kk.Job) -> None:
    taken: list[int] = []

    def batches() -> Iterator[dict[str, Any]]:
        for number in range(100):
            taken.append(number)
            yield batch(number)

    with kk.Executor(device, depth=DEPTH) as executor:
        mapped = executor.map(job, batches())
        assert int(next(mapped)["y"][0]) == 0
        hang = device.faults.hang("run")
        hang_at = len(taken)
        executor.submit(job, **batch(7))
        hang.wait_until_reached()
        assert len(taken) == hang_at <= DEPTH + 2, "nobody takes more while nobody asks for results"
        hang.release()
        assert [int(result["y"][0]) for result in mapped] == [3 * number for number in range(1, 100)]


@pytest.mark.parametrize("call", ["launch", "run", "upload", "download"])
def test_a_failure_in_the_middle_is_that_batch_alone(device: FakeDevice, job: kk.Job, call: str) -> None:
    with kk.Executor(device, depth=DEPTH) as executor:
        assert results([executor.submit(job, **batch(1))]) == [3], "bound and warm"
        device.faults.fail(call, after=2)
        futures = [executor.submit(job, **batch(number)) for number in range(6)]
        assert results(futures) == [0, 3, "DeviceError", 9, 12, 15]


def test_a_batch_without_names_is_refused_with_how_it_is_written(device: FakeDevice, job: kk.Job) -> None:
    with kk.Executor(device) as executor:
        cases: list[Any] = [((batch(1),), "a dict"), ((np.ones(4, "f4"), 4), "a ndarray, a int")]
        for unnamed, given in cases:
            with pytest.raises(kk.ArgumentError, match=rf"submit\(job, \*\*batch\) .* got {given} without a name"):
                executor.submit(job, *unnamed)
            with pytest.raises(kk.ArgumentError, match="without a name"):
                asyncio.run(executor.run(job, *unnamed))
        assert executor.submit(job, **batch(1)).result()


def test_memory_that_runs_out_is_the_batchs_error(device: FakeDevice, job: kk.Job) -> None:
    with kk.Executor(device, depth=1) as executor:
        device.faults.fail("allocate", times=2)
        found = results([executor.submit(job, **batch(number)) for number in range(3)])
        assert found[0] == "OutOfMemory"
        assert found[-1] == 6


def test_a_program_that_does_not_compile_is_the_batchs_error(device: FakeDevice, job: kk.Job) -> None:
    device.faults.fail("compile")
    with kk.Executor(device) as executor:
        assert results([executor.submit(job, **batch(1))]) == ["CompileError"]
        assert results([executor.submit(job, **batch(1))]) == [3]


def test_closing_gives_up_on_a_device_that_hangs(device: FakeDevice, job: kk.Job) -> None:
    executor = kk.Executor(device, depth=DEPTH)
    hang = device.faults.hang("run")
    futures = [executor.submit(job, **batch(number)) for number in range(2)]
    hang.wait_until_reached()
    with pytest.raises(kk.DeviceError):
        executor.close(timeout=0.1)
    hang.release()
    assert results(futures) == [0, 3], "what was on its way arrives"
    executor.close()


def test_batches_behind_one_that_hangs_can_be_cancelled(device: FakeDevice, job: kk.Job) -> None:
    with kk.Executor(device, depth=1) as executor:
        hang = device.faults.hang("run")
        first = executor.submit(job, **batch(1))
        hang.wait_until_reached()
        first_error = first.cancel()
        assert not first_error, "it is on the device"
        hang.release()
        assert results([first]) == [3]


@pytest.mark.parametrize("counted", [True, False], ids=["of a list", "of an iterator"])
def test_map_shows_progress(device: FakeDevice, job: kk.Job, counted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [batch(number) for number in range(5)]
    with kk.Executor(device, DEPTH) as executor:
        results = list(executor.map(job, batches if counted else (one for one in batches), progress=True))
    assert [int(result["y"][0]) for result in results] == [0, 3, 6, 9, 12]
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("triple: 5 of 5 batches in " if counted else "triple: 5 batches in ")


def test_map_calls_a_function_with_its_progress(device: FakeDevice, job: kk.Job) -> None:
    heard: list[kk.Progress] = []
    with kk.Executor(device, DEPTH) as executor:
        for number, _ in enumerate(executor.map(job, [batch(number) for number in range(5)], progress=heard.append)):
            assert heard[-1].done == number + 1, "told before the result is handed over"
        assert [(one.done, one.total, one.unit, one.title) for one in heard] == [
            (number, 5, "batches", "triple") for number in range(1, 6)
        ]
        with pytest.raises(kk.ArgumentError, match=r"progress must be True, False or a function of a kk\.Progress"):
            executor.map(job, [], progress="yes")  # type: ignore[arg-type]


def test_map_with_progress_ends_like_map(device: FakeDevice, job: kk.Job) -> None:
    with kk.Executor(device, DEPTH) as executor:
        results = executor.map(job, (batch(number) for number in itertools.count()), progress=True)
        assert int(next(results)["y"][0]) == 0
        results.close()  # type: ignore[attr-defined]
        wrong = executor.map(job, [batch(1), {"nothing": 1}], progress=True)
        assert int(next(wrong)["y"][0]) == 3
        with pytest.raises(kk.ArgumentError, match="nothing"):
            next(wrong)
