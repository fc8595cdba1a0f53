"""The diary of a cache folder: a record on disk of what was done, from which `kernelkeep report` draws.

`diary.jsonl` has a line of JSON for each record, which processes append. Whoever makes it too long condenses it, under a lock
that nobody waits for (`condensing.py`). All of it is best-effort: where a record cannot be written, nothing else changes, and
lines that cannot be read are skipped. A line that is appended in the very moment in which the file is replaced is lost.
`KERNELKEEP_DIARY=0` keeps no diary.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from .. import settings
from ..storage.files import Damaged, append_line, read_regular, replace_appended, size_of, write_temporary
from ..storage.locks import FileLock, LockHeld, LockUnavailable
from ..storage.private import Trust, default_trust
from .program_name import program_name

FILE_NAME = "diary.jsonl"
LARGEST_BYTES = 1 << 20  # a diary that is longer is condensed
_LARGEST_READ = 16 << 20  # one that is longer than this is not ours
_LONGEST_LINE = 64 << 10
_QUIET_SECONDS = 60.0  # after a failure
_STALE_SECONDS = 3600.0

Record = dict[str, Any]
_log = logging.getLogger("kernelkeep")
_quiet: dict[str, float] = {}  # folders where writing failed: until when, by the monotonic clock, nobody tries again


def add_record(folder: Path, kind: str, facts: Record, trust: Trust | None = None) -> None:
    """Append a record to the diary of a cache folder that was found private. Never raises and never waits.

    `facts` must be what JSON can hold. What every record has besides: `kind`, `at` in seconds since 1970, `pid` and `program`.
    """
    if not settings.keeps_diary() or _quiet.get(str(folder), 0.0) > time.monotonic():
        return
    try:
        record = {"kind": kind, "at": round(time.time(), 3), "pid": os.getpid(), "program": program_name(), **facts}
        line = json.dumps(record, separators=(",", ":"), default=str)
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"a record of {len(line):,} characters")
        path = folder / FILE_NAME
        append_line(path, f"\n{line}\n")  # begins a line of its own, whatever a killed process left
        if (size_of(path) or 0) > LARGEST_BYTES:
            _condense(folder, trust or default_trust())
    except Exception as error:  # a full or read-only disk, a folder that was removed
        if str(folder) not in _quiet:
            _log.debug("the diary in %s cannot be written: %s", folder, error)
        _quiet[str(folder)] = time.monotonic() + _QUIET_SECONDS


def read_records(folder: Path, trust: Trust | None = None) -> list[Record]:
    """The records of a diary, oldest first; none where there is no diary, or where another user could have written it."""
    try:
        data, _ = read_regular(folder / FILE_NAME, trust or default_trust(), _LARGEST_READ)
    except Exception:
        return []
    return _parse(data)


def forget_records(folder: Path, before: float | None = None, trust: Trust | None = None) -> None:
    """Remove the records made before a time, or the whole diary. `OSError` where that fails."""
    path = folder / FILE_NAME
    if before is not None:
        if size_of(path) is not None:
            _condense(folder, trust or default_trust(), before)
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _parse(data: bytes) -> list[Record]:
    found = []
    for line in data.split(b"\n"):
        if line:
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("kind"), str) and _is_time(record.get("at")):
                    found.append(record)
    found.sort(key=recorded_at)
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11


def recorded_at(record: Record) -> float:
    """When a record was written, in seconds since 1970."""
    return float(record["at"])


def _condense(folder: Path, trust: Trust, before: float = 0.0) -> None:
    """Make it short again. Where somebody else does that, or somebody else's lock cannot be had, leave it."""
    from .condensing import condense  # rarely needed

    lock = FileLock(folder / f".{FILE_NAME}.lock")
    try:
        lock.acquire(0)
    except LockHeld:
        return
    except LockUnavailable:  # a file system without locks: lines that are appended this very moment may be lost
        pass
    try:
        path = folder / FILE_NAME
        try:
            data, _ = read_regular(path, trust, _LARGEST_READ)
        except Damaged:  # far too long, or not ours: begin anew
            path.unlink()
            return
        kept = condense([one for one in _parse(data) if one["at"] >= before], time.time(), LARGEST_BYTES // 2)
        _remove_stale(folder)
        text = "".join(f"{json.dumps(record, separators=(',', ':'))}\n" for record in kept)
        replace_appended(write_temporary(folder, text.encode(), f".{FILE_NAME}."), path, len(data))
    finally:
        lock.release()


def _remove_stale(folder: Path) -> None:
    """What a process left that was killed while it condensed."""
    with os.scandir(folder) as items:
        for item in items:
            if item.name.startswith(f".{FILE_NAME}.") and not item.name.endswith(".lock"):
                with contextlib.suppress(OSError):
                    if time.time() - item.stat(follow_symlinks=False).st_mtime > _STALE_SECONDS:
                        os.unlink(item.path)  # noqa: PTH108
