"""The diary on disk: what is written is read, it stays short, and nothing it meets breaks its user."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelkeep.activity import diary, minutes
from kernelkeep.activity.condensing import condense
from kernelkeep.activity.diary import FILE_NAME, LARGEST_BYTES, add_record, forget_records, read_records

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KERNELKEEP_DIARY", raising=False)
    monkeypatch.setattr(diary, "_quiet", {})
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def counts(at: float, hits: int, device: str = "gpu", **more: object) -> dict[str, object]:
    return {"kind": "counts", "at": at, "since": at - 1, "device": device, "counts": {"hits_disk": hits}, **more}


def test_a_record_is_read_with_its_process_and_time(folder: Path) -> None:
    before = time.time()
    add_record(folder, "run", {"program": "heat", "iterations": 5})
    (record,) = read_records(folder)
    assert record["kind"] == "run" and record["iterations"] == 5 and record["pid"] == os.getpid()
    assert before - 1 <= record["at"] <= time.time() + 1
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_what_is_damaged_is_skipped(folder: Path) -> None:
    add_record(folder, "run", {"number": 1})
    with (folder / FILE_NAME).open("ab") as file:
        file.write(b'{"kind": "run", "at": 1, "cut o')  # a process that was killed
    add_record(folder, "run", {"number": 2})
    bad = (
        b"[1]",
        b'"x"',
        b"\xff\xfe\x00",
        b'{"kind": 3, "at": 1}',
        b'{"kind": "x", "at": "y"}',
        b'{"kind":"x","at":1e99}',
    )
    with (folder / FILE_NAME).open("ab") as file:
        file.write(b"\n".join((*bad, b"[" * 100_000, b"")))
    add_record(folder, "run", {"number": 3})
    assert [record["number"] for record in read_records(folder)] == [1, 2, 3]


def test_a_diary_that_others_may_write_is_not_read(folder: Path) -> None:
    add_record(folder, "run", {})
    (folder / FILE_NAME).chmod(0o666)
    assert read_records(folder) == []


def test_it_can_be_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_DIARY", "0")
    add_record(folder, "run", {})
    assert not list(folder.iterdir())


def test_it_stays_short_and_keeps_every_count(folder: Path) -> None:
    long = {"spans": ["x" * 100] * 100}
    for number in range(400):
        add_record(folder, "executor", {"number": number, **long})
        add_record(folder, "counts", {"counts": {"hits_disk": 1}})
    assert (folder / FILE_NAME).stat().st_size <= LARGEST_BYTES + 20_000
    found = read_records(folder)
    assert sum(record["counts"]["hits_disk"] for record in found if record["kind"] == "counts") == 400
    executors = [record for record in found if record["kind"] == "executor"]
    assert executors[-1]["number"] == 399 and "spans" in executors[-1]
    assert [path.name for path in folder.iterdir()] == [FILE_NAME], "no lock and no temporary file is left"


def test_old_counts_become_sums_of_hours_and_days() -> None:
    now = 1_800_000_000.0 // DAY * DAY
    recent = [counts(now - 500 + i, 1) for i in range(500)]
    hours = [counts(now - 2 * DAY + i, 1, "a" if i % 2 else "b") for i in range(100)]
    days = [counts(now - 60 * DAY + i * 60, 1) for i in range(100)]
    ancient = [counts(now - 1000 * DAY, 1)]
    kept = condense([*ancient, *days, *hours, *recent], now, 1 << 20)
    sums = [(record["device"], record["counts"]["hits_disk"], record["processes"]) for record in kept[:3]]
    assert sums == [("gpu", 100, 100), ("b", 50, 50), ("a", 50, 50)]
    assert kept[3:] == recent
    again = condense(kept, now, 1 << 20)
    assert again == kept


def test_the_slowest_compiles_outlive_the_newest() -> None:
    records = [
        {"kind": "compile", "at": float(i), "seconds": 100.0 if i == 7 else 0.1, "name": str(i)} for i in range(1, 999)
    ]
    kept = condense(records, 1000.0, 1 << 20)
    assert any(record["name"] == "7" for record in kept) and kept[-1]["name"] == "998" and len(kept) < 300


def test_condensing_always_gets_below_the_bound() -> None:
    records = [
        {"kind": kind, "at": float(i + 1), "name": "x" * 3000, "gaps": ["y" * 3000]}
        for i in range(80)
        for kind in ("compile", "run", "executor", "resident", "new")
    ]
    for most in (1 << 20, 100_000, 1000, 10):
        kept = condense(records, 100.0, most)
        assert sum(len(json.dumps(record)) for record in kept) <= most


def test_old_records_and_all_records_can_be_forgotten(folder: Path) -> None:
    lines = [json.dumps(counts(at, 1)) for at in (100.0, 200.0, 300.0)]
    (folder / FILE_NAME).write_text("\n".join(lines))
    (folder / FILE_NAME).chmod(0o600)
    forget_records(folder, before=150.0)
    assert [record["at"] for record in read_records(folder)] == [200.0, 300.0]
    forget_records(folder)
    forget_records(folder)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), OSError(30, "Read-only"), ValueError("x")])
def test_a_disk_that_takes_nothing_is_one_line_in_the_log(
    folder: Path, problem: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def refuse(path: Path, line: str) -> None:
        tries.append(path)
        raise problem

    monkeypatch.setattr(diary, "append_line", refuse)
    with caplog.at_level(logging.DEBUG, "kernelkeep"):
        for _ in range(5):
            add_record(folder, "run", {})
    assert len(tries) == 1, "it tries again a minute later, not at once"
    assert len(caplog.records) == 1 and "diary" in caplog.text


def test_a_folder_in_its_place_and_a_foreign_file_are_no_problem(folder: Path) -> None:
    (folder / FILE_NAME).mkdir()
    add_record(folder, "run", {"number": 1})
    assert [record["number"] for record in read_records(folder)] == [1]
    (folder / FILE_NAME).write_bytes(b"x" * (17 << 20))
    assert read_records(folder) == []
    add_record(folder, "run", {"number": 2})  # far too long: it begins anew
    add_record(folder, "run", {"number": 3})
    assert [record["number"] for record in read_records(folder)] == [3]


def test_many_processes_write_and_condense_at_the_same_time(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kernelkeep.activity.diary import add_record\n"
        "for i in range(300): add_record(Path(sys.argv[1]), 'counts', {'counts': {'hits_disk': 1}, 'padding': 'x' * 1500})"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(folder)]) for _ in range(4)]
    assert [process.wait() for process in running] == [0, 0, 0, 0]
    found = read_records(folder)
    # While one process condenses, each other one may lose the line that it writes that very moment; none counts twice.
    times = 1200 * 1600 // (LARGEST_BYTES // 2) + 1
    assert 1200 - 3 * times <= sum(record["counts"]["hits_disk"] for record in found) <= 1200
    assert (folder / FILE_NAME).stat().st_size <= LARGEST_BYTES + 20_000


def test_once_a_minute_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    called = threading.Event()

    def call() -> None:
        called.set()
        raise RuntimeError("dropped")

    monkeypatch.setattr(minutes, "_calls", [call])
    minutes.start()
    first = [thread for thread in threading.enumerate() if thread.name == "kernelkeep-diary"]
    minutes.start()
    assert [thread for thread in threading.enumerate() if thread.name == "kernelkeep-diary"] == first and len(
        first
    ) == 1
    minutes.wake()
    assert called.wait(30)
