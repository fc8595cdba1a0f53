"""Copies of checkpoints in shared stores are removed when they are no longer used, and hold nothing that the store lacks."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ...storage.files import Damaged, read_regular, remove
from ...storage.locks import FileLock, LockUnavailable
from .stored_objects import state_of

MARK = "synchronised"
_MARK_BYTES = 200
_UNUSED_SECONDS = 7 * 86400.0


def states_in_common(folder: Path) -> list[str]:
    """The digests of the state that the store and the copy in a folder last had in common, and of one that was on its way."""
    try:
        data, _ = read_regular(folder / MARK, most=_MARK_BYTES)
    except (OSError, Damaged):
        return []
    return data.decode(errors="replace").split()


def remove_old_copies(root: Path) -> None:
    """Remove the copies that nobody has used for a week, of runs that have stored their last state. Never raises."""
    unused_since = time.time() - _UNUSED_SECONDS
    with contextlib.suppress(OSError):
        for folder in root.iterdir():
            with contextlib.suppress(OSError, Damaged, LockUnavailable):
                if (folder / MARK).stat().st_mtime < unused_since:
                    _remove_if_stored(folder)


def _remove_if_stored(folder: Path) -> None:
    for path in folder.iterdir():
        # Only the newest file of a run counts: what was kept aside exists nowhere else.
        if ".before-" in path.name:
            return
    newest = [path for path in folder.glob("*") if path.name != MARK and not path.name.rpartition(".")[2].isdecimal()]
    if len(newest) != 1:
        return
    with FileLock(folder / f".{newest[0].name}.lock").held(0):
        if states_in_common(folder)[:1] == [state_of(newest[0]).digest]:
            remove(folder)
    with contextlib.suppress(OSError):  # where the lock's file, which was open, kept it
        folder.rmdir()
