"""The reference device finds the same bugs through views, and in batches of an executor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.words import Access


def copying(access: Access) -> kk.PortableKernel:
    """y[i] = x[i]; `access` is that to y."""
    return kk.PortableKernel(
        "copy",
        params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", access), kk.Scalar("n", "i4")],
        body="int i = kk_global_id(0);\nif (i < n) y[i] = x[i];",
        group=4,
    )


@pytest.fixture
def device() -> Iterator[kk.Device]:
    with kk.open_device("reference") as opened:
        yield opened


@pytest.fixture
def copy(device: kk.Device) -> kk.Kernel:
    return device.build(copying("rw").source(device)).kernel()


def test_the_end_of_a_view_is_an_end(device: kk.Device, copy: kk.Kernel) -> None:
    x, y = device.zeros(16), device.zeros(16)
    copy.launch(1, (x[4:8], y[4:8], 4))
    with pytest.raises(kk.KernelFault, match="4"):
        copy.launch(2, (x[4:8], y, 5))


def test_what_a_view_wrote_is_written_in_the_array(device: kk.Device, copy: kk.Kernel) -> None:
    y = device.empty(8)
    copy.launch(1, (device.array(np.arange(4, dtype="f4")), y[4:], 4))
    other = device.zeros(8)
    copy.launch(1, (y[4:8], other, 4))
    np.testing.assert_array_equal(other.numpy()[:4], np.arange(4))
    with pytest.raises(kk.KernelFault, match="nothing was written there"):
        copy.launch(2, (y, other, 8))
    y[:4].copy_from(np.ones(4, "f4"))
    copy.launch(2, (y, other, 8))
    np.testing.assert_array_equal(other.numpy(), [1, 1, 1, 1, 0, 1, 2, 3])


def test_a_copy_of_what_was_never_written_was_never_written(device: kk.Device, copy: kk.Kernel) -> None:
    written, fresh = device.zeros(8), device.empty(8)
    written[:4].copy_from(fresh[4:])
    copy.launch(1, (written[4:], device.zeros(4), 4))
    with pytest.raises(kk.KernelFault):
        copy.launch(1, (written, device.zeros(4), 4))


def test_two_views_of_one_array_race(device: kk.Device, copy: kk.Kernel) -> None:
    array = device.zeros(9)
    copy.launch(1, (array[:4], array[4:8], 4))
    with pytest.raises(kk.KernelFault):
        copy.launch(1, (array[1:5], array[:4], 4))


# --- batches


@pytest.fixture
def executor(device: kk.Device) -> Iterator[kk.Executor]:
    with kk.Executor(device) as opened:
        yield opened


@pytest.fixture
def job(device: kk.Device, tmp_path: Path) -> Iterator[kk.Job]:
    with kk.ProgramCache(device, tmp_path) as cache:
        yield kk.Job(cache, copying("w"), 1, outputs={"y": (3, "f4")})


@pytest.mark.parametrize("passed", [{}, {"y": np.zeros(3, "f4")}])
def test_the_end_of_a_small_array_is_an_end(executor: kk.Executor, job: kk.Job, passed: dict[str, Any]) -> None:
    future = executor.submit(job, x=np.ones(4, "f4"), n=4, **passed)
    with pytest.raises(kk.KernelFault, match="y has 3 elements"):
        future.result()


def test_what_another_job_wrote_before_is_no_value(executor: kk.Executor, job: kk.Job) -> None:
    partly = (job, {"x": "second", "n": 2})
    pipeline = kk.Pipeline(
        [(job, {"y": "first"}), (job, {"x": "first", "y": "second"}), partly, (job, {"x": "y", "y": "last"})]
    )
    for _ in range(3):
        with pytest.raises(kk.KernelFault, match="nothing was written there"):
            executor.submit(pipeline, x=np.ones(3, "f4"), n=3).result()
