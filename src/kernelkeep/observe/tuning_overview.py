"""All tuning results, one line for each problem, for people. Needs no device."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from ..variants.record import Record
from ..variants.records import FILE_NAME, Records
from ..variants.select import fastest
from ..variants.values import canonical


class KnownProblem(msgspec.Struct, frozen=True):
    """What is known of a tuned kernel on a device for one problem.

    `variant` is the one in use: pinned, chosen, or else the fastest; None where every one failed. Whether the kernel's
    template still is the one that was measured cannot be told here.
    """

    tuned: str
    device: str
    device_name: str
    problem: dict[str, Any]
    dtype: str
    variant: dict[str, Any] | None
    pinned: bool
    milliseconds: float | None
    samples: int
    measured: int  # variants
    failures: dict[str, int]  # by class
    newest: float  # seconds since 1970


def records_in(root: Path) -> Records:
    """The records in a cache folder. Where there are none, no file is created."""
    return Records(root if (root / FILE_NAME).exists() else None)


def known_problems(records: Records, tuned: str | None = None, device: str | None = None) -> list[KnownProblem]:
    """Every problem that has records, or those of one kernel or device (its fingerprint's digest)."""
    found = []
    for count in records.counts():
        if tuned not in (None, count.tuned) or device not in (None, count.device):
            continue
        problems: dict[tuple[str, str], list[Record]] = {}
        for record in records.of_device(count.tuned, count.device):
            problems.setdefault((canonical(record.problem), record.dtype), []).append(record)
        found += [_known(records, group) for group in problems.values()]
    return found


def _known(records: Records, group: list[Record]) -> KnownProblem:
    first = group[0]
    choice = records.choice(first.tuned, first.device, first.problem, first.dtype)
    good = [record for record in group if not record.failure]
    used = fastest(good)
    if choice is not None:
        chosen = [record for record in good if record.variant == choice.variant]
        used = chosen[-1] if chosen else None if choice.pinned else used
    variant = choice.variant if choice is not None and choice.pinned else used.variant if used is not None else None
    return KnownProblem(
        tuned=first.tuned,
        device=first.device,
        device_name=first.device_name,
        problem=first.problem,
        dtype=first.dtype,
        variant=variant,
        pinned=choice is not None and choice.pinned,
        milliseconds=used.median_ms if used is not None else None,
        samples=len(used.samples_ms) if used is not None else 0,
        measured=len(good),
        failures=dict(Counter(record.failure for record in group if record.failure)),
        newest=max(record.created for record in group),
    )
