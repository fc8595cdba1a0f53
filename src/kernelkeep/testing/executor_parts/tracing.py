"""The timeline: a trace that a viewer opens, on clocks that agree, and the proof of what overlapped."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device
from ...errors import ArgumentError
from ...execution.executor import Executor
from ...execution.job import Job
from ..device_parts.common import GROUP, groups, together
from .common import ITEMS, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result

__all__ = ["TraceTests"]

_ENGINES = ("upload", "compute", "download")
_TOLERANCE = 5e-3  # seconds: how far the clocks of host and device may disagree on a busy machine

Interval = tuple[float, float]


def _load(executor: Executor, path: Path) -> tuple[dict[tuple[int, int], str], list[dict[str, Any]]]:
    """The names of the tracks, and the events on them."""
    executor.save_trace(path)
    trace = json.loads(path.read_text(encoding="utf-8"))
    named = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    return named, [event for event in trace["traceEvents"] if event["ph"] == "X"]


def _queues(named: dict[tuple[int, int], str], events: list[dict[str, Any]]) -> dict[int, dict[str, Interval]]:
    """For each batch, what each queue did for it and when, in seconds."""
    batches: dict[int, dict[str, Interval]] = defaultdict(dict)
    for event in events:
        name = named[event["pid"], event["tid"]]
        if name.endswith(" queue"):
            engine = name.removesuffix(" queue")
            assert engine not in batches[event["args"]["batch"]], "one span for each stage"
            batches[event["args"]["batch"]][engine] = (event["ts"] * 1e-6, (event["ts"] + event["dur"]) * 1e-6)
    return batches


def _common(one: Interval, other: Interval) -> float:
    return min(one[1], other[1]) - max(one[0], other[0])


class TraceTests(ExecutorPart):
    """The trace shows what happened."""

    def test_the_trace_has_a_track_for_each_queue_and_slot(
        self, device: Device, job: Job, ramp: Job, tmp_path: Path
    ) -> None:
        with Executor(device, 2) as executor:
            for number in range(10):
                executor.submit(job, **saxpy_batch(number)).result(TIMEOUT)
                executor.submit(ramp, start=number, n=ITEMS).result(TIMEOUT)
            named, events = _load(executor, tmp_path / "trace.json")
        wanted = {"upload queue", "compute queue", "download queue", "slot 0", "slot 1"}
        assert wanted <= set(named.values()) and "slot 2" not in named.values()
        assert len(set(named.values())) == len(named), "no two tracks have one name"
        for event in events:
            assert (event["pid"], event["tid"]) in named
            assert event["ts"] >= 0 and event["dur"] >= 0
            assert event["args"]["job"] == ("ramp" if event["args"]["batch"] % 2 else "saxpy")
        for batch, stages in _queues(named, events).items():
            assert set(stages) == set(_ENGINES), batch
        slots = defaultdict(set)
        for event in events:
            if named[event["pid"], event["tid"]].startswith("slot"):
                slots[event["args"]["batch"]].add((named[event["pid"], event["tid"]], event["name"]))
        assert set(slots) == set(range(20))
        for seen in slots.values():
            assert len({slot for slot, _ in seen}) == 1
            # Where host and device have one memory, filling a block is the upload, and that comes before any slot.
            assert {"compute", "download"} <= {stage for _, stage in seen} <= set(_ENGINES)

    def test_spans_on_a_track_nest(self, device: Device, job: Job, tmp_path: Path) -> None:
        """On one track spans lie side by side or one inside the other: viewers drop what merely overlaps."""
        with Executor(device) as executor:
            for future in [executor.submit(job, **saxpy_batch(n, 200_000)) for n in range(20)]:
                future.result(TIMEOUT)
            named, events = _load(executor, tmp_path / "trace.json")
        tracks = defaultdict(list)
        for event in events:
            tracks[named[event["pid"], event["tid"]]].append((event["ts"], -event["ts"] - event["dur"]))
        for name, spans in tracks.items():
            open_ends: list[float] = []
            for start, minus_end in sorted(spans):
                while open_ends and open_ends[-1] <= start + 2:  # microseconds, the resolution of some clocks
                    open_ends.pop()
                assert not open_ends or -minus_end <= open_ends[-1] + 2, f"spans on the track {name} overlap"
                open_ends.append(-minus_end)

    def test_device_times_lie_between_submit_and_result(self, device: Device, chain: Job) -> None:
        """Every stage lies between the host's submit and result, and in its order."""
        asked: list[Interval] = []
        with Executor(device) as executor:
            executor.submit(chain, y=np.zeros(65_536, "u4"), steps=1).result(TIMEOUT)
            for _ in range(10):
                y = np.arange(65_536, dtype="u4")
                start = time.perf_counter()
                executor.submit(chain, y=y, steps=500).result(TIMEOUT)
                asked.append((start, time.perf_counter()))
            spans = [span for span in executor.timeline.spans if span.batch > 0]
        assert len(spans) >= 30
        for batch, (submitted, arrived) in enumerate(asked, 1):
            stages = {span.engine: span for span in spans if span.batch == batch}
            for span in stages.values():
                assert submitted - _TOLERANCE < span.start <= span.end < arrived + _TOLERANCE, span
            upload, compute, download = (stages[engine] for engine in _ENGINES)
            assert upload.end <= compute.start + _TOLERANCE and compute.end <= download.start + _TOLERANCE
            assert compute.end - compute.start > 0
            assert stages["copy"].end <= stages["dispatch"].start

    def test_uploads_overlap_the_compute_of_earlier_batches(self, device: Device, chain: Job, tmp_path: Path) -> None:
        """Read from the file that a person would open.

        OpenGL has one queue, and software OpenGL computes inside the call that dispatches: there is nothing to overlap
        there, and the trace is only checked to be whole.
        """
        items, count = 1 << 21, 16  # 8 MiB, so that an upload takes a while
        steps = 40_000 if device.info.is_gpu else 20  # a kernel that takes longer than it, and than the host's copy
        y = np.arange(items, dtype="u4")
        with Executor(device) as executor:
            for _ in executor.map(chain, ({"y": y, "steps": steps} for _ in range(count))):
                pass
            batches = _queues(*_load(executor, tmp_path / "trace.json"))
            busy = executor.timeline.busy()
            overlap = executor.timeline.overlap()
        assert set(batches) == set(range(count))
        for stages in batches.values():
            for before, after in (("upload", "compute"), ("compute", "download")):
                assert stages[before][1] <= stages[after][0] + _TOLERANCE
        assert set(busy) == set(_ENGINES) and all(0 <= share <= 1 for share in busy.values())
        if not device.capabilities.queues:  # copies wait for kernels
            return
        overlapped = [
            later
            for later in range(1, count)
            if any(_common(batches[later]["upload"], batches[earlier]["compute"]) > 0 for earlier in range(later))
        ]
        assert len(overlapped) > count // 2, f"only the uploads of {overlapped} ran beside a kernel"
        assert overlap > 0

    @pytest.mark.parametrize("items", [1024, 200_000 // GROUP * GROUP])
    def test_alike_batches_have_their_own_times(self, device: Device, chain: Job, items: int) -> None:
        """Their marks may be used again for later batches, while kernels keep the backlog full."""
        job = Job(chain.cache, chain.source, grid=groups(items), outputs=["y"])
        y, steps = np.arange(items, dtype="u4"), np.int32(20_000 if device.info.is_gpu else 40)
        with Executor(device) as executor:
            for _ in executor.map(job, ({"y": y} for _ in range(20)), steps=steps):
                pass
            spans = executor.timeline.spans
        ends = [[span.end for span in spans if span.engine == engine] for engine in _ENGINES]
        assert [len(times) for times in ends] == [20, 20, 20]
        assert ends[2] == sorted(ends[2]) and len(set(ends[2])) == 20
        for upload, compute, download in zip(*ends, strict=True):
            assert upload <= compute + _TOLERANCE and compute <= download + _TOLERANCE

    def test_an_executor_without_a_trace_has_no_timeline(self, device: Device, job: Job, tmp_path: Path) -> None:
        with Executor(device, trace=False) as executor:
            for future in [executor.submit(job, **saxpy_batch(n)) for n in range(8)]:
                future.result(TIMEOUT)

            def work(number: int) -> None:  # threads that have not touched the device before
                for _ in range(6):
                    result = executor.submit(job, **saxpy_batch(number)).result(TIMEOUT)["y"]
                    np.testing.assert_array_equal(result, saxpy_result(number))

            together(work, 4)
            for use in (lambda: executor.timeline, lambda: executor.save_trace(tmp_path / "trace.json")):
                with pytest.raises(ArgumentError, match="trace=False"):
                    use()

    def test_a_trace_can_be_saved_before_the_first_batch_and_after_close(
        self, device: Device, job: Job, tmp_path: Path
    ) -> None:
        executor = Executor(device)
        named, events = _load(executor, tmp_path / "empty.json")
        assert named and not events
        executor.submit(job, **saxpy_batch(0)).result(TIMEOUT)
        executor.close()
        _, events = _load(executor, tmp_path / "whole.json")
        assert {event["args"]["batch"] for event in events} == {0}
