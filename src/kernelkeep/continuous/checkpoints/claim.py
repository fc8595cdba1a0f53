"""One run's claim on a checkpoint file: while it lasts, no other run writes there.

The claim is a file lock, which the operating system releases when the process dies, however it dies. A second run on the same
file is refused at once, whatever the first one is doing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from ...errors import ArgumentError, CheckpointError
from ...storage.files import NotRegular
from ...storage.locks import FileLock, LockHeld, LockUnavailable
from .address import is_address, parse_address, shown
from .arriving import Arriving
from .blocks import LEAST_BYTES, BlockContent
from .checkpoint import Checkpoint, CheckpointWarning, Written
from .file_set import FileSet, find_file_set, real_path, stored_name
from .format import storable, write
from .header import new_lineage
from .publication import keep_aside, publish, remove_surplus
from .working_copy import WorkingCopy

_LONGEST_NAME = 200  # most file systems end at 255, and the name of a temporary or older file adds up to 40
HANDOVER_SECONDS = 0.2  # for a run that is about to release it


class CheckpointClaim:
    """A checkpoint's files, claimed by one run from `acquire` to `release`, or for a `with` block."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = real_path(path)
        if (length := len(os.fsencode(self.path.name))) > _LONGEST_NAME:
            raise CheckpointError(
                f"{self.path} cannot be a checkpoint: its name has {length} bytes and the files beside it have longer ones; "
                f"pass one of at most {_LONGEST_NAME}"
            )
        self.lineage = new_lineage()
        self.holds_state = False  # the file holds the very state that the run begins with
        self.shown = shown(path)
        self._copy = WorkingCopy(parse_address(path)) if isinstance(path, str) and is_address(path) else None
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        self._locked = False
        self._starts_over = False
        self._sequence = 0
        self._changes_much = False  # the last checkpoint differed in most of its blocks from the one before it
        self._mutex = threading.Lock()
        self._writers = 0
        self._released = False

    def acquire(self, wait_seconds: float = HANDOVER_SECONDS) -> Self:
        """Lock out other runs. `CheckpointError` where one has the claim; a warning where the file system has no locks.

        An address is brought to this machine as well; `CheckpointError` where its store does not answer.
        """
        problem = self._try_to_lock(wait_seconds)
        if problem and self._can_be_written:
            warnings.warn(
                f"{self.shown} cannot be locked ({problem}): make sure that no second run writes to it",
                CheckpointWarning,
                stacklevel=4,
            )
        if self._copy is not None:
            try:
                self._copy.open()
            except BaseException:
                self._unlock()
                raise
        return self

    @property
    def _can_be_written(self) -> bool:
        """Whether a file can be here at all. If not, the first checkpoint fails and says why."""
        try:
            self.path.lstat()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return os.access(self.path.parent, os.W_OK | os.X_OK)

    def _try_to_lock(self, wait_seconds: float) -> str:
        with contextlib.suppress(OSError):  # writing says why
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.parent.is_dir():
            return "there is no folder for it"
        try:
            self._lock.acquire(wait_seconds)
        except LockHeld:
            raise CheckpointError(
                f"{self.shown} is in use: {self._holder()} writes its checkpoints there; wait for it to end, or pass "
                "another checkpoint="
            ) from None
        except LockUnavailable as error:
            if self._lock.path.is_file() and not os.access(self._lock.path, os.R_OK | os.W_OK):
                raise CheckpointError(
                    f"{self.shown} is in use by another user, whose lock is {self._lock.path}; where no such run is left, "
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
        """Give the claim up, after the checkpoint that is being written. Nothing can be written any more."""
        with self._mutex:
            self._released = True
            if not self._writers:
                self._unlock()

    def _unlock(self) -> None:
        if self._copy is not None:
            self._copy.close()
        if self._locked:
            self._locked = False
            self._lock.release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def at_address(self) -> bool:
        """Whether the checkpoint is in a shared store, and `path` this machine's copy."""
        return self._copy is not None

    # --- which files belong to the run

    def files(self) -> FileSet:
        """The files that exist now."""
        return find_file_set(self.path)

    def continue_lineage(self, lineage: str, *, holds_state: bool) -> None:
        """The run continues the one with this lineage, whose files are its own. Without a lineage it begins a new one."""
        self.lineage = lineage or self.lineage
        self.holds_state = holds_state

    def start_over(self) -> None:
        """The run starts again: `begin` keeps existing files under another name."""
        self._starts_over = True

    def begin(self) -> None:
        """The run has begun to compute: nothing can be refused any more."""
        if self._starts_over:
            self._starts_over = False
            files = self.files()
            if files.exists:
                try:
                    keep_aside(self.path, files.older)
                except OSError as error:
                    raise CheckpointError(
                        f"{self.shown} cannot be kept under another name: {error.strerror or error}"
                    ) from error

    # --- writing

    def write(self, checkpoint: Checkpoint, keep: int = 2, arriving: Arriving | None = None) -> Written:
        """Write a checkpoint, all of it or nothing; see `write_checkpoint`. `arriving` tells of arrays that are on their way."""
        if keep < 1:
            raise ArgumentError(f"keep={keep} keeps nothing; pass 1 for the checkpoint alone")
        start = time.perf_counter()
        with self._writing():
            try:
                sizes = self._publish(checkpoint, keep, arriving)
            except NotRegular as error:
                raise CheckpointError(f"the checkpoint {self.path} cannot be written: it {error}") from error
            except OSError as error:
                raise CheckpointError(
                    f"the checkpoint {self.path} cannot be written: {error.strerror or error}"
                ) from error
            except ValueError as error:
                raise CheckpointError(f"the checkpoint {self.path} cannot be written: {error}") from error
            seconds = time.perf_counter() - start
            remove_surplus(self.path, self.lineage, keep)
            if self._copy is not None:
                self._copy.published(keep)
        nbytes, raw_bytes, written_bytes = sizes
        return Written(nbytes, raw_bytes, seconds, written_bytes)

    def _publish(self, checkpoint: Checkpoint, keep: int, arriving: Arriving | None) -> tuple[int, int, int]:
        """Write a file; bytes of the file, of the arrays, and bytes written."""
        header = msgspec.structs.replace(checkpoint.header, lineage=self.lineage, file=stored_name(self.path))
        arrays = storable(checkpoint.arrays)
        sizes = (0, 0)
        content: BlockContent | None = None
        # What is uploaded is compressed: a network is slower than that.
        if self._copy is None and sum(array.nbytes for array in arrays.values()) >= LEAST_BYTES:
            content = BlockContent(header, arrays, arriving, expects_much=self._changes_much)
        elif arriving is not None:
            for name, array in arrays.items():
                arriving.wait(name, array.nbytes)

        def fill(file: BinaryIO, sequence: int) -> None:
            nonlocal sizes
            if content is not None:
                content.fill(file, sequence)
            else:
                sizes = write(file, header, arrays, sequence)

        self._sequence = publish(
            self.path, self.lineage, keep, fill, content=content, last=self._sequence, alone=self._locked
        )
        if content is None:
            return *sizes, sizes[0]
        self._changes_much = content.differs_much
        return content.layout.size, content.raw_bytes, content.written_bytes

    def finish_uploads(self) -> CheckpointError | None:
        """Wait until the last checkpoint is at its address; the reason where it is not. At once for a file."""
        return None if self._copy is None else self._copy.finish()

    def take_unreported(self) -> CheckpointError | None:
        """A failed upload of which the user was not told yet."""
        return None if self._copy is None else self._copy.take_unreported()

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
