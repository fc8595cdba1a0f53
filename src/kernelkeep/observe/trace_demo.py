"""A demo of the executor: a few dozen batches, and the timeline of what overlapped, as a file. Not a benchmark."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.base import Device
from ..errors import ArgumentError
from ..execution.executor import Executor
from ..execution.job import Job
from ..execution.timeline import ENGINES, covered
from ..programs.portable import Buffer, PortableKernel, Scalar
from ..samples.basic import largest_error

_ITEMS, _FEWER_ITEMS, _GROUP = 1 << 20, 1 << 18, 256  # fewer where the device is the host's own processor
_ROUNDS = 64
_TOLERANCE = 1e-4
# Every round moves a value a little nearer to a half: about as much work as copying it, and easy to check.
_SETTLE = PortableKernel(
    "settle",
    params=[Buffer("x", "f4", "r"), Buffer("y", "f4", "w"), Scalar("rounds", "i4"), Scalar("n", "i4")],
    body="""int i = kk_global_id(0);
if (i >= n) return;
float v = x[i];
for (int r = 0; r < rounds; r++) v = 0.5f + (v - 0.5f) * 0.99f;
y[i] = v;""",
    group=_GROUP,
)


@dataclass(frozen=True)
class TraceDemo:
    """The result of a traced run. Where `ok` is false, `problem` says why; the trace is written in any case.

    `busy` is the share of the whole time, first upload to last download, that each engine worked. `overlap` is the share
    of the time spent uploading during which the device computed as well.
    """

    device: str
    device_name: str
    depth: int
    batches: int
    batch_bytes: int
    seconds: float
    busy: dict[str, float]
    overlap: float
    trace: Path
    ok: bool
    problem: str = ""


def run_trace_demo(
    device: Device,
    path: str | os.PathLike[str],
    *,
    batches: int = 36,
    depth: int = 3,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TraceDemo:
    """Run batches through an executor, compare the results with NumPy's, and write the Chrome trace to `path`."""
    trace = Path(path)
    if trace.is_dir():
        raise ArgumentError(f"{trace} is a folder; name a file for the trace")
    if not trace.parent.is_dir():
        raise ArgumentError(f"there is no folder {trace.parent} to write the trace to")
    items = _ITEMS if device.info.is_gpu else _FEWER_ITEMS
    hosts = [np.random.default_rng(number).random(items, dtype=np.float32) for number in range(4)]
    common: dict[str, Any] = {"rounds": _ROUNDS, "n": items}
    inputs = ({"x": hosts[number % len(hosts)]} for number in range(batches))

    with ProgramCache(device, cache_dir, remote=[]) as cache:
        job = Job(cache, _SETTLE, grid=items // _GROUP, outputs={"y": (items, "f4")})
        with Executor(device, depth=depth) as executor:
            # What is compiled or allocated once stays out of the timeline.
            results = [executor.submit(job, x=host, **common).result()["y"] for host in hosts]
        problem = _difference(hosts, results)
        del results
        with Executor(device, depth=depth) as executor:
            start = time.perf_counter()
            for result in executor.map(job, inputs, **common):
                last = result["y"]
            seconds = time.perf_counter() - start
            if batches:
                problem = problem or _difference([hosts[(batches - 1) % len(hosts)]], [last])
        timeline = executor.timeline
        timeline.save(trace)
    uploading = covered((span.start, span.end) for span in timeline.spans if span.engine == "upload")
    return TraceDemo(
        device=device.spec,
        device_name=device.info.name,
        depth=depth,
        batches=batches,
        batch_bytes=hosts[0].nbytes,
        seconds=seconds,
        busy={engine: timeline.busy()[engine] for engine in ENGINES},
        overlap=timeline.overlap("upload", "compute") / uploading if uploading else 0.0,
        trace=trace,
        ok=not problem,
        problem=problem,
    )


def _difference(hosts: list[np.ndarray[Any, Any]], results: list[np.ndarray[Any, Any]]) -> str:
    """What is wrong with the results; "" where nothing is."""
    for host, result in zip(hosts, results, strict=True):
        expected = 0.5 + (host - 0.5) * np.float64(np.float32(0.99)) ** _ROUNDS
        error = largest_error(result, expected)
        if not error <= _TOLERANCE:  # also for NaN
            return f"a result differs from NumPy's by {error:.3g}, and {_TOLERANCE:.3g} is allowed"
    return ""
