"""Linux and macOS. `windows.py` has the same names."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("this module is for Linux and macOS")

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

HAS_FORKS = True
HAS_OWNERS = True  # a file has an owner, and a mode that says who may read and write it
REMOVES_OPEN_FILES = True
PASSES_DESCRIPTORS = True  # to a child process, under the same number
LOCAL_SOCKETS = True  # sockets with a path, for processes of one machine

OPEN_FLAGS = os.O_CLOEXEC  # for every `open_file`
NO_LINKS = os.O_NOFOLLOW
NO_WAITING = os.O_NONBLOCK  # for the other end of a pipe
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# How many letters of a device's facts and of a program's name go into the names of folders and files.
LONGEST_FACT, LONGEST_NAME = 40, 48

SIGKILL = 9
NEW_GROUP: dict[str, Any] = {"start_new_session": True}  # for `subprocess.Popen`: Ctrl-C at the terminal is not for it

DIRECT_ALIGNMENT = 4096
NOT_DIRECT = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)  # a file system that cannot write past its cache after all
WRITES_SIDE_BY_SIDE = True  # `write_at` of several threads to one file
_SYNC_FILE_RANGE_WRITE = 2
_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_NO_FALLOCATE = (errno.EINVAL, errno.ENODEV, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_HELD = (errno.EAGAIN, errno.EACCES, errno.EINTR)
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 1, 29, 30
_LOOK_FOR_PARENT_SECONDS = 1.0

# --- files

open_file = os.open
replace = os.replace  # a file by another, in one step
set_mode = os.fchmod
read_at = os.pread
write_at = os.pwrite
append = os.write  # to a file opened with O_APPEND, in one piece among several processes


def read_into(descriptor: int, view: memoryview, offset: int) -> int:
    """Read into memory at an offset; how many bytes there were."""
    return os.preadv(descriptor, [view], offset)


def lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; False where somebody else has it locked. The end of the process unlocks it.

    Another descriptor in the same process is somebody else. `OSError` where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True


def is_open_elsewhere(descriptor: int) -> bool:
    """Whether anybody else has a file open, this process included; True where the system does not tell.

    Linux grants a lease to write only to the one who has a file open. It is given back at once. Who opens the file in between
    waits for that, and the signal that then comes is one that nobody notices.
    """
    if sys.platform == "linux":
        import signal  # takes a millisecond, and start-up counts

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return False
    return True


def unlock_and_close(descriptor: int) -> None:
    """Unlock a file and close it."""
    os.close(descriptor)  # a forked child that has a copy closes it: see `storage/locks.py`


def reopen_direct(descriptor: int) -> int | None:
    """Another descriptor of an open file, to write past the system's cache; None where the file system has no such thing.

    Memory, offset and length of a write must then be multiples of `DIRECT_ALIGNMENT`.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    return None


def reserve(descriptor: int, nbytes: int) -> bool:
    """Set aside the disk's blocks for the first bytes of a file, which read as zeros; False where that does not pay or fails.

    Direct writes to such blocks go on side by side, where Linux makes those to a new place wait for each other.
    """
    # A file system without a device of its own keeps files in memory, or on another machine: all would be written twice.
    if sys.platform != "linux" or not os.major(os.fstat(descriptor).st_dev):
        return False
    room = os.fstatvfs(descriptor)
    return room.f_bavail * room.f_frsize > nbytes and _fallocate(descriptor, 0, 0, nbytes)


def allocate(descriptor: int, nbytes: int) -> None:
    """Give the first bytes of a file their blocks, so that a mapping of them can be written; what they hold stays.

    `OSError` where there is no room. Nothing happens where the file system cannot: there, zeros that are written do it.
    """
    if sys.platform != "darwin":
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise


def give_blocks_back(descriptor: int, offset: int, nbytes: int) -> None:
    """Have the disk's blocks back from a part of a file, which then reads as zeros, where the file system can."""
    _fallocate(descriptor, _PUNCH_HOLE, offset, nbytes)


def _fallocate(descriptor: int, mode: int, offset: int, nbytes: int) -> bool:
    """Not `os.posix_fallocate`, which writes zeros where the file system cannot."""
    import ctypes

    library = ctypes.CDLL(None)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    return call is not None and call(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(nbytes)) == 0


def begin_writing(descriptor: int, offset: int, nbytes: int) -> None:
    """Have the system begin to write a part of a file to the disk, so that there is less to wait for in `sync`."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            call = ctypes.CDLL(None).sync_file_range
            call(descriptor, ctypes.c_int64(offset), ctypes.c_int64(nbytes), ctypes.c_uint(_SYNC_FILE_RANGE_WRITE))


def sync(descriptor: int) -> None:
    """Have a file's contents survive a power cut."""
    if sys.platform == "darwin":
        # fsync leaves them in the drive's memory there. Some file systems know only fsync.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Have the names in a folder survive a power cut. `OSError` where the file system cannot."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def free_space(folder: str | os.PathLike[str]) -> tuple[int, int | None]:
    """How many bytes and how many files a folder's disk still takes; None where it has no limit of files."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None


def file_name(name: str) -> str:
    """A name of letters, digits, dots, dashes and underscores, as a file may have it."""
    return name


def path_of_url(path: str) -> str:
    """The path of a file:// address, unquoted, as this system writes it."""
    return path


# --- users


def user_number() -> int:
    """Who this process is to the file system."""
    return os.geteuid()


def number_of_user(name: str) -> int:
    """A user's number; `KeyError` where there is no such user."""
    import pwd  # rarely needed, and start-up counts

    return pwd.getpwnam(name).pw_uid


def name_of_user(number: int) -> str:
    """A user's name; `KeyError` where there is none."""
    import pwd

    return pwd.getpwuid(number).pw_name


# --- sockets with a path

_LONGEST_SOCKET = 100  # bytes of a path: Linux takes 107, macOS 103


def listen_locally(folder: str, name: str) -> Any:
    """A socket that listens under this name, for this user alone. It appears under it once it listens."""
    import socket

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made, path = f".{name}.new", os.path.join(folder, name)  # noqa: PTH118
    beside = os.path.join(folder, made)  # noqa: PTH118
    try:
        with _short(folder, made) as short:
            listener.bind(short)
        os.chmod(beside, 0o600)  # noqa: PTH101
        listener.listen(16)
        os.rename(beside, path)  # noqa: PTH104
    except BaseException:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        raise
    return listener


def connect_locally(folder: str, name: str, timeout_seconds: float) -> Any:
    """A connection to whoever listens there. `OSError` where nobody does."""
    import socket

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        with _short(folder, name) as short:
            connection.connect(short)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(folder: str, name: str) -> Iterator[str]:
    """A path that is not too long for a socket. `OSError` where there is none."""
    path = os.path.join(folder, name)  # noqa: PTH118
    if len(os.fsencode(path)) <= _LONGEST_SOCKET:
        yield path
        return
    if sys.platform != "linux":
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def peer_user(connection: Any) -> int | None:
    """The number of the user at the other end; None where the system does not say."""
    import socket
    import struct

    with contextlib.suppress(OSError, struct.error):
        if sys.platform == "linux":
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", found)[1])
        if sys.platform == "darwin":
            local_peercred, bytes_of_xucred = 1, 76
            return int(struct.unpack_from("=II", connection.getsockopt(0, local_peercred, bytes_of_xucred))[1])
    return None


# --- the machine


def host_name() -> str:
    """The name of this machine."""
    return os.uname().nodename


def memory_bytes() -> int:
    """How much memory the machine has; 0 where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


# --- processes

on_fork = os.register_at_fork  # its arguments: before=, after_in_parent=, after_in_child=


@contextlib.contextmanager
def woken_on_time() -> Iterator[None]:
    """For a block in which this thread's sleeps and waits end when they should: Linux is 50 µs late otherwise."""
    if sys.platform != "linux":
        yield
        return
    import ctypes

    before = -1
    with contextlib.suppress(OSError, AttributeError):
        control = ctypes.CDLL(None).prctl
        before = control(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    if before < 0:  # the system does not say, as in some sandboxes: what is changed could not be restored
        yield
        return
    control(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        control(_PR_SET_TIMERSLACK, before, 0, 0, 0)


def die_with(parent: int, exit_code: int) -> None:
    """End this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before that was arranged
            os._exit(exit_code)
    else:
        _watch_parent(parent, exit_code)


def _watch_parent(parent: int, exit_code: int) -> None:
    """Other systems do not tell: look every second."""
    import threading
    import time

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_FOR_PARENT_SECONDS)
        os._exit(exit_code)

    threading.Thread(target=watch, name="kernelkeep parent watch", daemon=True).start()


def is_alive(process: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def leave_group() -> None:
    """Keep this process from what the terminal sends to its parent's process group, such as Ctrl-C."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def interrupt(process: int) -> None:
    """Ctrl-C for another process. `OSError` where it is gone."""
    import signal

    os.kill(process, signal.SIGINT)


def kill_group(process: int) -> None:
    """Kill a process that leads a group, with all that it started. `OSError` where it is gone."""
    os.killpg(process, SIGKILL)


def outside_signals() -> tuple[int, ...]:
    """Those that a terminal, a user or a batch system sends."""
    import signal  # takes a millisecond, and start-up counts

    names = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGXFSZ")
    return tuple(getattr(signal, name) for name in names)


@contextlib.contextmanager
def signals_blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals in this thread for a block; threads and processes that it starts inherit that."""
    import signal

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # Inside the `try`: where a signal has just come, this blocks and then raises KeyboardInterrupt.
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- pipes of multiprocessing, for records of a few bytes


def pipe_writer(connection: Any) -> Callable[[bytes], object]:
    """A function that writes a record and never waits: `BlockingIOError` where the pipe is full, `OSError` at its end."""
    os.set_blocking(connection.fileno(), False)
    return partial(os.write, connection.fileno())


def pipe_reader(connection: Any) -> Callable[[int], bytes]:
    """A function that reads at most so many bytes: `BlockingIOError` where there are none yet, b"" at the end."""
    os.set_blocking(connection.fileno(), False)
    return partial(os.read, connection.fileno())
