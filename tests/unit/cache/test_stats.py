"""The numbers: what is shown, and that none is lost when processes end together."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelkeep.cache.native import NATIVE, PlainTally, Tally
from kernelkeep.cache.stats import COUNTERS, CacheStats, Counters, add_to_file, read_file
from kernelkeep.cache.timings import Timings
from kernelkeep.testing import run_python

ENDING = """
import sys, time
from pathlib import Path
from kernelkeep.cache.stats import add_to_file
path, start = Path(sys.argv[1]), float(sys.argv[2])
time.sleep(max(0, start - time.time()))
for _ in range(20):
    assert add_to_file(path, {"hits_memory": 3, "compiles": 1, "compile_seconds": 0.25})
"""


def test_sixteen_processes_ending_at_once_lose_nothing(tmp_path: Path) -> None:
    import time

    path = tmp_path / "cache_stats.json"
    start = time.time() + 2
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: run_python(ENDING, path, start), range(16)))
    sums = read_file(path)
    assert (sums["hits_memory"], sums["compiles"], sums["compile_seconds"]) == (960, 320, 80.0)
    assert [p.name for p in tmp_path.iterdir()] == ["cache_stats.json"], "no lock and no temporary file is left"


def test_threads_adding_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache_stats.json"
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: add_to_file(path, {"misses": 1}), range(200)))
    assert read_file(path)["misses"] == 200


def test_nothing_to_add_writes_nothing(tmp_path: Path) -> None:
    assert add_to_file(tmp_path / "cache_stats.json", dict.fromkeys(COUNTERS, 0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b"\xff",
        b'{"misses": "many", "compiles": null, "hits_disk": [1]}',
        b'{"misses": NaN, "compiles": Infinity, "hits_disk": -Infinity}',
        b'{"misses": ' + b"9" * 1000 + b', "compiles": 1e999}',
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_a_damaged_file_counts_as_nothing_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cache_stats.json"
    path.write_bytes(content)
    assert read_file(path) == dict.fromkeys(COUNTERS, 0.0)
    assert add_to_file(path, {"misses": 2, "compiles": 1})
    sums = read_file(path)
    assert (sums["misses"], sums["compiles"], sums["hits_disk"]) == (2, 1, 0)
    assert json.loads(path.read_text())["misses"] == 2


def test_what_another_version_counts_stays(tmp_path: Path) -> None:
    path = tmp_path / "cache_stats.json"
    path.write_text('{"schema": 7, "misses": 1, "launches": 12, "by_gpu": {"a": 1}}')
    add_to_file(path, {"misses": 1})
    assert json.loads(path.read_text()) == {"schema": 7, "misses": 2, "launches": 12, "by_gpu": {"a": 1}}


@pytest.mark.parametrize("place", ["missing/parent", "a file/as parent"])
def test_adding_to_a_file_that_cannot_be_written_returns_false(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    path = tmp_path / place / "cache_stats.json"
    written = add_to_file(path, {"misses": 1})
    assert written is path.exists()
    assert read_file(path)["misses"] == (1 if written else 0)


def test_the_file_is_private_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "cache_stats.json"
    add_to_file(path, {"compile_seconds": 0.1, "compiles": 1})
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text().splitlines()) >= 4


def test_counters_under_threads() -> None:
    counters = Counters()
    barrier = threading.Barrier(16)

    def work(_: int) -> None:
        barrier.wait()
        for _ in range(1000):
            counters.add(misses=1, compile_seconds=0.5)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert counters.read()["misses"] == 16_000
    assert counters.read()["compile_seconds"] == 8_000.0


def test_hit_rate_is_the_share_of_lookups_without_a_compile() -> None:
    assert CacheStats().hit_rate == 0
    assert CacheStats(hits_memory=90, hits_disk=5, hits_remote=1, misses=4).hit_rate == 0.96


def test_str_is_a_table_for_people() -> None:
    table = str(
        CacheStats(
            programs=3, on_disk=1234, hits_memory=95, misses=5, compiles=5, compile_seconds=1.25, memory_bytes=5 << 20
        )
    )
    for text in ("3, 5.0 MiB", "1,234, 0 B", "95.0%", "5 in 1.250 s, 0 failed"):
        assert text in table
    assert "over the bound" not in table
    assert "over the bound" in str(CacheStats(over_bound=True))
    assert len({line.rfind("  ") for line in table.splitlines()}) == 1, "the values stand in one column"


@pytest.mark.parametrize("kind", [PlainTally] if NATIVE is None else [PlainTally, Tally])
def test_a_tally_loses_nothing_and_looking_does_not_count(kind: type[PlainTally]) -> None:
    tally = kind()

    def add() -> None:
        for number in range(2000):
            tally.add()
            if number % 100 == 0:
                tally.read()

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [tally.read() for _ in range(3)] == [16_000] * 3


_LOOKS_IN_A_HANDLER = """
import faulthandler, signal, sys
faulthandler.dump_traceback_later(20, exit=True)
from kernelkeep.cache.native import PlainTally, Tally
from kernelkeep.cache.stats import Counters
from kernelkeep.cache.timings import Timings

def count(interrupted):  # a signal comes at this line of those that count and look
    timings, counters, tallies, looked, lines = Timings(), Counters(), [Tally(), PlainTally()], [], []
    for _ in range(3):
        timings.add_load(1.0, 3.0)

    def look(*_):
        looked.append([timings.compile_seconds_saved, counters.read(), *(tally.read() for tally in tallies)])

    signal.signal(signal.SIGINT, look)

    def trace(frame, event, arg):
        if frame.f_code.co_name in ("_count_loads", "add", "read"):
            lines.append(frame.f_lineno)
            if len(lines) == interrupted:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    for tally in tallies:
        tally.add()
    counters.add(misses=1, compiles=1)
    saved, read, numbers = timings.compile_seconds_saved, counters.read(), [tally.read() for tally in tallies]
    sys.settrace(None)
    loads = sum(timings.histograms()["load_seconds"]["counts"])
    found = saved, read["misses"], read["compiles"], numbers, loads
    assert found == (6, 1, 1, [1, 1], 3), (interrupted, found)
    assert len(looked) == bool(interrupted), (interrupted, looked)
    return len(lines)

lines = count(0)
assert lines > 30
for line in range(1, lines + 1):
    count(line)
"""


def test_a_signals_handler_may_look_while_its_thread_counts() -> None:
    run_python(_LOOKS_IN_A_HANDLER, timeout_seconds=60)


def test_loads_are_counted_when_somebody_looks_and_before_there_are_many() -> None:
    timings = Timings()
    for _ in range(1000):
        timings.add_load(0.002, 0.102)
        timings.add_load(0.2, 0.1)  # slower than the compile: nothing saved
    assert len(timings._uncounted) < 300
    assert timings.compile_seconds_saved == pytest.approx(100)
    loads = timings.histograms()["load_seconds"]
    assert sum(loads["counts"]) == 2000 and loads["sum"] == pytest.approx(202)
    assert not timings._uncounted
