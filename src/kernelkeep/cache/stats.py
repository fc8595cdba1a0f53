"""Statistics of the cache: the counts of one cache object, and their sums over all processes in `cache_stats.json`."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ArgumentError
from ..storage.private import Trust, default_trust
from ..storage.shared_counts import SharedCounts, number

STATS_FILE = "cache_stats.json"  # in the cache folder
COUNTERS = (
    "hits_memory",
    "hits_disk",
    "hits_remote",
    "misses",
    "compiles",
    "compile_errors",
    "compile_seconds",
    "compile_seconds_saved",
    "evictions",
    "corrupt_entries",
    "waits",
    "ripened",
    "remote_stored",
    "remote_refused",
    "remote_failed",
    "remote_skipped",
    "remote_dropped",
)


class CacheStats(msgspec.Struct, frozen=True):
    """Counts and sizes of a cache; `str()` is a table for people.

    `compile_seconds_saved` counts programs that came from disk or a remote tier; a hit in memory saves no compile.

    Of shared stores: entries `remote_stored` there; `remote_refused`, because no trusted key signed them; calls that
    `remote_failed`; lookups that were `remote_skipped`, because the store had failed a short time before or no time was left; and
    entries `remote_dropped`, because too many waited to be written or the store kept failing.
    """

    programs: int = 0  # loaded now
    over_bound: bool = False  # more are loaded than `max_programs`, because all are in use
    on_disk: int = 0  # programs in this device's folder
    hits_memory: int = 0  # lookups that found the program loaded
    hits_disk: int = 0  # lookups answered from disk
    hits_remote: int = 0  # lookups answered by a shared store
    misses: int = 0  # lookups that found it nowhere
    compiles: int = 0  # programs that were compiled
    compile_errors: int = 0  # compiles that failed
    compile_seconds: float = 0.0  # spent on compiling
    compile_seconds_saved: float = 0.0  # what programs from disk or a store had cost when they were compiled
    memory_bytes: int = 0  # of loaded programs
    disk_bytes: int = 0  # of files in this device's folder
    evictions: int = 0  # programs dropped from memory, for the bound or for room on the device
    corrupt_entries: int = 0  # damaged files that were set aside
    waits: int = 0  # lookups that waited for another's compile
    ripened: int = 0  # programs saved again after use, with more native code
    remote_stored: int = 0  # entries written to a store
    remote_refused: int = 0  # entries that no trusted key signed
    remote_failed: int = 0  # calls to a store that failed
    remote_skipped: int = 0  # lookups without a store that had just failed, or for which no time was left
    remote_dropped: int = 0  # entries not written: too many waited, or the store kept failing

    @property
    def hits(self) -> int:
        """Lookups that needed no compiler."""
        return self.hits_memory + self.hits_disk + self.hits_remote

    @property
    def hit_rate(self) -> float:
        """The share of lookups that needed no compiler; 0 before the first."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0

    def __str__(self) -> str:
        over = " (over the bound: all are in use)" if self.over_bound else ""
        rows = [
            ("programs in memory", f"{self.programs:,}, {human_bytes(self.memory_bytes)}{over}"),
            ("programs on disk", f"{self.on_disk:,}, {human_bytes(self.disk_bytes)}"),
            ("hits in memory", f"{self.hits_memory:,}"),
            ("hits on disk", f"{self.hits_disk:,}"),
            ("remote hits", f"{self.hits_remote:,}"),
            ("misses", f"{self.misses:,}"),
            ("hit rate", f"{self.hit_rate:.1%}"),
            ("compiles", f"{self.compiles:,} in {self.compile_seconds:.3f} s, {self.compile_errors:,} failed"),
            ("compile time saved", f"{self.compile_seconds_saved:.3f} s"),
            ("waited for another's compile", f"{self.waits:,}"),
            ("saved again after use", f"{self.ripened:,}"),
            ("evictions", f"{self.evictions:,}"),
            ("corrupt entries set aside", f"{self.corrupt_entries:,}"),
        ]
        rows += self.remote_rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label.ljust(width)}  {value}" for label, value in rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import stats_html

        return stats_html(self)

    def remote_rows(self) -> list[tuple[str, str]]:
        """The lines about shared stores; none where there was nothing to do with any."""
        counts = {
            "stored remotely": self.remote_stored,
            "remote entries refused": self.remote_refused,
            "remote failures": self.remote_failed,
            "remote lookups skipped": self.remote_skipped,
            "not stored remotely": self.remote_dropped,
        }
        return [(label, f"{count:,}") for label, count in counts.items()] if any(counts.values()) else []


def human_bytes(size: int) -> str:
    """A number of bytes for people: 512 B, 1.5 KiB, 3.0 GiB."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def bytes_bound(name: str, value: Any) -> int | None:
    """The argument `name` as a bound in bytes; None where it sets none."""
    if value is None or value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ArgumentError(f"{name} must be a number of bytes, got {value!r}")
    return int(value)


def check_seconds(name: str, value: Any, *, positive: bool = False, below: float = math.inf) -> None:
    """`ArgumentError` unless the argument `name` is a number of seconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0 or (positive and value == 0) or (positive and not value < below):
        wanted = "a positive number of seconds" if positive else "a number of seconds, 0 or more"
        raise ArgumentError(f"{name} must be {wanted}, got {value!r}")


def typed_counts(counts: dict[str, float]) -> dict[str, Any]:
    """Counts as `CacheStats` has them: seconds are floats, everything else is whole."""
    return {name: value if name.startswith("compile_seconds") else int(value) for name, value in counts.items()}


class Counters:
    """Counts that only grow, safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may look while its own thread counts
        self._values: dict[str, float] = dict.fromkeys(COUNTERS, 0)

    def add(self, **amounts: float) -> None:
        """Add to some of them."""
        with self._lock:
            for name, amount in amounts.items():
                self._values[name] += amount

    def read(self) -> dict[str, float]:
        """All of them, at one moment."""
        with self._lock:
            return dict(self._values)


def guest_counter(guest: str, name: str) -> str:
    """Under which name the file has a count of one guest (`kernelkeep.guests`). It is part of the sums, too."""
    return f"guests/{guest}/{name}"


def read_guests(path: Path, trust: Trust | None = None) -> dict[str, dict[str, float]]:
    """The sums of each guest, by its name."""
    guests: dict[str, dict[str, float]] = {}
    for label, value in _shared(path, trust).read().items():
        kind, _, rest = label.partition("/")
        guest, _, name = rest.rpartition("/")
        if kind == "guests" and guest and name in COUNTERS:
            guests.setdefault(guest, dict.fromkeys(COUNTERS, 0.0))[name] = float(number(value))
    return dict(sorted(guests.items()))


def read_file(path: Path, trust: Trust | None = None) -> dict[str, float]:
    """The sums over all processes so far; zeros where there is no file or it is damaged."""
    found = _shared(path, trust).read()
    return {name: float(number(found.get(name))) for name in COUNTERS}


def add_to_file(path: Path, amounts: dict[str, float], trust: Trust | None = None) -> bool:
    """Add to the sums without waiting for other processes and without losing a count. False where nothing can be written."""
    if not any(amounts.values()):
        return True
    try:
        _shared(path, trust).add({name: amount for name, amount in amounts.items() if amount})
    except OSError:
        return False
    return True


def _shared(path: Path, trust: Trust | None) -> SharedCounts:
    return SharedCounts(
        path, path.with_name(f".{path.name}.lock"), trust or default_trust(), lambda found: {"schema": 1} | found
    )
