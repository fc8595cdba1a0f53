"""Checkpoint files: published whole, kept in order, and found again whatever happened to some of them."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint, Written
from kernelkeep.continuous.checkpoints.claim import CheckpointClaim
from kernelkeep.continuous.checkpoints.description import describe
from kernelkeep.continuous.checkpoints.files import (
    newest_checkpoint,
    newest_header,
    read_checkpoint,
    read_header,
    write_checkpoint,
)
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.continuous.checkpoints.writer import CheckpointWriter
from kernelkeep.continuous.heartbeat import beat, last_iteration
from kernelkeep.errors import ArgumentError, CheckpointError
from kernelkeep.testing import run_python


def header(iteration: int, generation: int | None = None) -> CheckpointHeader:
    return CheckpointHeader(
        program="heat",
        program_digest="p",
        layout_digest="l",
        coupling="neighbours",
        items=8,
        iteration=iteration,
        generation=iteration if generation is None else generation,
    )


def checkpoint(iteration: int, generation: int | None = None, size: int = 100) -> Checkpoint:
    return Checkpoint(header(iteration, generation), {"u": np.full(size, iteration, "i4")})


def iterations(folder: Path) -> dict[str, int]:
    files = (path for path in sorted(folder.iterdir()) if path.suffix != ".lock")
    return {path.name: read_checkpoint(path).header.iteration for path in files}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 16
    path.write_bytes(data)


# --- writing


def test_a_written_checkpoint_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    written = write_checkpoint(path, checkpoint(5, size=10_000))
    assert written.nbytes == path.stat().st_size
    assert written.raw_bytes == 40_000 and written.nbytes < 3000 and written.seconds > 0
    back = read_checkpoint(str(path))
    assert back.header.version == kk.__version__ and abs(back.header.created - time.time()) < 60
    assert (back.arrays["u"] == 5).all()
    assert read_header(path) == back.header
    assert "iteration 5 of heat" in str(back.header)


def test_older_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    for iteration in range(1, 8):
        write_checkpoint(path, checkpoint(iteration), keep=3)
    assert iterations(tmp_path) == {"heat.kkpt": 7, "heat.kkpt.6": 6, "heat.kkpt.5": 5}
    write_checkpoint(path, checkpoint(8), keep=5)
    assert iterations(tmp_path) == {"heat.kkpt": 8, "heat.kkpt.7": 7, "heat.kkpt.6": 6, "heat.kkpt.5": 5}
    write_checkpoint(path, checkpoint(9))
    assert iterations(tmp_path) == {"heat.kkpt": 9, "heat.kkpt.8": 8}
    write_checkpoint(path, checkpoint(10), keep=1)
    assert iterations(tmp_path) == {"heat.kkpt": 10}
    with pytest.raises(ArgumentError, match="keep=0"):
        write_checkpoint(path, checkpoint(11), keep=0)


def test_a_damaged_file_does_not_replace_a_good_older_one(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    for iteration in (1, 2):
        write_checkpoint(path, checkpoint(iteration))
    path.write_bytes(path.read_bytes()[:-1])
    write_checkpoint(path, checkpoint(3))
    assert iterations(tmp_path) == {"heat.kkpt": 3, "heat.kkpt.1": 1}


def test_a_foreign_file_at_the_path_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("a,b\n")
    write_checkpoint(path, checkpoint(1))
    assert read_checkpoint(path).header.iteration == 1
    (aside,) = tmp_path.glob("results.csv.before-*Z")
    assert aside.read_text() == "a,b\n"
    write_checkpoint(path, checkpoint(2))
    assert read_checkpoint(tmp_path / "results.csv.1").header.iteration == 1


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    path.touch()
    write_checkpoint(path, checkpoint(1))
    assert iterations(tmp_path) == {"heat.kkpt": 1}


def test_a_missing_folder_is_created_and_a_link_is_followed(tmp_path: Path) -> None:
    there = tmp_path / "large disk" / "runs" / "heat.kkpt"
    link = tmp_path / "heat.kkpt"
    link.symlink_to(there)
    for iteration in (1, 2):
        write_checkpoint(link, checkpoint(iteration))
    assert link.is_symlink()
    assert iterations(there.parent) == {"heat.kkpt": 2, "heat.kkpt.1": 1}
    assert newest_checkpoint(link).checkpoint.iteration == 2


def test_files_have_the_users_own_mode(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_checkpoint(tmp_path / "heat.kkpt", checkpoint(1))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "heat.kkpt").stat().st_mode) == 0o640


def test_temporary_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "heat.kkpt", checkpoint(1))
    (tmp_path / ".heat.kkpt.123-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / ".heat.kkpt.lock").touch()
    others = [".heat.kkpt.x.123-0123456789abcdef.tmp", ".heat.kkpt.tmp", "heat.kkpt.old", "heat.kkpt.01"]
    for name in others:
        (tmp_path / name).write_bytes(b"not ours")
    write_checkpoint(tmp_path / "heat.kkpt", checkpoint(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "heat.kkpt", "heat.kkpt.1"])


def test_without_locks_only_old_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".heat.kkpt.lock").mkdir()  # so there is no lock to be had
    young, old = (tmp_path / f".heat.kkpt.123-{digit * 16}.tmp" for digit in "ab")
    young.touch()
    old.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    with pytest.warns(kk.CheckpointWarning, match=r"heat\.kkpt cannot be locked .*Is a directory"):
        write_checkpoint(tmp_path / "heat.kkpt", checkpoint(1))
    assert young.exists() and not old.exists()
    assert read_checkpoint(tmp_path / "heat.kkpt").header.iteration == 1


def test_writing_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    for iteration in range(1, 5):
        write_checkpoint(tmp_path / "heat.kkpt", checkpoint(iteration), keep=3)
    assert iterations(tmp_path) == {"heat.kkpt": 4, "heat.kkpt.3": 3, "heat.kkpt.2": 2}


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"

    def write(first: int) -> None:
        for iteration in range(first, first + 10):
            write_checkpoint(path, checkpoint(iteration), keep=4)

    threads = [threading.Thread(target=write, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(iterations(tmp_path)) == 4
    assert newest_checkpoint(path).checkpoint.iteration == read_checkpoint(path).header.iteration


@pytest.mark.parametrize("path", ["", "a\0b", 5, b"heat.kkpt", "/", "folder/"])
def test_a_wrong_path_is_refused(path: Any) -> None:
    for call in (read_checkpoint, newest_checkpoint, lambda path: write_checkpoint(path, checkpoint(1)), describe):
        with pytest.raises(ArgumentError, match="cannot be a checkpoint"):
            call(path)


# --- where nothing can be written


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


def noise(iteration: int, size: int) -> Checkpoint:
    return Checkpoint(header(iteration), {"u": np.random.default_rng(iteration).integers(0, 256, size, dtype="u1")})


def test_a_full_disk_leaves_the_older_files_unchanged(small_disk: Path) -> None:
    path = small_disk / "heat.kkpt"
    for iteration in (1, 2):
        write_checkpoint(path, noise(iteration, 300_000))
    before = {file.name: file.read_bytes() for file in small_disk.iterdir()}
    for _ in range(3):
        with pytest.raises(CheckpointError, match=r"heat\.kkpt cannot be written: No space left on device"):
            write_checkpoint(path, noise(3, 600_000))
        assert {file.name: file.read_bytes() for file in small_disk.iterdir()} == before
    write_checkpoint(path, noise(4, 300_000))
    assert iterations(small_disk) == {"heat.kkpt": 4, "heat.kkpt.2": 2}


def test_a_read_only_folder_is_an_error(small_disk: Path) -> None:
    path = small_disk / "heat.kkpt"
    write_checkpoint(path, checkpoint(1))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(CheckpointError, match=r"heat\.kkpt cannot be written: Read-only file system"):
        write_checkpoint(path, checkpoint(2))
    assert newest_checkpoint(path).checkpoint.iteration == 1


def test_a_path_where_no_file_can_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path, reason in (
        ("file/heat.kkpt", "cannot be written: .*Not a directory"),
        ("folder", "cannot be a checkpoint: it is a folder"),
        ("x" * 300, "cannot be a checkpoint: its name has 300 bytes"),
        ("x" * 201, "cannot be a checkpoint: its name has 201 bytes"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            write_checkpoint(tmp_path / path, checkpoint(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


LIMITED = """
import resource, sys
import numpy as np
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.files import write_checkpoint
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.errors import CheckpointError
def write(iteration, size):
    header = CheckpointHeader(program="heat", program_digest="", layout_digest="", coupling="", items=1, iteration=iteration,
        generation=1)
    arrays = {"u": np.random.default_rng(1).integers(0, 256, size, dtype="u1")}
    write_checkpoint(sys.argv[1], Checkpoint(header, arrays))
write(1, 200_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
try:
    write(2, 200_000)
except CheckpointError as error:
    print(error)
write(3, 2000)
"""


def test_a_write_that_is_cut_off_leaves_the_older_files_unchanged(tmp_path: Path) -> None:
    assert "heat.kkpt cannot be written: File too large" in run_python(LIMITED, tmp_path / "heat.kkpt").stdout
    assert iterations(tmp_path) == {"heat.kkpt": 3, "heat.kkpt.1": 1}


# --- finding the newest good one


def test_the_newest_good_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    for iteration in range(1, 5):
        write_checkpoint(path, checkpoint(iteration), keep=4)
    found = newest_checkpoint(path)
    assert found.checkpoint.iteration == 4 and found.skipped == () and found.at_path
    flip(path, path.stat().st_size - 100)  # in the array
    found = newest_checkpoint(path)
    assert found.checkpoint.iteration == 3 and not found.at_path
    assert len(found.skipped) == 1 and "heat.kkpt is damaged in the array 'u'" in found.skipped[0]
    flip(tmp_path / "heat.kkpt.3", (tmp_path / "heat.kkpt.3").stat().st_size - 100)
    found = newest_checkpoint(path)
    assert found.checkpoint.iteration == 2 and len(found.skipped) == 2
    path.unlink()
    flip(tmp_path / "heat.kkpt.3", 40)  # in the header
    found = newest_checkpoint(path)
    assert found.checkpoint.iteration == 2 and len(found.skipped) == 2 and "there is no checkpoint" in found.skipped[0]
    assert newest_header(path).iteration == 2


def test_foreign_files_are_not_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    for iteration in (1, 2):
        write_checkpoint(path, checkpoint(iteration))
    (tmp_path / "heat.kkpt.20261115").write_text("notes")
    path.unlink()
    found = newest_checkpoint(path)
    assert found.checkpoint.iteration == 1 and len(found.skipped) == 1 and "there is no checkpoint" in found.skipped[0]


def test_a_file_name_that_is_not_utf8_works(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"heat\xff.kkpt")
    for iteration in (1, 2):
        write_checkpoint(path, checkpoint(iteration))
    assert newest_checkpoint(path).checkpoint.iteration == 2
    path.unlink()
    assert newest_checkpoint(path).checkpoint.iteration == 1, "the older one is known by the name in its header"


def test_an_older_file_that_is_put_back_counts(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    for iteration in (1, 2, 3):
        write_checkpoint(path, checkpoint(iteration), keep=3)
    (tmp_path / "heat.kkpt.1").rename(path)
    found = newest_checkpoint(path)
    assert found.checkpoint.iteration == 1 and not found.continues, "the other branch of the run is not gone on with"


def test_all_problems_are_reported_where_no_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    with pytest.raises(CheckpointError, match=r"^there is no checkpoint .*heat\.kkpt$"):
        newest_checkpoint(path)
    for iteration in (1, 2):
        write_checkpoint(path, checkpoint(iteration))
    flip(path, 20)
    flip(tmp_path / "heat.kkpt.1", 40)
    with pytest.raises(CheckpointError) as caught:
        newest_checkpoint(path)
    assert "none of the 2 files" in str(caught.value)
    assert "in its first 32 bytes" in str(caught.value) and "heat.kkpt.1 is damaged in its header" in str(caught.value)
    with pytest.raises(CheckpointError, match="none of the 2 files"):
        newest_header(path)


def test_a_description_has_all_files_and_ranges(tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    arrays = {
        "u": np.array([[np.nan, 2.0], [-np.inf, np.nan]], "f4"),
        "n": np.arange(-5, 3, dtype="i2"),
        "none": np.zeros(0),
        "lost": np.full(3, np.nan),
        "z": np.array([1j, np.nan]),
        "ok": np.array([True, False]),
    }
    write_checkpoint(path, checkpoint(1))
    write_checkpoint(path, Checkpoint(header(2), arrays))
    found = describe(path)
    assert found.file.whole and found.file.header is not None and found.file.header.iteration == 2
    ranges = {array.name: (array.minimum, array.maximum, array.nans) for array in found.arrays}
    assert ranges == {
        "u": ("-inf", 2.0, 2),
        "n": (-5, 2, 0),
        "none": (None, None, 0),
        "lost": (None, None, 3),
        "z": (None, None, 1),
        "ok": (False, True, 0),
    }
    assert found.raw_bytes == sum(array.nbytes for array in arrays.values())
    assert [(other.path.name, other.whole) for other in found.others] == [("heat.kkpt.1", True)]
    flip(path, 33)
    found = describe(path)
    assert not found.file.whole and "in its header" in found.file.problem and found.arrays == ()
    assert found.others[0].whole
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        describe(tmp_path / "other.kkpt")


# --- in the background


class Gate:
    """An array that lets nobody read it until it is opened: a disk as slow as a test needs."""

    def __init__(self, value: int) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self._value = value

    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        self.entered.set()
        assert self.opened.wait(20)
        return np.full(10, self._value, "i4")


def test_the_writer_writes_in_the_background(tmp_path: Path) -> None:
    done: list[object] = []
    with CheckpointWriter(CheckpointClaim(tmp_path / "heat.kkpt"), keep=3) as writer:
        for iteration in (1, 2):
            writer.submit(header(iteration), {"u": np.zeros(50)}, done.append)
            assert writer.flush()
            assert not writer.busy
        assert (writer.written, writer.failed, writer.replaced) == (2, 0, 0)
        assert writer.seconds > 0 and writer.problem is None
        assert writer.last is not None and writer.nbytes == sum(one.nbytes for one in done if isinstance(one, Written))
    assert iterations(tmp_path) == {"heat.kkpt": 2, "heat.kkpt.1": 1}
    with pytest.raises(CheckpointError, match="closed"):
        writer.submit(header(3), {})
    writer.close()


def test_a_newer_checkpoint_replaces_one_that_waits(tmp_path: Path) -> None:
    gate = Gate(1)
    told: dict[int, object] = {}
    with CheckpointWriter(CheckpointClaim(tmp_path / "heat.kkpt"), keep=9) as writer:
        writer.submit(header(1), {"u": gate}, partial(told.setdefault, 1))  # type: ignore[dict-item]
        assert gate.entered.wait(20)
        start = time.monotonic()
        for iteration in range(2, 6):
            writer.submit(header(iteration), {"u": np.ones(3)}, partial(told.setdefault, iteration))
        assert time.monotonic() - start < 5, "submitting waits for nobody"
        assert told == {2: None, 3: None, 4: None}, "the replaced ones are given back at once"
        assert writer.busy and not writer.flush(0.01)
        gate.opened.set()
    assert iterations(tmp_path) == {"heat.kkpt": 5, "heat.kkpt.1": 1}
    assert isinstance(told[1], Written) and isinstance(told[5], Written)
    assert (writer.written, writer.replaced) == (2, 3)


def test_a_claim_is_released_after_the_write_under_way(tmp_path: Path) -> None:
    """A run that is interrupted twice does not wait for its last checkpoint; the next run on the file must."""
    path, gate = tmp_path / "heat.kkpt", Gate(1)
    claim = CheckpointClaim(path).acquire()
    writer = CheckpointWriter(claim)
    writer.submit(header(1), {"u": gate})  # type: ignore[dict-item]
    assert gate.entered.wait(20)
    writer.submit(header(2), {"u": np.ones(3)})
    claim.release()
    with pytest.raises(CheckpointError, match="is in use: another run in this process"):
        CheckpointClaim(path).acquire(0)
    gate.opened.set()
    with pytest.warns(kk.CheckpointWarning, match="is over"):
        writer.close()
    assert (writer.written, writer.failed) == (1, 1)
    with CheckpointClaim(path):
        assert read_checkpoint(path).iteration == 1


def test_failures_are_counted_reported_once_and_stop_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.touch()
    outcomes: list[object] = []
    writer = CheckpointWriter(CheckpointClaim(folder / "heat.kkpt"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for iteration in range(3):
            writer.submit(header(iteration), {"u": np.zeros(5)}, outcomes.append)
            writer.flush()
    assert [(one.category, one.filename) for one in caught] == [(kk.CheckpointWarning, __file__)]
    assert "Not a directory; the run goes on" in str(caught[0].message)
    assert writer.failed == 3 and writer.problem is not None
    assert all(isinstance(outcome, CheckpointError) for outcome in outcomes)
    folder.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.submit(header(7), {"u": np.zeros(5)})
        writer.flush()
    assert writer.written == 1
    with pytest.warns(kk.CheckpointWarning, match="dtype object"), writer:  # said by whichever call is next
        writer.submit(header(8), {"u": np.array([None])})
    assert (writer.written, writer.failed) == (1, 4)
    assert iterations(folder) == {"heat.kkpt": 7}


def test_python_waits_for_the_last_checkpoint(tmp_path: Path) -> None:
    script = """
import sys
import numpy as np
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.continuous.checkpoints.claim import CheckpointClaim
from kernelkeep.continuous.checkpoints.writer import CheckpointWriter
header = CheckpointHeader(program="heat", program_digest="", layout_digest="", coupling="", items=1, iteration=3, generation=1)
CheckpointWriter(CheckpointClaim(sys.argv[1])).submit(header, {"u": np.random.default_rng(1).random(2_000_000)})
"""
    run_python(script, tmp_path / "heat.kkpt")
    assert read_checkpoint(tmp_path / "heat.kkpt").header.iteration == 3


def test_a_heartbeat_outside_a_worker_does_nothing() -> None:
    beat(5)
    assert last_iteration() is None
    best = min(_timed() for _ in range(20))
    assert best < 0.4e-6, f"{best * 1e9:.0f} ns, the loop included"


def _timed() -> float:
    start = time.perf_counter()
    for iteration in range(10_000):
        beat(iteration)
    return (time.perf_counter() - start) / 10_000
