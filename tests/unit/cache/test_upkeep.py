"""Looking after a cache folder without a device."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kernelkeep import ArgumentError
from kernelkeep.cache.entry import Entry, Facts, encode
from kernelkeep.cache.gpu_folder import GpuFolder
from kernelkeep.cache.key import Key
from kernelkeep.cache.upkeep import (
    clear_root,
    find_entries,
    list_entries,
    prune_root,
    survey_root,
    verify_root,
)


def entry(number: int, name: str = "program", size: int = 1000) -> Entry:
    # Bytes that zstd cannot shrink, so that sizes are what they say.
    payload = b"".join((number * 7919 + i * 104729).to_bytes(4, "little") for i in range(size // 4))
    facts = Facts(name, "opencl", "gpu", Key(f"{number:064x}", {"n": str(number)}), time.time(), 0.1, "0")
    return Entry(facts, payload)


def write(folder: GpuFolder, one: Entry) -> None:
    folder.write(one.facts.key.digest, encode(one))


def fill(root: Path, gpu: str, numbers: range) -> GpuFolder:
    folder = GpuFolder(root / gpu)
    folder.prepare({"fingerprint": {"model": gpu}})
    for number in numbers:
        write(folder, entry(number))
    return folder


def test_survey_and_listing_cover_all_gpus_or_those_named(tmp_path: Path) -> None:
    fill(tmp_path, "a", range(3))
    fill(tmp_path, "b", range(10, 12))
    assert [(f.folder, f.entries) for f in survey_root(tmp_path).folders] == [("a", 3), ("b", 2)]
    assert len(list(list_entries(tmp_path))) == 5
    assert {stored.folder for stored in list_entries(tmp_path, {"b"})} == {"b"}


def test_find_by_odd_names(tmp_path: Path) -> None:
    folder = fill(tmp_path, "a", range(0))
    for number, name in enumerate(("../../up", "x" * 300, "🚀", "x" * 299)):
        write(folder, entry(number, name))
    for name in ("../../up", "x" * 300, "🚀"):
        found = find_entries(tmp_path, name)
        assert [stored.facts.name for stored in found if stored.facts] == [name]
    assert find_entries(tmp_path, "up") == []


@pytest.mark.parametrize(("age", "most"), [(0, None), (None, 0), (None, 2500), (30, 2500), (30, None), (1e12, None)])
def test_a_dry_run_says_what_pruning_then_does(tmp_path: Path, age: float | None, most: int | None) -> None:
    fill(tmp_path, "a", range(4))
    time.sleep(0.01)
    would = prune_root(tmp_path, age, most, dry_run=True)
    assert len(list(list_entries(tmp_path))) == 4
    assert prune_root(tmp_path, age, most) == would
    assert len(list(list_entries(tmp_path))) == 4 - would.entries


def test_prune_rejects_negative_bounds(tmp_path: Path) -> None:
    for age, most in ((-1.0, None), (float("nan"), None), (None, -1)):
        with pytest.raises(ArgumentError):
            prune_root(tmp_path, age, most)


def test_pruning_goes_on_after_a_recount(tmp_path: Path) -> None:
    folder = fill(tmp_path, "a", range(8))
    held = folder.manifest.count()[1]
    assert prune_root(tmp_path, None, held // 2).entries >= 3
    folder.recount()
    prune_root(tmp_path, None, 0)
    assert list(list_entries(tmp_path)) == []


def test_folders_that_are_gone_are_removed_whole(tmp_path: Path) -> None:
    fill(tmp_path, "a", range(2))
    fill(tmp_path, "b", range(2))
    went = prune_root(tmp_path, gone=lambda folder: folder.path.name == "a")
    assert (went.entries, went.folders) == (2, ("a",))
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_clear_leaves_files_that_are_not_ours(tmp_path: Path) -> None:
    fill(tmp_path, "a", range(2))
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text("{}")
    (tmp_path / "cache_stats.json").write_text("{}")
    assert clear_root(tmp_path).entries == 2
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "a", "a/notes.txt", "cache_stats.json", "web", "web/manifest.json",
    ]  # fmt: skip


def test_a_folder_that_was_cleared_takes_entries_again(tmp_path: Path) -> None:
    folder = fill(tmp_path, "a", range(2))
    clear_root(tmp_path)
    write(folder, entry(5))
    assert folder.manifest.count()[0] == 1
    assert verify_root(tmp_path).entries == 1


def test_verify_and_repair(tmp_path: Path) -> None:
    fill(tmp_path, "a", range(3))
    first, *_ = list_entries(tmp_path)
    first.path.write_bytes(first.path.read_bytes()[:-1])
    outcome = verify_root(tmp_path)
    assert (outcome.ok, outcome.entries, [stored.path for stored in outcome.damaged]) == (False, 3, [first.path])
    assert verify_root(tmp_path, repair=True).ok
    after = verify_root(tmp_path)
    assert (after.ok, after.entries) == (True, 2)
    (folder,) = survey_root(tmp_path).folders
    assert (folder.entries, folder.set_aside) == (2, 1)


def test_pruning_by_bytes_goes_by_last_use_over_all_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of two GPUs in turn, a minute apart: what goes is the oldest, whichever GPU's it is."""
    now = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: now)
    folders = [fill(tmp_path, gpu, range(0)) for gpu in ("a", "b")]
    for number in range(8):
        now += 60
        write(folders[number % 2], entry(number))
        os.utime(next(folders[number % 2].path.glob(f"programs/*/*{number:064x}.bin")), (now, now))
    total = sum(folder.manifest.count()[1] for folder in folders)
    would = prune_root(tmp_path, max_bytes=total // 2, dry_run=True)
    went = prune_root(tmp_path, max_bytes=total // 2)
    assert (went.entries, went.bytes) == (would.entries, would.bytes)
    assert went.entries == 4
    left = sorted(int(stored.digest, 16) for stored in list_entries(tmp_path))
    assert left == [4, 5, 6, 7]


def test_names_of_removed_entries_are_dropped_when_the_list_doubles(tmp_path: Path) -> None:
    folder = fill(tmp_path, "a", range(40))
    prune_root(tmp_path, max_bytes=0)
    for number in range(100, 130):
        write(folder, entry(number))
    assert len(folder.find_name("program")) < 40
    assert {f"{number:064x}" for number in range(100, 130)} <= set(folder.find_name("program"))
