"""Tuning results in a file that was damaged in any way, or that another user could have written: the program goes on."""

from __future__ import annotations

import io
import os
import random
import shutil
import sqlite3
import stat
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kernelkeep.testing.warned import one_warning
from kernelkeep.variants.database import Database
from kernelkeep.variants.records import Choice, Record, Records

DEVICE = "d" * 64
PROBLEM = {"m": 256}
# A few hundred files take seconds; set this to some thousands for a thorough run.
FILES = int(os.environ.get("DAMAGED_FILES", "160"))


def record(number: int) -> Record:
    return Record(
        tuned="gemm", source=f"{number:064x}", space="", device=DEVICE, device_name="gpu", architecture="sm_90",
        problem=dict(PROBLEM), variant={"N": number}, samples_ms=[1.0, 2.0],
    )  # fmt: skip


def choice(number: int) -> Choice:
    return Choice(tuned="gemm", device=DEVICE, problem=dict(PROBLEM), variant={"N": number}, pinned=True)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("healthy")
    with Records(folder) as records:
        records.add_all(record(number) for number in range(25))
        records.choose(choice(3))
    return (folder / "tuning.sqlite").read_bytes()


def damaged(data: bytes, dice: random.Random) -> bytes:
    """A file in which bits, bytes, a stretch or a page were changed, or that was cut off; headers more often than the rest."""
    size = dice.choice([100, 4096, len(data), len(data)])
    at = dice.randrange(min(size, len(data)))
    length = dice.choice([1, 1, 1, 2, 8, 64, 4096])
    kind = dice.choice(["bit", "bytes", "bytes", "zeros", "ones", "page", "cut"])
    changed = bytearray(data)
    stretch = slice(at, min(at + length, len(data)))
    if kind == "bit":
        changed[at] ^= 1 << dice.randrange(8)
    elif kind == "cut":
        del changed[at:]
    elif kind == "page":
        stretch = slice(at // 4096 * 4096, at // 4096 * 4096 + 4096)
        changed[stretch] = dice.randbytes(len(changed[stretch]))
    else:
        fill = {"bytes": dice.randbytes(length), "zeros": bytes(length), "ones": b"\xff" * length}[kind]
        changed[stretch] = fill[: len(changed[stretch])]
    return bytes(changed)


def use(records: Records) -> None:
    """Everything there is to do with records; what is written now is there afterwards."""
    records.names()
    records.devices()
    records.of_architecture("gemm", "sm_90")
    records.choices()
    records.export(io.BytesIO())
    records.add_all([record(3), record(900)])
    records.choose(choice(4))
    assert {found.source for found in records.of_device("gemm", DEVICE)} >= {record(3).source, record(900).source}
    assert record(900).source in records.known("gemm", DEVICE, PROBLEM)
    found = records.choice("gemm", DEVICE, PROBLEM)
    assert found is not None and found.variant == {"N": 4}
    assert records.unpin("gemm", DEVICE, PROBLEM)


def test_damage_of_every_kind_breaks_no_call(healthy: bytes, tmp_path: Path) -> None:
    set_aside = 0
    for seed in range(FILES):
        dice, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir(mode=0o700)
        path = folder / "tuning.sqlite"
        changed = damaged(healthy, dice)
        path.write_bytes(changed if seed % 4 else healthy)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with Records(folder) as records:
                if not seed % 4:  # it happens while the file is open
                    assert len(records.of_device("gemm", DEVICE)) == 25
                    with path.open("r+b") as file:
                        file.write(changed)
                        file.truncate()
                use(records)
                in_memory = records.in_memory
            aside = (folder / "tuning.sqlite.damaged").exists()
            # Only a schema number that some newer version may have cannot be told from damage.
            assert not in_memory or "newer" in str(said[0].message), f"seed {seed}"
            texts = [str(warning.message) for warning in said if "moved aside" in str(warning.message)]
            assert len(texts) == aside, f"seed {seed}: {texts}"
            with Records(folder) as records:
                # What was written before somebody damaged the file may be lost with it.
                kept = records.known("gemm", DEVICE, PROBLEM)
                assert in_memory or not seed % 4 or record(900).source in kept, f"seed {seed}"
                use(records)
        set_aside += aside
        shutil.rmtree(folder)
    assert set_aside > FILES // 5


# --- what need not come up at random


def sql(statement: str, *values: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA writable_schema=1")
            connection.execute(statement, values)

    return change


def at(position: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    return change


def folder_beside(suffix: str) -> Callable[[Path], None]:
    return lambda path: (path.with_name(path.name + suffix) / "sub").mkdir(parents=True)


def link_beside(suffix: str) -> Callable[[Path], None]:
    return lambda path: path.with_name(path.name + suffix).symlink_to(path.with_name("victim"))


@pytest.mark.parametrize(
    "damage",
    {
        "a schema that is not UTF-8": at(3690, b"\xff\xfe\xff"),
        "a header that forbids writing": at(18, b"\x03"),
        "a header that forbids reading": at(18, b"\x03\x03"),
        "an absurd schema number": at(60, b"\x7f\xff\xff\xff"),
        "another encoding": at(56, b"\x00\x00\x00\x02"),
        "another primary key": sql(
            "UPDATE sqlite_master SET sql = replace(sql, 'problem, dtype, source)', 'problem, dtype)') WHERE name = 'records'"
        ),
        "an index that is gone": sql("DELETE FROM sqlite_master WHERE name = 'records_by_age'"),
        "a view in the place of a table": sql("UPDATE sqlite_master SET type = 'view' WHERE name = 'choices'"),
        "a folder as the log": folder_beside("-wal"),
        "a folder as the shared memory": folder_beside("-shm"),
        "a folder as the journal": folder_beside("-journal"),
        "a link as the log": link_beside("-wal"),
        "a link as the journal": link_beside("-journal"),
    }.items(),
    ids=lambda item: item[0],
)
def test_damage_that_sqlite_does_not_report_is_found(
    healthy: bytes, tmp_path: Path, damage: tuple[str, Callable[[Path], None]]
) -> None:
    path = tmp_path / "tuning.sqlite"
    path.write_bytes(healthy)
    (tmp_path / "victim").write_text("mine")
    damage[1](path)
    with one_warning("it is moved aside as tuning.sqlite.damaged"), Records(tmp_path) as records:
        use(records)
        assert records.problems == 1 and not records.in_memory
    with Records(tmp_path) as records:
        use(records)
        assert records.problems == 0
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("column", ["tuned", "device_name", "architecture", "failure", "created", "body"])
@pytest.mark.parametrize(
    "value", [b"\xff\xfe", 2**62, 1e300, "\ud83d\ude00".encode("utf-16", "surrogatepass"), "x" * 100_000]
)
def test_values_of_other_types_are_skipped(healthy: bytes, tmp_path: Path, column: str, value: object) -> None:
    (tmp_path / "tuning.sqlite").write_bytes(healthy)
    sql(f"UPDATE records SET {column} = ? WHERE source LIKE '%5'", value)(tmp_path / "tuning.sqlite")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Records(tmp_path) as records:
            assert all(isinstance(count.newest, float) and isinstance(count.tuned, str) for count in records.counts())
            use(records)
            assert not records.in_memory
    assert not (tmp_path / "tuning.sqlite.damaged").exists()


@pytest.mark.parametrize(
    "error",
    [
        ("disk I/O error", sqlite3.SQLITE_IOERR_READ),
        ("database or disk is full", sqlite3.SQLITE_FULL),
        ("unable to open database file", sqlite3.SQLITE_CANTOPEN),
        ("attempt to write a readonly database", sqlite3.SQLITE_READONLY),
        ("out of memory", sqlite3.SQLITE_NOMEM),
        ("database is locked", sqlite3.SQLITE_BUSY),
        ("not UTF-8", None),
    ],
    ids=lambda error: error[0],
)
def test_a_healthy_file_is_not_moved_aside(
    healthy: bytes, tmp_path: Path, error: tuple[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that the machine makes, once in a while or for good, leaves the file where it is."""
    monkeypatch.setattr("kernelkeep.variants.database._BUSY_SECONDS", 0.1)
    monkeypatch.setattr("kernelkeep.variants.database._RETRY_SECONDS", 0.0)
    path = tmp_path / "tuning.sqlite"
    path.write_bytes(healthy)
    database = Database(path)
    failures = 1

    def work(connection: sqlite3.Connection) -> int:
        nonlocal failures
        if failures and connection is database.connection:
            failures -= 1
            if error[1] is None:
                raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "made up")
            made_up = sqlite3.OperationalError(error[0])
            made_up.sqlite_errorcode = error[1]
            raise made_up
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert database.read(work) == 25, "from the file, or from what was copied of it"
        failures = 10**6
        database.read(work)
        failures = 0
        assert database.read(work) == 25 and not database.in_memory
    database.close()
    assert [found.name for found in tmp_path.iterdir()] == ["tuning.sqlite"]


# --- whose file it is


def test_only_the_owner_reads_them_under_any_umask(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    before = os.umask(0o000)
    try:
        with Records(folder) as records:
            records.add(record(1))
            found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    finally:
        os.umask(before)
    assert found == {"cache": 0o700, "tuning.sqlite": 0o600, "tuning.sqlite-wal": 0o600, "tuning.sqlite-shm": 0o600}
    os.umask(0o777)
    try:
        with Records(tmp_path / "masked") as records:
            records.add(record(1))
            assert not records.in_memory
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "masked" / "tuning.sqlite").stat().st_mode) == 0o600


def others(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("tuning.sqlite", lambda path: path.chmod(0o620)),
        ("tuning.sqlite", lambda path: path.chmod(0o602)),
        ("tuning.sqlite", others),
        ("tuning.sqlite-wal", others),
        (".", lambda path: path.chmod(0o770)),
        (".", others),
    ],
)
def test_files_another_user_could_have_written_are_not_read(
    healthy: bytes, tmp_path: Path, where: str, change: Callable[[Path], None]
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    (folder / "tuning.sqlite").write_bytes(healthy)
    (folder / "tuning.sqlite").chmod(0o600)
    if where != ".":
        (folder / where).touch(0o600)
    change(folder / where)
    with one_warning("cannot be stored in"), Records(folder) as records:
        assert records.of_device("gemm", DEVICE) == [] and records.choices() == []
        records.add(record(1))
        assert len(records.of_device("gemm", DEVICE)) == 1 and records.in_memory
    assert (folder / "tuning.sqlite").read_bytes() == healthy, "nor written"


def test_a_file_that_others_may_only_read_becomes_private(healthy: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    path.write_bytes(healthy)
    path.chmod(0o644)
    with Records(tmp_path) as records:
        assert len(records.of_device("gemm", DEVICE)) == 25 and not records.in_memory
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
