"""PoCL's own folder: chooses it, tidies it while nobody uses it, and checks before each build that PoCL can write there.

PoCL writes every program it builds or loads into a folder, `~/.cache/pocl/kcache` by default, and links and loads native code
from there. If it cannot write, it ends the process or fails without a reason. So it gets a private folder inside the cache
folder, or a temporary one if that cannot be used, and the folder is checked before PoCL compiles or loads anything. If
others fill the disk between the check and the build, PoCL still ends the process.

PoCL reads a program's files again when its binary is asked for, and writes an empty `program.bc` into the binary where the
file is gone. Loading that crashes. So nothing is removed while any process works here: the folder is tidied before PoCL is
loaded, by a process that finds nobody else. One process may let it grow as long as it lives.

PoCL reads `POCL_CACHE_DIR` when its devices are first listed, and the variable is set only until then. A folder that the
user has named there is used and never cleaned up.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ... import settings
from ...errors import ArgumentError, DeviceError
from ...platforms import system
from ...storage.foreign_folder import FOREIGN, ForeignFolder
from ...storage.locks import LockUnavailable
from ...storage.private import make_private_folder
from ..fingerprint import cpu_identity
from .pocl import method_chosen

_VARIABLE = "POCL_CACHE_DIR"
_MAX_BYTES = 64 << 20  # the cache has the programs too: this folder only saves PoCL from unpacking them again
_TIDY_EVERY_SECONDS = 3600.0  # looking at every file takes a while
_IN_USE_SECONDS = 600.0  # a program built or loaded within this time stays, for file systems without locks
_LEFTOVER_SECONDS = 86400.0
_FREE_BYTES = 16 << 20
_PROBE = bytes(1 << 20)
_PROBE_EVERY_SECONDS = 1.0
_FREE_DESCRIPTORS = 8  # a build was seen to take two
_TEMPORARY = "kernelkeep-pocl-"

_folder: Path | None = None  # None until PoCL has been loaded
_is_ours = False  # we chose the folder, not the user
_may_be_pocl = True  # until it turns out that there is no PoCL
_probed = -_PROBE_EVERY_SECONDS
_release_hold: Callable[[], None] | None = None


def folder_in_use() -> Path | None:
    """Where PoCL works in this process; None where it was not loaded here."""
    return _folder


@contextlib.contextmanager
def pocl_working_in(cache_dir: str | os.PathLike[str] | None) -> Iterator[None]:
    """Have PoCL work in a folder under `cache_dir`, if it is loaded inside the block. The first block of a process decides."""
    global _folder, _is_ours
    if _folder is not None or not _may_be_pocl:
        yield
        return
    named = os.environ.get(_VARIABLE)
    if named or _is_loaded():
        _folder = _folder_of_pocl()
        yield
        return
    _folder, _is_ours = _choose(cache_dir), True
    os.environ[_VARIABLE] = str(_folder)
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if named is not None:
            os.environ[_VARIABLE] = named


def remove_unused_folder() -> None:
    """There is no PoCL here: remove the folder that was made for it."""
    global _folder, _may_be_pocl
    if _is_ours and _may_be_pocl and _folder is not None:
        if _release_hold is not None:
            _release_hold()
        if _folder.name == FOREIGN:
            ForeignFolder(_folder.parent).remove_if_empty()
        else:  # a temporary folder
            with contextlib.suppress(OSError):
                _folder.rmdir()
    _folder, _may_be_pocl = None, False


def require_folder(*, to_build: bool) -> None:
    """Raise `DeviceError`, with the folder and what to do, if PoCL cannot write what it needs for a build or a load."""
    global _probed
    folder = _folder
    if folder is None:
        return
    now = time.monotonic()
    thorough = to_build and now - _probed >= _PROBE_EVERY_SECONDS
    try:
        try:
            _probe(folder, thorough)
        except FileNotFoundError:  # somebody cleared it; PoCL goes on if it is there again
            if _is_ours:
                _make_folder(folder)
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _probe(folder, thorough)
    except OSError as error:
        raise DeviceError(_complaint(folder, error)) from None
    if thorough:
        _probed = now


def _mark_in_use(folder: Path) -> None:
    """Keep `kernelkeep clear` and pruning from removing the folder while this process lives: PoCL needs it."""
    global _release_hold
    with contextlib.suppress(LockUnavailable):
        _release_hold = ForeignFolder(folder.parent).hold()


def _choose(cache_dir: str | os.PathLike[str] | None) -> Path:
    # PoCL must not load binaries that were compiled with another method or for another CPU.
    kind = f"{method_chosen()} {cpu_identity()}"
    name = f"opencl_pocl_{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
    try:
        folder = settings.cache_dir(cache_dir) / name / FOREIGN
        _make_folder(folder)
        _tidy_now_and_then(folder)
        _mark_in_use(folder)
        _make_folder(folder)  # somebody may have cleared it just before
        _probe(folder, thorough=True)
        return folder
    except (OSError, ArgumentError):
        return _temporary_folder()


def _make_folder(folder: Path) -> None:
    make_private_folder(folder)
    if folder.stat().st_mode & system.OPEN_TO_OTHERS:
        raise PermissionError(errno.EPERM, "others may look into it")


def _temporary_folder() -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-"))
    except OSError:
        return _folder_of_pocl()  # if it cannot be used either, the next build says why
    atexit.register(_remove_temporary, folder, os.getpid())
    for old in folder.parent.glob(f"{_TEMPORARY}*-*"):
        with contextlib.suppress(OSError, ValueError):
            if old.lstat().st_uid == system.user_number() and not system.is_alive(int(old.name.split("-")[2])):
                shutil.rmtree(old, ignore_errors=True)
    return folder


def _remove_temporary(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        shutil.rmtree(folder, ignore_errors=True)


def _is_loaded() -> bool:
    """Whether the user's program has already loaded PoCL."""
    with contextlib.suppress(OSError):
        return "libpocl" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return False


def _folder_of_pocl() -> Path:
    """Where PoCL works by default."""
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "pocl", "kcache")
    return Path(os.environ.get("HOME", "/tmp"), ".cache", "pocl", "kcache")


# --- can PoCL work there?


def _probe(folder: Path, thorough: bool) -> None:
    """`OSError` if there is no space or no descriptors, or, if `thorough`, if writing a file fails."""
    free_bytes, free_files = system.free_space(folder)
    if free_bytes < _FREE_BYTES or (free_files is not None and free_files < 16):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    held: list[int] = []
    probe = folder / f"probe-{os.getpid()}-{os.urandom(4).hex()}" if thorough else None
    try:
        if probe is None:
            held.append(os.open(os.devnull, os.O_RDONLY | system.OPEN_FLAGS))
        else:
            held.append(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.OPEN_FLAGS, 0o600))
            # Quotas and limits only show when something is written.
            if os.write(held[0], _PROBE) < len(_PROBE):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        held.extend(os.dup(held[0]) for _ in range(_FREE_DESCRIPTORS - 1))
    finally:
        for descriptor in held:
            os.close(descriptor)
        if probe is not None and held:
            probe.unlink()


def _complaint(folder: Path, error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"PoCL needs {_FREE_DESCRIPTORS} free file descriptors to compile and load programs, and fewer are free: "
            "close files, or raise the limit (ulimit -n)"
        )
    elsewhere = f"start the program with {_VARIABLE} set to a folder on another disk"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"PoCL cannot compile or load programs: the disk of its folder {folder} is full "
            f"({error.strerror}; it needs {_FREE_BYTES >> 20} MiB): free some space there, or {elsewhere}"
        )
    return f"PoCL cannot write to its folder {folder} ({error.strerror}): make it writable, or {elsewhere}"


# --- what it may hold


def _tidy_now_and_then(folder: Path) -> None:
    mark = folder / "tidied"
    with contextlib.suppress(OSError):
        try:
            recent = 0 <= time.time() - mark.stat().st_mtime < _TIDY_EVERY_SECONDS
        except FileNotFoundError:
            recent = False
        if not recent:
            with ForeignFolder(folder.parent).unless_held() as idle:
                if idle:
                    _tidy(folder)
                    mark.touch(mode=0o600)


def _tidy(folder: Path, max_bytes: int = _MAX_BYTES) -> None:
    """Remove damaged programs, and, above `max_bytes`, the least recently used ones until half of that is left.

    Only while nobody works in the folder.
    """
    now = time.time()
    remove_damaged(folder)
    programs: list[tuple[float, int, Path]] = []
    for first in _entries(folder):
        if not first.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):  # left behind by a killed compiler
                if first.name.startswith(("tempfile_", "probe-")) and now - first.stat().st_mtime > _LEFTOVER_SECONDS:
                    Path(first.path).unlink()
            continue
        for second in _entries(first.path):
            size, used = _size_and_last_use(Path(second.path))
            programs.append((used, size, Path(second.path)))
    total = sum(size for _, size, _ in programs)
    if total <= max_bytes:
        return
    for used, size, path in sorted(programs):
        if total <= max_bytes // 2 or now - used < _IN_USE_SECONDS:
            break
        shutil.rmtree(path, ignore_errors=True)
        total -= size


def remove_damaged(folder: Path | None = None) -> bool:
    """Remove programs whose file is empty, which PoCL takes for programs without kernels; whether there were any.

    Safe while PoCL works in the folder: nobody can use such a program.
    """
    folder = folder or _folder
    empty = [path.parent for path in folder.glob("*/*/program.bc") if _is_empty(path)] if folder else []
    for program in empty:
        shutil.rmtree(program, ignore_errors=True)
    return bool(empty)


def _is_empty(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == 0
    return False


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _size_and_last_use(program: Path) -> tuple[int, float]:
    """How many bytes a program has, and when it was last built or loaded."""
    size, used = 0, 0.0
    for inside, _, names in os.walk(program):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(inside, name))  # noqa: PTH118
                size, used = size + found.st_size, max(used, found.st_mtime)
    return size, used
