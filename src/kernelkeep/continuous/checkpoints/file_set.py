"""Which files belong to a checkpoint: `heat.kkpt` and the older `heat.kkpt.41`, `heat.kkpt.40`, … of the same run.

An older file is named after its sequence number. It belongs to `heat.kkpt` only if its header has the same lineage and its
number is the one in its name; any other file with such a name is foreign: another run's, or a copy with a date. Where
`heat.kkpt` itself is missing or damaged, the older files are found by the name in their headers that they were written for.
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
from .address import check_not_torn, is_address, parse_address
from .header import CheckpointHeader
from .reading import NewerFormat, NoCheckpoint, read_start


class CheckpointFile(msgspec.Struct, frozen=True):
    """A file whose header is good. `whole`: its end exists too. Its arrays were not checked."""

    path: Path
    header: CheckpointHeader
    sequence: int
    whole: bool


class FileSet(msgspec.Struct, frozen=True):
    """The files of a checkpoint: `newest` is the one at the path itself, `older` the others, the youngest first."""

    path: Path
    newest: CheckpointFile | None
    older: tuple[CheckpointFile, ...]
    problems: tuple[str, ...]  # a sentence for each file that might belong to it and cannot be used

    @property
    def exists(self) -> bool:
        """Whether there is anything to resume from, or to lose."""
        return self.newest is not None or bool(self.older) or _has_content(self.path)

    @property
    def all(self) -> tuple[CheckpointFile, ...]:
        """All of them in the order in which to try them."""
        return self.older if self.newest is None else (self.newest, *self.older)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where the file really is: a link is followed, so that older files lie beside its target; of an address, the copy here.

    `CheckpointError` where a device, pipe, socket or folder is in its place, `ArgumentError` for what names no file.
    """
    if isinstance(path, str) and is_address(path):
        return parse_address(path).path
    try:
        named = os.fspath(path)
        check_not_torn(path)
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


def inspect_file(path: Path) -> CheckpointFile:
    """Read the header of a file. `Damaged` where it is not good, `OSError` where it cannot be read."""
    with open_regular(path) as file:
        header, prefix, source = read_start(file)
        return CheckpointFile(path, header, prefix.sequence, source.whole)


def stored_name(path: Path) -> str:
    """The name of a file as a header stores it: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path.name).decode(errors="backslashreplace")


def older_path(path: Path, sequence: int) -> Path:
    """The name of the older file with this sequence number."""
    return path.with_name(f"{path.name}.{sequence}")


def numbered(path: Path) -> list[tuple[int, Path]]:
    """All files with the name of an older one, whoever wrote them; the highest number first."""
    pattern = re.compile(re.escape(path.name) + r"\.([1-9][0-9]{0,14})")
    found: list[int] = []
    with contextlib.suppress(OSError):
        found = [int(match.group(1)) for name in os.listdir(path.parent) if (match := pattern.fullmatch(name))]  # noqa: PTH208
    return [(number, older_path(path, number)) for number in sorted(found, reverse=True)]


def find_file_set(path: Path) -> FileSet:
    """Inspect the path and the files beside it."""
    try:
        newest = inspect_file(path)
    except NewerFormat as error:
        return FileSet(path, None, (), (describe_problem(path, error),))
    except (OSError, Damaged) as error:
        older, problems = _older_by_name(path)
        return FileSet(path, None, older, (describe_problem(path, error), *problems))
    problem = () if newest.whole else (f"{path} is cut off, or damaged at its end",)
    return FileSet(path, newest, older_of(path, newest.header.lineage), problem)


def older_of(path: Path, lineage: str) -> tuple[CheckpointFile, ...]:
    """The older files of a lineage. A file without a lineage, from an earlier kernelkeep, has none."""
    if not lineage:
        return ()
    return tuple(file for file in _candidates(path)[0] if file.header.lineage == lineage)


def _older_by_name(path: Path) -> tuple[tuple[CheckpointFile, ...], list[str]]:
    """The older files whose headers name this path, where the file at the path does not tell their lineage."""
    found, problems = _candidates(path)
    own = tuple(file for file in found if file.header.file == stored_name(path) and file.header.lineage)
    if len({file.header.lineage for file in own}) > 1:
        names = ", ".join(file.path.name for file in own)
        return (), [
            f"the files beside it ({names}) are of several runs: pass the path of the one to resume from",
            *problems,
        ]
    return own, problems


def _candidates(path: Path) -> tuple[list[CheckpointFile], list[str]]:
    """Numbered files whose number is that in their header, and a sentence for each that is a damaged checkpoint."""
    found: list[CheckpointFile] = []
    problems: list[str] = []
    for number, candidate in numbered(path):
        try:
            file = inspect_file(candidate)
        except (OSError, NotRegular, NewerFormat, NoCheckpoint):
            continue
        except Damaged as error:
            problems.append(describe_problem(candidate, error))
            continue
        if file.sequence == number:
            found.append(file)
    return found, problems


def _has_content(path: Path) -> bool:
    """Whether the file has any bytes. One that cannot be inspected counts, so that it is not overwritten."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


def describe_problem(shown: object, error: OSError | Damaged) -> str:
    """Why a file cannot be used, in one sentence."""
    if isinstance(error, Damaged):
        return f"{shown} {error}"
    if error.errno == errno.ENOENT:
        return f"there is no checkpoint {shown}"
    return f"the checkpoint {shown} cannot be read: {error.strerror or error}"
