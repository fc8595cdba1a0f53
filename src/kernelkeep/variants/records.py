"""Tuning results on disk: every measurement with what it was measured on, and which variant is in use.

    <cache folder>/tuning.sqlite             the results of all devices
    <cache folder>/tuning.sqlite.damaged     the last file that could not be read, for inspection

Many processes and threads may read and write at the same time. What cannot be written stays in memory, with one warning
(`database.py`); only wrong arguments raise. A file of JSON lines carries results between machines.
"""

from __future__ import annotations

import io
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from .. import __version__
from ..errors import ArgumentError
from ..storage.files import NotRegular, open_regular, write_whole
from ..storage.private import Trust
from .database import Database
from .record import (
    Choice,
    Record,
    checked_choice,
    checked_record,
    decode_lines,
    encode_line,
    measured_again,
    merged,
    preferred,
)
from .rows import Count, delete, key_of, read_choices, read_counts, read_records, write_choice, write_record
from .values import canonical

__all__ = ["FILE_NAME", "Choice", "Count", "Record", "Records"]

FILE_NAME = "tuning.sqlite"


class Records:
    """The results in a cache folder, or in the file `path` where that ends in .sqlite; in memory where it is None."""

    def __init__(self, path: Path | None, trust: Trust | None = None) -> None:
        if path is not None and path.suffix != ".sqlite":
            path = path / FILE_NAME
        self._database = Database(path, trust)

    @property
    def path(self) -> Path | None:
        """The file; None for results in memory."""
        return self._database.path

    @property
    def in_memory(self) -> bool:
        """Whether results are kept in memory only, at the moment."""
        return self._database.in_memory

    @property
    def problems(self) -> int:
        """How often something could not be read or written as it should."""
        return self._database.problems

    def warn(self, kind: str, text: str) -> None:
        """Count a problem with what is stored; the first of its kind is a warning."""
        self._database.warn(kind, text)

    # --- measurements

    def add(self, record: Record) -> None:
        """Store a measurement: samples are added to those of this variant; failure and success replace each other."""
        self.add_all((record,))

    def add_all(self, records: Iterable[Record]) -> None:
        """Store several measurements in one transaction: all of them or none."""
        now = time.time()
        new = [
            checked_record(
                msgspec.structs.replace(record, created=record.created or now, version=record.version or __version__)
            )
            for record in records
        ]

        def work(connection: sqlite3.Connection) -> None:
            for record in new:
                write_record(connection, measured_again(self._stored(connection, record), record))

        self._database.write(work)

    def find(
        self, tuned: str, source: str, device: str, problem: Mapping[str, Any], dtype: str = "f4"
    ) -> Record | None:
        """The record of one variant."""
        return self.known(tuned, device, problem, dtype).get(source)

    def known(self, tuned: str, device: str, problem: Mapping[str, Any], dtype: str = "f4") -> dict[str, Record]:
        """All records of one problem, by the digest of the source."""
        return {record.source: record for record in self.of_device(tuned, device, problem, dtype)}

    def of_device(
        self, tuned: str, device: str, problem: Mapping[str, Any] | None = None, dtype: str | None = None
    ) -> list[Record]:
        """All records of a device, or those of one problem or type."""
        return self._read(tuned=tuned, device=device, problem=_text(problem), dtype=dtype)

    def of_architecture(self, tuned: str, architecture: str) -> list[Record]:
        """All records of all devices of an architecture."""
        return self._read(tuned=tuned, architecture=architecture)

    def _read(self, **equal: str | None) -> list[Record]:
        return self._database.read(lambda connection: read_records(connection, self._skipped, **equal))

    # --- the variant in use

    def choice(self, tuned: str, device: str, problem: Mapping[str, Any], dtype: str = "f4") -> Choice | None:
        """The variant in use for a problem."""
        found = self._read_choices(tuned=tuned, device=device, problem=canonical(problem), dtype=dtype)
        return found[0] if found else None

    def choices(self, tuned: str | None = None, device: str | None = None) -> list[Choice]:
        """The variants in use, for all problems."""
        return self._read_choices(tuned=tuned, device=device)

    def _read_choices(self, **equal: str | None) -> list[Choice]:
        return self._database.read(lambda connection: read_choices(connection, self._skipped, **equal))

    def choose(self, choice: Choice) -> None:
        """Store which variant is in use. Only a pin replaces a pin."""
        new = checked_choice(msgspec.structs.replace(choice, created=choice.created or time.time()))

        def work(connection: sqlite3.Connection) -> None:
            old = self._stored_choice(connection, key_of(new))
            if new.pinned or old is None or not old.pinned:
                write_choice(connection, new)

        self._database.write(work)

    def unpin(self, tuned: str, device: str, problem: Mapping[str, Any], dtype: str = "f4") -> bool:
        """Remove a pin, so that measurements decide again; False where there is none."""
        key = {"tuned": tuned, "device": device, "problem": canonical(problem), "dtype": dtype}

        def work(connection: sqlite3.Connection) -> bool:
            old = self._stored_choice(connection, key)
            if old is None or not old.pinned:
                return False
            delete(connection, "choices", **key)
            return True

        return self._database.write(work)

    # --- all together

    def names(self) -> list[str]:
        """The tuned kernels that have records."""
        return sorted({count.tuned for count in self.counts()})

    def devices(self) -> dict[str, str]:
        """The devices that have records: fingerprint → readable name."""
        return {count.device: count.device_name for count in self.counts()}

    def counts(self) -> list[Count]:
        """How much is known, one row for each tuned kernel and device."""
        return self._database.read(lambda connection: read_counts(connection, self._skipped))

    def forget(
        self,
        tuned: str | None = None,
        device: str | None = None,
        problem: Mapping[str, Any] | None = None,
        *,
        choices: bool = True,
    ) -> int:
        """Remove the records of a kernel, of a device, of a problem, of what matches all that is given, or all of them.

        The choices go with them, pins among them, unless `choices` is False. Returns how many records were removed.
        """
        equal = {"tuned": tuned, "device": device, "problem": _text(problem)}

        def work(connection: sqlite3.Connection) -> int:
            if choices:
                delete(connection, "choices", **equal)
            return delete(connection, "records", **equal)

        return self._database.write(work)

    # --- files

    def export(
        self, path_or_file: str | os.PathLike[str] | IO[Any], tuned: str | None = None, device: str | None = None
    ) -> int:
        """Write records and choices as JSON lines; returns how many records. A file appears whole or not at all."""

        def work(connection: sqlite3.Connection) -> tuple[list[Record], list[Choice]]:
            equal = {"tuned": tuned, "device": device}
            records = read_records(connection, self._skipped, **equal)
            return records, read_choices(connection, self._skipped, **equal)

        records, choices = self._database.read(work)
        data = b"".join([*map(encode_line, records), *map(encode_line, choices)])
        if isinstance(path_or_file, str | os.PathLike):
            write_whole(Path(path_or_file), data)
        else:
            path_or_file.write(data.decode() if isinstance(path_or_file, io.TextIOBase) else data)
        return len(records)

    def load(self, path_or_file: str | os.PathLike[str] | IO[Any]) -> int:
        """Read what `export` wrote, here or elsewhere; returns how many records and choices are new or changed.

        Reading a file again changes nothing. Bad lines are skipped, with one warning.
        """
        if isinstance(path_or_file, str | os.PathLike):
            name = str(path_or_file)
            try:
                with open_regular(path_or_file) as file:
                    items, bad = decode_lines(file)
            except NotRegular as error:
                raise ArgumentError(f"{name} cannot be read: it {error}") from None
            except OSError as error:
                raise ArgumentError(f"{name} cannot be read: {error.strerror or error}") from None
        else:
            name = str(getattr(path_or_file, "name", "the file"))
            items, bad = decode_lines(path_or_file)
        if bad and not items:
            raise ArgumentError(f"{name} holds no tuning results: line {bad[0][0]} is none ({bad[0][1]})")
        if bad:
            number, reason = bad[0]
            others = f", and so are {len(bad) - 1} more" if len(bad) > 1 else ""
            self.warn(f"load {name}", f"line {number} of {name} is skipped ({reason}){others}")

        return self._database.write(lambda connection: sum(self._merge(connection, item) for item in items))

    def _merge(self, connection: sqlite3.Connection, item: Record | Choice) -> bool:
        """Merge something from a file into what is stored; returns whether that changed anything."""
        if isinstance(item, Record):
            old = self._stored(connection, item)
            new = merged(old, item)
            if new != old:
                write_record(connection, new)
            return new != old
        stored = self._stored_choice(connection, key_of(item))
        winner = preferred(stored, item)
        if winner != stored:
            write_choice(connection, winner)
        return winner != stored

    def _stored(self, connection: sqlite3.Connection, record: Record) -> Record | None:
        found = read_records(connection, self._skipped, **key_of(record), source=record.source)
        return found[0] if found else None

    def _stored_choice(self, connection: sqlite3.Connection, key: dict[str, str]) -> Choice | None:
        found = read_choices(connection, self._skipped, **key)
        return found[0] if found else None

    def _skipped(self, reason: str) -> None:
        self.warn("row", f"a row of {self.path} is skipped: {reason}")

    # --- the end

    def close(self) -> None:
        """Close the file; what was in memory only is lost."""
        self._database.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Records in {'memory' if self.in_memory else self.path}>"


def _text(problem: Mapping[str, Any] | None) -> str | None:
    return None if problem is None else canonical(problem)
