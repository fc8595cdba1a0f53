"""What guests found, missed and put is counted over all processes: by guest, and in the sums of the cache folder."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

from kernelkeep.activity import live
from kernelkeep.cache.lifetime_counts import save_abandoned
from kernelkeep.cache.upkeep import survey_root
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.testing import run_python

PROCESS = """
import sys
from kernelkeep.guests.guest_cache import GuestCache
cache = GuestCache(sys.argv[2], sys.argv[1])
for number in range(3):
    key = cache.key({"n": str(number)})
    if cache.get(key, "thing") is None:
        cache.put(key, "thing", b"x" * 100)
"""


def test_processes_are_summed_up_by_guest(tmp_path: Path) -> None:
    for guest in ("first", "first", "second"):
        run_python(PROCESS, tmp_path / "cache", guest)
    survey = survey_root(tmp_path / "cache")
    counted = {name: (one.hits_disk, one.misses, one.compiles) for name, one in survey.guests.items()}
    assert counted == {"first": (3, 3, 3), "second": (0, 3, 3)}
    sums = survey.lifetime
    assert (sums.hits_disk, sums.misses, sums.compiles, sums.on_disk) == (3, 6, 6, 6)


def test_the_command_lists_them(tmp_path: Path) -> None:
    run_python(PROCESS, tmp_path / "cache", "first")
    command = [sys.executable, "-m", "kernelkeep", "stats", "--cache-dir", str(tmp_path / "cache")]
    shown = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=60).stdout)
    first = shown["guests"]["first"]
    assert (first["misses"], first["puts"], first["hits_disk"], first["hit_rate"]) == (3, 3, 0, 0.0)
    said = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("first")]
    assert "3" in line.split()


def test_a_wait_a_second_put_and_damage_are_counted(tmp_path: Path) -> None:
    cache = GuestCache("probe", tmp_path / "cache")
    key = cache.key({"a": "b"})
    assert cache.get(key, "thing") is None
    cache.put(key, "thing", b"raw")
    cache.put(key, "thing", b"ripe")
    (path,) = cache.disk.folder.files()
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.find(key, "thing") is None
    stats = cache.stats()
    assert (stats.compiles, stats.ripened, stats.misses, stats.corrupt_entries) == (1, 1, 2, 1)
    assert stats.compile_seconds > 0
    shown = [one for one in live.snapshot()["open"] if one["about"].get("device") == "guest:probe"]
    assert shown[-1]["counts"]["misses"] == 2


def test_a_cache_that_is_dropped_loses_no_count(tmp_path: Path) -> None:
    cache = GuestCache("probe", tmp_path / "cache")
    assert cache.find(cache.key({"a": "b"}), "thing") is None
    del cache
    gc.collect()
    save_abandoned()
    assert survey_root(tmp_path / "cache").guests["probe"].misses == 1
