"""The files of a guest's entries, kept beside the entries for guests that want paths instead of bytes.

Writing seven files takes longer than the rest of a hit, so they are written once and verified in place at every later hit:

    driver/<key>.files        of an entry: a hash, the entry's size, the seconds its compile took, and its files' names and sizes
    driver/<hash>-<name>      one of its files

The hash covers the key, that list and every byte of the files: no other file, name or order passes, and what lies under one
hash never changes. It is SHA-256 over the digests of blocks, which find damage ten times as fast as SHA-256 would; it proves
nothing about who wrote a file, so one that another user could have written, and could change behind the check, does not pass.
What does not pass is written again from the entry, and without the entry nothing is found.

`driver` is a foreign cache folder: counted, pruned and cleared with the rest. A process that uses it holds it, so that nobody
removes a file between the check and the guest's own read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import Annotated

import msgspec

from ..cache.entry import LARGEST_PAYLOAD, decode
from ..cache.key import Key
from ..cache.log import log
from ..platforms import system
from ..storage.files import Damaged, publish, write_temporary
from ..storage.locks import LockUnavailable
from ..storage.private import make_private_folder
from ..storage.reading import read_file, read_files
from .files import unpack
from .guest_cache import GuestCache
from .process_end import at_process_end

try:
    from .._digest import digest_blocks as _digest_in_c
except ImportError:  # a system for which it is not built
    _digest_in_c = None  # type: ignore[assignment]

_MOST_BYTES = 256 << 20  # as much as OpenGL drivers keep, and at most a quarter of the cache
_LONGEST_LIST = 1 << 16
_HASH_BYTES = 32
_BLOCK_BYTES, _BLOCK_KEY = 1 << 16, bytes(16)
_READ = os.O_RDONLY | system.OPEN_FLAGS | system.NO_WAITING | system.NO_LINKS

_Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PAYLOAD)]


class _Listed(msgspec.Struct, array_like=True, gc=False):
    entry_bytes: int
    compile_seconds: float
    files: list[tuple[str, _Size]]


_decoder = msgspec.json.Decoder(_Listed)


class KeptFiles:
    """Safe under threads, processes and forks. Nothing here raises because of a file."""

    def __init__(self, cache: GuestCache) -> None:
        self._cache = cache
        self._foreign = cache.disk.folder.foreign
        self._prefix = f"{self._foreign.path}/"
        self._process = 0
        self._release: Callable[[], None] | None = None
        self._room: int | None = None  # bytes, once somebody looked

    def find(self, key: Key, name: str) -> dict[str, str] | None:
        """The paths of an entry's files, with every byte verified; None where they are not kept, or are not as they were."""
        disk = self._cache.disk
        size = disk.folder.use(key.digest, name) if disk.usable and self._holds() else None
        if size is None:
            return None
        try:
            paths, compile_seconds = self._verified(key.digest, size)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, Damaged, MemoryError, RecursionError) as error:  # a list may say anything
            log(name, "its kept files are not used: %s", str(error) or type(error).__name__)
            return None
        self._cache.count_hit(compile_seconds)
        return paths

    def _verified(self, key: str, entry_bytes: int) -> tuple[dict[str, str], float]:
        start, _, _, mode, owner = read_file(f"{self._prefix}{key}.files", _READ, _LONGEST_LIST)
        owners = self._cache.disk.trust.uids
        if start is None or mode & system.WRITABLE_BY_OTHERS or owner not in owners:
            raise Damaged("their list is no file of this user")
        wanted, text = start[:_HASH_BYTES], start[_HASH_BYTES:]
        listed = _decoder.decode(text)
        if listed.entry_bytes != entry_bytes:
            raise Damaged("they are those of an older entry")
        prefix = f"{self._prefix}{wanted.hex()}-"
        content = read_files(prefix, listed.files, _READ, owners)
        if content is None:
            raise Damaged("one of them has another size, or could have been written by another user")
        if _hash(key, text, content) != wanted:
            raise Damaged("their checksum is wrong")
        return {name: prefix + name for name, _ in listed.files}, listed.compile_seconds

    def keep(self, key: Key, name: str) -> dict[str, str] | None:
        """Write the files of an entry that is on disk, and return their paths; None where they cannot be kept."""
        disk = self._cache.disk
        try:
            data = disk.folder.read(key.digest, name) if disk.usable and self._holds() else None
            if data is None:
                return None
            entry = decode(data, key.digest)
            files = unpack(entry.payload)
            if not self._take_room(len(entry.payload)):
                return None
            sizes = [(one, len(content)) for one, content in files.items()]
            text = msgspec.json.encode(_Listed(len(data), entry.facts.compile_seconds, sizes))
            digest = _hash(key.digest, text, b"".join(files.values()))
            make_private_folder(self._foreign.path, disk.trust)
            for one, content in files.items():
                self._write(f"{digest.hex()}-{one}", bytes(content))
            self._write(f"{key.digest}.files", digest + text)  # the last: it says that all are there
        except (OSError, Damaged) as error:
            log(name, "its files are not kept: %s", error)
            return None
        return {one: f"{self._prefix}{digest.hex()}-{one}" for one in files}

    def _write(self, name: str, content: bytes) -> None:
        publish(write_temporary(self._cache.disk.folder.path / "tmp", content), self._foreign.path / name)

    def _holds(self) -> bool:
        """Keep others from removing the folder; a forked child holds it for itself."""
        process = os.getpid()
        if self._process != process:
            release = None
            with contextlib.suppress(LockUnavailable):
                release = self._foreign.hold()
            self._release, self._room, self._process = release, None, process
        return self._release is not None

    def _take_room(self, nbytes: int) -> bool:
        if self._room is None:
            self._room = min(_MOST_BYTES, self._cache.disk.max_bytes // 4) - self._foreign.nbytes()
            at_process_end(self._clear_if_full)
        self._room -= nbytes
        return self._room >= 0

    def _clear_if_full(self) -> None:
        """Remove the folder at the end, unless another process uses it. What is used again is written again."""
        if self._room is not None and self._room < 0 and self._release is not None:
            self._release()
            self._foreign.remove({})


def _hash(key: str, text: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + text + _digests_of_blocks(content)).digest()


def _digests_of_blocks(content: bytes) -> bytes:
    if _digest_in_c is None:
        from ..continuous.checkpoints.block_digest import digest_blocks  # NumPy, which few hits need

        return digest_blocks(memoryview(content), _BLOCK_KEY).tobytes()
    digests = bytearray(16 * -(-len(content) // _BLOCK_BYTES))
    _digest_in_c(content, _BLOCK_KEY, digests)
    return bytes(digests)
