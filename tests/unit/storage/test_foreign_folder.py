"""Foreign cache folders: counted, pruned and cleared for any device, and kept while a process holds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kernelkeep.cache.upkeep import clear_root, prune_root, survey_root
from kernelkeep.storage.foreign_folder import FOREIGN, ForeignFolder
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry

DAY = 86400.0
GPU = "newbackend_gpu_driver_compiler_0123456789ab"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache folder of a backend that kernelkeep has never heard of, with 5,000 bytes in its foreign cache folder."""
    root = tmp_path / "cache"
    DiskChain(root, GPU, {"model": "GPU"}, 1 << 30).put(sample_entry(1))
    for number in range(5):
        path = root / GPU / FOREIGN / f"{number}" / "shader"
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_bytes(bytes(1000))
    (root / GPU / FOREIGN).chmod(0o700)
    return root


def make_old(root: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in (root / GPU / FOREIGN).rglob("shader"):
        os.utime(path, (then, then))


def test_it_counts_towards_the_size_of_the_cache(root: Path) -> None:
    foreign = ForeignFolder(root / GPU)
    assert foreign.nbytes() == 5000 and foreign.last_used() == pytest.approx(time.time(), abs=60)
    (folder,) = survey_root(root).folders
    assert (folder.entries, folder.driver_bytes) == (1, 5000)


def test_a_missing_one_is_empty(tmp_path: Path) -> None:
    foreign = ForeignFolder(tmp_path / GPU)
    assert (foreign.nbytes(), foreign.last_used(), foreign.prune(time.time())) == (0, None, 0)


def test_pruning_by_age_removes_it_whole(root: Path) -> None:
    make_old(root, days=40)
    os.utime(root / GPU / FOREIGN / "0" / "shader")
    assert prune_root(root, max_age_days=30).bytes == 0, "one file is new"
    make_old(root, days=40)
    assert prune_root(root, max_age_days=30).bytes == 5000
    assert not (root / GPU / FOREIGN).exists() and survey_root(root).folders[0].entries == 1


def test_pruning_by_bytes_removes_it_before_programs(root: Path) -> None:
    make_old(root, days=2)
    went = prune_root(root, max_bytes=4000)
    assert (went.entries, went.bytes) == (0, 5000)


def test_one_that_is_held_stays(root: Path) -> None:
    make_old(root, days=40)
    release = ForeignFolder(root / GPU).hold()
    try:
        assert prune_root(root, max_age_days=30).bytes == 0
        went = clear_root(root)
        assert went.entries == 1 and went.in_use == (GPU,)
        assert ForeignFolder(root / GPU).nbytes() == 5000
    finally:
        release()
    went = clear_root(root)
    assert went.bytes == 5000 and went.in_use == () and not (root / GPU).exists()


def test_an_empty_one_is_removed_with_the_folder_around_it(tmp_path: Path) -> None:
    (tmp_path / GPU / FOREIGN).mkdir(parents=True)
    ForeignFolder(tmp_path / GPU).remove_if_empty()
    assert list(tmp_path.iterdir()) == []


def test_one_with_files_is_not_removed_as_empty(root: Path) -> None:
    ForeignFolder(root / GPU).remove_if_empty()
    assert ForeignFolder(root / GPU).nbytes() == 5000
