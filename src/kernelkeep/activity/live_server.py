"""The socket on which a process answers `kernelkeep top`: whoever connects, and is the same user, gets a snapshot as JSON.

Sockets are in a folder that only this user can enter. A socket is there once it listens: it is bound under another name and
renamed. So one that refuses a connection is that of a dead process, and is removed by whoever finds it.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..platforms import system
from ..storage.private import Trust, make_private_folder
from .live_folder import folders, is_stale, socket_name, sockets_in

_SEND_SECONDS = 2.0
_RETRY_SECONDS = 1.0
_log = logging.getLogger("kernelkeep")

_listening: tuple[Any, Path] | None = None


def listen() -> Any:
    """A socket that listens, and is closed at the end of the process. `OSError` where no folder can have one."""
    global _listening
    _listening = listener, _ = _listen()
    atexit.register(close)
    return listener


def serve(listener: Any, snapshot: Callable[[], dict[str, Any]]) -> None:
    """Answer until the process ends."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                time.sleep(_RETRY_SECONDS)  # the program has used up its files; one may be closed
                continue
            return
        with contextlib.suppress(Exception), connection:
            if system.peer_user(connection) in (None, system.user_number(), 0):
                connection.settimeout(_SEND_SECONDS)
                connection.sendall(json.dumps(snapshot()).encode())


def close() -> None:
    """At the end of the process: nobody finds the socket any more."""
    global _listening
    if _listening is not None:
        (listener, path), _listening = _listening, None
        with contextlib.suppress(OSError):
            path.unlink()
        with contextlib.suppress(OSError):
            listener.close()


def _listen() -> tuple[Any, Path]:
    """A listening socket in the first folder that can have one, and its path."""
    problem = OSError(errno.ENOENT, "there is no folder for its socket")
    for folder in folders():
        try:
            make_private_folder(folder, Trust())
            if folder.stat().st_mode & system.OPEN_TO_OTHERS:
                raise PermissionError(errno.EPERM, f"{folder} is open to other users")
            for path in sockets_in(folder):
                if is_stale(path):
                    path.unlink(missing_ok=True)
            path = folder / socket_name()
            return system.listen_locally(str(folder), path.name), path
        except OSError as error:
            problem = error
    _log.debug("`kernelkeep top` cannot see this process: %s", problem)
    raise problem


def _in_child() -> None:
    """The socket is the parent's. A copy of it here would outlive the parent, and never answer."""
    global _listening
    found, _listening = _listening, None
    if found is not None:
        with contextlib.suppress(OSError):
            os.close(found[0].detach())


system.on_fork(after_in_child=_in_child)
