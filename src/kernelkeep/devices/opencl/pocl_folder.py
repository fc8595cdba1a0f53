"""PoCL's own folder: where it compiles, what it may hold, and whether PoCL can work there right now.

PoCL writes every program it builds or loads into a folder, `~/.cache/pocl/kcache` by default, and links and loads native code
from there. Where it cannot write, it ends the process or says nothing about why. So it is given a private folder inside the
cache folder, or a temporary one where that cannot be used, and before it compiles or loads anything that folder is looked
at. Others may fill the disk in the very moment in between: that is left to chance.

PoCL reads `POCL_CACHE_DIR` when its devices are first asked for, and the variable is only set until then. A folder that the
user has named there is used and never cleared up.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ... import settings
from ...errors import ArgumentError, DeviceError
from ...storage.foreign_folder import FOREIGN, ForeignFolder
from ...storage.locks import LockUnavailable
from ...storage.private import make_private_folder
from ..fingerprint import cpu_identity
from .pocl import method_chosen

__all__ = ["folder_in_use", "placed", "require_folder", "withdraw"]

_VARIABLE = "POCL_CACHE_DIR"
_MOST_BYTES = 64 << 20  # programs are kept in the cache as well: this folder only saves PoCL unpacking them again
_BOUND_EVERY_SECONDS = 86400.0
_BOUND_EVERY_BUILDS = 500
_IN_USE_SECONDS = 600.0  # a program that was built or loaded so short a time ago stays
_FREE_BYTES = 16 << 20
_PROBE = bytes(1 << 20)
_PROBE_EVERY_SECONDS = 1.0
_FREE_DESCRIPTORS = 8  # a build was seen to take two
_TEMPORARY = "kernelkeep-pocl-"

_folder: Path | None = None  # None until PoCL has been loaded
_ours = False
_wanted = True  # until it turns out that there is no PoCL
_probed = -_PROBE_EVERY_SECONDS
_builds = 0
_unmark: Callable[[], None] | None = None


def folder_in_use() -> Path | None:
    """Where PoCL works in this process; None where it was not loaded here."""
    return _folder


@contextlib.contextmanager
def placed(cache_dir: str | os.PathLike[str] | None) -> Iterator[None]:
    """For the block in which drivers are loaded, tell PoCL where to work. The first block of a process decides."""
    global _folder, _ours
    if _folder is not None or not _wanted:
        yield
        return
    named = os.environ.get(_VARIABLE)
    if named or _is_loaded():
        _folder = _folder_of_pocl()
        yield
        return
    _folder, _ours = _choose(cache_dir), True
    os.environ[_VARIABLE] = str(_folder)
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if named is not None:
            os.environ[_VARIABLE] = named


def withdraw() -> None:
    """There is no PoCL here: remove the folder that was made for it."""
    global _folder, _wanted
    if _ours and _wanted and _folder is not None:
        if _unmark is not None:
            _unmark()
        if _folder.name == FOREIGN:
            ForeignFolder(_folder.parent).remove_if_empty()
        else:  # a temporary folder
            with contextlib.suppress(OSError):
                _folder.rmdir()
    _folder, _wanted = None, False


def require_folder(*, to_build: bool) -> None:
    """Raise `DeviceError` where PoCL could not write what it is about to, with the folder and what to do."""
    global _probed, _builds
    folder = _folder
    if folder is None:
        return
    now = time.monotonic()
    thorough = to_build and now - _probed >= _PROBE_EVERY_SECONDS
    try:
        try:
            _probe(folder, thorough)
        except FileNotFoundError:  # cleared meanwhile, which PoCL survives
            if _ours:
                _make_folder(folder)
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _probe(folder, thorough)
    except OSError as error:
        raise DeviceError(_complaint(folder, error)) from None
    if thorough:
        _probed = now
        if _ours:
            _keep_bounded(folder)
    if to_build:
        _builds += 1
        if _ours and _builds % _BOUND_EVERY_BUILDS == 0:
            _bound(folder)


def _mark_in_use(folder: Path) -> None:
    """Keep `kernelkeep clear` and pruning from removing the folder while this process lives: PoCL could not go on."""
    global _unmark
    with contextlib.suppress(LockUnavailable):
        _unmark = ForeignFolder(folder.parent).hold()


def _choose(cache_dir: str | os.PathLike[str] | None) -> Path:
    # Binaries that were compiled in another way or for another CPU must not be taken for ours.
    kind = f"{method_chosen()} {cpu_identity()}"
    name = f"opencl_pocl_{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
    try:
        folder = settings.cache_dir(cache_dir) / name / FOREIGN
        _make_folder(folder)
        _mark_in_use(folder)
        _make_folder(folder)  # somebody may have cleared it before it was marked
        _probe(folder, thorough=True)
        return folder
    except (OSError, ArgumentError):
        return _temporary_folder()


def _make_folder(folder: Path) -> None:
    make_private_folder(folder)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        raise PermissionError(errno.EPERM, "others may look into it")


def _temporary_folder() -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-"))
    except OSError:
        return _folder_of_pocl()  # whatever it is, the next compilation says what is wrong with it
    atexit.register(_remove_temporary, folder, os.getpid())
    for old in folder.parent.glob(f"{_TEMPORARY}*-*"):
        with contextlib.suppress(OSError, ValueError):
            if old.lstat().st_uid == os.geteuid() and not _is_alive(int(old.name.split("-")[2])):
                shutil.rmtree(old, ignore_errors=True)
    return folder


def _remove_temporary(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _is_loaded() -> bool:
    """Whether the program has loaded PoCL by itself."""
    with contextlib.suppress(OSError):
        return "libpocl" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return False


def _folder_of_pocl() -> Path:
    """Where PoCL works if nobody else decides."""
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "pocl", "kcache")
    return Path(os.environ.get("HOME", "/tmp"), ".cache", "pocl", "kcache")


# --- can PoCL work there?


def _probe(folder: Path, thorough: bool) -> None:
    """`OSError` where there is no room, no descriptors, or, looking thoroughly, nothing can be written."""
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < _FREE_BYTES or (room.f_files and room.f_favail < 16):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    held: list[int] = []
    try:
        if not thorough:
            held.append(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
        else:
            path = folder / f"probe-{os.getpid()}-{os.urandom(4).hex()}"
            held.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                # Quotas and limits are not seen before something is written.
                if os.write(held[0], _PROBE) < len(_PROBE):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                path.unlink()
        held.extend(os.dup(held[0]) for _ in range(_FREE_DESCRIPTORS - 1))
    finally:
        for descriptor in held:
            os.close(descriptor)


def _complaint(folder: Path, error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"PoCL needs {_FREE_DESCRIPTORS} free file descriptors to compile and load programs, and there are fewer: "
            "close files, or raise the limit (ulimit -n)"
        )
    elsewhere = f"start the program with {_VARIABLE} set to a folder on another disk"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"PoCL cannot compile or load programs: the disk of its folder {folder} is full "
            f"({error.strerror}; it needs {_FREE_BYTES >> 20} MiB): free some space there, or {elsewhere}"
        )
    return f"PoCL cannot write to its folder {folder} ({error.strerror}): make it writable, or {elsewhere}"


# --- how much it may hold


def _keep_bounded(folder: Path) -> None:
    """Once a day is enough: looking at every file takes longer than starting."""
    mark = folder / "bounded"
    with contextlib.suppress(OSError):
        try:
            recent = 0 <= time.time() - mark.stat().st_mtime < _BOUND_EVERY_SECONDS
        except FileNotFoundError:
            recent = False
        if not recent:
            mark.touch(mode=0o600)
            _bound(folder)


def _bound(folder: Path, most_bytes: int = _MOST_BYTES) -> None:
    """Remove the programs that were not used for longest, down to half of what is allowed, where there is more."""
    now = time.time()
    programs: list[tuple[float, int, Path]] = []
    for first in _entries(folder):
        if not first.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):  # what a killed compiler left
                if (
                    first.name.startswith(("tempfile_", "probe-"))
                    and now - first.stat().st_mtime > _BOUND_EVERY_SECONDS
                ):
                    Path(first.path).unlink()
            continue
        for second in _entries(first.path):
            sizes, used = _survey(Path(second.path))
            programs.append((used, sizes, Path(second.path)))
    total = sum(size for _, size, _ in programs)
    if total <= most_bytes:
        return
    for used, size, path in sorted(programs):
        if total <= most_bytes // 2 or now - used < _IN_USE_SECONDS:
            break
        shutil.rmtree(path, ignore_errors=True)
        total -= size


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _survey(program: Path) -> tuple[int, float]:
    """How many bytes a program has, and when it was last built or loaded."""
    size, used = 0, 0.0
    for inside, _, names in os.walk(program):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(inside, name))  # noqa: PTH118
                size, used = size + found.st_size, max(used, found.st_mtime)
    return size, used
