"""The tunings of a cache folder: what is known of each problem, and the times of its variants."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...errors import KernelKeepError
from ...variants.values import canonical
from ..tuning_overview import KnownProblem, known_problems, records_in
from .fields import as_number

_PROBLEMS = 30
_ATTEMPTS = 400  # of a problem


def tunings_in(root: Path, only: Collection[str] | None = None) -> tuple[list[dict[str, Any]], str]:
    """Each tuned problem, the newest first, with its attempts; and what is wrong with the records, if they cannot be read."""
    try:
        with records_in(root) as records:
            problems = [one for one in known_problems(records) if only is None or one.device_name in only]
            problems.sort(key=lambda one: -one.newest)
            return [_tuning(one, _attempts(records, one)) for one in problems[:_PROBLEMS]], ""
    except (OSError, KernelKeepError) as error:
        return [], str(error)


def _attempts(records: Any, known: KnownProblem) -> list[dict[str, Any]]:
    found = [
        record
        for record in records.of_device(known.tuned, known.device)
        if record.dtype == known.dtype and canonical(record.problem) == canonical(known.problem)
    ]
    return [
        {
            "variant": dict(record.variant),
            "milliseconds": as_number(record.median_ms),
            "failure": record.failure[:60],
            "detail": record.detail[:300],
        }
        for record in found[-_ATTEMPTS:]
    ]


def _tuning(known: KnownProblem, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tuned": known.tuned,
        "device": known.device_name,
        "problem": dict(known.problem),
        "dtype": known.dtype,
        "variant": dict(known.variant) if known.variant is not None else None,
        "pinned": known.pinned,
        "milliseconds": as_number(known.milliseconds),
        "measured": known.measured,
        "failures": dict(known.failures),
        "newest": as_number(known.newest),
        "attempts": attempts,
    }
