"""Windows. `posix.py` has the same names, and says what each is for.

Locks are those of the C library, `msvcrt.locking`: they belong to an open file, and Windows drops them when the process ends.
No other library is needed for that.
"""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this module is for Windows")

import contextlib
import errno
import msvcrt
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

HAS_FORKS = False
HAS_OWNERS = False  # it has, but not as numbers and modes; a folder in the user's profile is private
REMOVES_OPEN_FILES = False
PASSES_DESCRIPTORS = False
LOCAL_SOCKETS = False  # the system has them, and Python does not

OPEN_FLAGS = os.O_BINARY | os.O_NOINHERIT  # without O_BINARY line ends are changed
NO_LINKS = 0  # links need a privilege there
NO_WAITING = 0
WRITABLE_BY_OTHERS = 0  # every file has the mode 0666 or 0444
OPEN_TO_OTHERS = 0
# A whole path has 259 letters at most, unless an administrator allowed more.
LONGEST_FACT, LONGEST_NAME = 18, 24

DIRECT_ALIGNMENT = 4096
NOT_DIRECT = (errno.EINVAL,)
WRITES_SIDE_BY_SIDE = False  # `write_at` moves the file's own position
SIGKILL = 9  # a number that no process is ended with
NEW_GROUP: dict[str, Any] = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}

# Locked bytes cannot be read by others, so these are beyond the end of every file. There are no shared locks: who shares
# locks one byte of many, and who does not share locks all of them.
_LOCKED_FROM = 1 << 30
_SHARED_BYTES = 1 << 20
_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_APPEND_SECONDS = 5.0
# A file that is open elsewhere cannot be replaced or removed, and one that is just being replaced cannot be opened. That is
# mostly over in milliseconds: a reader, or a virus scanner.
_PATIENCE_SECONDS = 1.0
_RESERVED = frozenset(("aux", "con", "nul", "prn", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))))

T = TypeVar("T")

# --- files


def _patiently(call: Callable[[], T], path: str | os.PathLike[str]) -> T:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = 0.001
    while True:
        try:
            return call()
        except PermissionError:
            # A folder never becomes a file.
            if time.monotonic() >= deadline or os.path.isdir(path):  # noqa: PTH112
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
    return _patiently(lambda: os.open(path, flags, mode), path)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    _patiently(lambda: os.replace(source, target), target)  # noqa: PTH105


def set_mode(descriptor: int, mode: int) -> None:
    """The mode says nothing there."""


def read_at(descriptor: int, nbytes: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, nbytes)


def read_into(descriptor: int, view: memoryview, offset: int) -> int:
    data = read_at(descriptor, len(view), offset)
    view[: len(data)] = data
    return len(data)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)


def append(descriptor: int, data: bytes) -> int:
    # The C library looks for the end and then writes, so two processes could write to the same place.
    deadline = time.monotonic() + _APPEND_SECONDS
    locked = lock(descriptor)
    while not locked and time.monotonic() < deadline:
        time.sleep(0.001)
        locked = lock(descriptor)
    try:
        return os.write(descriptor, data)
    finally:
        if locked:
            _unlock(descriptor)


_locked: dict[int, tuple[int, int]] = {}  # descriptor → where, how many bytes


def lock(descriptor: int, *, shared: bool = False) -> bool:
    at, count = _LOCKED_FROM, _SHARED_BYTES
    if shared:
        at, count = at + int.from_bytes(os.urandom(4), "little") % _SHARED_BYTES, 1
    try:
        _locking(descriptor, msvcrt.LK_NBLCK, at, count)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    _locked[descriptor] = at, count
    return True


def _unlock(descriptor: int) -> None:
    found = _locked.pop(descriptor, None)
    if found is not None:
        with contextlib.suppress(OSError):
            _locking(descriptor, msvcrt.LK_UNLCK, *found)


def _locking(descriptor: int, how: int, at: int, count: int) -> None:
    os.lseek(descriptor, at, os.SEEK_SET)  # it begins where the file stands
    try:
        msvcrt.locking(descriptor, how, count)
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def is_open_elsewhere(descriptor: int) -> bool:
    return True


def unlock_and_close(descriptor: int) -> None:
    _unlock(descriptor)  # closing alone would unlock it some time later
    os.close(descriptor)


def reopen_direct(descriptor: int) -> int | None:
    return None


def reserve(descriptor: int, nbytes: int) -> bool:
    return False


def allocate(descriptor: int, nbytes: int) -> None:
    """NTFS gives a file its blocks when it grows."""


def give_blocks_back(descriptor: int, offset: int, nbytes: int) -> None:
    pass


def begin_writing(descriptor: int, offset: int, nbytes: int) -> None:
    pass


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """NTFS keeps a journal of names; a folder cannot be opened to sync it."""


def free_space(folder: str | os.PathLike[str]) -> tuple[int, int | None]:
    import shutil

    return shutil.disk_usage(folder).free, None


def file_name(name: str) -> str:
    # `aux` and `aux.txt` name devices, in every folder.
    return f"{name}_" if name.partition(".")[0].lower() in _RESERVED else name


def path_of_url(path: str) -> str:
    return path[1:] if path[2:3] == ":" else path  # /C:/folder


# --- users: files do not tell theirs


def user_number() -> int:
    return 0  # as `os.stat` says of every file


def number_of_user(name: str) -> int:
    raise KeyError(name)


def name_of_user(number: int) -> str:
    raise KeyError(number)


# --- sockets with a path


def listen_locally(folder: str, name: str) -> Any:
    raise OSError(errno.EOPNOTSUPP, "Python has no sockets with a path on Windows")


def connect_locally(folder: str, name: str, timeout_seconds: float) -> Any:
    raise OSError(errno.EOPNOTSUPP, "Python has no sockets with a path on Windows")


def peer_user(connection: Any) -> int | None:
    return None


# --- the machine


def host_name() -> str:
    import socket

    return socket.gethostname()


def memory_bytes() -> int:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            ("total", ctypes.c_ulonglong),
            *(
                (name, ctypes.c_ulonglong)
                for name in ("free", "pages", "free_pages", "space", "free_space", "extended")
            ),
        )

    status = Status(length=ctypes.sizeof(Status))
    found = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.total) if found else 0


# --- processes


def on_fork(
    *,
    before: Callable[..., object] | None = None,
    after_in_parent: Callable[..., object] | None = None,
    after_in_child: Callable[..., object] | None = None,
) -> None:
    """No process forks there."""


def die_with(parent: int, exit_code: int) -> None:
    # `os.getppid` is of no use: in a virtual environment it is a small program that starts Python.
    import _winapi
    import threading

    try:
        handle = _winapi.OpenProcess(_winapi.SYNCHRONIZE, False, parent)
    except OSError:
        os._exit(exit_code)

    def watch() -> None:
        _winapi.WaitForSingleObject(handle, _winapi.INFINITE)
        os._exit(exit_code)

    threading.Thread(target=watch, name="kernelkeep parent watch", daemon=True).start()


def is_alive(process: int) -> bool:
    # `os.kill(process, 0)` would send it a Ctrl-C.
    import _winapi

    try:
        handle = _winapi.OpenProcess(_winapi.SYNCHRONIZE, False, process)
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        return _winapi.WaitForSingleObject(handle, 0) == _winapi.WAIT_TIMEOUT
    finally:
        _winapi.CloseHandle(handle)


def leave_group() -> None:
    """A console sends Ctrl-C to all its processes, and none can leave."""


def interrupt(process: int) -> None:
    """The console has sent Ctrl-C already. There is no way to send it to one process; `os.kill` would end it."""


def woken_on_time() -> AbstractContextManager[None]:
    """Windows has nothing like it."""
    return contextlib.nullcontext()


def kill_group(process: int) -> None:
    command = ["taskkill", "/T", "/F", "/PID", str(process)]
    with contextlib.suppress(subprocess.SubprocessError):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)


def outside_signals() -> tuple[int, ...]:
    return ()  # none can be blocked, and a driver's processes are sent none


def signals_blocked(numbers: Iterable[int]) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


# --- pipes of multiprocessing, for records of a few bytes


def pipe_writer(connection: Any) -> Callable[[bytes], object]:
    """It waits where the pipe is full: named pipes have no other way that multiprocessing knows."""
    send: Callable[[bytes], object] = connection.send_bytes
    return send


def pipe_reader(connection: Any) -> Callable[[int], bytes]:
    def read(most: int) -> bytes:
        try:
            if not connection.poll():
                raise BlockingIOError
            data: bytes = connection.recv_bytes()
            return data
        except (EOFError, BrokenPipeError):
            return b""

    return read
