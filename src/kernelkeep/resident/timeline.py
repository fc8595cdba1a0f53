"""What ran when, told from inside: the start and the end of every task on every block, by the device's clock.

Each block writes into a ring in device memory, which keeps its last entries. The device's nanoseconds become the host's seconds
(`time.perf_counter`) by the beats of the blocks: a beat tells the device's time, and the host sees when it arrives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..storage.files import write_whole
from .protocol import LINE, RingView
from .task import GRAPH, WIDE, PreparedTask

_ENTRY = np.dtype([("start", "u8"), ("end", "u8"), ("task", "u4"), ("what", "u4"), ("number", "u8")])
_WIDE, _IN_GRAPH, _PART = 1, 2, 4  # in `what`
_BLOCKS = 4  # the group of tracks; those of an executor are 1 to 3
_BEATS = 8
_BEAT_SECONDS = 0.02  # a beat comes every millisecond


class TaskSpan(NamedTuple):
    """One task on one block, in seconds of `time.perf_counter`."""

    task: str
    block: int
    start: float
    end: float
    number: int  # of the task in the block's ring, or of the node in its graph
    kind: str  # "task", "graph", "node", or "part" of a task of the whole grid


class _Traced(Protocol):
    def chrome_trace(self, origin: float | None = None) -> dict[str, Any]: ...

    @property
    def spans(self) -> Sequence[Any]: ...


class ResidentTimeline:
    """The spans that were kept when it was read."""

    def __init__(self, device: str, spans: list[TaskSpan], blocks: int) -> None:
        self._device, self._blocks = device, blocks
        self.spans = spans

    def busy(self) -> dict[int, float]:
        """For each block the share of the whole time in which it ran tasks."""
        if not self.spans:
            return {}
        whole = max(one.end for one in self.spans) - min(one.start for one in self.spans)
        found = dict.fromkeys(range(self._blocks), 0.0)
        for one in self.spans:
            if one.kind != "graph":  # its nodes are counted
                found[one.block] += one.end - one.start
        return {block: seconds / whole if whole else 0.0 for block, seconds in found.items()}

    def __repr__(self) -> str:
        return f"<ResidentTimeline of {self._device}: {len(self.spans):,} tasks on {self._blocks} blocks>"

    def _repr_html_(self) -> str:
        from .html import timeline_html

        return timeline_html(self)

    def chrome_trace(self, origin: float | None = None) -> dict[str, Any]:
        """The trace as its JSON is: one track for each block. Times count from `origin`, by default from the first span."""
        if origin is None:
            origin = min((span.start for span in self.spans), default=0.0)
        blocks = sorted({span.block for span in self.spans})
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": _BLOCKS, "name": "process_name", "args": {"name": f"{self._device} resident grid"}}
        ]
        for block in blocks:
            events.append(
                {"ph": "M", "pid": _BLOCKS, "tid": block, "name": "thread_name", "args": {"name": f"block {block}"}}
            )
        for span in self.spans:
            events.append(
                {
                    "ph": "X", "pid": _BLOCKS, "tid": span.block, "name": span.task, "cat": span.kind,
                    "ts": round((span.start - origin) * 1e6, 3), "dur": round((span.end - span.start) * 1e6, 3),
                    "args": {"number": span.number},
                }
            )  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def save_traces(path: str | os.PathLike[str], timelines: Iterable[_Traced]) -> None:
    """Several timelines as one Chrome trace, on one clock. The file appears whole or not at all."""
    timelines = list(timelines)
    origin = min((span.start for one in timelines for span in one.spans), default=0.0)
    events = [event for one in timelines for event in one.chrome_trace(origin)["traceEvents"]]
    write_whole(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())


def read_timeline(
    device: str, traces: np.ndarray[Any, Any], tasks: Mapping[int, PreparedTask], offset: float
) -> ResidentTimeline:
    """The spans in the traces of all blocks, a row of bytes for each; `offset` from the device's clock to the host's."""
    spans = []
    for block, row in enumerate(traces):
        count = int(row[:8].view("u8")[0])
        entries = row[LINE:].view(_ENTRY)
        kept = min(count, len(entries))
        for number in range(count - kept, count):
            entry = entries[number % len(entries)]
            what, task = int(entry["what"]), int(entry["task"])
            start, end = int(entry["start"]) * 1e-9 + offset, int(entry["end"]) * 1e-9 + offset
            spans.append(
                TaskSpan(task_name(task, tasks), block, start, max(start, end), int(entry["number"]), _kind(task, what))
            )
    spans.sort(key=lambda span: (span.start, span.block))
    return ResidentTimeline(device, spans, len(traces))


def task_name(task: int, tasks: Mapping[int, PreparedTask]) -> str:
    """The name of the task with this number in a record."""
    if task == GRAPH:
        return "graph"
    known = tasks.get(task & ~WIDE)
    return known.parts.name if known is not None else f"task {task & ~WIDE}"


def _kind(task: int, what: int) -> str:
    if task == GRAPH:
        return "graph"
    return "part" if what & _PART else "node" if what & _IN_GRAPH else "task"


def clock_offset(view: RingView) -> float:
    """What is added to the device's seconds to get the host's; 0 while no beat comes.

    A beat is seen after it was written, by the time of the bus and of a look, so the least difference is the truest.
    """
    least = float("inf")
    deadline = time.perf_counter() + _BEAT_SECONDS
    beats = view.beat
    last = beats.copy()
    seen = 0
    while seen < _BEATS and time.perf_counter() < deadline:
        now = beats.copy()
        moment = time.perf_counter()
        for lane in np.flatnonzero(now != last):
            least = min(least, moment - int(now[lane]) * 1e-9)
            seen += 1
        last = now
    return least if least < float("inf") else 0.0
