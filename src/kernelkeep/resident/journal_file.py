"""The file of a journal: what it says of itself, and the ring, which is mapped.

    byte
    0        first description    each one: 8 bytes magic 89 "KKRJ" 0D 0A 1A, u32 version, u32 length of the JSON,
    131072   second description              u64 number of this description, u32 CRC-32 of the JSON, u32 CRC-32 of these 28 bytes,
    262144   the ring                        then the JSON

The description with the higher number holds; a new one is written over the other, so a process that is killed while it writes
one leaves the one before. All numbers are little-endian. What processes write stays in the file when they are killed; when the
machine itself fails, nothing is promised. The file has no holes: a full disk would end the process that writes to one through
the mapping. Version 1, in which records have no tags, is read.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..errors import ArgumentError
from ..platforms import system
from ..storage.files import Damaged, NotRegular, check_destination, fill_and_rename, open_regular
from .protocol import Layout, layout_of

VERSION = 2
_KNOWN = (1, VERSION)
_MAGIC = b"\x89KKRJ\r\n\x1a"
_HEAD = struct.Struct("<8sIIQI")
_CRC = struct.Struct("<I")
_ROOM = 1 << 17
RING_AT = 2 * _ROOM


class JournalTask(msgspec.Struct, frozen=True):
    """A task as records of the ring know it: by its place in the description."""

    name: str
    arguments: tuple[tuple[str, str], ...]  # name, dtype
    result: str
    whole_grid: bool


class Description(msgspec.Struct, frozen=True):
    """What a journal says of itself.

    `tasks` stand at their numbers. `id` is new whenever the ring is written again; at that moment it held what came after the
    checkpoint with `base_id` and `base_done`, if there is one: the tasks of each block from `base_at` on (none: from 0 on).
    `tagged` says whether records have tags.
    """

    id: str
    tasks: tuple[JournalTask, ...]
    number: int = 1
    base_id: str = ""
    base_done: tuple[int, ...] = ()
    base_at: tuple[int, ...] = ()
    tagged: bool = False


class JournalFile:
    """A journal that is mapped."""

    def __init__(self, path: Path, memory: mmap.mmap, description: Description) -> None:
        self.path, self.description = path, description
        self._memory = memory
        whole = np.frombuffer(memory, np.uint8)
        self.layout = _checked_layout(path, whole[RING_AT:])
        self.ring: np.ndarray[Any, Any] = whole[RING_AT : RING_AT + self.layout.total_bytes]

    def close(self) -> None:
        """Give the mapping back, if nobody else uses the ring."""
        self.ring = np.zeros(0, np.uint8)
        with suppress(BufferError):
            self._memory.close()

    def describe(self, tasks: tuple[JournalTask, ...]) -> None:
        """Have other tasks in the description, before any record uses them."""
        if tasks == self.description.tasks:
            return
        self.description = msgspec.structs.replace(self.description, tasks=tasks, number=self.description.number + 1)
        data = _encoded(self.description)
        at = _ROOM * (self.description.number % 2)
        self._memory[at : at + len(data)] = data


def new_id() -> str:
    """An identity that no other journal has."""
    return secrets.token_hex(16)


def create_journal(path: Path, layout: Layout, description: Description, fill: Callable[[Any], None]) -> JournalFile:
    """Write a journal, whole or not at all, over what is at `path`; `fill` gets the bytes of its empty ring."""
    ring = np.zeros(layout.total_bytes, np.uint8)
    layout.initialize(ring)
    fill(ring)
    data = _encoded(description)
    at = _ROOM * (description.number % 2)

    def write(file: Any) -> None:
        system.allocate(file.fileno(), RING_AT + ring.nbytes)
        file.write(bytes(at) + data + bytes(RING_AT - at - len(data)))
        file.write(ring.data)

    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        check_destination(path)
        fill_and_rename(temporary, path, write)
    except NotRegular as error:
        raise ArgumentError(f"the journal {path} cannot be written: it {error}") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"the journal {path} cannot be written: {_reason(error)}") from None
    return open_journal_file(path)


def open_journal_file(path: Path) -> JournalFile:
    """Map a journal that exists; ArgumentError where it is none, or damaged. Its contents stay as they are."""
    try:
        with open_regular(path):
            pass
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size < RING_AT:
                raise _not_a_journal(path, f"it has {size} bytes")
            memory = mmap.mmap(file.fileno(), 0)
            journal = JournalFile(path, memory, _newest_description(path, memory))
            system.allocate(file.fileno(), size)  # it may have been copied, or made by an earlier version
            return journal
    except (Damaged, NotRegular) as error:
        raise _not_a_journal(path, f"it {error}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"the journal {path} cannot be opened: {_reason(error)}") from None


def _newest_description(path: Path, memory: mmap.mmap) -> Description:
    found = [one for one in (_decoded(path, memory, 0), _decoded(path, memory, _ROOM)) if one is not None]
    if not found:
        raise _not_a_journal(path, "it does not begin like one, or its beginning is damaged")
    return max(found, key=lambda one: one.number)


def _encoded(description: Description) -> bytes:
    body = msgspec.json.encode(description)
    if len(body) > _ROOM - 64:
        raise ArgumentError(f"the tasks need {len(body)} bytes in a journal, and {_ROOM - 64} is the most")
    head = _HEAD.pack(_MAGIC, VERSION, len(body), description.number, zlib.crc32(body))
    return head + _CRC.pack(zlib.crc32(head)) + body


def _decoded(path: Path, memory: mmap.mmap, at: int) -> Description | None:
    head = memory[at : at + _HEAD.size]
    magic, version, length, _, crc = _HEAD.unpack(head)
    start = at + _HEAD.size + _CRC.size
    if magic != _MAGIC or _CRC.unpack(memory[at + _HEAD.size : start]) != (zlib.crc32(head),):
        return None
    if version not in _KNOWN:
        raise ArgumentError(f"the journal {path} has version {version}, and this kernelkeep knows {VERSION}")
    body = memory[start : start + length]
    if zlib.crc32(body) != crc:
        return None
    try:
        return msgspec.json.decode(body, type=Description)
    except msgspec.MsgspecError:
        return None


def _checked_layout(path: Path, ring: Any) -> Layout:
    try:
        return layout_of(ring)
    except ArgumentError as error:
        raise ArgumentError(f"the journal {path} cannot be used: {error}") from None


def _not_a_journal(path: Path, why: str) -> ArgumentError:
    return ArgumentError(
        f"{path} is no journal of a resident grid: {why}; pass another journal=, or move the file away"
    )


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
