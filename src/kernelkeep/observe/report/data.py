"""What a report shows, as plain data: read from a cache folder, checked field by field. Needs no device."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ... import __version__
from ...activity.diary import read_records
from ...cache.entry_files import Stored
from ...cache.upkeep import list_entries, survey_root
from .fields import amount, as_number, number, numbers_by_name, rows, text
from .misses import Known, explain_misses
from .over_time import over_time
from .tunings import tunings_in

_PROGRAMS = 1000  # the last used ones
_SLOWEST = 12
_RECORDS = 40  # of executors, runs, resident grids and processes


def gather(root: Path, only: Collection[str] | None = None, now: float | None = None) -> dict[str, Any]:
    """Everything, for all GPU folders or those named in `only`. `OSError` where another user could have written to the folder."""
    now = time.time() if now is None else now
    survey = survey_root(root, only)
    records = read_records(root) if root.is_dir() else []
    entries = sorted(list_entries(root, only), key=lambda stored: -stored.last_used)
    of_devices = [record for record in records if only is None or text(record, "device") in only]
    folders = [_folder(one, entries) for one in survey.folders]
    tunings, problem = tunings_in(root, only)
    return {
        "schema": 1,
        "made": now,
        "version": __version__,
        "cache_dir": str(root),
        "chosen": sorted(only) if only is not None else None,
        "since": min((number(record, "since") or record["at"] for record in of_devices), default=None),
        "lifetime": _lifetime(survey.lifetime),
        "folders": folders,
        "devices": _devices(folders, of_devices),
        "programs": [_program(stored) for stored in entries[:_PROGRAMS]],
        "programs_left_out": max(0, len(entries) - _PROGRAMS),
        "over_time": over_time(of_devices, now),
        "processes": _processes(of_devices),
        "slowest": _slowest(of_devices, entries),
        "misses": explain_misses(of_devices, [_known(one) for one in entries if one.facts is not None]),
        "tunings": tunings,
        "tunings_problem": problem,
        "executors": [_executor(one) for one in _newest(of_devices, "executor")],
        "runs": [_run(one) for one in _newest(of_devices, "run")],
        "residents": [_resident(one) for one in _newest(of_devices, "resident")],
    }


def _lifetime(stats: Any) -> dict[str, Any]:
    names = ("hits_memory", "hits_disk", "hits_remote", "misses", "compiles", "compile_errors", "compile_seconds",
             "compile_seconds_saved", "evictions", "corrupt_entries", "waits", "hit_rate", "on_disk", "disk_bytes")  # fmt: skip
    found = {name: as_number(getattr(stats, name)) or 0.0 for name in names}
    return {name: value if "seconds" in name or "rate" in name else int(value) for name, value in found.items()}


def _folder(survey: Any, entries: list[Stored]) -> dict[str, Any]:
    inside = [stored for stored in entries if stored.folder == survey.folder]
    created = [stored.facts.created for stored in inside if stored.facts is not None]
    facts = survey.fingerprint
    return {
        "folder": survey.folder,
        "model": text(facts, "model") or survey.folder,
        "backend": text(facts, "backend") or survey.folder.partition("_")[0],
        "vendor": text(facts, "vendor"),
        "driver": text(facts, "driver"),
        "compiler": text(facts, "compiler"),
        "programs": survey.entries,
        "is_driver_cache": survey.is_driver_cache,
        "bytes": survey.bytes,
        "driver_bytes": survey.driver_bytes,
        "damaged": sum(stored.facts is None for stored in inside),
        "set_aside": survey.set_aside,
        "oldest": min(created, default=None),
        "newest": max(created, default=None),
        "last_used": max((stored.last_used for stored in inside), default=survey.last_used),
    }


def _devices(folders: Iterable[Mapping[str, Any]], records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Names for people, by the name of the folder."""
    names = {text(record, "device"): text(record, "device_name") for record in records if text(record, "device")}
    names |= {one["folder"]: one["model"] for one in folders}
    names = {folder: name or folder for folder, name in names.items()}
    several = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {
        folder: f"{name} ({folder.partition('_')[0]} {folder.rpartition('_')[2][:6]})" if name in several else name
        for folder, name in names.items()
    }


def _program(stored: Stored) -> dict[str, Any]:
    facts = stored.facts
    common = {"folder": stored.folder, "digest": stored.digest, "bytes": stored.nbytes, "last_used": stored.last_used}
    if facts is None:
        name = stored.path.stem.removesuffix(f"-{stored.digest}")
        return common | {"name": name, "damage": stored.damage or "damaged"}
    return common | {
        "name": facts.name[:300],
        "damage": None,
        "language": facts.language,
        "kernels": [kernel[:100] for kernel in facts.kernels[:50]],
        "compile_seconds": as_number(facts.compile_seconds),
        "created": as_number(facts.created),
    }


def _known(stored: Stored) -> Known:
    facts = stored.facts
    assert facts is not None
    return Known(facts.name[:300], stored.digest, stored.folder, as_number(facts.created) or 0.0, facts.key.fields)


def _slowest(records: Iterable[Mapping[str, Any]], entries: Iterable[Stored]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for stored in entries:
        if stored.facts is not None:
            found[stored.digest] = {
                "name": stored.facts.name[:300],
                "digest": stored.digest,
                "device": stored.folder,
                "seconds": max(0.0, as_number(stored.facts.compile_seconds) or 0.0),
                "at": as_number(stored.facts.created),
                "kept": True,
            }
    for record in records:
        seconds, digest = number(record, "seconds"), text(record, "digest")
        if record.get("kind") == "compile" and seconds is not None and digest:
            kept = found.get(digest)
            if kept is None or seconds > kept["seconds"]:
                found[digest] = {
                    "name": text(record, "name"),
                    "digest": digest,
                    "device": text(record, "device"),
                    "seconds": max(0.0, seconds),
                    "at": number(record, "at"),
                    "kept": kept is not None and kept["kept"],
                }
    return sorted(found.values(), key=lambda one: -one["seconds"])[:_SLOWEST]


def _newest(records: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [record for record in records if record.get("kind") == kind][-_RECORDS:][::-1]


def _processes(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The processes that used the cache last. Old ones were summed up and have no name."""
    found: dict[tuple[float, str, str], dict[str, Any]] = {}
    for record in records:
        pid, program = number(record, "pid"), text(record, "program")
        if record.get("kind") != "counts" or pid is None:
            continue
        key = (pid, program, text(record, "device"))
        since, at = number(record, "since") or record["at"], record["at"]
        one = found.setdefault(
            key, {"program": program, "pid": int(pid), "device": key[2], "since": since, "at": at, "counts": {}}
        )
        one["since"], one["at"] = min(one["since"], since), max(one["at"], at)
        for name, value in numbers_by_name(record, "counts").items():
            one["counts"][name] = round(one["counts"].get(name, 0) + value, 6)
    return sorted(found.values(), key=lambda one: -one["at"])[:_RECORDS]


def _common(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": number(record, "at"),
        "program": text(record, "program"),
        "pid": number(record, "pid"),
        "device": text(record, "device"),
        "spec": text(record, "spec"),
        "seconds": number(record, "seconds"),
    }


def _executor(record: Mapping[str, Any]) -> dict[str, Any]:
    return _common(record) | {
        "depth": amount(record, "depth"),
        "batches": amount(record, "batches"),
        "failed_batches": amount(record, "failed_batches"),
        "busy": numbers_by_name(record, "busy"),
        "jobs": numbers_by_name(record, "jobs"),
        "looked_at": amount(record, "looked_at"),
        "spans": rows(record, "spans", (int, float, float, int, str)),
    }


def _run(record: Mapping[str, Any]) -> dict[str, Any]:
    numbers = ("iterations", "iteration", "dispatches", "gap_p50_seconds", "gap_p99_seconds", "busy_share",
               "longest_slice_seconds", "late_slices", "checkpoints", "checkpoint_seconds", "checkpoint_bytes",
               "checkpoint_failures", "tasks_done")  # fmt: skip
    texts = ("name", "strategy", "reason", "stopped", "error", "resumed_from", "checkpoint")
    return (
        _common(record)
        | {name: number(record, name) for name in numbers}
        | {name: text(record, name) or None for name in texts}
        | {
            "progress": rows(record, "progress", (float, int)),
            "gaps": rows(record, "gaps", (float, float, float)),
            "checkpoint_times": rows(record, "checkpoint_times", (float, float, int, bool)),
        }
    )


def _resident(record: Mapping[str, Any]) -> dict[str, Any]:
    return _common(record) | {
        "emulated": record.get("emulated") is True,
        "blocks": amount(record, "blocks"),
        "threads": amount(record, "threads"),
        "tasks": amount(record, "tasks"),
        "launches": amount(record, "launches"),
        "last_pause_seconds": amount(record, "last_pause_seconds"),
        "names": numbers_by_name(record, "names"),
        "counted": amount(record, "counted"),
        "spans": rows(record, "spans", (int, float, float, str)),
    }
