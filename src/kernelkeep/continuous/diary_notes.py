"""What the diary gets of a run that is over: what it did, and how it went over time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..cache.program_cache import ProgramCache

if TYPE_CHECKING:
    from .report import RunReport

_MOST = 60  # entries of each kind
T = TypeVar("T")


def note_run(cache: ProgramCache, report: RunReport, checkpoint: str | None) -> None:
    """Add a record to the diary of the cache. Never raises."""
    with suppress(Exception):  # the run is over and good, whatever the diary says
        _note(cache, report.program, checkpoint, _facts(report))


def _facts(report: RunReport) -> dict[str, Any]:
    history = report.history
    facts: dict[str, Any] = {
        name: getattr(report, name)
        for name in (
            "strategy", "reason", "iterations", "iteration", "dispatches", "seconds", "stopped", "gap_p50_seconds",
            "gap_p99_seconds", "busy_share", "longest_slice_seconds", "late_slices", "checkpoints", "checkpoint_seconds",
            "checkpoint_bytes", "checkpoint_failures", "resumed_from", "tasks_done",
        )
    }  # fmt: skip
    return facts | {
        "progress": [_rounded(one) for one in _thinned(history.progress)],
        "gaps": [_rounded(one) for one in _thinned(history.gaps)],
        "checkpoint_times": [_rounded(one) for one in _thinned(history.checkpoints)],
    }


def note_failed_run(
    cache: ProgramCache, program: str, iteration: int, iterations: int, seconds: float, error: BaseException,
    checkpoint: str | None,
) -> None:  # fmt: skip
    """Of a run that an error ended. Never raises."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    facts = {
        "iteration": iteration,
        "iterations": iterations,
        "seconds": seconds,
        "stopped": "failed",
        "error": said[:300],
    }
    with suppress(Exception):
        _note(cache, program, checkpoint, facts)


def _note(cache: ProgramCache, program: str, checkpoint: str | None, facts: dict[str, Any]) -> None:
    device = cache.device
    cache.disk.note(
        "run",
        {
            "name": program[:200],
            "device": device.fingerprint.folder,
            "spec": device.spec,
            "device_name": device.info.name,
            "checkpoint": checkpoint[:300] if checkpoint else None,
            **facts,
        },
    )


def _thinned(entries: Sequence[T]) -> list[T]:
    """At most `_MOST` of them, the first and the last among them."""
    if len(entries) <= _MOST:
        return list(entries)
    return [entries[round(i * (len(entries) - 1) / (_MOST - 1))] for i in range(_MOST)]


def _rounded(entry: tuple[Any, ...]) -> list[Any]:
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in entry]
