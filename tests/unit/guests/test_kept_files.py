"""The files of entries that are kept for the next process: verified at every hit, and written again where they differ."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelkeep.cache.key import Key
from kernelkeep.cache.upkeep import clear_root, prune_root, survey_root
from kernelkeep.guests import kept_folder
from kernelkeep.guests.files import pack
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.guests.kept_files import KeptFiles
from kernelkeep.platforms import system
from kernelkeep.storage.locks import LockUnavailable

FILES = {
    "add.cubin": b"\x7fELF" + random.Random(1).randbytes(900),
    "add.json": b'{"name": "add"}',
    "größe.ttir": b"",
    "add.ptx": b"// a text that zstd makes smaller\n" * 4000,  # so the entry is compressed
}
NAME = "add"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[GuestCache]:
    made = GuestCache("probe", tmp_path / "cache", wait_seconds=20)
    yield made
    made.close()


@pytest.fixture
def key(cache: GuestCache) -> Key:
    made = cache.key({"hash": "1"})
    cache.put(made, NAME, pack(FILES))
    return made


def contents(paths: dict[str, str] | None) -> dict[str, bytes] | None:
    return None if paths is None else {name: Path(path).read_bytes() for name, path in paths.items()}


def kept_in(cache: GuestCache) -> list[Path]:
    return sorted(cache.disk.folder.foreign.path.iterdir())


def test_another_process_finds_them_and_they_are_private(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    assert KeptFiles(cache).find(key, NAME) is None
    paths = KeptFiles(cache).keep(key, NAME)
    assert contents(paths) == FILES
    other = GuestCache("probe", tmp_path / "cache")
    assert KeptFiles(other).find(key, NAME) == paths
    assert other.stats().hits_disk == 1
    assert stat.S_IMODE(cache.disk.folder.foreign.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept_in(cache)} == {0o600}
    other.close()


def test_no_changed_byte_is_handed_out_and_the_entry_repairs_it(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    good_paths = kept.keep(key, NAME)
    seed = random.Random(19)
    for path in kept_in(cache):
        good = path.read_bytes()
        at_most = 400
        chosen = range(len(good)) if len(good) <= at_most else seed.sample(range(len(good)), at_most)
        changed = [good[:at] + bytes([good[at] ^ seed.randrange(1, 256)]) + good[at + 1 :] for at in chosen]
        changed += [good[:-1], good[: len(good) // 2], good + b"x", b"x"] + ([b""] if good else [])
        for data in changed:
            if data != good:
                path.write_bytes(data)
                assert kept.find(key, NAME) is None, (path.name, data[:80])
        assert kept.keep(key, NAME) == good_paths and path.read_bytes() == good
    assert contents(kept.find(key, NAME)) == FILES


def test_a_list_of_sizes_that_fit_into_no_memory_is_not_used(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    (entry,) = cache.disk.folder.files()
    files = [[f"{number}", 1 << 29] for number in range(3000)]
    text = json.dumps([entry.stat().st_size, 1.0, files]).encode()
    (cache.disk.folder.foreign.path / f"{key.digest}.files").write_bytes(bytes(32) + text)
    assert kept.find(key, NAME) is None
    assert contents(kept.keep(key, NAME)) == FILES


def test_files_of_another_entry_do_not_pass_in_its_place(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    second = cache.key({"hash": "2"})
    cache.put(second, NAME, pack(FILES | {"add.json": b'{"name": "abc"}'}))  # as long as the other
    kept.keep(second, NAME)
    folder = cache.disk.folder.foreign.path
    shutil.copy(folder / f"{second.digest}.files", folder / f"{key.digest}.files")
    assert kept.find(key, NAME) is None and kept.find(second, NAME) is not None


def test_a_link_a_folder_or_a_pipe_in_the_place_of_a_file_is_not_used(
    cache: GuestCache, key: Key, tmp_path: Path
) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    for path in kept_in(cache):
        good = path.read_bytes()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_bytes(good)
        kinds = ["link", "folder"] + (["pipe"] if good else [])  # an empty pipe holds what an empty file holds
        for kind in kinds:
            path.unlink()
            if kind == "link":
                path.symlink_to(elsewhere)
            else:
                path.mkdir() if kind == "folder" else os.mkfifo(path)
            assert kept.find(key, NAME) is None
            assert contents(kept.keep(key, NAME)) == FILES
            assert not path.is_symlink() and path.is_file()


@pytest.mark.skipif(not system.HAS_OWNERS, reason="no owners here")
def test_a_file_that_another_user_could_have_written_is_not_used(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    for path in kept_in(cache):
        for mode in (0o620, 0o602):
            path.chmod(mode)
            assert kept.find(key, NAME) is None
            assert contents(kept.keep(key, NAME)) == FILES
        if system.user_number() == 0:
            os.chown(path, 1234, -1)
            assert kept.find(key, NAME) is None
            assert contents(kept.keep(key, NAME)) == FILES
    assert contents(kept.find(key, NAME)) == FILES


def test_a_list_that_asks_for_too_much_is_not_used(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    path = cache.disk.folder.foreign.path / f"{key.digest}.files"
    good = path.read_bytes()
    entry_bytes = good[32:].partition(b",")[0][1:]
    huge = b",".join([b'["a",1073741824]'] * 3000)  # three terabytes
    for rest in (huge + b"]]", b"]," + b"[" * 30_000 + b"]" * 30_001):
        path.write_bytes(good[:32] + b"[" + entry_bytes + b",1.0,[" + rest)
        assert kept.find(key, NAME) is None
    assert contents(kept.keep(key, NAME)) == FILES


def test_without_the_entry_nothing_is_found_and_a_new_entry_has_new_files(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    cache.delete(key)
    assert kept.find(key, NAME) is None and kept.keep(key, NAME) is None
    cache.put(key, NAME, pack({"add.json": b"{}"}))
    assert kept.find(key, NAME) is None
    assert contents(kept.keep(key, NAME)) == contents(kept.find(key, NAME)) == {"add.json": b"{}"}


def test_a_damaged_entry_is_not_unpacked(cache: GuestCache, key: Key) -> None:
    (path,) = cache.disk.folder.files()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert KeptFiles(cache).keep(key, NAME) is None


def test_a_hit_counts_as_a_use_of_the_entry(cache: GuestCache, key: Key) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    (path,) = cache.disk.folder.files()
    os.utime(path, (1e9, 1e9))
    assert kept.find(key, NAME) is not None
    assert path.stat().st_mtime > 1.6e9


def test_a_use_is_noted_where_a_link_has_no_time_of_its_own(
    cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = cache.disk.folder.files()
    os.utime(path, (1e9, 1e9))
    utime = os.utime

    def as_on_windows(path: str, times: tuple[float, float], *, follow_symlinks: bool = True) -> None:
        if not follow_symlinks:
            raise NotImplementedError("utime: follow_symlinks unavailable on this platform")
        utime(path, times)

    monkeypatch.setattr(os, "utime", as_on_windows)
    assert cache.has(key, NAME)
    assert path.stat().st_mtime > 1.6e9


def test_they_are_counted_and_stay_as_long_as_a_process_uses_them(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    KeptFiles(cache).keep(key, NAME)
    root = tmp_path / "cache"
    (folder,) = survey_root(root).folders
    assert folder.driver_bytes > sum(map(len, FILES.values()))
    left = clear_root(root)
    assert left.in_use and kept_in(cache)


USES = """
import sys
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.guests import kept_folder
from kernelkeep.guests.kept_files import KeptFiles
cache = GuestCache("probe", sys.argv[1])
kept = KeptFiles(cache)
key = cache.key({"hash": "1"})
kept_folder._MOST_BYTES = int(sys.argv[2])
for number in range(int(sys.argv[3])):
    paths = (kept.find(key, "add") if number % 2 else None) or kept.keep(key, "add")
    if paths is not None:
        read = {name: open(path, "rb").read() for name, path in paths.items()}
        assert len(read) == 4 and read["add.json"] == b'{"name": "add"}', read
print("kept" if paths else "full")
cache.close()
"""


def start(tmp_path: Path, most_bytes: int = 1 << 30, times: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USES, str(tmp_path / "cache"), str(most_bytes), str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(tmp_path: Path, most_bytes: int = 1 << 30) -> str:
    out, err = start(tmp_path, most_bytes).communicate(timeout=60)
    return out.strip() or err


def test_they_go_with_pruning_and_clearing_once_nobody_uses_them(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    assert run(tmp_path) == "kept"
    for path in kept_in(cache):
        os.utime(path, (1e9, 1e9))
    prune_root(root, max_age_days=30)
    assert not cache.disk.folder.foreign.path.exists() and cache.find(key, NAME) is not None
    assert run(tmp_path) == "kept"
    clear_root(root)
    assert not cache.disk.folder.foreign.path.exists()


def test_a_full_folder_takes_no_more_and_is_emptied_once_nobody_uses_it(
    cache: GuestCache, key: Key, tmp_path: Path
) -> None:
    folder = cache.disk.folder.foreign.path
    mine = KeptFiles(cache)
    mine.keep(key, NAME)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert run(tmp_path, most_bytes=size + 100) == "full"
    assert contents(mine.find(key, NAME)) == FILES  # this process uses it
    assert mine._folder.release is not None
    mine._folder.release()
    assert run(tmp_path, most_bytes=size + 100) == "full"
    assert not folder.exists()
    assert run(tmp_path) == "kept"


def test_processes_that_write_and_read_them_together_agree(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    children = [start(tmp_path, times=200) for _ in range(4)]
    kept = KeptFiles(cache)
    found = 0
    while any(child.poll() is None for child in children):
        paths = kept.find(key, NAME)
        if paths is not None:
            found += 1
            assert contents(paths) == FILES
    assert [child.communicate()[0].strip() for child in children] == ["kept"] * 4
    assert found


def test_where_the_folder_cannot_be_held_or_written_nothing_is_kept(
    cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    kept = KeptFiles(cache)
    with monkeypatch.context() as patched:
        patched.setattr(kept_folder, "write_temporary", refuse)
        assert kept.keep(key, NAME) is None
    assert kept.keep(key, NAME) is not None
    unheld = KeptFiles(cache)

    def no_lock() -> None:
        raise LockUnavailable("no locks here")

    monkeypatch.setattr(unheld._folder.foreign, "hold", no_lock)
    assert unheld.find(key, NAME) is None and unheld.keep(key, NAME) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_holds_the_folder_for_itself(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    kept = KeptFiles(cache)
    kept.keep(key, NAME)
    before, after = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        found = kept.find(key, NAME) is not None
        os.write(before[1], b"1" if found else b"0")
        os.read(after[0], 1)
        os._exit(0)
    assert os.read(before[0], 1) == b"1"
    assert kept._folder.release is not None
    kept._folder.release()  # as if the parent had ended
    assert clear_root(tmp_path / "cache").in_use
    os.write(after[1], b"1")
    os.waitpid(child, 0)


def test_what_cannot_be_kept_is_not_read_again_for_each_hit(
    cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_folder, "_MOST_BYTES", 10)
    kept = KeptFiles(cache)
    reads: list[str] = []
    read = cache.disk.folder.read

    def counted(key: str, name: str) -> bytes | None:
        reads.append(name)
        return read(key, name)

    monkeypatch.setattr(cache.disk.folder, "read", counted)
    for _ in range(3):
        kept.keep(key, NAME)
    assert len(reads) == 1, "the first one finds out that it is too large"
