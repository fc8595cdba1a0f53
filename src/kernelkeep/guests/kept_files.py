"""The files of a guest's entries, kept beside the entries for guests that want paths instead of bytes.

Writing seven files takes longer than the rest of a hit, so they are written once and verified in place at every later hit:

    driver/<key>.files        of an entry: a check, the entry's size, the seconds its compile took, and its files' names and sizes
    driver/<check>-<name>     one of its files

The check (`kept_folder.py`) covers the key, that list and every byte of the files: no other file, name or order passes, and what
lies under one check never changes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..cache.entry import LARGEST_PAYLOAD, decode
from ..cache.key import Key
from ..cache.log import log
from ..storage.files import Damaged
from ..storage.reading import read_files
from .files import unpack
from .guest_cache import GuestCache
from .kept_folder import CHECK_BYTES, READ, KeptFolder, check_of

_LONGEST_LIST = 1 << 16

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
        self._folder = KeptFolder(cache)

    def find(self, key: Key, name: str) -> dict[str, str] | None:
        """The paths of an entry's files, with every byte verified; None where they are not kept, or are not as they were."""
        size = self._folder.use(key, name)
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
        start = self._folder.read(f"{key}.files", _LONGEST_LIST)
        wanted, text = start[:CHECK_BYTES], start[CHECK_BYTES:]
        listed = _decoder.decode(text)
        if listed.entry_bytes != entry_bytes:
            raise Damaged("they are those of an older entry")
        prefix = f"{self._folder.prefix}{wanted.hex()}-"
        content = read_files(prefix, listed.files, READ, self._cache.disk.trust.uids)
        if content is None:
            raise Damaged("one of them has another size, or could have been written by another user")
        if check_of(key, text, content) != wanted:
            raise Damaged("their checksum is wrong")
        return {name: prefix + name for name, _ in listed.files}, listed.compile_seconds

    def keep(self, key: Key, name: str) -> dict[str, str] | None:
        """Write the files of an entry that is on disk, and return their paths; None where they cannot be kept."""
        folder = self._folder
        try:
            data = folder.entry_to_keep(key, name)
            if data is None:
                return None
            entry = decode(data, key.digest)
            files = unpack(entry.payload)
            if not folder.has_room(key, len(entry.payload)):
                return None
            sizes = [(one, len(content)) for one, content in files.items()]
            text = msgspec.json.encode(_Listed(len(data), entry.facts.compile_seconds, sizes))
            check = check_of(key.digest, text, b"".join(files.values()))
            folder.make()
            for one, content in files.items():
                folder.write(f"{check.hex()}-{one}", bytes(content))
            folder.write(f"{key.digest}.files", check + text)  # the last: it says that all are there
        except (OSError, Damaged, MemoryError) as error:
            log(name, "its files are not kept: %s", str(error) or type(error).__name__)
            return None
        return {one: f"{folder.prefix}{check.hex()}-{one}" for one in files}
