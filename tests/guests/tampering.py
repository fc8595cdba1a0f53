"""Bytes in a cache that somebody changed, as a guest meets them: in the folder, in a shared folder and in a server.

The program of a guest imports this module. It says how the guest asks for an entry, and watches the guest's own decoder.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from kernelkeep import settings
from kernelkeep.cache.remote_tiers import resolve_remotes
from kernelkeep.cache.tiers.remote import signed_name, stored_name
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.signing import HEAD_BYTES, make_keys
from kernelkeep.storage.private import Trust

SMALL_BYTES = 1500  # every byte of what is not larger is flipped
SAMPLED = 60  # bytes behind the head of what is larger
ENTRY_HEAD_BYTES = 88
STRANGERS_SECRET = b"a secret that is not trusted here"


class Place(Protocol):
    """Where the bytes of one entry lie. `tier` is its name in the chain, `head_bytes` what is before the facts."""

    tier: str
    head_bytes: int

    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def remove(self) -> None: ...
    def others(self) -> Iterator[bytes]: ...


class InFolder:
    """The file of an entry in the cache folder."""

    tier = "disk"
    head_bytes = ENTRY_HEAD_BYTES

    def __init__(self, cache: GuestCache, digest: str) -> None:
        self._root = cache.disk.root
        (self._path,) = (path for path in cache.disk.folder.files() if digest in path.name)

    def read(self) -> bytes:
        return self._path.read_bytes()

    def write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(data)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def others(self) -> Iterator[bytes]:
        """Valid entries of other keys and other guests."""
        for path in self._root.rglob("*.bin"):
            if path != self._path and "rejected" not in path.parts:
                yield path.read_bytes()


class InStore:
    """The object of an entry in a shared store, which is signed."""

    head_bytes = HEAD_BYTES + ENTRY_HEAD_BYTES

    def __init__(self, cache: GuestCache, digest: str, number: int, remote: Remote) -> None:
        self.tier = "remote" if number == 1 else f"remote {number}"
        self._store = open_store(remote)
        self._namespace = remote.namespace
        self._name = stored_name(cache.fingerprint.digest, digest)
        self._signed_name = signed_name(cache.fingerprint.digest, digest)

    def read(self) -> bytes:
        found = self._store.get(self._name)
        assert found is not None, f"{self._name} is not in {self._store.location}"
        return found

    def write(self, data: bytes) -> None:
        self._store.put(self._name, data)

    def remove(self) -> None:
        self._store.delete(self._name)

    def others(self) -> Iterator[bytes]:
        """Signed entries of other keys and guests; then this one's contents, unsigned and signed by somebody else."""
        for name in self._store.list("programs/"):
            if name != self._name and (found := self._store.get(name)) is not None:
                yield found
        contents = self.read()[HEAD_BYTES:]
        yield contents
        yield make_keys(STRANGERS_SECRET, namespace=self._namespace).seal("program", self._signed_name, contents)


def attack(cache: GuestCache, digest: str, ask: Callable[[], bool], decoded: list[Any]) -> str:
    """Tamper with an entry in each place and have the guest ask for it; what was done, in words.

    `ask` says whether the guest found it, and what the guest decodes is appended to `decoded`.
    """
    assert cache.chain.flush()
    remotes = resolve_remotes(None, trust=Trust(settings.trusted_owner()))
    places: list[Place] = [InFolder(cache, digest)]
    places += [InStore(cache, digest, number, remote) for number, remote in enumerate(remotes, 1)]
    prepared = [
        (place, good, [*replaced(place, good)], [*flipped(place, good)]) for place in places if (good := place.read())
    ]
    said = []
    for place, good, others, flips in prepared:
        for one in places:
            one.remove()
        place.write(good)
        decoded.clear()
        assert ask() and decoded, f"the entry itself is not decoded from the {place.tier} tier"
        assert cache.chain.flush()  # what was found there went to the other tiers, too
        for one in places:
            one.remove()
        for what, data in others:
            check(cache, place, what, data, ask, decoded)
        with without_locks(cache):
            for what, data in flips:
                check(cache, place, what, data, ask, decoded)
        said.append(f"{place.tier}: {len(flips)} of {len(good)} bytes flipped, {len(others)} others")
    return "\n".join(said)


def attack_kept(folder: Path, ask: Callable[[], bool]) -> str:
    """Tamper with each of the files that are kept beside entries; what was done, in words.

    `ask` says whether the guest read exactly what the entry has.
    """
    seed = random.Random(20)
    flips = 0
    paths = sorted(folder.iterdir())
    for path in paths:
        good = path.read_bytes()
        for at in {0, len(good) - 1, *seed.sample(range(len(good)), min(SAMPLED, len(good)))}:
            path.write_bytes(good[:at] + bytes([good[at] ^ seed.randrange(1, 256)]) + good[at + 1 :])
            assert ask(), f"{path.name}: byte {at} flipped was taken"
            flips += 1
        for data in (
            b"",
            good[:-1],
            good + b"x",
            *(other.read_bytes() for other in paths if other.suffix == path.suffix),
        ):
            path.write_bytes(data)
            assert ask(), f"{path.name}: {len(data)} other bytes were taken"
        path.unlink()
        assert ask(), f"{path.name}: is missing"
        path.write_bytes(good)
    return f"kept: {flips} bytes flipped in {len(paths)} files"


def check(cache: GuestCache, place: Place, what: str, data: bytes, ask: Callable[[], bool], decoded: list[Any]) -> None:
    place.write(data)
    before = turned_away(cache, place)
    decoded.clear()
    assert not ask(), f"{place.tier}: {what} was taken"
    assert not decoded, f"{place.tier}: {what} came to the decoder: {decoded}"
    assert turned_away(cache, place) > before, f"{place.tier}: {what} was not looked at"


@contextlib.contextmanager
def without_locks(cache: GuestCache) -> Iterator[None]:
    """Look as often as with the locks between processes, and do not take them: they are most of a miss, and no reader's."""

    @contextlib.contextmanager
    def alone(*args: Any, found: Callable[[int], bool]) -> Iterator[bool]:
        found(1 + len(settings.remotes()))
        yield False

    cache.chain.alone = alone  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del cache.chain.alone


def turned_away(cache: GuestCache, place: Place) -> int:
    counts = cache.chain.counts()[place.tier]
    return counts.rejected + counts.refused


def flipped(place: Place, good: bytes) -> Iterator[tuple[str, bytes]]:
    """One byte changed: each of a small entry; each of the head of a large one, and some of the rest."""
    seed = random.Random(19)
    size = len(good)
    chosen = {
        *range(place.head_bytes),
        *seed.sample(range(place.head_bytes, size), min(SAMPLED, size - place.head_bytes)),
    }
    for at in range(size) if size <= SMALL_BYTES else sorted({*chosen, size - 1}):
        yield f"byte {at} flipped", good[:at] + bytes([good[at] ^ seed.randrange(1, 256)]) + good[at + 1 :]


def replaced(place: Place, good: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut off, longer, or another entry in its place."""
    for length in (0, 1, 4, place.head_bytes - 1, place.head_bytes, len(good) // 2, len(good) - 1):
        yield f"cut off after {length} bytes", good[:length]
    yield "longer by a byte", good + b"\0"
    for number, other in enumerate(place.others()):
        yield f"replaced by another, {number}", other


def add_entry_of_another_guest() -> None:
    """An entry that is valid, and signed, for a guest that is not asked."""
    with_another = GuestCache("another")
    with_another.put(with_another.key({"source": "other"}), "other", Path(__file__).read_bytes())
    with_another.close()
