"""Tuning results where things go wrong: many writers, killed ones, damaged files, full and read-only disks, forks."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.testing import run_python
from kernelkeep.testing.warned import one_warning
from kernelkeep.variants import database as database_module
from kernelkeep.variants.database import Database
from kernelkeep.variants.database_file import locked
from kernelkeep.variants.records import Choice, Record, Records

DEVICE = "d" * 64
PROBLEM = {"m": 256}

# What the scripts below begin with.
COMMON = """
import json, os, random, signal, sys, threading, time
from pathlib import Path
from kernelkeep.variants.records import Record, Records

def record(number, samples=(1.0,)):
    return Record(tuned="gemm", source=f"{number:064x}", space="", device="d" * 64, device_name="gpu",
                  architecture="sm_90", problem={"m": 256}, variant={"N": number}, samples_ms=list(samples))
"""


def record(number: int, samples_ms: tuple[float, ...] = (1.0,)) -> Record:
    return Record(
        tuned="gemm",
        source=f"{number:064x}",
        space="",
        device=DEVICE,
        device_name="gpu",
        architecture="sm_90",
        problem=dict(PROBLEM),
        variant={"N": number},
        samples_ms=list(samples_ms),
    )


def numbers(records: Records) -> list[object]:
    return sorted((found.variant["N"] for found in records.of_device("gemm", DEVICE)), key=str)


def is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@contextmanager
def running(script: str, *arguments: object) -> Iterator[Callable[[str], str]]:
    """A process beside this one, as a function: what it answers to a line."""
    paths = [str(Path(kk.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        write, read = child.stdin.write, child.stdout.readline
        try:
            yield lambda line: read().strip() if write(line) or not line else ""
        finally:
            child.kill()


# --- many

WRITING = (
    COMMON
    + """
root, writer, start = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
records = Records(root)
time.sleep(max(0, start - time.time()))

def write(half):
    for number in range(25 * half, 25 * half + 25):
        records.add(record(1000 * writer + number))
        records.add(record(7, [float(1000 * writer + number)]) if number % 5 == 0 else record(8))
        records.known("gemm", "d" * 64, {"m": 256})

threads = [threading.Thread(target=write, args=(half,)) for half in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(records.problems, records.in_memory)
"""
)


def write_together(root: Path) -> None:
    start = time.time() + 2.0
    with ThreadPoolExecutor(16) as pool:
        done = pool.map(
            lambda writer: run_python("import warnings; warnings.simplefilter('error')" + WRITING, root, writer, start),
            range(1, 17),
        )
        assert {child.stdout.strip() for child in done} == {"0 False"}, "no process saw a problem"


def check_written(root: Path) -> None:
    with Records(root) as records:
        found = records.known("gemm", DEVICE, PROBLEM)
    assert len(found) == 16 * 50 + 2
    every = {float(1000 * writer + number) for writer in range(1, 17) for number in range(0, 50, 5)}
    assert set(found[f"{7:064x}"].samples_ms) == every, "no sample of a row that all write is lost"
    assert [path.name for path in root.iterdir()] == ["tuning.sqlite"] and is_sound(root / "tuning.sqlite")


@pytest.mark.slow
def test_sixteen_processes_lose_nothing(tmp_path: Path) -> None:
    write_together(tmp_path / "cache")
    check_written(tmp_path / "cache")


FINDING_DAMAGE = "import warnings; warnings.simplefilter('ignore')" + WRITING


@pytest.mark.slow
def test_a_damaged_file_is_moved_aside_once_by_many_processes(tmp_path: Path) -> None:
    """Whoever comes second must not move aside what the first created."""
    tmp_path.joinpath("tuning.sqlite").write_bytes(b"garbage" * 1000)
    start = time.time() + 1.0
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda writer: run_python(FINDING_DAMAGE, tmp_path, writer, start), range(1, 7)))
    problems = [int(child.stdout.split()[0]) for child in done]
    assert sum(problems) == 1, problems
    with Records(tmp_path) as records:
        assert len(numbers(records)) == 6 * 50 + 2
    assert (tmp_path / "tuning.sqlite.damaged").read_bytes() == b"garbage" * 1000


def test_nobody_opens_a_file_while_it_is_moved_aside(tmp_path: Path) -> None:
    """A connection to the moved file would find the new file's log, and carry what others wrote there away."""
    path = tmp_path / "tuning.sqlite"
    with Records(tmp_path) as records:
        records.add(record(2))
    before = path.read_bytes()
    with Records(tmp_path) as records, ThreadPoolExecutor(1) as pool:
        with locked(path):
            added = pool.submit(records.add, record(1))
            with pytest.raises(TimeoutError):
                added.result(0.3)
            path.rename(tmp_path / "tuning.sqlite.damaged")
        added.result(30)
        assert numbers(records) == [1] and records.problems == 0
    assert (tmp_path / "tuning.sqlite.damaged").read_bytes() == before


def test_what_was_written_while_the_file_was_moved_aside_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    database = Database(path)
    database.read(lambda connection: None)
    moves = iter(["", "-wal", "-shm"])

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO choices VALUES ('gemm', 'd', 'p', 'f4', 'b')")
        for suffix in moves:
            Path(f"{path}{suffix}").rename(f"{path}.damaged{suffix}")

    database.write(work)
    assert database.read(lambda connection: connection.execute("SELECT count(*) FROM choices").fetchone()) == (1,)
    database.close()


# --- killed

# One process imports everything and forks: a writer costs milliseconds.
KILLING = (
    COMMON
    + """
root, kills = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(20)
said = os.open(root / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def write(seed):
    records, number = Records(root), 0
    while True:
        for number in range(number, number + 10):
            records.add(record(1_000_000 * seed + number, [1.0] * 30))
            os.write(said, f"{1_000_000 * seed + number}\\n".encode())
        records.add_all(record(1_000_000 * seed + number + more) for more in range(1, 21))
        number += 20
        os.write(said, f"{1_000_000 * seed + number}\\n".encode())
        number += 1
        if number % 4 == 0:
            records.close()  # the log goes into the file

def forked(seed):
    child = os.fork()
    if child == 0:
        try:
            write(seed)
        finally:
            os._exit(1)
    return child

writers = [forked(seed) for seed in range(1, 5)]
for seed in range(5, 5 + kills):
    time.sleep(rng.uniform(0.002, 0.05))
    victim = writers.pop(rng.randrange(len(writers)))
    os.kill(victim, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(victim, 0)[1]) == signal.SIGKILL, "it ended by itself"
    if seed % 20 == 0:  # all at once: the next one finds a log that nobody has open
        for victim in writers:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
        start = time.monotonic()
        reader = Records(root)
        count = len(reader.known("gemm", "d" * 64, {"m": 256}))
        assert count and not reader.problems and not reader.in_memory, (count, reader.problems)
        assert time.monotonic() - start < 5, "no lock of a killed process blocks"
        reader.close()
        writers = [forked(1000 * seed + more) for more in range(3)]
    writers.append(forked(seed))
for victim in writers:
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
"""
)


@pytest.mark.slow
def test_writers_killed_at_random_moments_lose_nothing_they_finished(tmp_path: Path) -> None:
    run_python(KILLING, tmp_path, 60)
    said = {int(line) for line in (tmp_path / "said").read_text().split()}
    assert len(said) > 200
    with Records(tmp_path) as records:
        found = {int(one.variant["N"]) for one in records.of_device("gemm", DEVICE)}
        assert said <= found and records.problems == 0
    # Twenty in one transaction are there together or not at all.
    together = [set(range(first, first + 20)) for first in found if first % 1_000_000 % 30 == 10]
    assert together and all(numbers <= found for numbers in together)
    assert {number for number in found if number % 1_000_000 % 30 >= 10} == set().union(*together)
    assert is_sound(tmp_path / "tuning.sqlite") and not (tmp_path / "tuning.sqlite.damaged").exists()


# --- damaged


def filled(root: Path) -> Path:
    with Records(root) as records:
        records.add_all(record(number, (1.0, 2.0, 3.0)) for number in range(300))
    return root / "tuning.sqlite"


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def overwrite(first: int, last: int | None) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[first:last] = random.Random(1).randbytes(len(data[first:last]))
        path.write_bytes(data)

    return change


def in_its_place(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE records (song TEXT)")


def one_table_less(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE choices")


def odd_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=-5")


DAMAGE = {
    "cut off in the header": cut(60),
    "cut off in the first page": cut(3000),
    "cut off after the first page": cut(4096),
    "cut in half": lambda path: cut(path.stat().st_size // 2)(path),
    "cut off in a page": lambda path: cut(path.stat().st_size // 2 + 1234)(path),
    "garbage in front": overwrite(0, 100),
    "garbage in the middle": overwrite(8192, 60_000),
    "garbage all over": overwrite(0, None),
    "garbage behind the header": overwrite(100, None),
    "a text": lambda path: path.write_text("hello\n" * 1000) and None,
    "a folder": in_its_place(lambda path: (path / "sub").mkdir(parents=True)),
    "a link": in_its_place(lambda path: path.symlink_to("elsewhere")),
    "another program's": in_its_place(another_program),
    "one table less": one_table_less,
    "an odd schema": odd_schema,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("first", ["read", "write"])
def test_a_damaged_file_is_moved_aside(tmp_path: Path, damage: str, first: str) -> None:
    path = filled(tmp_path)
    DAMAGE[damage](path)
    with one_warning("is moved aside as tuning.sqlite.damaged, and a new one is created"), Records(tmp_path) as records:
        if first == "read":
            assert numbers(records) == []
        else:
            # Writing need not come across the damage; reading everything does.
            records.add(record(1))
            numbers(records)
        records.add(record(2))
        assert 2 in numbers(records) and records.problems == 1 and not records.in_memory
    assert (tmp_path / "tuning.sqlite.damaged").exists() or (tmp_path / "tuning.sqlite.damaged").is_symlink()
    assert not (tmp_path / "elsewhere").exists(), "nothing is written through a link"
    assert is_sound(path)
    with Records(tmp_path) as records:  # and now all is well
        assert 2 in numbers(records) and records.problems == 0


def test_an_empty_file_is_used_as_a_new_one(tmp_path: Path) -> None:
    cut(0)(filled(tmp_path))
    with Records(tmp_path) as records:
        assert numbers(records) == []
        records.add(record(1))
        assert numbers(records) == [1] and records.problems == 0


def test_a_file_damaged_while_open_is_moved_aside(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with one_warning("moved aside"), Records(tmp_path) as records, Records(tmp_path) as others:
        assert len(numbers(records)) == len(numbers(others)) == 300
        with path.open("r+b") as file:
            file.write(random.Random(2).randbytes(path.stat().st_size))
        for number in range(400, 403):
            records.add(record(number))
            numbers(records)
        others.add(record(403))
        assert 403 in numbers(others) and 403 in numbers(records), "who had the old one open goes on with the new one"
        assert records.problems + others.problems == 1
    assert is_sound(path)


def test_a_log_cut_off_while_open_loses_no_call(tmp_path: Path) -> None:
    with one_warning("moved aside"), Records(tmp_path) as records, Records(tmp_path) as others:
        assert numbers(others) == []
        for number in range(200):
            records.add(record(number))
        os.truncate(tmp_path / "tuning.sqlite-wal", 5000)
        assert numbers(others) == []
        records.add(record(500))
        assert numbers(others) == numbers(records) == [500] and not others.in_memory
        assert (records.problems, others.problems) == (0, 1)
    assert (tmp_path / "tuning.sqlite.damaged-wal").stat().st_size == 5000, "all of it is kept to look at"
    assert is_sound(tmp_path / "tuning.sqlite")


HAVING_IT_OPEN = (
    COMMON
    + """
records = Records(Path(sys.argv[1]))
records.add(record(0))
if sys.argv[2] == "damaged":
    records.close()  # from the log into the file, which could be made whole from the log
records.add(record(1))
print("ready", flush=True)
for line in sys.stdin:
    for number in range(int(line), int(line) + 10):
        records.add(record(number))
    print(len(records.of_device("gemm", "d" * 64)), flush=True)
"""
)


@pytest.mark.parametrize("what", ["removed", "damaged"])
def test_a_new_file_is_used_by_whoever_has_the_old_one_open(tmp_path: Path, what: str) -> None:
    path = tmp_path / "tuning.sqlite"
    with running(HAVING_IT_OPEN, tmp_path, what) as ask:
        assert ask("") == "ready"
        if what == "removed":
            path.unlink()
        else:
            path.write_bytes(b"garbage" * 2000)
        with Records(tmp_path) as records, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = 0
            for start in range(100, 400, 20):
                for number in range(start, start + 10):
                    records.add(record(number))
                assert ask(f"{start + 10}\n") == str(expected := expected + 20)
                assert len(numbers(records)) == expected
            assert records.problems == (what == "damaged")
    with Records(tmp_path) as records:
        assert len(numbers(records)) == expected and records.problems == 0
    assert is_sound(path)


def test_interrupted_work_is_rolled_back(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a transaction."""
    path = filled(tmp_path)

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records")
        raise KeyboardInterrupt

    database = database_module.Database(path)
    with pytest.raises(KeyboardInterrupt):
        database.write(work)
    with Records(tmp_path) as records:
        assert len(numbers(records)) == 300
        records.add(record(1000))
    database.write(lambda connection: connection.execute("DELETE FROM records WHERE source LIKE '%3e8'").rowcount)
    assert database.problems == 0
    database.close()
    with Records(tmp_path) as records:
        assert 1000 not in numbers(records) and len(numbers(records)) == 300


def test_only_the_last_damaged_file_is_kept(tmp_path: Path) -> None:
    for text in ("first" * 100, "second" * 100, "third" * 100):
        (tmp_path / "tuning.sqlite").write_text(text)
        with one_warning("damaged"), Records(tmp_path) as records:
            records.add(record(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tuning.sqlite", "tuning.sqlite.damaged"]
    assert (tmp_path / "tuning.sqlite.damaged").read_text() == "third" * 100


# --- disks that do not play along


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"DISK FULL NOT TESTED on a real file system: mount said {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


def choice() -> Choice:
    return Choice(tuned="gemm", device=DEVICE, problem=dict(PROBLEM), variant={"N": 1}, pinned=True)


def test_a_file_in_place_of_the_folder_breaks_no_call(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with one_warning("they are kept in memory only"), Records(tmp_path / "cache") as records:
        assert numbers(records) == [] and records.counts() == [] and records.forget() == 0
        records.add(record(1))
        records.choose(choice())
        assert numbers(records) == [1] and records.choice("gemm", DEVICE, PROBLEM)
        assert records.in_memory and records.problems == 1
    assert (tmp_path / "cache").read_text() == "not a folder"


KILLED = (
    COMMON
    + """
records = Records(Path(sys.argv[1]))
records.add_all(record(number) for number in range(10))
records.close()
records.add_all(record(number) for number in range(10, 20))
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""
)


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_a_read_only_cache_serves_and_warns_once(small_disk: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(database_module, "_RETRY_SECONDS", 0.0)
    run_python(KILLED, small_disk / "cache", end, check=False)
    assert (small_disk / "cache" / "tuning.sqlite-wal").exists() == (end == "killed"), "rows that are in the log only"
    remount(small_disk, "ro")
    with one_warning("tuning.sqlite ("), Records(small_disk / "cache") as records:
        for number in range(20, 24):
            assert len(numbers(records)) == number, "what is there is served"
            records.add(record(number))
        assert len(numbers(records)) == 24
        remount(small_disk, "rw")
        records.add(record(24))
        assert len(numbers(records)) == 25 and not records.in_memory
    with Records(small_disk / "cache") as records:
        assert len(numbers(records)) == 25, "nothing that was measured meanwhile is lost"


def test_where_warnings_are_errors_nothing_breaks(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = Records(tmp_path / "cache")
        records.add(record(1))
        assert numbers(records) == [1]


def test_a_full_disk_breaks_no_call(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_RETRY_SECONDS", 0.2)
    samples = tuple(float(number) for number in range(150))
    with one_warning("full"), Records(small_disk / "cache") as records:
        records.add(record(0, samples))
        fill(small_disk / "filler")
        for number in range(1, 60):
            records.add(record(number, samples))
        assert len(numbers(records)) == 60, "all of them are known in this process"
        assert records.in_memory and records.problems >= 1
        problems = records.problems
        time.sleep(0.25)
        records.add(record(60, samples))
        assert records.in_memory and records.problems == problems + 1, "it was tried again"

        (small_disk / "filler").unlink()  # space returns
        time.sleep(0.25)
        records.add(record(61, samples))
        assert len(numbers(records)) == 62 and not records.in_memory
    with Records(small_disk / "cache") as records:
        assert len(numbers(records)) == 62
        assert {found.samples_ms[-1] for found in records.of_device("gemm", DEVICE)} == {149.0}
        assert {len(found.samples_ms) for found in records.of_device("gemm", DEVICE)} == {150}, "none counts twice"


def test_a_disk_that_is_full_from_the_start_breaks_no_call(small_disk: Path) -> None:
    fill(small_disk / "filler")
    with one_warning("in memory only"), Records(small_disk / "cache") as records:
        records.add(record(1))
        assert numbers(records) == [1]


def test_a_writer_that_never_ends_delays_others_only_briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_BUSY_SECONDS", 0.1)
    monkeypatch.setattr(database_module, "_RETRY_SECONDS", 0.1)
    path = filled(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with one_warning("locked"), Records(tmp_path) as records:
            start = time.monotonic()
            assert len(numbers(records)) == 300 and time.monotonic() - start < 1, "readers do not wait"
            records.add(record(1000))
            assert time.monotonic() - start < 5
            assert len(numbers(records)) == 301
            other.execute("COMMIT")
            time.sleep(0.15)
    with Records(tmp_path) as records:
        assert len(numbers(records)) == 301, "closing saves what is left"


# --- forks

FORKING = (
    COMMON
    + """
root = Path(sys.argv[1])
records = Records(root)
records.add(record(0))
offline = Records(None)
offline.add(record(1))
stop = threading.Event()
count = [0]

def busy():
    while not stop.is_set():
        count[0] += 1
        records.add(record(1_000_000 + count[0]))

thread = threading.Thread(target=busy)
thread.start()
children = []
for number in range(1, 21):
    child = os.fork()
    if child == 0:
        places = (f"/proc/self/fd/{descriptor}" for descriptor in range(3, 64))
        inherited = [os.readlink(place) for place in places if os.path.lexists(place)]
        assert not [name for name in inherited if "tuning" in name], inherited
        for more in range(10):
            records.add(record(100 * number + more))
        assert len(records.of_device("gemm", "d" * 64)) > 10
        assert len(offline.of_device("gemm", "d" * 64)) == 1
        assert records.problems == 0 and not records.in_memory
        sys.exit(0)  # through the end of the interpreter, which closes what is open
    children.append(child)
    records.add(record(100 * number + 50))
deadline = time.monotonic() + 60
codes = []
for child in children:
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            codes.append(os.waitstatus_to_exitcode(status))
            break
        assert time.monotonic() < deadline, "a child hangs"
        time.sleep(0.01)
stop.set()
thread.join()
records.close()
found = {one.variant["N"] for one in records.of_device("gemm", "d" * 64)}
expected = {0} | {1_000_000 + number for number in range(1, count[0] + 1)}
expected |= {100 * number + more for number in range(1, 21) for more in (*range(10), 50)}
print(json.dumps([codes, sorted(expected - found), sorted(found - expected), records.problems, count[0] > 5]))
"""
)


@pytest.mark.slow
def test_forked_children_and_their_parent_write_side_by_side(tmp_path: Path) -> None:
    codes, lost, odd, problems, busy = json.loads(run_python(FORKING, tmp_path).stdout)
    assert codes == [0] * 20 and lost == [] and odd == [] and problems == 0 and busy
    assert is_sound(tmp_path / "tuning.sqlite")


FORKING_OFFLINE = (
    COMMON
    + """
import warnings
from kernelkeep.variants import database
warnings.simplefilter("ignore")
database._RETRY_SECONDS = 0.0
root = Path(sys.argv[1])
root.write_text("in the way")
records = Records(root)
records.add(record(1, [1.0]))
child = os.fork()
if child == 0:
    root.unlink()
    records.add(record(2))
    records.close()
    os._exit(0)
os.waitpid(child, 0)
records.add(record(3))
records.close()
print(sorted((one.variant["N"], len(one.samples_ms)) for one in records.of_device("gemm", "d" * 64)))
"""
)


def test_unsaved_records_are_saved_once_after_a_fork(tmp_path: Path) -> None:
    assert run_python(FORKING_OFFLINE, tmp_path / "cache").stdout.strip() == "[(1, 1), (2, 1), (3, 1)]"
