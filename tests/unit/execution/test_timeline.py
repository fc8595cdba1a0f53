"""The timeline: spans told in one clock, the share of time, what overlapped, and the trace that a viewer opens."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelkeep.errors import ArgumentError
from kernelkeep.execution.stage_times import StageTimes
from kernelkeep.execution.timeline import Span, Timeline, covered, merged


def add(timeline: Timeline, number: int, times: list[float], *, shared: bool = False, slot: int = 0) -> None:
    """A batch copied in the two seconds before its upload, and dispatched in the half second before it."""
    flight = batch_of("saxpy", ["saxpy"], number, slot, (times[0] - 2, times[0] - 1), (times[0] - 0.5, times[0]))
    if shared:
        timeline.add(flight, [times[3]], SimpleNamespace(shares_memory=True))  # type: ignore[arg-type]
    else:
        timeline.keep(flight, (times[0], times[1]), times[2], times[3:4], (times[4], times[5]))


def batch_of(
    name: str,
    jobs: list[str],
    number: int,
    slot: int,
    staged: tuple[float, float],
    dispatched: tuple[float, float],
    *,
    one_lane: bool = False,
) -> Any:
    return SimpleNamespace(
        number=number, on_one_lane=one_lane, slot=slot, staged=staged, dispatched=dispatched,
        work=SimpleNamespace(name=name), job_names=jobs, uploaded_bytes=8, moved_bytes=12,
        alike=None,
    )  # fmt: skip


def test_a_batch_has_a_span_for_each_stage() -> None:
    timeline = Timeline("gpu:0", 3)
    add(timeline, 7, [10, 11, 12, 15, 16, 18], slot=2)
    assert timeline.spans == [
        Span("upload", 10, 11, 7, "saxpy", 2, 8), Span("compute", 12, 15, 7, "saxpy", 2),
        Span("download", 16, 18, 7, "saxpy", 2, 4), Span("copy", 8, 9, 7, "saxpy", 2), Span("dispatch", 9.5, 10, 7, "saxpy", 2),
    ]  # fmt: skip


def test_a_stage_begins_when_what_it_waits_for_is_done() -> None:
    timeline = Timeline("gpu:0", 3)
    several: Any = SimpleNamespace(shares_memory=False, single=False)
    for number, sent, ends in ((0, 1.0, (3.0, 7.0, 9.0)), (1, 2.0, (5.0, 8.0, 12.0)), (2, 10.0, (11.0, 13.0, 14.0))):
        flight = batch_of("saxpy", ["saxpy"], number, 0, (sent, sent), (sent, sent))
        timeline.add(flight, ends, several)
    spans = [(span.engine, span.start, span.end) for span in timeline.spans if span.engine not in ("copy", "dispatch")]
    assert spans == [
        ("upload", 1, 3), ("compute", 3, 7), ("download", 7, 9),
        ("upload", 3, 5), ("compute", 7, 8), ("download", 9, 12),
        ("upload", 10, 11), ("compute", 11, 13), ("download", 13, 14),
    ]  # fmt: skip
    one = Timeline("gpu:0", 3)
    single: Any = SimpleNamespace(shares_memory=False, single=True)
    flight.on_one_lane = True
    one.add(flight, (11.0, 13.0, 14.0), single)
    assert [(span.start, span.end) for span in one.spans[:3]] == [(10, 11), (11, 13), (13, 14)]


def test_batches_on_one_lane_wait_for_the_kernels_before_and_keep_those_behind_waiting() -> None:
    timeline = Timeline("gpu:0", 3)
    lanes: Any = SimpleNamespace(shares_memory=False, single=False)
    for number, sent, ends, one_lane in (
        (0, 1.0, (3.0, 7.0, 9.0), False),
        (1, 2.0, (7.5, 8.0, 8.5), True),  # does not wait for the download before it
        (2, 2.0, (9.0, 9.5, 10.0), True),
        (3, 2.0, (4.0, 11.0, 12.0), False),
    ):
        flight = batch_of("saxpy", ["saxpy"], number, 0, (sent, sent), (sent, sent), one_lane=one_lane)
        timeline.add(flight, ends, lanes)
    spans = [(span.engine, span.start, span.end) for span in timeline.spans if span.engine not in ("copy", "dispatch")]
    assert spans[3:9] == [
        ("upload", 7, 7.5), ("compute", 7.5, 8), ("download", 8, 8.5),
        ("upload", 8.5, 9), ("compute", 9, 9.5), ("download", 9.5, 10),
    ]  # fmt: skip
    assert spans[10] == ("compute", 10, 11)


def test_small_batches_are_measured_now_and_then_and_the_others_are_taken_to_be_like_those() -> None:
    timeline, times = Timeline("gpu:0", 3), StageTimes()
    lanes: Any = SimpleNamespace(shares_memory=False, single=False)
    due = [times.is_due()]
    flight = batch_of("saxpy", ["saxpy"], 0, 0, (1, 1), (1, 1), one_lane=True)
    flight.alike = (SimpleNamespace(stage_times=times), None)
    timeline.add(flight, (2.0, 4.0, 5.0), lanes)
    # Sent at once, and seen long after it must have been done; sent while that one ran; seen earlier than expected.
    for number, sent, seen in ((1, 10.0, 20.0), (2, 11.0, 30.0), (3, 40.0, 42.0)):
        due.append(times.is_due())
        flight.number, flight.dispatched, flight.received = number, (sent, sent), seen
        timeline.add_unmeasured(flight)
    assert due == [True, False, False, False]
    assert [times.is_due() for _ in range(16)].count(True) == 1
    spans = [span for span in timeline.spans if span.engine in ("upload", "compute", "download")]
    assert [(span.start, span.end) for span in spans] == [
        (1, 2), (2, 4), (4, 5),
        (10, 11), (11, 13), (13, 14),
        (14, 15), (15, 17), (17, 18),
        (40, 40.5), (40.5, 41.5), (41.5, 42),
    ]  # fmt: skip
    assert [span.measured for span in spans] == [True] * 3 + [False] * 9
    assert all(span.measured for span in timeline.spans if span.engine in ("copy", "dispatch")), "by the host's clock"
    assert (spans[3].batch, spans[3].job, spans[3].nbytes, spans[5].nbytes) == (1, "saxpy", 8, 4)
    events = [event for event in timeline.chrome_trace()["traceEvents"] if event.get("cat") == "compute"]
    assert [event["args"].get("measured", True) for event in events] == [True, False, False, False]
    assert timeline.last.number == 3
    flight.dispatched = (50.0, 50.0)
    timeline.add(flight, (51.0, 53.0, 54.0), lanes)
    assert timeline.busy_seconds == {"upload": 5, "compute": 10, "download": 5}, (
        "three that were not measured count as well"
    )


def test_where_memory_is_shared_filling_it_is_the_upload() -> None:
    timeline = Timeline("cpu:0", 3)
    add(timeline, 0, [10, 10, 12, 15, 16, 16], shared=True)
    assert timeline.spans[0] == Span("upload", 8, 9, 0, "saxpy", 0, 8)
    named = {(event.get("pid"), event.get("tid")): event["args"]["name"] for event in timeline.chrome_trace()["traceEvents"]
             if event["name"] == "thread_name"}  # fmt: skip
    tracks = {(named[event["pid"], event["tid"]], event["name"]) for event in timeline.chrome_trace()["traceEvents"]
              if event["ph"] == "X"}  # fmt: skip
    assert ("upload queue", "saxpy 0") in tracks
    assert ("slot 0", "compute") in tracks and ("slot 0", "upload") not in tracks, "it was in no slot yet"


@pytest.mark.parametrize("shared", [False, True])
def test_each_kernel_of_a_pipeline_has_a_span_under_its_own_name(shared: bool) -> None:
    timeline = Timeline("gpu:0", 3)
    lanes: Any = SimpleNamespace(shares_memory=shared, single=True)
    flight = batch_of("blur+edges", ["blur", "edges"], 0, 0, (1.0, 2.0), (3.0, 3.5), one_lane=True)
    timeline.add(flight, [5.0, 6.0] if shared else [4.0, 5.0, 6.0, 7.0], lanes)
    spans = [(span.engine, span.job, span.start, span.end) for span in timeline.spans[:4]]
    if shared:
        assert spans == [
            ("upload", "blur+edges", 1, 2), ("compute", "blur", 3, 5),
            ("compute", "edges", 5, 6), ("download", "blur+edges", 6, 6),
        ]  # fmt: skip
    else:
        assert spans == [
            ("upload", "blur+edges", 3, 4), ("compute", "blur", 4, 5),
            ("compute", "edges", 5, 6), ("download", "blur+edges", 6, 7),
        ]  # fmt: skip
    events = [event for event in timeline.chrome_trace()["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in events if event["cat"] == "compute"} == {"blur 0", "edges 0"}


def test_a_span_does_not_end_before_it_starts() -> None:
    timeline = Timeline("gpu:0", 1)
    add(timeline, 0, [10, 9.999, 12, 11, 13, 14])  # clocks that jitter
    assert all(span.end >= span.start for span in timeline.spans)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []), ([(1, 2)], [(1, 2)]), ([(3, 4), (1, 2)], [(1, 2), (3, 4)]), ([(1, 2), (2, 3)], [(1, 3)]),
        ([(1, 5), (2, 3)], [(1, 5)]), ([(1, 3), (2, 5), (5, 6), (8, 9)], [(1, 6), (8, 9)]), ([(1, 1), (1, 1)], [(1, 1)]),
    ],
)  # fmt: skip
def test_overlapping_spans_are_merged(spans: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert merged(spans) == expected
    assert covered(spans) == sum(end - start for start, end in expected)


def test_busy_is_the_share_of_the_whole_time() -> None:
    timeline = Timeline("gpu:0", 3)
    assert timeline.busy() == {"upload": 0, "compute": 0, "download": 0}
    add(timeline, 0, [0, 1, 1, 5, 5, 6])
    add(timeline, 1, [1, 2, 5, 9, 9, 10])
    assert timeline.busy() == {"upload": 0.2, "compute": 0.8, "download": 0.2}
    nothing = Timeline("gpu:0", 3)
    add(nothing, 0, [3] * 6)
    assert nothing.busy() == {"upload": 0, "compute": 0, "download": 0}, "no time passed at all"


def test_overlap_is_the_time_that_two_engines_share() -> None:
    timeline = Timeline("gpu:0", 3)
    assert timeline.overlap() == 0
    add(timeline, 0, [0, 1, 1, 5, 5, 6])
    assert timeline.overlap() == 0
    add(timeline, 1, [1, 3, 5, 9, 9, 10])
    assert timeline.overlap() == 2 == timeline.overlap("compute", "upload")
    assert timeline.overlap("download", "compute") == 1
    add(timeline, 2, [2, 8, 9, 10, 12, 13])
    assert timeline.overlap() == 7, "time counts once, however many batches share it"


def test_the_trace_has_every_span(tmp_path: Path) -> None:
    timeline = Timeline("gpu:0", 2)
    add(timeline, 0, [10, 11, 12, 15, 16, 18])
    add(timeline, 1, [11, 12, 15, 18, 18, 20], slot=1)
    timeline.save(tmp_path / "trace.json")
    with pytest.raises(ArgumentError, match="path must be the path of a file, got 5"):
        timeline.save(5)  # type: ignore[arg-type]
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == timeline.chrome_trace()
    events = trace["traceEvents"]
    groups = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sorted(groups.values()) == ["gpu:0 queues", "gpu:0 slots", "host"]
    assert sorted(named.values()) == sorted(
        ["upload queue", "compute queue", "download queue", "slot 0", "slot 1", "copy of host arrays", "dispatch"]
    )
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 2 * (3 + 3 + 2)
    assert min(event["ts"] for event in spans) == 0, "the first thing that happened is at 0"
    (compute,) = [
        event for event in spans if named[event["pid"], event["tid"]] == "compute queue" and event["args"]["batch"]
    ]
    assert (compute["ts"], compute["dur"], compute["name"]) == (7e6, 3e6, "saxpy 1")
    assert compute["args"] == {"batch": 1, "job": "saxpy", "slot": 1}


def test_the_oldest_batches_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelkeep.execution.timeline._BATCHES_KEPT", 10)
    timeline = Timeline("gpu:0", 1)
    for number in range(25):
        add(timeline, number, [number] * 6)
    assert sorted({span.batch for span in timeline.spans}) == list(range(15, 25))


def test_reading_while_batches_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelkeep.execution.timeline._BATCHES_KEPT", 100)
    timeline, stop = Timeline("gpu:0", 1), threading.Event()

    def fill() -> None:
        for number in range(1_000_000):
            if stop.is_set():
                return
            add(timeline, number, [number] * 6)

    filler = threading.Thread(target=fill)
    filler.start()
    try:
        for _ in range(200):
            assert len(timeline.spans) % 5 == 0, "a batch is there as a whole or not at all"
            timeline.busy()
    finally:
        stop.set()
        filler.join(30)
