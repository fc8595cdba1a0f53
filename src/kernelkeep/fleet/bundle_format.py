"""The bytes of a bundle: records one after the other, behind an envelope where it is signed (`remote/signing.py`).

    offset  size
    0       4     magic "KKBN"
    4       1     version, 1
    5       3     zero
    8             records, each of which is
                    4     length of the head      little-endian, as all numbers here
                    8     length of the data
                          the head, JSON; then the data

The kinds of records: a "folder" says for which GPU the "entry" and "file" records behind it are, an "entry" is an entry of the
cache as it is on disk, a "file" is one of the driver's own cache, "tuning" holds records as JSON lines, and the "end" has the
counts. Nothing comes after it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

import msgspec

from ..cache import entry as entries
from ..cache.entry import Entry
from ..devices.fingerprint import Fingerprint
from ..storage.files import LARGEST_FILE, Damaged

_START = struct.Struct("<4sB3s")
_LENGTHS = struct.Struct("<IQ")
_MAGIC = b"KKBN"
_VERSION = 1
_LONGEST_HEAD = 1 << 16
_LONGEST_PATH = 1024
_BACKEND = re.compile(r"[a-z][a-z0-9]{0,31}")


class FolderHead(msgspec.Struct, frozen=True, tag_field="kind", tag="folder"):
    """The GPU, or the architecture, of the entries and files that follow."""

    fingerprint: dict[str, str]


class EntryHead(msgspec.Struct, frozen=True, tag_field="kind", tag="entry"):
    """An entry of the cache."""

    digest: str


class FileHead(msgspec.Struct, frozen=True, tag_field="kind", tag="file"):
    """A file of the driver's own cache; `path` is relative to its folder."""

    path: str
    sha256: str


class TuningHead(msgspec.Struct, frozen=True, tag_field="kind", tag="tuning"):
    """Tuning results."""

    sha256: str


class EndHead(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    """How much there was."""

    folders: int
    entries: int
    files: int


Head = FolderHead | EntryHead | FileHead | TuningHead | EndHead
_decoder = msgspec.json.Decoder(Head)


class Item(NamedTuple):
    """A record that was verified: its head, the folder it belongs to, its data, and the entry where it is one."""

    head: Head
    fingerprint: Fingerprint | None
    data: bytes
    entry: Entry | None = None


class BundleWriter:
    """Writes records, and keeps the SHA-256 of all of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.nbytes = 0
        self.counts = {"folders": 0, "entries": 0, "files": 0}
        self._write(_START.pack(_MAGIC, _VERSION, b""))

    def folder(self, fingerprint: Fingerprint) -> None:
        """Begin with a GPU's folder."""
        facts = fingerprint.facts
        del facts["digest"]
        self._add(FolderHead(facts), b"", "folders")

    def entry(self, digest: str, data: bytes) -> None:
        """An entry, as it is on disk."""
        self._add(EntryHead(digest), data, "entries")

    def file(self, path: str, data: bytes) -> None:
        """A file of the driver's cache."""
        self._add(FileHead(path, hashlib.sha256(data).hexdigest()), data, "files")

    def tuning(self, lines: bytes) -> None:
        """Tuning results."""
        self._add(TuningHead(hashlib.sha256(lines).hexdigest()), lines)

    def end(self) -> bytes:
        """Write the last record; the SHA-256 of everything."""
        self._add(EndHead(**self.counts), b"")
        return self._digest.digest()

    def _add(self, head: Head, data: bytes, count: str = "") -> None:
        encoded = msgspec.json.encode(head)
        self._write(_LENGTHS.pack(len(encoded), len(data)) + encoded)
        self._write(data)
        if count:
            self.counts[count] += 1

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)
        self.nbytes += len(data)


def read_items(file: IO[bytes], size: int) -> Iterator[Item]:
    """Every record of a bundle with `size` bytes left in `file`, one at a time, each verified. `Damaged` says what is wrong."""
    start = file.read(_START.size)
    if start[:4] != _MAGIC[: len(start)] or not start:
        raise Damaged("it is not a bundle")
    if len(start) < _START.size:
        raise Damaged("it is cut off")
    _, version, zero = _START.unpack(start)
    if version != _VERSION or zero.strip(b"\0"):
        raise Damaged(f"it has version {version}, and this version of kernelkeep reads {_VERSION}")
    left = size - _START.size
    fingerprint: Fingerprint | None = None
    counts = {"folders": 0, "entries": 0, "files": 0}
    while True:
        head, data = _read_record(file, left)
        left -= _LENGTHS.size + head[1] + len(data)
        item = _verified(head[0], fingerprint, data)
        if isinstance(item.head, EndHead):
            if left or file.read(1):
                raise Damaged(f"{left:,} bytes come after its end")
            if msgspec.structs.asdict(item.head) != counts:
                raise Damaged("its counts do not match what is in it")
            return
        if isinstance(item.head, FolderHead):
            fingerprint = item.fingerprint
        for kind, name in ((FolderHead, "folders"), (EntryHead, "entries"), (FileHead, "files")):
            counts[name] += isinstance(item.head, kind)
        yield item


def _read_record(file: IO[bytes], left: int) -> tuple[tuple[Head, int], bytes]:
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise Damaged("it is cut off")
    head_size, data_size = _LENGTHS.unpack(lengths)
    if head_size > _LONGEST_HEAD or data_size > LARGEST_FILE:
        raise Damaged("a length in it makes no sense")
    if _LENGTHS.size + head_size + data_size > left:
        raise Damaged("it is cut off")
    try:
        head = _decoder.decode(file.read(head_size))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Damaged(f"a record in it cannot be read: {error}") from None
    data = file.read(data_size)
    if len(data) < data_size:
        raise Damaged("it is cut off")
    return (head, head_size), data


def _verified(head: Head, fingerprint: Fingerprint | None, data: bytes) -> Item:
    """A record whose data is what its head says."""
    if isinstance(head, FolderHead):
        fingerprint = fingerprint_of(head.fingerprint)
        if fingerprint is None:
            raise Damaged("a folder in it does not say for which GPU it is")
        return Item(head, fingerprint, data)
    if isinstance(head, EntryHead | FileHead) and fingerprint is None:
        raise Damaged("a program in it belongs to no folder")
    if isinstance(head, EntryHead):
        try:
            return Item(head, fingerprint, data, entries.decode(data, head.digest))
        except Damaged as damage:
            raise Damaged(f"the program with the key {head.digest[:16]} in it is damaged: {damage}") from None
    if isinstance(head, FileHead | TuningHead) and hashlib.sha256(data).hexdigest() != head.sha256:
        raise Damaged("the checksum of a file in it is wrong")
    if isinstance(head, FileHead) and not is_plain_path(head.path):
        raise Damaged(f"the name of a file in it is not one for a driver's cache: {head.path[:100]!r}")
    return Item(head, fingerprint, data)


def fingerprint_of(fields: object) -> Fingerprint | None:
    """The fingerprint that a manifest or a bundle names; None where it is none."""
    names = ("backend", "vendor", "model", "driver", "compiler", "architecture")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in names):
        return None
    fingerprint = Fingerprint(**{name: fields[name] for name in names})
    return fingerprint if _BACKEND.fullmatch(fingerprint.backend) else None


def is_plain_path(path: str) -> bool:
    """Whether a relative path stays inside its folder and has only printable characters."""
    parts = path.split("/")
    return (
        len(path) <= _LONGEST_PATH
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)
    )
