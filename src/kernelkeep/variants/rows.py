"""The rows of tuning results: how records and choices are read from a database and written to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .record import Choice, Record
from .values import canonical

T = TypeVar("T")
Skipped = Callable[[str], None]  # told what is wrong with each row that cannot be read

_COUNTS = """
    SELECT tuned, device, max(device_name) AS device_name, max(architecture) AS architecture,
           count(DISTINCT problem) AS problems, sum(failure = '') AS measured, sum(failure != '') AS failed,
           max(created) AS newest
    FROM records GROUP BY tuned, device ORDER BY tuned, max(device_name), device
"""


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


_record = msgspec.json.Decoder(Record)
_choice = msgspec.json.Decoder(Choice)


def key_of(item: Record | Choice) -> dict[str, str]:
    """The columns that a record and its choice have in common."""
    return {
        "tuned": item.tuned,
        "device": item.device,
        "problem": canonical(item.problem),
        "dtype": item.dtype,
    }


def read_records(connection: sqlite3.Connection, skipped: Skipped, **equal: str | None) -> list[Record]:
    """The records whose columns have these values; None stands for any."""
    return _bodies(connection, "records", _record, skipped, equal)


def read_choices(connection: sqlite3.Connection, skipped: Skipped, **equal: str | None) -> list[Choice]:
    """The choices whose columns have these values; None stands for any."""
    return _bodies(connection, "choices", _choice, skipped, equal)


def _bodies(
    connection: sqlite3.Connection,
    table: str,
    decoder: msgspec.json.Decoder[T],
    skipped: Skipped,
    equal: dict[str, str | None],
) -> list[T]:
    condition, values = _where(equal)
    # As bytes: the text of a damaged row need not be UTF-8.
    query = f"SELECT CAST(body AS BLOB) FROM {table}{condition} ORDER BY rowid"
    found = []
    for (body,) in connection.execute(query, values).fetchall():
        try:
            found.append(decoder.decode(body))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError) as error:
            skipped(str(error))
    return found


def read_counts(connection: sqlite3.Connection, skipped: Skipped) -> list[Count]:
    """How much is known, one row for each tuned kernel and device."""
    found = []
    for row in connection.execute(_COUNTS).fetchall():
        try:
            found.append(msgspec.convert(dict(zip(Count.__struct_fields__, row, strict=True)), Count))
        except msgspec.ValidationError as error:
            skipped(str(error))
    return found


def write_record(connection: sqlite3.Connection, record: Record) -> None:
    """Insert a record, or replace the one of the same variant."""
    row = {
        **key_of(record),
        "source": record.source,
        "architecture": record.architecture,
        "device_name": record.device_name,
        "failure": record.failure,
        "created": record.created,
        "body": msgspec.json.encode(record).decode(),
    }
    # Updated in place: a replaced row would get a new rowid, and with it another place in the order.
    changed = ", ".join(f"{name}=excluded.{name}" for name in list(row)[5:])
    _insert(connection, "INSERT INTO records", row, f" ON CONFLICT DO UPDATE SET {changed}")


def write_choice(connection: sqlite3.Connection, choice: Choice) -> None:
    """Insert a choice, or replace that of the same problem."""
    row = {**key_of(choice), "body": msgspec.json.encode(choice).decode()}
    _insert(connection, "INSERT OR REPLACE INTO choices", row)


def _insert(connection: sqlite3.Connection, command: str, row: dict[str, Any], conflict: str = "") -> None:
    places = ",".join("?" * len(row))
    connection.execute(f"{command} ({', '.join(row)}) VALUES ({places}){conflict}", tuple(row.values()))


def delete(connection: sqlite3.Connection, table: str, **equal: str | None) -> int:
    """Remove the rows whose columns have these values; returns how many."""
    condition, values = _where(equal)
    return connection.execute(f"DELETE FROM {table}{condition}", values).rowcount


def _where(equal: dict[str, str | None]) -> tuple[str, list[str]]:
    given = {column: value for column, value in equal.items() if value is not None}
    return (" WHERE " + " AND ".join(f"{column}=?" for column in given) if given else "", list(given.values()))
