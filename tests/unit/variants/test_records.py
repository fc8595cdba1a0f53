"""Tuning results: found again as they were kept, told apart where they differ, and carried between machines."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.testing import run_python
from kernelkeep.testing.warned import one_warning
from kernelkeep.variants import database_file
from kernelkeep.variants import schema as schema_module
from kernelkeep.variants.record import MAX_SAMPLES, merged
from kernelkeep.variants.records import Choice, Record, Records
from kernelkeep.variants.values import canonical

PROBLEM: dict[str, Any] = {"m": 256, "n": 128}
DEVICE = "d" * 64


def record(number: int = 1, **changes: Any) -> Record:
    facts: dict[str, Any] = dict(
        tuned="gemm",
        source=f"{number:064x}",
        space="0123",
        device=DEVICE,
        device_name="cuda_h200",
        architecture="sm_90",
        problem=PROBLEM,
        variant={"TILE": number, "UNROLL": True, "LAYOUT": "rows", "SCALE": 0.5},
        samples_ms=[1.5, 1.25],
        verified=True,
        tolerance=1e-5,
    )
    return Record(**facts | changes)


def choice(number: int = 1, **changes: Any) -> Choice:
    facts: dict[str, Any] = dict(
        tuned="gemm", device=DEVICE, problem=PROBLEM, variant={"TILE": number}, reason="fastest"
    )
    return Choice(**facts | changes)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with Records(tmp_path / "cache") as opened:
        yield opened


def everything(records: Records) -> list[Record]:
    return [
        found for name in records.names() for device in records.devices() for found in records.of_device(name, device)
    ]


# --- kept and found


def test_another_process_finds_stored_records(tmp_path: Path) -> None:
    kept = record(created=1000.5, version="0.9", failure="wrong", detail="off by 3 at 17", dtype="f2")
    with Records(tmp_path / "cache") as records:
        records.add(kept)
    said = run_python(
        """
import sys
from pathlib import Path
from kernelkeep.variants.records import Records
(found,) = Records(Path(sys.argv[1])).of_device("gemm", "d" * 64)
print(found)
""",
        tmp_path / "cache",
    ).stdout
    assert said.strip() == repr(kept)
    assert (tmp_path / "cache" / "tuning.sqlite").is_file()


def test_time_and_version_are_filled_in(records: Records) -> None:
    before = time.time()
    records.add(record())
    (found,) = everything(records)
    assert before <= found.created <= time.time() and found.version == kk.__version__


def test_samples_add_up_to_the_newest_two_hundred(records: Records) -> None:
    records.add(record(samples_ms=[1.0, 2.0]))
    records.add(record(samples_ms=[3.0]))
    assert [found.samples_ms for found in everything(records)] == [[1.0, 2.0, 3.0]]
    records.add(record(samples_ms=[float(number) for number in range(MAX_SAMPLES - 1)]))
    (found,) = everything(records)
    assert found.samples_ms == [3.0, *(float(number) for number in range(MAX_SAMPLES - 1))]
    records.add(record(2, samples_ms=[float(number) for number in range(1000)]))
    assert everything(records)[1].samples_ms[0] == 1000 - MAX_SAMPLES


def test_a_failure_and_a_success_replace_each_other(records: Records) -> None:
    def found() -> Record | None:
        return records.find("gemm", f"{1:064x}", DEVICE, PROBLEM)

    records.add(record(samples_ms=[1.0]))
    records.add(record(samples_ms=[], failure="hung", detail="no answer for 2 s", verified=False))
    assert (now := found()) and (now.failure, now.samples_ms, now.verified) == ("hung", [], False)
    records.add(record(samples_ms=[], failure="crashed", verified=False))
    assert (now := found()) and (now.failure, now.detail) == ("crashed", "")
    records.add(record(samples_ms=[4.0]))
    assert (now := found()) and (now.failure, now.samples_ms, now.verified) == ("", [4.0], True)


def test_more_samples_do_not_take_back_a_verification(records: Records) -> None:
    records.add(record(verified=True, tolerance=1e-6))
    records.add(record(verified=False, tolerance=0.0))
    (found,) = everything(records)
    assert (found.verified, found.tolerance) == (True, 1e-6)


@pytest.mark.parametrize(
    ("samples", "median"), [([], None), ([2.0], 2.0), ([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 3.0, 9.0], 3.5)]
)
def test_median_ms_is_the_median_of_the_samples(samples: list[float], median: float | None) -> None:
    assert record(samples_ms=samples).median_ms == median


def test_every_part_of_the_key_tells_records_apart(records: Records) -> None:
    different: list[dict[str, Any]] = [
        {},
        {"tuned": "conv2d"},
        {"source": "f" * 64},
        {"device": "e" * 64},
        {"dtype": "f2"},
        {"problem": {"m": 256, "n": 129}},
        {"problem": {"m": 256}},
        {"problem": {"m": 256.0, "n": 128}},
        {"problem": {"m": "256", "n": 128}},
        {"problem": {"m": 1, "n": 128}},
        {"problem": {"m": True, "n": 128}},
        {"problem": {"m": 1.0, "n": 128}},
    ]
    for number, changes in enumerate(different):
        records.add(record(**changes, samples_ms=[float(number)]))
    for number, changes in enumerate(different):
        key = {"tuned": "gemm", "source": f"{1:064x}", "device": DEVICE, "problem": PROBLEM, "dtype": "f4"} | changes
        found = records.find(**key)
        assert found is not None and found.samples_ms == [float(number)]
        for name, value in found.problem.items():
            assert type(value) is type(key["problem"][name])
    assert records.find("gemm", "0" * 64, DEVICE, PROBLEM) is None


def test_numpy_numbers_and_the_order_of_names_make_no_difference(records: Records) -> None:
    records.add(record(problem={"m": 256, "alpha": 0.5, "fused": True, "mode": "same"}, samples_ms=np.array([1.0])))
    same = {"mode": np.str_("same"), "fused": np.bool_(True), "alpha": np.float32(0.5), "m": np.int64(256)}
    records.add(record(problem=same, samples_ms=[np.float64(2.0)], variant={"TILE": np.uint8(4)}))
    (found,) = everything(records)
    assert found.samples_ms == [1.0, 2.0] and found.variant == {"TILE": 4}
    assert set(records.known("gemm", DEVICE, same)) == {found.source}
    assert canonical(same) == '{"alpha":0.5,"fused":true,"m":256,"mode":"same"}'


@pytest.mark.parametrize(
    "value",
    [None, [1], (1, 2), {"a": 1}, b"x", 1j, float("nan"), float("-inf"), 2**63, np.arange(3), "\ud800", object()],
)
@pytest.mark.parametrize("field", ["problem", "variant"])
def test_values_that_cannot_be_stored_are_refused(records: Records, field: str, value: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=f"'tile' of the {field}"):
        records.add(msgspec.structs.replace(record(), **{field: {"tile": value}}))
    assert everything(records) == [] and records.problems == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": {1: 2}},
        {"problem": [1]},
        {"samples_ms": [1.0, float("nan")]},
        {"samples_ms": [-1.0]},
        {"samples_ms": ["fast"]},
        {"tolerance": float("inf")},
        {"tuned": None},
        {"device": "\udcff"},
    ],
)
def test_add_refuses_records_that_cannot_be_stored(records: Records, changes: dict[str, Any]) -> None:
    with pytest.raises(kk.ArgumentError):
        records.add(record(**changes))
    with pytest.raises(kk.ArgumentError):
        records.add_all([record(2), record(3, **changes)])
    assert everything(records) == []


def test_any_compiler_log_can_be_stored(records: Records) -> None:
    records.add(record(failure="compile", detail="\udcff error \0 – ü"))
    assert everything(records)[0].detail == "? error \0 – ü"


# --- asking


def test_records_are_found_by_device_and_by_architecture(records: Records) -> None:
    records.add_all(
        [
            record(1),
            record(2, failure="slow", created=50.0),
            record(1, problem={"m": 512}),
            record(1, dtype="f2"),
            record(1, device="e" * 64, device_name="cuda_h100"),
            record(3, device="a" * 64, device_name="cuda_a100", architecture="sm_80"),
            record(1, tuned="conv2d", created=4e9),
        ]
    )
    assert len(records.of_device("gemm", DEVICE)) == 4
    assert len(records.of_device("gemm", DEVICE, PROBLEM)) == 3
    assert len(records.of_device("gemm", DEVICE, PROBLEM, "f2")) == 1
    assert records.of_device("gemm", "b" * 64) == []
    assert [found.device[0] for found in records.of_architecture("gemm", "sm_90")] == ["d", "d", "d", "d", "e"]
    assert records.of_architecture("gemm", "gfx942") == []
    known = records.known("gemm", DEVICE, PROBLEM)
    assert {source[-1]: found.failure for source, found in known.items()} == {"1": "", "2": "slow"}
    assert records.names() == ["conv2d", "gemm"]
    assert records.devices() == {DEVICE: "cuda_h200", "e" * 64: "cuda_h100", "a" * 64: "cuda_a100"}
    table = [
        (count.tuned, count.device_name, count.problems, count.measured, count.failed) for count in records.counts()
    ]
    assert table == [
        ("conv2d", "cuda_h200", 1, 1, 0),
        ("gemm", "cuda_a100", 1, 1, 0),
        ("gemm", "cuda_h100", 1, 1, 0),
        ("gemm", "cuda_h200", 2, 3, 1),
    ]
    assert records.counts()[0].newest == 4e9


def test_forget_removes_what_matches_all_that_is_given(records: Records) -> None:
    for device in ("d", "e"):
        for tuned in ("gemm", "conv2d"):
            records.add_all([record(number, tuned=tuned, device=device) for number in range(3)])
            records.choose(choice(tuned=tuned, device=device))
    assert records.forget("gemm", "d") == 3
    assert records.choice("gemm", "d", PROBLEM) is None and records.choice("gemm", "e", PROBLEM)
    assert records.forget(device="e") == 6
    assert [(count.tuned, count.device) for count in records.counts()] == [("conv2d", "d")]
    assert records.forget("nothing") == 0
    assert records.forget() == 3
    assert records.counts() == [] and records.choices() == []


def test_five_hundred_records_are_read_in_a_few_milliseconds(records: Records) -> None:
    records.add_all(record(number, samples_ms=[number + 0.1 * sample for sample in range(20)]) for number in range(500))
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        assert len(records.known("gemm", DEVICE, PROBLEM)) == 500
        best = min(best, time.perf_counter() - start)
    assert best < 0.025  # 2.5 ms on a quiet machine


# --- the variant in use


def test_a_newer_choice_replaces_an_older_one(records: Records) -> None:
    assert records.choice("gemm", DEVICE, PROBLEM) is None
    records.choose(choice(1))
    records.choose(choice(2, reason="3 % faster"))
    records.choose(choice(3, dtype="f2"))
    found = records.choice("gemm", DEVICE, {"n": np.int32(128), "m": 256})
    assert found is not None and (found.variant, found.reason, found.pinned) == ({"TILE": 2}, "3 % faster", False)
    assert abs(found.created - time.time()) < 60
    assert len(records.choices("gemm")) == 2 and records.choices("conv2d") == []


def test_only_a_pin_replaces_a_pin(records: Records) -> None:
    def tile() -> Any:
        found = records.choice("gemm", DEVICE, PROBLEM)
        return found and found.variant["TILE"]

    records.choose(choice(1))
    assert not records.unpin("gemm", DEVICE, PROBLEM) and tile() == 1
    records.choose(choice(2, pinned=True))
    records.choose(choice(3))
    assert tile() == 2
    records.choose(choice(4, pinned=True))
    assert tile() == 4
    assert records.unpin("gemm", DEVICE, PROBLEM) and tile() is None
    records.choose(choice(5))
    assert tile() == 5


def test_choose_refuses_values_that_cannot_be_stored(records: Records) -> None:
    with pytest.raises(kk.ArgumentError, match="'TILE' of the variant"):
        records.choose(choice(variant={"TILE": None}))
    assert records.choices() == []


# --- where


def test_records_in_memory_need_no_folder_and_no_warning() -> None:
    records = Records(None)
    records.add(record())
    records.choose(choice())
    assert len(everything(records)) == 1 and records.choice("gemm", DEVICE, PROBLEM)
    assert records.path is None and records.in_memory and records.problems == 0


def test_a_path_that_ends_in_sqlite_names_the_file(tmp_path: Path) -> None:
    with Records(tmp_path / "mine.sqlite") as records:
        records.add(record())
        assert records.path == tmp_path / "mine.sqlite" and records.path.is_file() and not records.in_memory


def test_closed_records_open_again_when_used(records: Records) -> None:
    records.add(record())
    records.close()
    assert records.path is not None
    assert [path.name for path in records.path.parent.iterdir()] == ["tuning.sqlite"]
    records.close()
    assert len(everything(records)) == 1


def test_files_of_records_are_private(records: Records) -> None:
    records.add(record())
    assert records.path is not None
    found = [records.path.parent, *records.path.parent.iterdir()]
    assert len(found) == 4, "the folder, the file, its log and the log's index"
    assert not [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_a_removed_file_is_created_again(records: Records) -> None:
    records.add(record(1))
    assert records.path is not None
    records.path.unlink()
    records.add(record(2))
    assert [found.variant["TILE"] for found in everything(records)] == [2]
    with Records(records.path) as others:
        assert [found.variant["TILE"] for found in everything(others)] == [2]
    assert records.problems == 0


def test_threads_share_one_records_object(records: Records) -> None:
    def add(thread: int) -> int:
        for number in range(20):
            records.add(record(1000 * thread + number))
            records.add(record(7, samples_ms=[float(thread)]))
        return len(records.known("gemm", DEVICE, PROBLEM))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(1, 9)))
    assert len(everything(records)) == 8 * 20 + 1 and records.problems == 0
    shared = records.find("gemm", f"{7:064x}", DEVICE, PROBLEM)
    assert shared is not None and Counter(shared.samples_ms) == Counter({float(thread): 20 for thread in range(1, 9)})


def test_the_oldest_of_too_many_records_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Records(tmp_path) as records:
        records.add_all(record(number, created=1000.0 - number) for number in range(30))
        records.add(record(29, created=5000.0))
    monkeypatch.setattr(schema_module, "MAX_RECORDS", 10)
    with Records(tmp_path) as records:
        assert {found.variant["TILE"] for found in everything(records)} == {29, *range(9)}, "the oldest went"


def mode_of(path: Path) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]


def test_a_network_file_system_gets_no_write_ahead_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Records(tmp_path / "here") as records:
        records.add(record())
    assert mode_of(tmp_path / "here" / "tuning.sqlite") == "wal"
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path.resolve()} nfs4 rw 0 0\n")
    monkeypatch.setattr(database_file, "_MOUNTS", mounts)
    for folder in ("here", "there"):
        with Records(tmp_path / folder) as records:
            records.add(record(2))
            assert len(everything(records)) == (2 if folder == "here" else 1) and records.problems == 0
        assert mode_of(tmp_path / folder / "tuning.sqlite") == "delete"


def test_records_work_without_a_write_ahead_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems have no memory to share; sqlite's own stand-in for one of them has none either."""

    def connect(name: str) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{name}?vfs=unix-dotfile", uri=True, isolation_level=None, check_same_thread=False)

    monkeypatch.setattr(database_file, "connect", connect)
    with Records(tmp_path / "cache") as records:
        records.add(record())
        assert not records.in_memory and records.problems == 0
        assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".sqlite"}
    assert mode_of(tmp_path / "cache" / "tuning.sqlite") == "delete"


# --- schemas


def test_an_older_file_is_migrated_and_a_newer_one_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Records(tmp_path) as records:
        records.add(record(1))
    with monkeypatch.context() as future:
        future.setattr(schema_module, "_STEPS", (*schema_module._STEPS, "ALTER TABLE records ADD COLUMN watts REAL;"))
        with Records(tmp_path) as records:
            records.add(record(2))
            assert len(everything(records)) == 2 and records.problems == 0
    path = tmp_path / "tuning.sqlite"
    before = path.read_bytes()
    with one_warning("a newer kernelkeep wrote it: schema 2, this version reads 1"), Records(tmp_path) as records:
        assert everything(records) == []
        records.add(record(3))
        assert len(everything(records)) == 1 and records.in_memory and records.problems == 1
    assert path.read_bytes() == before and [found.name for found in tmp_path.iterdir()] == ["tuning.sqlite"]


def test_a_bad_row_is_skipped(records: Records) -> None:
    records.add_all([record(1), record(2)])
    records.choose(choice())
    records.close()
    assert records.path is not None
    with closing(sqlite3.connect(records.path)) as connection, connection:
        connection.execute("UPDATE records SET body = CAST(x'ff00' AS TEXT) WHERE source LIKE '%2'")
        connection.execute("UPDATE choices SET body = '{}'")
    with one_warning("a row of"):
        assert [found.variant["TILE"] for found in everything(records)] == [1]
        assert records.choice("gemm", DEVICE, PROBLEM) is None
    assert records.problems == 2
    records.add(record(2))
    records.choose(choice())
    assert len(everything(records)) == 2 and records.choice("gemm", DEVICE, PROBLEM)


# --- between machines


def full(records: Records) -> tuple[list[Record], list[Choice]]:
    return sorted(everything(records), key=lambda one: (one.tuned, one.device, one.source)), records.choices()


@pytest.fixture
def filled(records: Records) -> Records:
    records.add_all(
        [record(number, device=device, device_name=device) for number in range(5) for device in (DEVICE, "e")]
    )
    records.add(record(9, failure="compile", detail="line 3: ß", samples_ms=[]))
    records.choose(choice(2, pinned=True))
    return records


def test_load_reads_what_export_wrote(filled: Records, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert filled.export(path) == 11
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 12 and {line["schema"] for line in lines} == {1}
    with Records(None) as other:
        assert other.load(str(path)) == 12
        assert full(other) == full(filled)
        assert other.load(path) == 0, "a second time changes nothing"
        assert full(other) == full(filled)
    assert filled.load(path) == 0
    assert sorted(found.name for found in tmp_path.iterdir()) == ["cache", "results.jsonl"], "nothing else is left"


def test_export_and_load_take_open_files(filled: Records) -> None:
    text, binary = io.StringIO(), io.BytesIO()
    assert filled.export(text, tuned="gemm", device="e") == 5
    assert filled.export(binary, tuned="conv2d") == 0 and binary.getvalue() == b""
    filled.export(binary)
    for file, number in ((text, 5), (binary, 12)):
        file.seek(0)
        assert Records(None).load(file) == number


def test_exported_files_can_be_joined(filled: Records) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    filled.export(first, device=DEVICE)
    filled.export(second, device="e")
    joined = io.BytesIO(second.getvalue() + b"\n" + first.getvalue() + second.getvalue())
    other = Records(None)
    other.load(joined)
    assert full(other) == full(filled)


def test_an_export_appears_whole_or_not_at_all(filled: Records, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("something older, and longer than nothing\n" * 1000)
    filled.export(path)
    assert Records(None).load(path) == 12
    for place, reason in ((tmp_path / "no" / "folder", "No such file"), (tmp_path / "cache", "it is a folder")):
        with pytest.raises(kk.ArgumentError, match=f"cannot be written: {reason}"):
            filled.export(place)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["cache", "results.jsonl"]
    with pytest.raises(kk.ArgumentError, match="cannot be read: No such file"):
        filled.load(tmp_path / "missing")


def test_load_skips_bad_lines_with_one_warning(filled: Records, tmp_path: Path) -> None:
    good = io.BytesIO()
    filled.export(good)
    lines = good.getvalue().splitlines()
    changed = json.loads(lines[0])
    changed["record"]["problem"] = {"m": [1]}
    bad = [b"{not json", b'{"schema":1}', b'{"schema":1,"record":{"tuned":"gemm"}}', b"\xff\xfe", b"[" * 5000, b"null"]
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"\n".join([*lines[:3], *bad, json.dumps(changed).encode(), b"", *lines[3:]]))
    other = Records(None)
    with one_warning(f"line 4 of {path} is skipped"):
        assert other.load(path) == 12
        assert other.load(path) == 0
    assert full(other) == full(filled) and other.problems == 2


def test_a_line_of_a_newer_version_refuses_the_file(filled: Records, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    filled.export(path)
    for newer in ('{"schema":2,"trace":[1]}', path.read_text().splitlines()[0].replace('"schema":1', '"schema":3')):
        text = path.read_text()
        (tmp_path / "newer.jsonl").write_text(text + newer)
        other = Records(None)
        with pytest.raises(kk.ArgumentError, match=r"line 13 .* newer kernelkeep .* nothing was read"):
            other.load(tmp_path / "newer.jsonl")
        assert everything(other) == []


def exchange(first: Record, second: Record) -> tuple[Record, Record]:
    """What two machines have after each read the other's file, twice."""
    machines = Records(None), Records(None)
    files = io.BytesIO(), io.BytesIO()
    for machine, file, one in zip(machines, files, (first, second), strict=True):
        machine.add(one)
        machine.export(file)
    for _ in range(2):
        for machine, file in zip(machines, reversed(files), strict=True):
            file.seek(0)
            machine.load(file)
    ((left,), (right,)) = (everything(machine) for machine in machines)
    return left, right


def test_machines_that_exchange_results_agree() -> None:
    common = [1.0, 1.0, 2.0]
    left, right = exchange(
        record(samples_ms=[*common, 3.0], created=10.0, version="1"),
        record(samples_ms=[*common, 4.0], created=20.0, version="2"),
    )
    assert left == right and Counter(left.samples_ms) == Counter([1.0, 1.0, 2.0, 3.0, 4.0]) and left.version == "2"
    left, right = exchange(record(created=10.0), record(created=20.0, failure="wrong", samples_ms=[]))
    assert left == right and left.failure == "wrong", "the newer word counts"
    left, right = exchange(record(created=30.0), record(created=20.0, failure="wrong", samples_ms=[]))
    assert left == right and left.failure == ""


samples = st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0]), max_size=6)
some_records = st.builds(
    lambda samples_ms, failed, created, verified: record(
        samples_ms=[] if failed else samples_ms,
        failure="slow" if failed else "",
        created=created,
        verified=verified and not failed,
    ),
    samples,
    st.booleans(),
    st.sampled_from([1.0, 2.0, 3.0]),
    st.booleans(),
)


@given(some_records, some_records)
def test_reading_a_file_again_never_changes_anything(here: Record, there: Record) -> None:
    once = merged(here, there)
    assert merged(once, there) == once and merged(once, here) == once
    if here.created != there.created:
        assert merged(there, here) == once, "nor does the order"


def test_reading_a_file_with_too_many_samples_again_changes_nothing() -> None:
    many = [float(number) for number in range(300)]
    for here, there in ((many[:200], many[100:]), (many[100:], many[:200]), (many[:200], [many[150], *many[200:]])):
        for created in (1.0, 2.0, 3.0):
            old, new = record(samples_ms=here, created=2.0), record(samples_ms=there, created=created)
            once = merged(old, new)
            assert len(once.samples_ms) == MAX_SAMPLES and merged(once, new) == once


def test_a_pin_is_not_undone_by_a_file() -> None:
    file = io.BytesIO()
    elsewhere = Records(None)
    elsewhere.choose(choice(1, created=100.0))
    elsewhere.export(file)
    for here, stands in (
        (choice(2, created=1.0), 1),
        (choice(2, created=200.0), 2),
        (choice(2, created=1.0, pinned=True), 2),
    ):
        records = Records(None)
        records.choose(here)
        file.seek(0)
        assert records.load(file) == (stands == 1)
        found = records.choice("gemm", DEVICE, PROBLEM)
        assert found is not None and found.variant == {"TILE": stands}


# --- next to nothing


def test_importing_kernelkeep_loads_no_sqlite() -> None:
    script = "import kernelkeep, sys; print([name for name in ('sqlite3', 'json', 'msgspec') if name in sys.modules])"
    assert run_python(script).stdout.strip() == "[]"


def test_no_file_is_created_before_it_is_needed(tmp_path: Path) -> None:
    Records(tmp_path / "cache").close()
    assert not (tmp_path / "cache").exists()


def test_a_record_is_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(record()), type=Record) == record()
