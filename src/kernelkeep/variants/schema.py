"""The tables tuning results are in, and how a database comes to have them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from functools import cache

from ..errors import KernelKeepError

__all__ = [
    "MAX_RECORDS",
    "DamagedDatabase",
    "Newer",
    "begun",
    "check_pages",
    "copy_tables",
    "is_busy",
    "may_be_damage",
    "prepare",
    "probe_writing",
]

MAX_RECORDS = 50_000  # the oldest go when a database is opened; sources change, and their records would stay for ever
# Each step takes a database from the schema of its number to the next.
_STEPS = (
    """
    CREATE TABLE records (
        tuned TEXT NOT NULL, device TEXT NOT NULL, problem TEXT NOT NULL, dtype TEXT NOT NULL, source TEXT NOT NULL,
        architecture TEXT NOT NULL, device_name TEXT NOT NULL, failure TEXT NOT NULL, created REAL NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (tuned, device, problem, dtype, source)
    );
    CREATE INDEX records_of_architecture ON records (tuned, architecture);
    CREATE INDEX records_by_age ON records (created);
    CREATE TABLE choices (
        tuned TEXT NOT NULL, device TEXT NOT NULL, problem TEXT NOT NULL, dtype TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (tuned, device, problem, dtype)
    );
    """,
)
_TABLES = {
    "records": "tuned, device, problem, dtype, source, architecture, device_name, failure, created, body",
    "choices": "tuned, device, problem, dtype, body",
}


_LARGEST_VERSION = 1000  # that anybody will ever write
_LOOK = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
# What a full disk, a lack of memory, a broken disk or an interrupt says.
_OUTSIDE = (
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_MISUSE,
)


class DamagedDatabase(Exception):
    """What lies there is no database of ours. Stays inside the database."""


class Newer(OSError):
    """A newer kernelkeep's database, which is left alone. Stays inside the database."""


def prepare(connection: sqlite3.Connection) -> None:
    """The newest schema, and no more records than may be."""
    try:
        if _version(connection) != len(_STEPS):
            with begun(connection, "BEGIN IMMEDIATE"):
                for step in _STEPS[_version(connection) :]:  # another process may have been first
                    for statement in step.split(";"):
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version={len(_STEPS)}")
        for table, columns in _TABLES.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")
        if not _tables_made(_STEPS) <= set(connection.execute(_LOOK)):
            raise DamagedDatabase("its tables are not those that were made")
    except sqlite3.OperationalError as error:
        if _code(error) == sqlite3.SQLITE_ERROR:  # there is no such table or column, or one that is not ours
            raise DamagedDatabase(str(error)) from None
        raise
    if connection.execute("SELECT count(*) FROM records").fetchone()[0] > MAX_RECORDS:
        with begun(connection, "BEGIN IMMEDIATE"):
            oldest = "SELECT rowid FROM records ORDER BY created DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM records WHERE rowid IN ({oldest})", (MAX_RECORDS,))


@cache
def _tables_made(steps: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """What sqlite keeps of the tables and indexes that the steps make."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for step in steps:
            connection.executescript(step)
        return frozenset(connection.execute(_LOOK))


def check_pages(connection: sqlite3.Connection) -> None:
    """`DamagedDatabase` where a page, a row or an index does not fit the others."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise DamagedDatabase(str(found))


def probe_writing(connection: sqlite3.Connection) -> None:
    """Whatever sqlite raises where nothing can be written; changes nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA user_version={len(_STEPS)}")
    finally:
        connection.execute("ROLLBACK")


def copy_tables(source: sqlite3.Connection, target: sqlite3.Connection) -> bool:
    """Copy all rows to an empty database; False where they cannot be read."""
    try:
        if _version(source) != len(_STEPS):
            return False
        tables = {
            table: source.execute(f"SELECT {columns} FROM {table}").fetchall() for table, columns in _TABLES.items()
        }
    except Exception:  # it is damaged, or newer
        return False
    for table, rows in tables.items():
        for row in rows:
            target.execute(f"INSERT OR IGNORE INTO {table} ({_TABLES[table]}) VALUES ({','.join('?' * len(row))})", row)
    return True


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= _LARGEST_VERSION:
        raise DamagedDatabase(f"no kernelkeep writes schema {version}")
    if version > len(_STEPS):
        raise Newer(f"a newer kernelkeep wrote it: schema {version}, this version reads {len(_STEPS)}")
    return int(version)


@contextlib.contextmanager
def begun(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """A transaction for the length of a block: committed at its end, undone where it fails."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def is_busy(error: Exception) -> bool:
    """Whether another process is in the way, and trying again is the cure."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def may_be_damage(error: Exception) -> bool:
    """Whether the file may be the trouble, and a new one the cure; looking at all of it tells.

    Not what is plainly the machine's or the program's fault. Damage may show as nearly anything else: text that is not UTF-8,
    a number where there was a text, a constraint that does not hold.
    """
    if isinstance(error, OSError | KernelKeepError | AssertionError | NameError | AttributeError) or is_busy(error):
        return False
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return code == sqlite3.SQLITE_IOERR_SHORT_READ or (code is not None and code & 0xFF not in _OUTSIDE)
    return True


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF  # without the details
