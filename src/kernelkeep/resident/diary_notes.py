"""What the diary gets of a resident grid that was stopped: how many tasks of which name, how fast, and the last of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..cache.program_cache import ProgramCache
from .protocol import RingView
from .task import PreparedTask
from .timeline import TaskSpan, task_name

_LOOKED_AT = 4096  # tasks of each lane
_NAMES = 40
_DRAWN = 240  # spans
_BLOCKS = 16


def note_resident(
    cache: ProgramCache,
    view: RingView,
    tasks: Mapping[int, PreparedTask],
    facts: dict[str, Any],
    spans: Sequence[TaskSpan],
) -> None:
    """Add a record to the diary of the cache. Tasks are counted by name as far back as the ring remembers."""
    device = cache.device
    names = _names(view, tasks)
    counted = sum(names.values())
    last = [span for span in sorted(spans, key=lambda span: span.start)[-_DRAWN:] if span.block < _BLOCKS]
    start = min((span.start for span in last), default=0.0)
    cache.disk.note(
        "resident",
        {
            "device": device.fingerprint.folder,
            "spec": device.spec,
            "device_name": device.info.name,
            **facts,
            "names": {name[:80]: count for name, count in names.most_common(_NAMES)},
            "counted": counted,
            "spans": [
                [one.block, round((one.start - start) * 1e3, 5), round((one.end - start) * 1e3, 5), one.task[:40]]
                for one in last
                if one.kind != "graph"
            ],
        },
    )


def _names(view: RingView, tasks: Mapping[int, PreparedTask]) -> Counter[str]:
    found: Counter[str] = Counter()
    capacity = view.layout.capacity
    for lane in range(view.layout.lanes):
        done = int(view.done[lane])
        sequences = np.arange(max(0, done - min(capacity, _LOOKED_AT)), done)
        numbers = np.ascontiguousarray(view.slots[lane, sequences % capacity, :4]).view("<u4").ravel()
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            found[task_name(int(number), tasks)] += int(count)
    return found
