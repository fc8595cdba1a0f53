"""What is kept beside a guest's entries so that a hit is fast: the folder, its bound, and the check that every hit makes.

The check is SHA-256 over the key, what is said of the contents, and digests of their blocks. Those find damage ten times as fast
as SHA-256 over every byte would; they prove nothing about who wrote a file, so one that another user could have written, and
could change behind the check, does not pass. What does not pass is written again from the entry, and without the entry nothing is
found.

The folder is `driver`, a foreign cache folder: counted, pruned and cleared with the rest. A process that uses it holds it, so
that nobody removes a file between the check and the guest's own read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable

from ..cache.key import Key
from ..platforms import system
from ..storage.files import Damaged, publish, write_temporary
from ..storage.locks import LockUnavailable
from ..storage.private import make_private_folder
from ..storage.reading import read_file
from .guest_cache import GuestCache
from .process_end import at_process_end

try:
    from .._digest import digest_blocks as _digest_in_c
except ImportError:  # a system for which it is not built
    _digest_in_c = None  # type: ignore[assignment]

READ = os.O_RDONLY | system.OPEN_FLAGS | system.NO_WAITING | system.NO_LINKS
CHECK_BYTES = 32
_MOST_BYTES = 256 << 20  # as much as OpenGL drivers keep, and at most a quarter of the cache
_MEASURE_BYTES = 16 << 20  # so much is written before the folder, where others write too, is measured again
_LENGTH = struct.Struct("<Q")
_BLOCK_BYTES, _BLOCK_KEY = 1 << 16, bytes(16)


class KeptFolder:
    """Safe under threads, processes and forks."""

    def __init__(self, cache: GuestCache) -> None:
        self.cache = cache
        self.foreign = cache.disk.folder.foreign
        self.prefix = f"{self.foreign.path}/"
        self.release: Callable[[], None] | None = None
        self._process = 0
        self._kept_bytes: int | None = None  # in the folder, once it was measured, and what was written since
        self._unmeasured = 0
        self._is_full = False
        self._too_large: set[str] = set()

    def use(self, key: Key, name: str) -> int | None:
        """The size of the entry on disk, which counts as used; None where there is none, or nothing can be kept."""
        disk = self.cache.disk
        return disk.folder.use(key.digest, name) if disk.usable and self.holds() else None

    def entry_to_keep(self, key: Key, name: str) -> bytes | None:
        """The entry on disk, as it is; None where there is none, or it cannot be kept."""
        disk = self.cache.disk
        if not disk.usable or not self.holds() or self._is_full or key.digest in self._too_large:
            return None
        return disk.folder.read(key.digest, name)

    def read(self, name: str, most: int) -> bytes:
        """A file that only this user could have written. `OSError`; `Damaged` where it is another's, or is larger."""
        data, _, _, mode, owner = read_file(self.prefix + name, READ, most)
        if data is None or mode & system.WRITABLE_BY_OTHERS or owner not in self.cache.disk.trust.uids:
            raise Damaged("it is no file of this user")
        return data

    def make(self) -> None:
        """Make the folder, for this user alone."""
        make_private_folder(self.foreign.path, self.cache.disk.trust)

    def write(self, name: str, content: bytes) -> None:
        """Publish a file. `OSError`."""
        publish(write_temporary(self.cache.disk.folder.path / "tmp", content), self.foreign.path / name)
        self._unmeasured += len(content)

    def holds(self) -> bool:
        """Keep others from removing the folder; a forked child holds it for itself."""
        process = os.getpid()
        if self._process != process:
            release = None
            with contextlib.suppress(LockUnavailable):
                release = self.foreign.hold()
            self.release, self._process = release, process
            self._kept_bytes, self._is_full = None, False
        return self.release is not None

    def has_room(self, key: Key, nbytes: int) -> bool:
        """Whether so many bytes more may be kept. What is larger than the bound does not make the folder full."""
        most = min(_MOST_BYTES, self.cache.disk.max_bytes // 4)
        if nbytes > most:
            self._too_large.add(key.digest)
            return False
        if self._kept_bytes is None:
            at_process_end(self._clear_if_full)
        if self._kept_bytes is None or self._unmeasured >= _MEASURE_BYTES:
            self._kept_bytes, self._unmeasured = self.foreign.nbytes(), 0
        self._is_full = self._kept_bytes + self._unmeasured + nbytes > most
        return not self._is_full

    def _clear_if_full(self) -> None:
        """Remove the folder at the end, unless another process uses it. What is used again is written again."""
        if self._is_full and self.release is not None:
            self.release()
            self.foreign.remove({})


def check_of(key: str, said: bytes, content: bytes | memoryview) -> bytes:
    """The check of some contents, of what is said of them, and of their key."""
    length = _LENGTH.pack(len(content))  # the digest of the last block is that of one with zeros behind it
    return hashlib.sha256(key.encode() + said + length + _digests_of_blocks(content)).digest()


def _digests_of_blocks(content: bytes | memoryview) -> bytes:
    if _digest_in_c is None:
        from ..continuous.checkpoints.block_digest import digest_blocks  # NumPy, which few hits need

        return digest_blocks(memoryview(content), _BLOCK_KEY).tobytes()
    digests = bytearray(16 * -(-len(content) // _BLOCK_BYTES))
    _digest_in_c(content, _BLOCK_KEY, digests)
    return bytes(digests)
