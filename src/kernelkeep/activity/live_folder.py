"""The folder with the sockets of this user's processes: where it is, how sockets are named, and which are left over."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .. import settings
from ..platforms import system

_ENDING = ".sock"
_CONNECT_SECONDS = 1.0


def folders() -> list[Path]:
    """Where sockets may be, the preferred folder first: a process uses the first that works, who looks for one looks into all."""
    chosen = settings.live_dir()
    if chosen is not None:
        return [chosen]
    from platformdirs import user_cache_path

    user = system.user_number()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [
        Path(runtime) / "kernelkeep" if runtime.startswith("/") else None,
        # A program that was started without a session has no $XDG_RUNTIME_DIR, and is the same user's.
        Path(f"/run/user/{user}/kernelkeep") if os.path.isdir(f"/run/user/{user}") else None,  # noqa: PTH112
        user_cache_path("kernelkeep-live", appauthor=False),
        Path(tempfile.gettempdir()) / f"kernelkeep-live-{user}",  # where the home folder is read-only
    ]
    return list(dict.fromkeys(path for path in candidates if path is not None and path.is_absolute()))


def socket_name() -> str:
    """A name that no other process has, on this machine or on another that shares the folder."""
    return f"{_host()}.{os.getpid()}.{os.urandom(4).hex()}{_ENDING}"


def pid_of(path: Path) -> int | None:
    """Of which process a socket is, by its name."""
    parts = path.name.removesuffix(_ENDING).rsplit(".", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isascii() and parts[1].isdecimal() else None


def sockets_in(folder: Path) -> Iterator[Path]:
    """The sockets of this user there; other files, links and what belongs to others are none."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        path = folder / name
        if not name.endswith(_ENDING) or pid_of(path) is None:
            continue
        try:
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == system.user_number():
            yield path


def is_stale(path: Path) -> bool:
    """Whether it is the socket of a process of this machine that has died."""
    if not path.name.startswith(f"{_host()}."):
        return False  # its process may live on another machine, from which nobody can connect
    try:
        system.connect_locally(str(path.parent), path.name, _CONNECT_SECONDS).close()
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return False


def _host() -> str:
    name = "".join(one if one.isascii() and (one.isalnum() or one in "-_") else "-" for one in system.host_name())
    return name[:24] or "host"
