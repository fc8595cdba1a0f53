"""The reference device finds the same bugs in batches of an executor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk

COPY = kk.PortableKernel(
    "copy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) y[i] = x[i];",
    group=4,
)


@pytest.fixture
def device() -> Iterator[kk.Device]:
    with kk.open_device("reference") as opened:
        yield opened


@pytest.fixture
def executor(device: kk.Device) -> Iterator[kk.Executor]:
    with kk.Executor(device) as opened:
        yield opened


@pytest.fixture
def copy(device: kk.Device, tmp_path: Path) -> Iterator[kk.Job]:
    with kk.ProgramCache(device, tmp_path) as cache:
        yield kk.Job(cache, COPY, 1, outputs={"y": (3, "f4")})


@pytest.mark.parametrize("passed", [{}, {"y": np.zeros(3, "f4")}])
def test_the_end_of_a_small_array_is_an_end(executor: kk.Executor, copy: kk.Job, passed: dict[str, Any]) -> None:
    future = executor.submit(copy, x=np.ones(4, "f4"), n=4, **passed)
    with pytest.raises(kk.KernelFault, match="y has 3 elements"):
        future.result()


def test_what_another_job_wrote_before_is_no_value(executor: kk.Executor, copy: kk.Job) -> None:
    partly = (copy, {"x": "second", "n": 2})
    pipeline = kk.Pipeline(
        [(copy, {"y": "first"}), (copy, {"x": "first", "y": "second"}), partly, (copy, {"x": "y", "y": "last"})]
    )
    for _ in range(3):
        with pytest.raises(kk.KernelFault, match="nothing was written there"):
            executor.submit(pipeline, x=np.ones(3, "f4"), n=3).result()
