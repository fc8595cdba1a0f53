"""Tuning results, kept: every measurement with what it was measured on, and which variant is in use.

    <cache folder>/tuning.sqlite             the results of all devices
    <cache folder>/tuning.sqlite.damaged     the last file that could not be read, to look at

Many processes and threads may read and write at the same time. What cannot be written stays in memory, with one warning
(`database.py`); only what the caller passed raises. A file of JSON lines carries results between machines.
"""

from __future__ import annotations

import io
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
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
from .values import canonical

__all__ = ["FILE_NAME", "Choice", "Count", "Record", "Records"]

FILE_NAME = "tuning.sqlite"

_record = msgspec.json.Decoder(Record)
_choice = msgspec.json.Decoder(Choice)
_BODY = "CAST(body AS BLOB)"  # bytes: what a damaged row holds need not be UTF-8


class Count(msgspec.Struct, frozen=True):
    """How much is known of a tuned kernel on a device."""

    tuned: str
    device: str
    device_name: str
    architecture: str
    problems: int  # different ones
    measured: int  # variants, each counted for every problem
    failed: int
    newest: float  # seconds since 1970


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
        """Count a problem with what is kept; the first of its kind is a warning."""
        self._database.trouble(kind, text)

    # --- measurements

    def add(self, record: Record) -> None:
        """Keep a measurement: samples are added to those of this variant; failure and success replace each other."""
        self.add_all((record,))

    def add_all(self, records: Iterable[Record]) -> None:
        """Keep several measurements in one transaction: all of them or none."""
        now = time.time()
        new = [
            checked_record(
                msgspec.structs.replace(record, created=record.created or now, version=record.version or __version__)
            )
            for record in records
        ]

        def work(connection: sqlite3.Connection) -> None:
            for record in new:
                _put(connection, measured_again(self._get(connection, record), record))

        self._database.write(work)

    def find(
        self, tuned: str, source: str, device: str, problem: Mapping[str, Any], dtype: str = "f4"
    ) -> Record | None:
        """What is known of one variant."""
        found = self._select(tuned=tuned, device=device, problem=canonical(problem), dtype=dtype, source=source)
        return found[0] if found else None

    def known(self, tuned: str, device: str, problem: Mapping[str, Any], dtype: str = "f4") -> dict[str, Record]:
        """All that is known of one problem, by the hash of the source."""
        found = self._select(tuned=tuned, device=device, problem=canonical(problem), dtype=dtype)
        return {record.source: record for record in found}

    def of_device(
        self, tuned: str, device: str, problem: Mapping[str, Any] | None = None, dtype: str | None = None
    ) -> list[Record]:
        """All records of a device, or those of one problem or type."""
        return self._select(
            tuned=tuned, device=device, problem=None if problem is None else canonical(problem), dtype=dtype
        )

    def of_architecture(self, tuned: str, architecture: str) -> list[Record]:
        """All records of all devices of an architecture."""
        return self._select(tuned=tuned, architecture=architecture)

    # --- the variant in use

    def choice(self, tuned: str, device: str, problem: Mapping[str, Any], dtype: str = "f4") -> Choice | None:
        """The variant in use for a problem."""
        key = (tuned, device, canonical(problem), dtype)
        return self._database.read(lambda connection: self._get_choice(connection, key))

    def choices(self, tuned: str | None = None, device: str | None = None) -> list[Choice]:
        """The variants in use, for all problems."""
        return self._database.read(lambda connection: self._choices(connection, tuned, device))

    def choose(self, choice: Choice) -> None:
        """Put a variant to use. Only a pin replaces a pin."""
        new = checked_choice(msgspec.structs.replace(choice, created=choice.created or time.time()))

        def work(connection: sqlite3.Connection) -> None:
            old = self._get_choice(connection, _key(new))
            if new.pinned or old is None or not old.pinned:
                _put_choice(connection, new)

        self._database.write(work)

    def unpin(self, tuned: str, device: str, problem: Mapping[str, Any], dtype: str = "f4") -> bool:
        """Drop a pin, so that measurements decide again; False where there is none."""
        key = (tuned, device, canonical(problem), dtype)

        def work(connection: sqlite3.Connection) -> bool:
            old = self._get_choice(connection, key)
            if old is None or not old.pinned:
                return False
            connection.execute("DELETE FROM choices WHERE tuned=? AND device=? AND problem=? AND dtype=?", key)
            return True

        return self._database.write(work)

    # --- all together

    def names(self) -> list[str]:
        """The tuned kernels something is known of."""
        return sorted({count.tuned for count in self.counts()})

    def devices(self) -> dict[str, str]:
        """The devices something is known of: fingerprint → readable name."""
        return {count.device: count.device_name for count in self.counts()}

    def counts(self) -> list[Count]:
        """How much is known, a row for each tuned kernel and device."""
        query = """
            SELECT tuned, device, max(device_name), max(architecture), count(DISTINCT problem),
                   sum(failure = ''), sum(failure != ''), max(created)
            FROM records GROUP BY tuned, device ORDER BY tuned, max(device_name), device
        """
        rows = self._database.read(lambda connection: connection.execute(query).fetchall())
        return [found for row in rows if (found := self._count(row)) is not None]

    def _count(self, row: tuple[Any, ...]) -> Count | None:
        try:
            return msgspec.convert(dict(zip(Count.__struct_fields__, row, strict=True)), Count)
        except msgspec.ValidationError as error:
            self._database.trouble("row", f"a row of {self.path} is passed over: {error}")
            return None

    def forget(
        self,
        tuned: str | None = None,
        device: str | None = None,
        problem: Mapping[str, Any] | None = None,
        *,
        choices: bool = True,
    ) -> int:
        """Remove the records of a kernel, of a device, of a problem, of what fits all that is given, or all of them.

        The choices go with them, pins among them, unless `choices` is False. Returns how many records went.
        """
        condition, values = _where(tuned=tuned, device=device, problem=None if problem is None else canonical(problem))

        def work(connection: sqlite3.Connection) -> int:
            if choices:
                connection.execute(f"DELETE FROM choices{condition}", values)
            return connection.execute(f"DELETE FROM records{condition}", values).rowcount

        return self._database.write(work)

    def export(
        self, path_or_file: str | os.PathLike[str] | IO[Any], tuned: str | None = None, device: str | None = None
    ) -> int:
        """Write records and choices as JSON lines; how many records. A file appears whole or not at all."""

        def work(connection: sqlite3.Connection) -> tuple[list[Record], list[Choice]]:
            return self._records(connection, tuned=tuned, device=device), self._choices(connection, tuned, device)

        records, choices = self._database.read(work)
        data = b"".join([*map(encode_line, records), *map(encode_line, choices)])
        if isinstance(path_or_file, str | os.PathLike):
            write_whole(Path(path_or_file), data)
        else:
            path_or_file.write(data.decode() if isinstance(path_or_file, io.TextIOBase) else data)
        return len(records)

    def load(self, path_or_file: str | os.PathLike[str] | IO[Any]) -> int:
        """Take in what `export` wrote, here or elsewhere; how many records and choices are new or changed.

        Reading a file again changes nothing. Bad lines are passed over, with one warning.
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
            self._database.trouble(f"load {name}", f"line {number} of {name} is passed over ({reason}){others}")

        def work(connection: sqlite3.Connection) -> int:
            return sum(self._merge(connection, item) for item in items)

        return self._database.write(work)

    def close(self) -> None:
        """Let go of the file; what was kept in memory only is gone."""
        self._database.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Records in {'memory' if self.in_memory else self.path}>"

    # --- rows

    def _select(self, **equal: str | None) -> list[Record]:
        return self._database.read(lambda connection: self._records(connection, **equal))

    def _records(self, connection: sqlite3.Connection, **equal: str | None) -> list[Record]:
        condition, values = _where(**equal)
        rows = connection.execute(f"SELECT {_BODY} FROM records{condition} ORDER BY rowid", values).fetchall()
        return [found for (body,) in rows if (found := self._decode(_record, body)) is not None]

    def _choices(self, connection: sqlite3.Connection, tuned: str | None, device: str | None) -> list[Choice]:
        condition, values = _where(tuned=tuned, device=device)
        rows = connection.execute(f"SELECT {_BODY} FROM choices{condition} ORDER BY rowid", values).fetchall()
        return [found for (body,) in rows if (found := self._decode(_choice, body)) is not None]

    def _get(self, connection: sqlite3.Connection, record: Record) -> Record | None:
        tuned, device, problem, dtype = _key(record)
        found = self._records(
            connection, tuned=tuned, device=device, problem=problem, dtype=dtype, source=record.source
        )
        return found[0] if found else None

    def _get_choice(self, connection: sqlite3.Connection, key: tuple[str, str, str, str]) -> Choice | None:
        query = f"SELECT {_BODY} FROM choices WHERE tuned=? AND device=? AND problem=? AND dtype=?"
        row = connection.execute(query, key).fetchone()
        return None if row is None else self._decode(_choice, row[0])

    def _decode(self, decoder: Any, body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError) as error:
            self._database.trouble("row", f"a row of {self.path} is passed over: {error}")
            return None

    def _merge(self, connection: sqlite3.Connection, item: Record | Choice) -> bool:
        """Take in something from a file; whether that changed anything."""
        if isinstance(item, Record):
            old = self._get(connection, item)
            new = merged(old, item)
            if new != old:
                _put(connection, new)
            return new != old
        there = self._get_choice(connection, _key(item))
        stands = preferred(there, item)
        if stands != there:
            _put_choice(connection, stands)
        return stands != there


def _key(item: Record | Choice) -> tuple[str, str, str, str]:
    return item.tuned, item.device, canonical(item.problem), item.dtype


def _put(connection: sqlite3.Connection, record: Record) -> None:
    connection.execute(
        "INSERT INTO records "
        "(tuned, device, problem, dtype, source, architecture, device_name, failure, created, body) "
        "VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET architecture=excluded.architecture, "
        "device_name=excluded.device_name, failure=excluded.failure, created=excluded.created, body=excluded.body",
        (
            *_key(record),
            record.source,
            record.architecture,
            record.device_name,
            record.failure,
            record.created,
            msgspec.json.encode(record).decode(),
        ),
    )


def _put_choice(connection: sqlite3.Connection, choice: Choice) -> None:
    body = msgspec.json.encode(choice).decode()
    connection.execute(
        "INSERT OR REPLACE INTO choices (tuned, device, problem, dtype, body) VALUES (?,?,?,?,?)", (*_key(choice), body)
    )


def _where(**equal: str | None) -> tuple[str, list[str]]:
    """A condition on the columns that are not None."""
    given = {column: value for column, value in equal.items() if value is not None}
    return (" WHERE " + " AND ".join(f"{column}=?" for column in given) if given else "", list(given.values()))
