"""Batches of an executor on a CPU: they are computed where the host's copy of them is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import open_or_skip

pytestmark = pytest.mark.opencl

ADD = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4", "w"), kk.Scalar("a", "i4")],
    body="int i = kk_global_id(0); y[i] = x[i] + a;",
    group=4,
)


@pytest.mark.parametrize("items", [4, 1 << 17])  # results that are copied, and results that are lent
def test_a_batch_is_its_kernel_alone(tmp_path: Path, items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a batch on the host's memory needs no copy and no marker")

    with open_or_skip("opencl") as device, kk.ProgramCache(device, tmp_path) as cache:
        if not device.open_lanes().ends_with_launch:
            pytest.skip("this device has no memory that host and device see at once")
        with kk.Executor(device) as executor:
            for name in ("enqueue_marker", "enqueue_copy"):
                monkeypatch.setattr(device.cl, name, refuse)  # type: ignore[attr-defined]
            job = kk.Job(cache, ADD, grid=items // 4, outputs={"y": (items, "i4")})
            batches = [np.full(items, number, "i4") for number in range(10)]
            results = executor.map(job, ({"x": host} for host in batches), a=np.int32(7))
            for number, result in enumerate(results):
                assert (result["y"] == number + 7).all()
            monkeypatch.undo()
            spans = [span for span in executor.timeline.spans if span.engine == "compute"]
            assert len(spans) == 10 and all(span.end > span.start for span in spans)
