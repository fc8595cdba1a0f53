"""Which files belong to a checkpoint: `heat.kkpt` and the older `heat.kkpt.41`, `heat.kkpt.40`, … of the same run.

An older file is named after its sequence number. It belongs to `heat.kkpt` only if its header has the same lineage and its
number is the one in its name; any other file with such a name is somebody else's: another run's, or a copy with a date. Where
`heat.kkpt` itself is missing or damaged, the older files are found by the name that their headers say they were written for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

import msgspec

from ...errors import ArgumentError, CheckpointError
from ...storage.files import Damaged, NotRegular, check_destination, open_regular
from .format import NewerFormat, NoCheckpoint, read_start
from .header import CheckpointHeader

__all__ = [
    "Family",
    "Member",
    "find_family",
    "look_at",
    "numbered",
    "older_of",
    "older_path",
    "real_path",
    "stored_name",
    "unreadable",
]


class Member(msgspec.Struct, frozen=True):
    """A file whose header is good. `whole` says whether its end is there too; its arrays were not looked at."""

    path: Path
    header: CheckpointHeader
    sequence: int
    whole: bool


class Family(msgspec.Struct, frozen=True):
    """The files of a checkpoint. `own` is the one at the path itself, and `older` the others, the youngest first."""

    path: Path
    own: Member | None
    older: tuple[Member, ...]
    problems: tuple[str, ...]  # a sentence for each file that might belong to it and cannot be used
    blocked: bool = False  # what is at the path is nothing to look past: its problem is the only one

    @property
    def exists(self) -> bool:
        """Whether there is anything to go on from, or to lose."""
        return self.own is not None or bool(self.older) or _has_content(self.path)

    @property
    def members(self) -> tuple[Member, ...]:
        """All of them in the order in which to try them."""
        return (*(() if self.own is None else (self.own,)), *self.older)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where the file really is: a link is followed, so that the files lie beside the one it leads to.

    `CheckpointError` where a device, pipe, socket or folder is in its place, `ArgumentError` for what names no file.
    """
    try:
        named = os.fspath(path)
        found = Path(os.path.realpath(named))
        if not named or not found.name or named.endswith(os.sep):
            raise ValueError("it names no file")
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise ArgumentError(f"{path!r} cannot be a checkpoint: {error}") from None
    try:
        check_destination(named)
    except NotRegular as error:
        raise CheckpointError(f"{path} cannot be a checkpoint: it {error}") from None
    except OSError:
        pass  # reading or writing it will say why
    return found


def look_at(path: Path) -> Member:
    """The header of a file. `Damaged` where it has none that is good, `OSError` where it cannot be read."""
    with open_regular(path) as file:
        header, prefix, source = read_start(file)
        return Member(path, header, prefix.sequence, source.whole)


def stored_name(path: Path) -> str:
    """The name of a file as a header has it: bytes of it that are not UTF-8 are escaped."""
    return os.fsencode(path.name).decode(errors="backslashreplace")


def older_path(path: Path, sequence: int) -> Path:
    """What an older file is called."""
    return path.with_name(f"{path.name}.{sequence}")


def numbered(path: Path) -> list[tuple[int, Path]]:
    """All files that are called as an older one would be, whoever they belong to; the highest number first."""
    pattern = re.compile(re.escape(path.name) + r"\.([1-9][0-9]{0,14})")
    found: list[int] = []
    with contextlib.suppress(OSError):
        found = [int(match.group(1)) for name in os.listdir(path.parent) if (match := pattern.fullmatch(name))]  # noqa: PTH208
    return [(number, older_path(path, number)) for number in sorted(found, reverse=True)]


def find_family(path: Path) -> Family:
    """Look at the path and at the files beside it."""
    try:
        own = look_at(path)
    except NewerFormat as error:
        return Family(path, None, (), (unreadable(path, error),), blocked=True)
    except (OSError, Damaged) as error:
        older, problems = _older_by_name(path)
        return Family(path, None, older, (unreadable(path, error), *problems))
    problem = () if own.whole else (f"{path} is cut off, or damaged at its end",)
    return Family(path, own, older_of(path, own.header.lineage), problem)


def older_of(path: Path, lineage: str) -> tuple[Member, ...]:
    """The older files of a lineage. A file without a lineage has none: an earlier kernelkeep wrote it."""
    if not lineage:
        return ()
    return tuple(member for member in _candidates(path)[0] if member.header.lineage == lineage)


def _older_by_name(path: Path) -> tuple[tuple[Member, ...], list[str]]:
    """The older files that were written for this path, where the path itself does not tell their lineage."""
    found, problems = _candidates(path)
    mine = tuple(member for member in found if member.header.file == stored_name(path) and member.header.lineage)
    if len({member.header.lineage for member in mine}) > 1:
        names = ", ".join(member.path.name for member in mine)
        return (), [f"the files beside it ({names}) are of several runs: name the one to go on from", *problems]
    return mine, problems


def _candidates(path: Path) -> tuple[list[Member], list[str]]:
    """Numbered files whose number is that in their header, and a sentence for each that is a damaged checkpoint."""
    found: list[Member] = []
    problems: list[str] = []
    for number, file in numbered(path):
        try:
            member = look_at(file)
        except (OSError, NotRegular, NewerFormat, NoCheckpoint):
            continue
        except Damaged as error:
            problems.append(unreadable(file, error))
            continue
        if member.sequence == number:
            found.append(member)
    return found, problems


def _has_content(path: Path) -> bool:
    """Whether there is a file that holds anything. What cannot be looked at counts, so that it is not overwritten."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


def unreadable(shown: object, error: OSError | Damaged) -> str:
    """Why a file cannot be used, in one sentence."""
    if isinstance(error, Damaged):
        return f"{shown} {error}"
    if error.errno == errno.ENOENT:
        return f"there is no checkpoint {shown}"
    return f"the checkpoint {shown} cannot be read: {error.strerror or error}"
