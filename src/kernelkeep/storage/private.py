"""Folders and files that no other user of the machine can have written.

What a cache holds is executed, so a folder is used only if nobody else can write to it. The rule, from `/` down to the
folder, links included: each step belongs to this user, to root, or to one more user who was named, and is not writable by
its group or by others. A folder further up may be writable if its sticky bit is set, like /tmp: then nobody can replace
somebody else's folder in it.

On Windows, where a file's mode and number say nothing of this, none of it is checked.

A path is checked step by step. That is safe from races: nobody else can change what lies in a folder that passed, so the
next step is as it was found. A file is checked by `fstat` once it is open.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from .. import settings
from ..errors import ArgumentError
from ..platforms import system
from .reading import is_private_folder

WRITABLE_BY_OTHERS = system.WRITABLE_BY_OTHERS
_MOST_LINKS = 40  # as many as Linux follows
_LONGEST_PATH = 4096
_PRIVATE_FOLDER = 0o700


class NotPrivate(PermissionError):
    """Another user could have put files there. `strerror` says where, and what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(errno.EPERM, f"{reason}; {remedy}")


class Trust:
    """Whose files are used: this user's, root's, and those of one more user if one is named."""

    __slots__ = ("named", "uids")

    def __init__(self, named: str | int | None = None) -> None:
        self.named = named
        ours = {system.user_number(), 0}
        self.uids = frozenset(ours if named is None else {*ours, _uid_of(named)})

    def objection(self, found: os.stat_result) -> str | None:
        """Why a file or folder with this status must not be used; None if it may be."""
        if found.st_uid not in self.uids:
            return f"belongs to {_name_of(found.st_uid)}, who is neither this user nor root"
        if found.st_mode & WRITABLE_BY_OTHERS and not stat.S_ISLNK(found.st_mode):
            return f"may be written to by others (its mode is {stat.S_IMODE(found.st_mode):04o})"
        return None

    def check_folder(self, path: str | Path) -> None:
        """Check every step from `/` to a folder; `OSError`, often `NotPrivate`, says why it must not be used."""
        _walk(str(path), self, create=False)

    def check_part(self, path: str | Path) -> bool:
        """Check a folder whose parent was checked. False where it is missing or is a file, which is no objection."""
        if is_private_folder(path, self.uids):
            return True  # the usual case: most hits on disk come through here
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return False
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            self.check_folder(path)
            return True
        if not stat.S_ISDIR(mode):
            return False
        self._check_step(str(path), found, last=True)
        return True

    def check_tree(self, path: Path) -> None:
        """Check a folder and everything in it, because a driver opens these files without a check.

        Files in it may be writable by others if nobody else can reach them: drivers follow the umask.
        """
        self.check_folder(path)
        reachable = bool(path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH))
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                inside = os.path.join(folder, name)  # noqa: PTH118
                try:
                    found = os.lstat(inside)
                except FileNotFoundError:  # another process of this user works there
                    continue
                if found.st_uid not in self.uids or (reachable and self.objection(found)):
                    raise _refusal(inside, self.objection(found) or "", found)

    def _check_step(self, path: str, found: os.stat_result, last: bool) -> None:
        objection = self.objection(found)
        if objection is None:
            return
        sticky_above = not last and found.st_mode & stat.S_ISVTX and found.st_uid in self.uids
        if not sticky_above:
            raise _refusal(path, objection, found)


def default_trust() -> Trust:
    """This user, root, and whom $KERNELKEEP_TRUSTED_OWNER names."""
    return Trust(settings.trusted_owner())


def make_private_folder(path: str | Path, trust: Trust | None = None) -> None:
    """Create a folder and its missing parents, for this user alone under any umask, and check every step to it.

    `OSError`, often `NotPrivate`, says why the folder cannot be used. A folder that exists is left as it is.
    """
    _walk(str(path), trust or default_trust(), create=True)


def make_private_tree(path: str | Path, trust: Trust | None = None) -> None:
    """`make_private_folder`, and check every file that is in it already: for a folder whose files a driver runs."""
    trust = trust or default_trust()
    make_private_folder(path, trust)
    trust.check_tree(Path(path))


def _walk(path: str, trust: Trust, *, create: bool) -> None:
    if not os.path.isabs(path):  # noqa: PTH117
        raise FileNotFoundError(errno.ENOENT, "there is no current or home folder that it could be in")
    if len(path) >= _LONGEST_PATH:  # or all that fits would be created first
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if not system.HAS_OWNERS:
        _require_folder(path, create=create)
        return
    at, links = "/", 0
    pending = path.split("/")[::-1]
    found = os.lstat(at)
    while True:
        while pending and pending[-1] in ("", "."):
            pending.pop()
        trust._check_step(at, found, last=not pending)
        if not pending:
            return
        part = pending.pop()
        if part == "..":  # `at` holds no links, so this is really the folder above
            at = os.path.dirname(at)  # noqa: PTH120
            found = os.lstat(at)
            continue
        step = f"{at.rstrip('/')}/{part}"
        found = _look(step, create)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            objection = trust.objection(found)
            if objection is not None:
                raise _refusal(step, objection, found)
            target = os.readlink(step)  # noqa: PTH115
            pending += target.split("/")[::-1]
            if target.startswith("/"):
                at = "/"
            found = os.lstat(at)
        elif stat.S_ISDIR(found.st_mode):
            at = step
        else:
            raise NotADirectoryError(errno.ENOTDIR, f"{step} is not a folder")


def _require_folder(path: str, *, create: bool) -> None:
    """`OSError` where there is no folder and none can be made: nothing says who could write to it."""
    try:
        if create:
            os.makedirs(path, _PRIVATE_FOLDER, exist_ok=True)  # noqa: PTH103
        elif not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
            raise FileExistsError
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a folder") from None
    except ValueError as error:  # a null character
        raise OSError(errno.EINVAL, str(error)) from None


def _look(step: str, create: bool) -> os.stat_result:
    try:
        return os.lstat(step)
    except FileNotFoundError:
        if not create:
            raise
    except ValueError as error:  # a null character, or one that no file name can have
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        os.mkdir(step, _PRIVATE_FOLDER)  # noqa: PTH102
    except FileExistsError:  # another process was first
        return os.lstat(step)
    found = os.lstat(step)
    if stat.S_IMODE(found.st_mode) & 0o777 != _PRIVATE_FOLDER:  # the umask took from it
        os.chmod(step, _PRIVATE_FOLDER)  # noqa: PTH101
        found = os.lstat(step)
    return found


def _refusal(path: str, objection: str, found: os.stat_result) -> NotPrivate:
    if "belongs to" in objection:
        owner = _name_of(found.st_uid)
        remedy = f"name another folder, or trust {owner} with trusted_owner= or KERNELKEEP_TRUSTED_OWNER={found.st_uid}"
    else:
        remedy = f"if everything in it is yours, run chmod go-w {path!r}; else remove it, or name another folder"
    return NotPrivate(f"{path} {objection}", remedy)


def _uid_of(owner: str | int) -> int:
    if isinstance(owner, str) and owner.isdecimal():
        owner = int(owner)
    if isinstance(owner, int) and not isinstance(owner, bool) and 0 <= owner < 1 << 32:
        return owner
    try:
        return system.number_of_user(owner)  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError):
        raise ArgumentError(
            f"trusted_owner must be the name or number of a user of this machine, got {owner!r}"
        ) from None


def _name_of(uid: int) -> str:
    try:
        return f"{system.name_of_user(uid)} (user {uid})"
    except KeyError:
        return f"user {uid}"
