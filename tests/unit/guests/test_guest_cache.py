"""What guests compiled: verified, found again, and compiled once by whoever asks first."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelkeep.cache.upkeep import list_entries
from kernelkeep.errors import CacheWarning
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.guests.key import KeyStart

PAYLOAD = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path) -> GuestCache:
    return GuestCache("probe", tmp_path / "cache", wait_seconds=20)


def test_what_was_put_is_found_by_another_process(cache: GuestCache, tmp_path: Path) -> None:
    key = cache.key({"source": "a", "options": "-O2"})
    assert cache.get(key, "thing") is None
    assert cache.put(key, "thing", PAYLOAD, {"version": "1.2"})
    assert cache.get(key, "thing") == PAYLOAD
    other = GuestCache("probe", tmp_path / "cache")
    assert other.find(other.key({"source": "a", "options": "-O2"}), "") == PAYLOAD
    assert other.find(other.key({"source": "a", "options": "-O3"}), "thing") is None
    (stored,) = list_entries(tmp_path / "cache")
    assert stored.facts is not None and stored.facts.name == "thing" and stored.facts.language == "probe"
    assert stored.facts.key.fields == {"guest": "probe", "source": "a", "options": "-O2", "version": "1.2"}


def test_guests_do_not_find_each_others(cache: GuestCache, tmp_path: Path) -> None:
    cache.put(cache.key({"source": "a"}), "thing", PAYLOAD)
    other = GuestCache("other", tmp_path / "cache")
    assert other.find(other.key({"source": "a"}), "thing") is None


def test_fields_do_not_run_into_each_other(cache: GuestCache) -> None:
    keys = [{"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""}, {"a": "b" * 300}, {"a": "b" * 299 + "c"}]
    assert len({cache.key(fields).digest for fields in keys}) == len(keys)


@pytest.mark.parametrize("value", ["", "b", "b" * 300, "größe", "\ud800"])
def test_a_key_whose_first_fields_were_hashed_before_is_the_same(cache: GuestCache, value: str) -> None:
    start = KeyStart("probe", {"driver": "a"})
    assert start.digest("source", value) == cache.key({"driver": "a", "source": value}).digest
    assert start.digest("source", "c") == cache.key({"driver": "a", "source": "c"}).digest


def test_known_are_the_entries_that_are_there_and_were_used_lately(cache: GuestCache) -> None:
    keys = [cache.key({"source": str(number)}) for number in range(4)]
    for key in keys[:3]:
        cache.put(key, "thing", PAYLOAD)
    cache.put(keys[3], "other", PAYLOAD)
    assert cache.known("thing") == {key.digest for key in keys[:3]}
    cache.delete(keys[0])
    (old,) = (path for path in cache.disk.folder.files() if keys[1].digest in path.name)
    os.utime(old, (1e9, 1e9))  # its use is to be noted
    assert cache.known("thing") == {keys[2].digest} and cache.known("nothing") == set()
    assert cache.has(keys[1], "thing")
    assert cache.known("thing") == {keys[1].digest, keys[2].digest}


def test_no_flipped_byte_comes_back(cache: GuestCache, tmp_path: Path) -> None:
    key = cache.key({"source": "a"})
    cache.put(key, "thing", b"a payload of some bytes")
    (path,) = cache.disk.folder.files()
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        assert cache.find(key, "thing") is None, at
    path.write_bytes(whole)
    assert cache.find(key, "thing") == b"a payload of some bytes"


def test_threads_that_ask_together_compile_once(cache: GuestCache) -> None:
    key = cache.key({"source": "together"})
    compiled = []

    def ask(number: int) -> bytes:
        found = cache.get(key, "thing")
        if found is None:
            compiled.append(number)
            time.sleep(0.2)
            cache.put(key, "thing", PAYLOAD)
            return PAYLOAD
        return found

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {PAYLOAD}
    assert len(compiled) == 1


def test_a_thread_that_asks_again_is_not_held_up(cache: GuestCache) -> None:
    key = cache.key({"source": "again"})
    assert cache.get(key, "thing") is None
    assert cache.get(key, "thing") is None


def test_who_gives_up_lets_others_compile(cache: GuestCache) -> None:
    key = cache.key({"source": "fails"})
    assert cache.get(key, "thing") is None
    found: list[bytes | None] = []
    other = threading.Thread(target=lambda: found.append(cache.get(key, "thing")))
    other.start()
    cache.give_up(key)
    other.join(15)
    assert found == [None]


_CHILD = """
import sys, time
from kernelkeep.guests.guest_cache import GuestCache
cache = GuestCache("probe", sys.argv[1], wait_seconds=60)
key = cache.key({"source": "processes"})
if cache.get(key, "thing") is None:
    print("compiled", flush=True)
    if len(sys.argv) > 2:
        import os
        os._exit(9)
    time.sleep(0.5)
    cache.put(key, "thing", b"x" * 1000)
"""


def _start(folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(folder), *args], stdout=subprocess.PIPE, text=True)


def test_processes_that_ask_together_compile_once(tmp_path: Path) -> None:
    children = [_start(tmp_path / "cache") for _ in range(4)]
    said = [child.communicate(timeout=60)[0] for child in children]
    assert sorted(said) == ["", "", "", "compiled\n"]


def test_a_process_that_dies_while_it_compiles_holds_nobody_up(tmp_path: Path) -> None:
    assert _start(tmp_path / "cache", "die").communicate(timeout=60)[0] == "compiled\n"
    assert _start(tmp_path / "cache").communicate(timeout=60)[0] == "compiled\n"


def test_saved_again_after_use_keeps_what_the_compile_took(cache: GuestCache) -> None:
    key = cache.key({"source": "ripens"})
    assert cache.get(key, "thing") is None
    cache.put(key, "thing", b"raw")
    cache.put(key, "thing", b"ripe")
    assert cache.find(key, "thing") == b"ripe"
    (stored,) = list(cache.disk.folder.scan())
    assert stored.facts is not None and stored.facts.ripened == 1 and stored.facts.compile_seconds > 0


def test_entries_are_deleted_counted_and_cleared(cache: GuestCache) -> None:
    keys = [cache.key({"n": str(n)}) for n in range(3)]
    for key in keys:
        cache.put(key, "thing", PAYLOAD)
    assert len(cache) == 3
    assert cache.delete(keys[0]) and not cache.delete(keys[0])
    cache.clear()
    assert len(cache) == 0


# What somebody may do to the cache folder while a guest's program runs, or before it starts.


def _entry(folder: Path) -> Path:
    (path,) = folder.rglob("*.bin")
    return path


def _replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        path = _entry(folder)
        path.rename(folder.parent / "moved")
        make(path)

    return attack


def _replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")


def _give_away(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 12345, 12345)


ATTACKS: dict[str, Callable[[Path], None]] = {
    "removed": lambda folder: shutil.rmtree(folder),
    "a file in its place": _replace_by_a_file,
    "owned by another user": _give_away,
    "writable by all": lambda folder: folder.chmod(0o777),
    "a link in place of the entry": _replace_by(lambda path: path.symlink_to(path.parents[3] / "moved")),
    "a link to a file without end": _replace_by(lambda path: path.symlink_to("/dev/zero")),
    "a pipe in place of the entry": _replace_by(lambda path: os.mkfifo(path)),
    "a folder in place of the entry": _replace_by(lambda path: path.mkdir()),
}


@pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and owners are those of POSIX")
@pytest.mark.filterwarnings("ignore::kernelkeep.errors.CacheWarning")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("open_again", [True, False], ids=["before a process starts", "while it runs"])
def test_whatever_is_done_to_the_folder_a_guest_compiles_and_goes_on(
    cache: GuestCache, tmp_path: Path, attack: Callable[[Path], None], open_again: bool
) -> None:
    key = cache.key({"source": "a"})
    cache.put(key, "thing", PAYLOAD)
    attack(tmp_path / "cache")
    if open_again:
        cache = GuestCache("probe", tmp_path / "cache", wait_seconds=20)
    found = cache.get(key, "thing")
    assert found is None or (
        not open_again and found == PAYLOAD
    )  # a folder that is open was checked when it was opened
    cache.put(key, "thing", PAYLOAD)
    cache.get(cache.key({"source": "b"}), "thing")
    cache.put(cache.key({"source": "b"}), "thing", PAYLOAD)
    assert cache.get(key, "thing") in (None, PAYLOAD)
    cache.close()


@contextlib.contextmanager
def _mounted(place: Path, *options: str) -> Iterator[None]:
    place.mkdir(mode=0o700, exist_ok=True)
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"FULL AND READ-ONLY DISKS ARE NOT TESTED: mount said {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system")
@pytest.mark.parametrize("options", ["size=4k,mode=700", "mode=700,ro"], ids=["full", "read-only"])
def test_on_a_disk_that_takes_nothing_a_guest_compiles_and_is_told_once(tmp_path: Path, options: str) -> None:
    mounted = _mounted(tmp_path / "cache", "-t", "tmpfs", "-o", options, "tmpfs")
    with mounted, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        cache = GuestCache("probe", tmp_path / "cache", wait_seconds=20)
        for number in range(3):
            key = cache.key({"source": str(number)})
            assert cache.get(key, "thing") is None
            assert not cache.put(key, "thing", PAYLOAD)
        cache.close()
    assert [one.category for one in warned] == [CacheWarning]
