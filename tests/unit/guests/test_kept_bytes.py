"""The bytes of entries that are kept once more: every one of them verified at each hit, and never without the entry."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelkeep.cache.key import Key
from kernelkeep.guests import kept_folder
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.guests.kept_bytes import KeptBytes
from kernelkeep.platforms import system

# More than two blocks, and compressed in the entry.
PAYLOAD = random.Random(1).randbytes(1000) + b"a graph that zstd makes smaller " * 5000
NAME = "graph"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[GuestCache]:
    made = GuestCache("probe", tmp_path / "cache", wait_seconds=20)
    yield made
    made.close()


@pytest.fixture
def key(cache: GuestCache) -> Key:
    made = cache.key({"hash": "1"})
    cache.put(made, NAME, PAYLOAD)
    return made


def copy_of(cache: GuestCache, key: Key) -> Path:
    return cache.disk.folder.foreign.path / f"{key.digest}.bytes"


def found(kept: KeptBytes, key: Key) -> bytes | None:
    view = kept.find(key, NAME)
    return None if view is None else bytes(view)


def test_another_process_finds_them_and_counts_a_hit(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    assert found(KeptBytes(cache), key) is None
    KeptBytes(cache).keep(key, NAME)
    other = GuestCache("probe", tmp_path / "cache")
    assert found(KeptBytes(other), key) == PAYLOAD
    assert other.stats().hits_disk == 1
    other.close()


def test_no_changed_byte_is_handed_out(cache: GuestCache, key: Key) -> None:
    kept = KeptBytes(cache)
    kept.keep(key, NAME)
    path = copy_of(cache, key)
    good = path.read_bytes()
    seed = random.Random(19)
    for at in {*range(64), len(good) - 1, *seed.sample(range(len(good)), 300)}:
        path.write_bytes(good[:at] + bytes([good[at] ^ seed.randrange(1, 256)]) + good[at + 1 :])
        assert found(kept, key) is None, at
    for data in (b"", good[:31], good[:32], good[:47], good[:48], good[:-1], good[: len(good) // 2], good + b"\0"):
        path.write_bytes(data)
        assert found(kept, key) is None, len(data)
    kept.keep(key, NAME)
    assert found(kept, key) == PAYLOAD and path.read_bytes() == good


def test_the_copy_of_another_entry_does_not_pass(cache: GuestCache, key: Key) -> None:
    kept = KeptBytes(cache)
    second = cache.key({"hash": "2"})
    cache.put(second, NAME, PAYLOAD[::-1])
    kept.keep(second, NAME)
    shutil.copy(copy_of(cache, second), copy_of(cache, key))
    assert found(kept, key) is None and found(kept, second) == PAYLOAD[::-1]


@pytest.mark.skipif(not system.HAS_OWNERS, reason="no owners here")
def test_a_copy_that_another_user_could_have_written_is_not_used(cache: GuestCache, key: Key, tmp_path: Path) -> None:
    kept = KeptBytes(cache)
    kept.keep(key, NAME)
    path = copy_of(cache, key)
    path.chmod(0o620)
    assert found(kept, key) is None
    path.chmod(0o600)
    assert found(kept, key) == PAYLOAD
    if system.user_number() == 0:
        os.chown(path, 1234, -1)
        assert found(kept, key) is None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert found(kept, key) is None
    path.unlink()
    path.mkdir()
    assert found(kept, key) is None


def test_without_the_entry_nothing_is_found_and_a_new_entry_has_a_new_copy(cache: GuestCache, key: Key) -> None:
    kept = KeptBytes(cache)
    kept.keep(key, NAME)
    cache.delete(key)
    assert found(kept, key) is None
    kept.keep(key, NAME)  # of nothing
    cache.put(key, NAME, b"another")
    assert found(kept, key) is None
    kept.keep(key, NAME)
    assert found(kept, key) == b"another"


def test_a_damaged_entry_is_not_copied(cache: GuestCache, key: Key) -> None:
    (path,) = cache.disk.folder.files()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    KeptBytes(cache).keep(key, NAME)
    assert not copy_of(cache, key).exists()


def test_a_full_folder_takes_no_more(cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_folder, "_MOST_BYTES", len(PAYLOAD) - 1)
    KeptBytes(cache).keep(key, NAME)
    assert not copy_of(cache, key).exists()


def test_what_cannot_be_kept_is_not_read_again_for_each_hit(
    cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_folder, "_MOST_BYTES", 10)
    kept = KeptBytes(cache)
    reads: list[str] = []
    read = cache.disk.folder.read

    def counted(key: str, name: str) -> bytes | None:
        reads.append(name)
        return read(key, name)

    monkeypatch.setattr(cache.disk.folder, "read", counted)
    for _ in range(3):
        kept.keep(key, NAME)
    assert len(reads) == 1, "the first one finds out that it is too large"


def test_what_is_larger_than_the_folder_leaves_the_others(
    cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made the folder count as full, which was then emptied at the end of every process."""
    large = cache.key({"hash": "large"})
    cache.put(large, NAME, bytes(10 * len(PAYLOAD)), {})
    monkeypatch.setattr(kept_folder, "_MOST_BYTES", 2 * len(PAYLOAD))
    kept = KeptBytes(cache)
    kept.keep(large, NAME)
    kept.keep(key, NAME)
    assert copy_of(cache, key).exists() and not copy_of(cache, large).exists()
    kept._folder._clear_if_full()  # as at the end of the process
    assert copy_of(cache, key).exists()


def test_what_other_processes_keep_counts(cache: GuestCache, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_folder, "_MOST_BYTES", 3 * len(PAYLOAD))
    monkeypatch.setattr(kept_folder, "_MEASURE_BYTES", 1)
    kept = KeptBytes(cache)
    kept.keep(key, NAME)
    (cache.disk.folder.foreign.path / "of another process").write_bytes(bytes(2 * len(PAYLOAD)))
    more = cache.key({"hash": "more"})
    cache.put(more, NAME, PAYLOAD, {})
    kept.keep(more, NAME)
    assert not copy_of(cache, more).exists()
