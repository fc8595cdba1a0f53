"""What the diary gets of an executor that was closed: what it did, and when the last batches ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..devices.base import Device
from .timeline import ENGINES, Span, Timeline, covered

if TYPE_CHECKING:
    from ..cache.tiers.disk import DiskTier

_LOOKED_AT = 2000  # spans, the last ones
_DRAWN = 30  # batches, of these
_JOBS = 10


def note_executor(
    disk: DiskTier, device: Device, depth: int, counts: Mapping[str, float], timeline: Timeline | None
) -> None:
    """Add a record to the diary of the cache whose programs it ran. Never raises."""
    try:
        facts: dict[str, Any] = {
            "device": device.fingerprint.folder,
            "spec": device.spec,
            "device_name": device.info.name,
            "depth": depth,
            **counts,
        }
        if timeline is not None:
            facts |= _timeline_facts(timeline.spans[-_LOOKED_AT:])
        disk.note("executor", facts)
    except Exception:  # a device that was lost meanwhile; the executor closes all the same
        pass


def _timeline_facts(spans: list[Span]) -> dict[str, Any]:
    stages = [span for span in spans if span.engine in ENGINES]
    if not stages:
        return {}
    whole = max(span.end for span in stages) - min(span.start for span in stages)
    busy = {
        engine: round(covered((span.start, span.end) for span in stages if span.engine == engine) / whole, 4)
        for engine in ENGINES
        if whole > 0
    }
    jobs = Counter(span.job[:80] for span in stages if span.engine == "compute").most_common(_JOBS)
    last = sorted({span.batch for span in stages})[-_DRAWN:]
    drawn = [span for span in stages if span.batch >= last[0]]
    start = min(span.start for span in drawn)
    return {
        "seconds": round(whole, 6),
        "busy": busy,
        "jobs": dict(jobs),
        "looked_at": len({span.batch for span in stages}),
        "spans": [
            [ENGINES.index(span.engine), round((span.start - start) * 1e3, 4), round((span.end - start) * 1e3, 4),
             span.batch, span.job[:40]]
            for span in drawn
        ],
    }  # fmt: skip
