"""What an error of the tuning database means: another process is in the way, the file is damaged, or the machine failed."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ..errors import KernelKeepError

# A full or broken disk, a lack of memory, an interrupt, or wrong use of sqlite.
_NOT_THE_FILE = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_MISUSE,
)


class DamagedDatabase(Exception):
    """The file is not a database of tuning results. Never leaves the database."""


class NewerDatabase(OSError):
    """A newer kernelkeep wrote the file, which is left alone. Never leaves the database."""


def primary_code(error: Exception) -> int:
    """sqlite's code without the details; 0 for an error of another kind."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_busy(error: Exception) -> bool:
    """Whether another process is in the way, and trying again helps."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_corrupt(error: Exception) -> bool:
    """Whether sqlite itself says that the file is damaged."""
    return primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _is_cut_off(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ


def may_be_damage(error: Exception) -> bool:
    """Whether the file may be damaged, so that all of it must be checked.

    False for what is plainly the machine's or the program's fault. Damage may show as nearly anything else: text that is
    not UTF-8, a number in place of a text, a constraint that does not hold.
    """
    if isinstance(error, OSError | KernelKeepError | AssertionError | NameError | AttributeError) or is_busy(error):
        return False
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return _is_cut_off(error) or (code is not None and primary_code(error) not in _NOT_THE_FILE)
    return True


def is_file_at_fault(error: Exception, path: Path) -> bool:
    """Whether the file itself caused an error in checking it. Only then may it be moved aside."""
    if isinstance(error, NewerDatabase | MemoryError) or is_busy(error):
        return False
    if _is_cut_off(error):
        return True
    if primary_code(error) in _NOT_THE_FILE:
        return False
    if primary_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        # A damaged header may forbid writing; or the file system does.
        return os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)
    return not isinstance(error, OSError)
