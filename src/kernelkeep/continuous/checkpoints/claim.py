"""One run's hold on a checkpoint file: while it lasts, no other run writes there.

The hold is a lock that the kernel lets go of when the process dies, however it dies. Nobody waits for it: a second run on the
same file is refused at once, whatever the first one is doing, and a run never waits for its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from ...errors import ArgumentError, CheckpointError
from ...storage.files import NotRegular
from ...storage.locks import FileLock, LockHeld, LockUnavailable
from .checkpoint import Checkpoint, Written
from .family import Family, find_family, real_path, stored_name
from .format import write
from .header import new_lineage
from .publication import publish, set_aside

__all__ = [
    "CheckpointClaim",
    "CheckpointWarning",
    "claim_for_run",
    "claim_new",
    "claim_to_continue",
    "go_on_by_default",
]

_LONGEST_NAME = 200  # most file systems end at 255, and the name of a temporary or older file adds up to 40
_HANDOVER_SECONDS = 0.2  # for one that is about to let go


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or not be guarded; the run goes on, and the older files are as they were."""


class CheckpointClaim:
    """A checkpoint's files, held by one run from `acquire` to `release`, or for a `with` block."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = real_path(path)
        if (length := len(os.fsencode(self.path.name))) > _LONGEST_NAME:
            raise CheckpointError(
                f"{self.path} cannot be a checkpoint: its name has {length} bytes and the files beside it have longer ones; "
                f"pass one of at most {_LONGEST_NAME}"
            )
        self.lineage = new_lineage()
        self.holds_state = False  # the file holds the very state that the run begins with
        self._shown = os.fspath(path)
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        self._locked = False
        self._starts_over = False
        self._sequence = 0
        self._mutex = threading.Lock()
        self._writers = 0
        self._released = False

    def acquire(self, wait_seconds: float = _HANDOVER_SECONDS) -> Self:
        """Keep others out. `CheckpointError` where another holds it; a warning where the file system has no locks."""
        problem = self._try_to_lock(wait_seconds)
        if problem and self._can_be_written:
            warnings.warn(
                f"{self._shown} cannot be locked ({problem}): see to it that no second run writes to it",
                CheckpointWarning,
                stacklevel=4,
            )
        return self

    @property
    def _can_be_written(self) -> bool:
        """Whether a file can be here at all; where not, the first checkpoint fails, and that says enough."""
        try:
            self.path.lstat()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return os.access(self.path.parent, os.W_OK | os.X_OK)

    def _try_to_lock(self, wait_seconds: float) -> str:
        with contextlib.suppress(OSError):  # else writing says why
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.parent.is_dir():
            return "there is no folder for it"
        try:
            self._lock.acquire(wait_seconds)
        except LockHeld:
            raise CheckpointError(
                f"{self._shown} is in use: {self._holder()} writes its checkpoints there; wait for it to end, or pass "
                "another checkpoint="
            ) from None
        except LockUnavailable as error:
            if self._lock.path.is_file() and not os.access(self._lock.path, os.R_OK | os.W_OK):
                raise CheckpointError(
                    f"{self._shown} is in use by another user, whose lock is {self._lock.path}; where no such run is left, "
                    "remove that file"
                ) from None
            return str(error)
        self._locked = True
        self._lock.leave_note(str(os.getpid()))  # for the message above only
        return ""

    def _holder(self) -> str:
        with contextlib.suppress(ValueError):
            holder = int(self._lock.note())
            return "another run in this process" if holder == os.getpid() else f"a run in process {holder}"
        return "another run"

    def release(self) -> None:
        """Let go; where a checkpoint is being written, when that is done. Nothing can be written after."""
        with self._mutex:
            self._released = True
            if not self._writers:
                self._unlock()

    def _unlock(self) -> None:
        if self._locked:
            self._locked = False
            self._lock.release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # --- whose files these are

    def family(self) -> Family:
        """The files that are there now."""
        return find_family(self.path)

    def go_on(self, lineage: str, *, holds_state: bool) -> None:
        """The run continues the one whose files have this lineage; they are its own. Without one, it begins its own."""
        self.lineage = lineage or self.lineage
        self.holds_state = holds_state

    def start_over(self) -> None:
        """The run begins anew: what is there is kept under another name when `begin` is called."""
        self._starts_over = True

    def begin(self) -> None:
        """The run is about to compute: nothing can be refused any more."""
        if self._starts_over:
            self._starts_over = False
            family = self.family()
            if family.exists:
                try:
                    set_aside(self.path, family.older)
                except OSError as error:
                    raise CheckpointError(
                        f"{self._shown} cannot be kept under another name: {error.strerror or error}"
                    ) from error

    # --- writing

    def write(self, checkpoint: Checkpoint, keep: int = 2) -> Written:
        """Write a checkpoint, all of it or nothing; see `write_checkpoint`."""
        if keep < 1:
            raise ArgumentError(f"keep={keep} keeps nothing; 1 is the checkpoint alone")
        start = time.perf_counter()
        header = msgspec.structs.replace(checkpoint.header, lineage=self.lineage, file=stored_name(self.path))
        sizes = (0, 0)

        def fill(file: BinaryIO, sequence: int) -> None:
            nonlocal sizes
            sizes = write(file, header, checkpoint.arrays, sequence)

        with self._writing():
            try:
                self._sequence = publish(self.path, self.lineage, keep, fill, last=self._sequence, alone=self._locked)
            except NotRegular as error:
                raise CheckpointError(f"the checkpoint {self.path} cannot be written: it {error}") from error
            except OSError as error:
                raise CheckpointError(
                    f"the checkpoint {self.path} cannot be written: {error.strerror or error}"
                ) from error
            except ValueError as error:
                raise CheckpointError(f"the checkpoint {self.path} cannot be written: {error}") from error
        return Written(*sizes, time.perf_counter() - start)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._mutex:
            if self._released:
                raise CheckpointError(f"the run that wrote to {self.path} is over")
            self._writers += 1
            if not self._locked:
                try:
                    self._try_to_lock(0.0)  # a folder that could not be written to may be back
                except BaseException:
                    self._writers -= 1
                    raise
        try:
            yield
        finally:
            with self._mutex:
                self._writers -= 1
                if self._released and not self._writers:
                    self._unlock()


# --- how a run begins

_going_on: tuple[Path, str | None] | None = None


def go_on_by_default(path: str | os.PathLike[str], before: str | None) -> None:
    """From now on every run in this process that is given this checkpoint goes on from it, as a replaced worker must.

    `before` is the lineage of the file that was there before the first worker: what to do with that one is the run's choice.
    """
    global _going_on
    _going_on = real_path(path), before


def _goes_on(family: Family) -> bool:
    if _going_on is None or not family.members:
        return False
    return _going_on[0] == family.path and _going_on[1] != family.members[0].header.lineage


def claim_to_continue(path: str | os.PathLike[str], wait_seconds: float = _HANDOVER_SECONDS) -> CheckpointClaim:
    """A hold on the files of whatever run is there, to write its next checkpoint without having read the last."""
    claim = CheckpointClaim(path).acquire(wait_seconds)
    members = claim.family().members
    if members:
        claim.go_on(members[0].header.lineage, holds_state=False)
    return claim


def claim_for_run(path: str | os.PathLike[str], resume: bool | None) -> tuple[CheckpointClaim, bool]:
    """A run's hold on its checkpoint, and whether the run is to go on from it.

    `CheckpointError` where another run holds it, or where files are there and `resume` does not say what to do with them.
    """
    claim = CheckpointClaim(path).acquire()
    try:
        family = claim.family()
        if not family.exists:
            return claim, False
        if _goes_on(family):
            resume = True
        if resume is None:
            raise CheckpointError(_refusal(os.fspath(path), family))
        if not resume:
            claim.start_over()
    except BaseException:
        claim.release()
        raise
    return claim, resume


def _refusal(shown: str, family: Family) -> str:
    start_again = "resume=False to start again and keep it under another name"
    if family.members:
        return f"{shown} is there already ({family.members[0].header}): pass resume=True to go on from it, or {start_again}"
    problem = family.problems[0]
    return f"{shown} is there already, and nothing can go on from it ({problem}): pass another checkpoint=, or {start_again}"


def claim_new(path: str | os.PathLike[str]) -> tuple[CheckpointClaim, bool]:
    """A run's hold on a checkpoint that is not there yet; `CheckpointError` where it is.

    True with it where the worker that this one replaces has written it: then the run goes on from there.
    """
    claim = CheckpointClaim(path).acquire()
    family = claim.family()
    if family.exists and not _goes_on(family):
        claim.release()
        raise CheckpointError(
            f"{os.fspath(path)} is there already: a run that goes on from one file and writes to another needs a new name for "
            "it; pass another checkpoint="
        )
    return claim, family.exists
