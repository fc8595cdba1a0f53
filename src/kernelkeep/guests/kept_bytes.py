"""The bytes of a guest's entries once more, as they are, for guests whose hits are faster than an entry is verified.

An entry is compressed, and SHA-256 goes over every byte of it, which takes longer than PyTorch needs to unpickle a graph. The
copy is not compressed, and its check is a faster one:

    driver/<key>.bytes        a check, the entry's size, the seconds its compile took; then the bytes

The check (`kept_folder.py`) covers the key and everything behind it.
"""

from __future__ import annotations

import struct

from ..cache.entry import LARGEST_PAYLOAD, decode
from ..cache.key import Key
from ..cache.log import log
from ..storage.files import Damaged
from .guest_cache import GuestCache
from .kept_folder import CHECK_BYTES, KeptFolder, check_of

_SAID = struct.Struct("<Qd")  # the entry's size, and the seconds
_START = CHECK_BYTES + _SAID.size


class KeptBytes:
    """Safe under threads, processes and forks. Nothing here raises because of a file."""

    def __init__(self, cache: GuestCache) -> None:
        self._cache = cache
        self._folder = KeptFolder(cache)

    def find(self, key: Key, name: str) -> memoryview | None:
        """An entry's bytes, all of them verified; None where they are not kept, or are not as they were."""
        size = self._folder.use(key, name)
        if size is None:
            return None
        try:
            data = self._folder.read(f"{key.digest}.bytes", LARGEST_PAYLOAD + _START)
            said, content = data[CHECK_BYTES:_START], memoryview(data)[_START:]
            if check_of(key.digest, said, content) != data[:CHECK_BYTES]:
                raise Damaged("its checksum is wrong")
            entry_bytes, compile_seconds = _SAID.unpack(said)
            if entry_bytes != size:
                raise Damaged("it is that of an older entry")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, struct.error, Damaged, MemoryError) as error:
            log(name, "its kept copy is not used: %s", str(error) or type(error).__name__)
            return None
        self._cache.count_hit(compile_seconds)
        return content

    def keep(self, key: Key, name: str) -> None:
        """Write the bytes of an entry that is on disk, where they can be kept."""
        folder = self._folder
        try:
            data = folder.entry_to_keep(key, name)
            if data is None:
                return
            entry = decode(data, key.digest)
            if not folder.has_room(key, len(entry.payload)):
                return
            said = _SAID.pack(len(data), entry.facts.compile_seconds)
            folder.make()
            folder.write(f"{key.digest}.bytes", check_of(key.digest, said, entry.payload) + said + entry.payload)
        except (OSError, Damaged, MemoryError) as error:
            log(name, "its copy is not kept: %s", str(error) or type(error).__name__)
