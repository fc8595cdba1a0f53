"""What a grid that says nothing is doing: which task, with which arguments, on which block, for how long."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError
from .graph_memory import LoadedGraphs
from .protocol import RingView
from .task import GRAPH, WIDE, PreparedTask

_MOST_SHOWN = 8
_IDLE = "no block has anything to do"
WAY_OUT = (
    "It goes on, and result() or close() may be called again; stop(timeout) ends the grid at the next task boundary; a task that "
    "never ends leaves the device only with this process"
)


class Silence:
    """How long a lane has acknowledged nothing although it has something to do."""

    def __init__(self, seconds: float) -> None:
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
            raise ArgumentError(f"silence_seconds must be a number above 0, got {seconds!r}")
        self.seconds = seconds
        self._seen: dict[int, tuple[int, float]] = {}  # by lane: what was done, and since when
        self._lock = threading.Lock()

    def begin_again(self) -> None:
        """Count from now on: the grid did not run before."""
        with self._lock:
            self._seen.clear()

    def lasts(self, number: int, done: int) -> float:
        """For how long `done` of a lane is what it is, counted from when somebody first looked."""
        now = time.monotonic()
        with self._lock:
            seen = self._seen.get(number)
            if seen is None or seen[0] != done:
                self._seen[number] = (done, now)
                return 0.0
            return now - seen[1]


def describe(view: RingView, tasks: Mapping[int, PreparedTask], graphs: LoadedGraphs | None = None) -> str:
    """What every block that has something to do is doing."""
    lines: list[str] = []
    busy = 0
    for lane in range(view.layout.lanes):
        head, done = int(view.head[lane]), int(view.done[lane])
        node = _node_text(view, lane, tasks, graphs)
        if head == done and not node:
            continue
        busy += 1
        if len(lines) >= _MOST_SHOWN:
            continue
        if head == done:
            lines.append(f"block {lane} helps with {node}")
        else:
            lines.append(_of_lane(view, lane, head, done, tasks, graphs) + (f": {node}" if node else ""))
    if not lines:
        return _IDLE
    others = busy - len(lines)
    more = f"; and {others} more block{'' if others == 1 else 's'}" if others else ""
    return "; ".join(lines) + more


def not_ended(described: str, seconds: float) -> str:
    """What to say of a grid that was told to end, by what `describe` says of it."""
    if described == _IDLE:  # it was hardly waited for, or the device is busy with other work
        return f"the resident grid has not ended after {max(0.0, seconds):g} s, although {described}"
    return (
        f"the resident grid does not end: {described}. Its other blocks have ended, and take no tasks until it has; a task that "
        "never ends leaves the device only with this process"
    )


def _of_lane(
    view: RingView, lane: int, head: int, done: int, tasks: Mapping[int, PreparedTask], graphs: LoadedGraphs | None
) -> str:
    running, beat, since = int(view.running[lane]), int(view.beat[lane]), int(view.since[lane])
    waiting = f", {head - done - 1} more wait" if head - done > 1 else ""
    if not beat:
        tasks_wait = "1 task waits" if head - done == 1 else f"{head - done} tasks wait"
        return f"block {lane} has given no sign yet ({tasks_wait})"
    number = running - 1 if running > done else done
    what = task_text(bytes(view.slots[lane, number % view.layout.capacity]), tasks, graphs)
    lasts = f" for {(beat - since) * 1e-9:.3g} s" if running and beat >= since else ""
    return f"block {lane} runs {what}{lasts} (task {number} of its ring{waiting})"


def _node_text(view: RingView, lane: int, tasks: Mapping[int, PreparedTask], graphs: LoadedGraphs | None) -> str:
    """The node of a graph that a block runs; "" for none."""
    word, beat, since = int(view.node[lane]), int(view.beat[lane]), int(view.node_since[lane])
    graph = graphs.find(word >> 32) if graphs is not None and word else None
    node = graph.node_at((word & 0xFFFFFFFF) - 1) if graph is not None else None
    if graph is None or node is None:
        return ""
    lasts = f" for {(beat - since) * 1e-9:.3g} s" if beat >= since else ""
    return f"node {graph.labels[node]} of {graph.name}, {task_text(graph.layout.record(node), tasks, graphs)}{lasts}"


def task_text(record: bytes, tasks: Mapping[int, PreparedTask], graphs: LoadedGraphs | None = None) -> str:
    """A record as a call."""
    (number,) = struct.unpack_from("<I", record)
    if number == GRAPH:
        (address,) = struct.unpack_from("<Q", record, 8)
        graph = graphs.at(address) if graphs is not None else None
        return graph.name if graph is not None else "a graph"
    task = tasks.get(number & ~WIDE)
    if task is None:
        return f"task number {number}, which is not known"
    places = zip(task.names, task.codes, (at for _, _, at in task.parts.arguments), strict=True)
    given = ", ".join(f"{name}={_shown(code, record, at)}" for name, code, at in places)
    return f"{task.parts.name}({given}){' on all blocks' if number & WIDE else ''}"


def _shown(code: str, record: bytes, at: int) -> str:
    (value,) = struct.unpack_from("<" + code, record, at)
    return f"{value:g}" if isinstance(value, float) else str(value)


def decode(record: bytes, tasks: Mapping[int, PreparedTask]) -> tuple[str, tuple[Any, ...]] | None:
    """A record as (name, arguments); None for a graph or a task that is not known."""
    (number,) = struct.unpack_from("<I", record)
    task = tasks.get(number & ~WIDE) if number != GRAPH else None
    if task is None:
        return None
    values = (
        struct.unpack_from("<" + code, record, at)[0]
        for code, (_, _, at) in zip(task.codes, task.parts.arguments, strict=True)
    )
    return task.parts.name, tuple(values)
