"""What the cache did: the numbers of one cache object, and their sum over all processes in `cache_stats.json`."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from ..storage.locks import FileLock, LockUnavailable

__all__ = ["COUNTERS", "CacheStats", "Counters", "add_to_file", "human_bytes", "read_file", "typed_counts"]

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
)
_LOCK_SECONDS = 30.0


class CacheStats(msgspec.Struct, frozen=True):
    """`str()` is the table a person reads. A memory hit needs no compile and saves none; saved seconds are those of
    programs that came from disk or from afar instead of the compiler."""

    programs: int = 0
    over_bound: bool = False
    on_disk: int = 0
    hits_memory: int = 0
    hits_disk: int = 0
    hits_remote: int = 0
    misses: int = 0
    compiles: int = 0
    compile_errors: int = 0
    compile_seconds: float = 0.0
    compile_seconds_saved: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    evictions: int = 0
    corrupt_entries: int = 0
    waits: int = 0
    ripened: int = 0

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
            ("hits from afar", f"{self.hits_remote:,}"),
            ("misses", f"{self.misses:,}"),
            ("hit rate", f"{self.hit_rate:.1%}"),
            ("compiles", f"{self.compiles:,} in {self.compile_seconds:.3f} s, {self.compile_errors:,} failed"),
            ("compile time saved", f"{self.compile_seconds_saved:.3f} s"),
            ("waited for another's compile", f"{self.waits:,}"),
            ("saved again after use", f"{self.ripened:,}"),
            ("evictions", f"{self.evictions:,}"),
            ("corrupt entries set aside", f"{self.corrupt_entries:,}"),
        ]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label.ljust(width)}  {value}" for label, value in rows)


def human_bytes(size: int) -> str:
    """A number of bytes for people: 512 B, 1.5 KiB, 3.0 GiB."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def typed_counts(counts: dict[str, float]) -> dict[str, Any]:
    """Counts as `CacheStats` has them: seconds are floats, everything else is whole."""
    return {name: value if name.startswith("compile_seconds") else int(value) for name, value in counts.items()}


class Counters:
    """Numbers that only grow, safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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


def read_file(path: Path) -> dict[str, float]:
    """The sums over all processes so far; zeros where there is no file or it is damaged."""
    sums = dict.fromkeys(COUNTERS, 0.0)
    found = _load(path)
    for name in COUNTERS:
        sums[name] = _number(found.get(name))
    return sums


def add_to_file(path: Path, amounts: dict[str, float]) -> bool:
    """Add to the sums; nothing is lost when many processes do so at once. False where the file cannot be written."""
    if not any(amounts.values()):
        return True
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(_LOCK_SECONDS)
    except LockUnavailable:
        return False
    try:
        found = _load(path)
        for name, amount in amounts.items():
            total = _number(found.get(name)) + amount
            found[name] = round(total, 6) if isinstance(total, float) and not total.is_integer() else int(total)
        found.setdefault("schema", 1)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
        temporary.replace(path)
        return True
    except OSError:
        with contextlib.suppress(OSError, UnboundLocalError):
            temporary.unlink(missing_ok=True)
        return False
    finally:
        lock.release()


def _load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float:
    """What a damaged file says may be no number, or none that can be counted on."""
    return value if isinstance(value, int | float) and abs(value) < 1e18 else 0
