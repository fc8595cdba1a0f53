"""Shows kernelkeep another operating system than the one it runs on: `KERNELKEEP_STAND_IN=win32` or `darwin`.

Python loads this module at the start of every process that has its folder on PYTHONPATH. It changes what `import` gives to
modules of kernelkeep, and to nothing else: the standard library and all others stay as they are. For them `sys.platform` is the
other system's, modules that it lacks cannot be imported, and its `os`, `signal`, `ctypes` and so on lack the same names.

For Windows, files below `KERNELKEEP_STAND_IN_ROOT` behave as they do there, whoever calls: what any process of the test has open
cannot be removed or replaced, names that Windows refuses are refused, text mode is refused, and appending is two steps. Locks
of `msvcrt` are locks of Linux that belong to an open file, so they exclude threads and processes as the real ones do.
"""

# pathlib calls the functions that are replaced here.
# ruff: noqa: PTH100, PTH110, PTH112, PTH113, PTH116, PTH118, PTH120, PTH123, PTH206, PTH208

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import struct
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

PLATFORM = os.environ.get("KERNELKEEP_STAND_IN", "")
ROOT = os.environ.get("KERNELKEEP_STAND_IN_ROOT", "")

LACKING = {
    "win32": {
        "modules": "crypt fcntl grp posix pty pwd resource spwd syslog termios tty".split(),
        "os": """O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC
            O_SYNC P_ALL P_PGID P_PID WCONTINUED WEXITED WNOHANG WNOWAIT WSTOPPED WUNTRACED WIFEXITED WIFSIGNALED chown chroot
            confstr ctermid eventfd fchdir fchmod fchown fdatasync fork forkpty fpathconf fstatvfs get_blocking getegid geteuid
            getgid getgroups getloadavg getpgid getpgrp getpriority getresuid getsid getuid killpg lchown lockf
            login_tty major makedev memfd_create minor mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise
            posix_fallocate posix_spawn pread preadv pwrite pwritev register_at_fork sched_getaffinity sched_setaffinity
            sched_yield sendfile set_blocking setegid seteuid setgid setgroups setpgid setpriority setsid setuid splice statvfs
            sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid getxattr setxattr""".split(),
        "signal": """ITIMER_REAL ITIMER_PROF ITIMER_VIRTUAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF
            SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGWINCH SIGXCPU SIGXFSZ SIG_BLOCK SIG_SETMASK SIG_UNBLOCK
            alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait
            sigwaitinfo""".split(),
        "mmap": "MAP_ANON MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_EXEC PROT_READ PROT_WRITE".split(),
        "select": "EPOLLIN epoll poll".split(),
        "socket": "AF_UNIX socketpair".split(),
        "time": "clock_gettime tzset".split(),
    },
    "darwin": {
        "modules": "msvcrt _winapi winreg spwd".split(),
        "os": """O_DIRECT O_NOATIME O_PATH O_RSYNC eventfd fdatasync getresuid memfd_create pidfd_open posix_fadvise
            posix_fallocate sched_getaffinity sched_setaffinity splice unshare waitid getxattr setxattr pipe2""".split(),
        "signal": "SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo".split(),
        "select": "EPOLLIN epoll".split(),
        "socket": "AF_NETLINK SOCK_CLOEXEC".split(),
    },
}
# Bits that no flag of Linux has.
O_BINARY, O_NOINHERIT = 1 << 28, 1 << 27


class StandIn(types.ModuleType):
    """A module without some of its names, and with others in their place."""

    def __init__(self, module: types.ModuleType, without: list[str], **instead: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _without=frozenset(without), **instead)

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on {PLATFORM}")
        return getattr(self._module, name)


# --- files as Windows has them

_real_open, _real_write, _real_close = os.open, os.write, os.close
_appending: set[int] = set()


def _below_root(path: Any) -> str | None:
    try:
        whole = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return None
    return whole if whole.startswith(ROOT + os.sep) else None


def _refuse_name(path: Any) -> None:
    whole = _below_root(path)
    for part in (whole or "")[len(ROOT) :].split(os.sep):
        reserved = part.partition(".")[0].lower() in ("aux", "con", "nul", "prn", "com1", "lpt1")
        if reserved or set('<>:"|?*\\') & set(part) or part.endswith((" ", ".")):
            raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", whole)


def _refuse_open_file(path: Any) -> None:
    """What any process of this test has open can be neither removed nor replaced."""
    whole = _below_root(path)
    if whole is None or not os.path.isfile(whole):
        return
    wanted = os.stat(whole)
    processes = os.path.join(os.path.dirname(ROOT), "processes")
    for process in os.listdir(processes):
        try:
            descriptors = os.listdir(f"/proc/{process}/fd")
        except OSError:  # it has ended
            continue
        for descriptor in descriptors:
            try:
                found = os.stat(f"/proc/{process}/fd/{descriptor}")
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                raise PermissionError(errno.EACCES, "The process cannot access the file", whole)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Windows looks whether a file is open and removes it in one step; nobody opens it in between."""
    import fcntl

    descriptor = _real_open(os.path.join(os.path.dirname(ROOT), "one-at-a-time"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        _real_close(descriptor)


def _guarded(real: Any, *, names: int = 0, files: tuple[int, ...] = ()) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("dir_fd"):
            _refuse_name(args[names])
            with _one_at_a_time():
                for place in files:
                    _refuse_open_file(args[place])
                return real(*args, **kwargs)
        return real(*args, **kwargs)

    return call


def _open(path: Any, flags: int, mode: int = 0o777) -> int:
    _refuse_name(path)
    if not flags & O_BINARY:
        raise AssertionError(f"{path} is opened in text mode, which changes line ends on Windows")
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    with _one_at_a_time():
        descriptor = _real_open(path, (flags & ~(O_BINARY | O_NOINHERIT | os.O_APPEND)) | os.O_CLOEXEC, mode)
    if flags & os.O_APPEND:
        _appending.add(descriptor)
    return descriptor


def _write(descriptor: int, data: Any) -> int:
    if descriptor in _appending:
        os.lseek(descriptor, 0, os.SEEK_END)
        time.sleep(0.0005)
    return _real_write(descriptor, data)


def _close(descriptor: int) -> None:
    _appending.discard(descriptor)
    _real_close(descriptor)


def _kill(process: int, number: int) -> None:
    raise AssertionError("on Windows os.kill ends a process, or sends Ctrl-C to its whole console")


# --- modules that only Windows has


def _locking(descriptor: int, mode: int, nbytes: int) -> None:
    import fcntl

    kind = fcntl.F_UNLCK if mode == 0 else fcntl.F_WRLCK
    where = struct.pack("hhqqi4x", kind, os.SEEK_CUR, 0, nbytes, 0)
    try:
        fcntl.fcntl(descriptor, 37, where)  # F_OFD_SETLK: the lock belongs to the open file, not to the process
    except OSError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


def _wait(handle: int, milliseconds: int) -> int:
    while True:
        try:
            with open(f"/proc/{handle}/stat") as status:
                if status.read().rpartition(")")[2].split()[0] == "Z":
                    return 0
        except OSError:
            return 0
        if milliseconds == 0:
            return 258
        time.sleep(0.05)


def _open_process(access: int, inherit: bool, process: int) -> int:
    if not os.path.exists(f"/proc/{process}"):
        raise OSError(errno.EINVAL, "The parameter is incorrect")
    return process


def _popen(*args: Any, **kwargs: Any) -> Any:
    import subprocess

    if kwargs.get("pass_fds") or kwargs.get("preexec_fn"):
        raise ValueError("pass_fds and preexec_fn are not supported on Windows platforms")
    kwargs.pop("creationflags", None)
    return subprocess.Popen(*args, **kwargs)


def _module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(names)
    return made


def _library(name: Any, *args: Any, **kwargs: Any) -> Any:
    import ctypes

    if name is None and PLATFORM == "win32":
        raise TypeError("expected str, bytes or os.PathLike object, not NoneType")
    if name is not None and ".so" in os.fspath(name):
        raise OSError(f"cannot find {name}")
    return ctypes.CDLL(name, *args, **kwargs)


def _stand_ins() -> dict[str, types.ModuleType]:
    import ctypes
    import mmap
    import select
    import signal
    import socket
    import subprocess

    without = LACKING[PLATFORM]
    found: dict[str, types.ModuleType] = {
        "sys": StandIn(sys, [], platform=PLATFORM),
        "mmap": StandIn(mmap, without.get("mmap", [])),
        "select": StandIn(select, without["select"]),
        "socket": StandIn(socket, without["socket"]),
        "ctypes": StandIn(ctypes, ["windll"], CDLL=_library),
        "signal": StandIn(signal, without["signal"]),
        "os": StandIn(os, without["os"]),
    }
    if PLATFORM == "darwin":
        import fcntl

        found["fcntl"] = StandIn(fcntl, ["F_OFD_SETLK"], F_FULLFSYNC=51)  # which Linux refuses, as some disks do there
        return found

    class Kernel32:
        @staticmethod
        def GlobalMemoryStatusEx(status: Any) -> int:
            status._obj.total = 1 << 34
            return 1

    # With `name`, code outside `platforms/` that asks for it would take the other way.
    found["os"] = StandIn(
        os,
        without["os"],
        O_BINARY=O_BINARY,
        O_NOINHERIT=O_NOINHERIT,
        open=_open,
        write=_write,
        close=_close,
        kill=_kill,
    )
    found["ctypes"] = StandIn(ctypes, [], CDLL=_library, windll=types.SimpleNamespace(kernel32=Kernel32))
    found["subprocess"] = StandIn(subprocess, [], Popen=_popen, CREATE_NEW_PROCESS_GROUP=0x200)
    found["msvcrt"] = _module("msvcrt", locking=_locking, LK_UNLCK=0, LK_NBLCK=2)
    found["_winapi"] = _module(
        "_winapi",
        OpenProcess=_open_process,
        WaitForSingleObject=_wait,
        CloseHandle=lambda handle: None,
        SYNCHRONIZE=0x100000,
        INFINITE=0xFFFFFFFF,
        WAIT_TIMEOUT=258,
    )
    return found


def _become() -> None:
    stand_ins = _stand_ins()
    missing = frozenset(LACKING[PLATFORM]["modules"])
    real_import = builtins.__import__

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and globals and (globals.get("__name__") or "").partition(".")[0] == "kernelkeep":
            if name in missing:
                raise ModuleNotFoundError(f"No module named {name!r} on {PLATFORM}", name=name)
            if name in stand_ins:
                return stand_ins[name]
        return real_import(name, globals, locals, fromlist, level)

    builtins.__import__ = import_
    if PLATFORM == "win32":
        os.unlink = os.remove = _guarded(os.unlink, files=(0,))
        os.replace = _guarded(os.replace, names=1, files=(0, 1))
        os.rename = _guarded(os.rename, names=1, files=(0, 1))
        os.mkdir = _guarded(os.mkdir)
        os.link = _guarded(os.link, names=1)
        processes = os.path.join(os.path.dirname(ROOT), "processes")
        _real_close(_real_open(os.path.join(processes, str(os.getpid())), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))


if PLATFORM:
    _become()
