"""The tables of tuning results, and how a database gets them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from functools import cache

from .sqlite_errors import DamagedDatabase, NewerDatabase, primary_code

# The oldest are removed when a database is opened: sources change, and their records would stay forever.
MAX_RECORDS = 50_000
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


_MAX_VERSION = 1000  # of any kernelkeep to come
_DESCRIBE = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"


def prepare(connection: sqlite3.Connection) -> None:
    """Create or migrate the tables, and remove the oldest of too many records."""
    try:
        if _version(connection) != len(_STEPS):
            with transaction(connection, "BEGIN IMMEDIATE"):
                for step in _STEPS[_version(connection) :]:  # another process may have done it meanwhile
                    for statement in step.split(";"):
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version={len(_STEPS)}")
        for table, columns in _TABLES.items():
            connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")
        if not _tables_made(_STEPS) <= set(connection.execute(_DESCRIBE)):
            raise DamagedDatabase("its tables are different")
    except sqlite3.OperationalError as error:
        if primary_code(error) == sqlite3.SQLITE_ERROR:  # a table or column is missing or different
            raise DamagedDatabase(str(error)) from None
        raise
    if connection.execute("SELECT count(*) FROM records").fetchone()[0] > MAX_RECORDS:
        with transaction(connection, "BEGIN IMMEDIATE"):
            oldest = "SELECT rowid FROM records ORDER BY created DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM records WHERE rowid IN ({oldest})", (MAX_RECORDS,))


@cache
def _tables_made(steps: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """sqlite's own list of the tables and indexes that the steps create."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for step in steps:
            connection.executescript(step)
        return frozenset(connection.execute(_DESCRIBE))


def check_pages(connection: sqlite3.Connection) -> None:
    """Raise `DamagedDatabase` where a page, a row or an index does not fit the others."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise DamagedDatabase(str(found))


def probe_writing(connection: sqlite3.Connection) -> None:
    """Raise what sqlite raises where nothing can be written; changes nothing."""
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
    if not 0 <= version <= _MAX_VERSION:
        raise DamagedDatabase(f"no kernelkeep writes schema {version}")
    if version > len(_STEPS):
        raise NewerDatabase(f"a newer kernelkeep wrote it: schema {version}, this version reads {len(_STEPS)}")
    return int(version)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """A transaction for the length of a block: committed at its end, rolled back where it fails."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
