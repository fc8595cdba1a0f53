"""Running processes of this user that use kernelkeep, and what is open in them; nothing is asked of the programs themselves.

    for process in live_processes():
        print(process.pid, process.snapshot)

Each process answers on a socket (`activity/live_server.py`). One that is stopped, or in a call that keeps the interpreter, does
not answer: it is there without a snapshot.
"""

from __future__ import annotations

import contextlib
import errno
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ..activity.live_folder import folders, is_stale, pid_of, sockets_in
from ..errors import Unsupported
from ..platforms import system
from ..storage.private import Trust

_ANSWER_SECONDS = 2.5  # a program whose threads all compute lets another one in now and then only
_MOST_BYTES = 16 << 20
_AT_ONCE = 32


class ProcessFacts(msgspec.Struct, frozen=True):
    """Which process it is."""

    pid: int
    program: str = ""
    host: str = ""
    started: float = 0.0
    interpreter: str = ""
    kernelkeep: str = ""


class OpenObject(msgspec.Struct, frozen=True):
    """Something that is open; see `kernelkeep.activity.facts.Facts`. `seconds` is how long it has been."""

    id: int
    kind: str
    seconds: float
    about: dict[str, Any] = {}
    counts: dict[str, float] = {}
    now: dict[str, Any] = {}
    histograms: dict[str, Any] = {}


class ClosedObjects(msgspec.Struct, frozen=True):
    """The counts of objects that were closed."""

    kind: str
    objects: int = 0
    about: dict[str, Any] = {}
    counts: dict[str, float] = {}
    histograms: dict[str, Any] = {}


class Snapshot(msgspec.Struct, frozen=True):
    """What `kernelkeep.activity.live.snapshot` gives, checked."""

    process: ProcessFacts
    time: float
    open: list[OpenObject] = []
    closed: list[ClosedObjects] = []


class LiveProcess(msgspec.Struct, frozen=True):
    """A process; without a snapshot where it gave none, and then `problem` says why."""

    pid: int
    snapshot: Snapshot | None = None
    problem: str = ""


def live_processes(pid: int | None = None) -> list[LiveProcess]:
    """Every process of this user that can be seen, or the one with this number. Sockets of dead processes are removed.

    `Unsupported` on a system whose Python has no sockets for that.
    """
    if not system.LOCAL_SOCKETS:
        raise Unsupported(
            "local sockets", "running processes are found by sockets with a path, which Python lacks here"
        )
    found = [path for folder in folders() if _is_ours(folder) for path in sockets_in(folder)]
    wanted = [path for path in found if pid is None or pid_of(path) == pid]
    if not wanted:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as pool:
        seen = [one for one in pool.map(_ask, wanted) if one is not None]
    return sorted(seen, key=lambda one: one.pid)


def _is_ours(folder: Path) -> bool:
    """Whether only this user can have put sockets there."""
    try:
        Trust().check_folder(folder)
        return not folder.stat().st_mode & system.OPEN_TO_OTHERS
    except OSError:
        return False


def _ask(path: Path) -> LiveProcess | None:
    pid = pid_of(path) or 0
    try:
        data = _read(path)
    except TimeoutError:
        return LiveProcess(pid, problem="does not answer: it is stopped, or in a call that keeps the interpreter")
    except OSError as error:
        if error.errno == errno.ECONNREFUSED and is_stale(path):
            with contextlib.suppress(OSError):
                path.unlink()
        return None
    if not data:
        return None  # it ended this very moment
    try:
        snapshot = msgspec.json.decode(data, type=Snapshot)
    except (msgspec.DecodeError, RecursionError):
        return LiveProcess(pid, problem="says what this version of kernelkeep does not understand")
    return LiveProcess(pid, snapshot)


def _read(path: Path) -> bytes:
    deadline = time.monotonic() + _ANSWER_SECONDS
    parts: list[bytes] = []
    size = 0
    with system.connect_locally(str(path.parent), path.name, _ANSWER_SECONDS) as connection:
        if system.peer_user(connection) not in (None, system.user_number()):
            raise PermissionError(errno.EPERM, "another user listens there")
        while size <= _MOST_BYTES:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            part = connection.recv(1 << 16)
            if not part:
                break
            parts.append(part)
            size += len(part)
    return b"".join(parts)
