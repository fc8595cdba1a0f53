"""This machine's copy of a checkpoint in a shared store: brought up to date when a run claims it, uploaded as it changes.

The store counts, with one exception: where it still has what this copy last had in common with it, and the copy is newer, the
copy counts, because the run that made it could not upload it. A state that only this machine has is never removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from ...errors import ArgumentError, CheckpointError
from ...platforms import system
from ...storage.files import Damaged, remove, write_whole
from ...storage.private import make_private_folder
from .address import CheckpointAddress, is_address, parse_address
from .checkpoint import CheckpointWarning
from .file_set import find_file_set, numbered, older_path, real_path
from .old_copies import MARK, remove_old_copies, states_in_common
from .ownership import Ownership, warn_unowned
from .publication import keep_aside
from .stored_objects import State, StoredObjects, describe_refusal, state_of
from .uploads import Uploads

_log = logging.getLogger("kernelkeep")
_READING = ".reading-"
_STALE_SECONDS = 86400.0


class WorkingCopy:
    """The copy of one address, for the run that holds the lock of its file, from `open` to `close`."""

    def __init__(self, address: CheckpointAddress) -> None:
        self.address = address
        self.path = address.path
        self._objects = StoredObjects(address)
        self._objects.check_writable()
        _make_folder(self.path.parent, address)
        self._ownership = Ownership(self._objects.store, address.name, address.location, self._identity())
        self._uploads = Uploads(self._objects, self._ownership, self._note_on_its_way, self._note_common)
        self._links = 0

    def _identity(self) -> str:
        """What no other folder has that could be locked at the same time, on this machine or another."""
        folder = self.path.parent.stat()
        boot = ""
        with contextlib.suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {system.host_name()} {folder.st_dev} {folder.st_ino}"

    def open(self) -> None:
        """Keep other runs out, and bring the copy up to date. `CheckpointError` where that fails: no run begins without it."""
        if not self._ownership.acquire():
            warn_unowned(self.address.location, CheckpointWarning)
        try:
            self._pull()
        except BaseException:
            self._ownership.release()
            raise

    def _pull(self) -> None:
        for leftover in self.path.parent.glob(".upload-*"):
            remove(leftover)
        remove_old_copies(self.path.parent.parent)
        incoming = self.path.with_name(f".{self.path.name}.fetched")
        try:
            stored = self._objects.fetch_newest(incoming)
        except Damaged as error:
            self._use_older(describe_refusal(self.address, error))
            return
        here = self._here()
        if stored is None:
            if here is not None:
                self._upload_again(here, f"there is no {self.address}")
            elif not find_file_set(self.path).exists and (found := self._objects.fetch_older(self.path)):
                self._warn(f"there is no {self.address}; its older checkpoint {found.sequence} is used")
            return
        if here is not None and here.digest == stored.digest:
            remove(incoming)
            self._note_common(stored)
        elif here is not None and stored.digest in states_in_common(self.path.parent):
            remove(incoming)  # the run before was killed, or could not upload its last state
            _log.info("%s is older than this machine's copy %s, which is used and uploaded", self.address, self.path)
            self._submit(here, keep=2)
        else:
            self._clear(here)
            system.replace(incoming, self.path)
            self._note_common(stored)

    def _use_older(self, problem: str) -> None:
        """The newest object is not good: use an older one, or this copy where it is at least as new as that."""
        here = self._here()
        found = self._objects.fetch_older(self.path.with_name(f".{self.path.name}.fetched"))
        if found is None:
            raise CheckpointError(problem)
        fetched = older_path(self.path.with_name(f".{self.path.name}.fetched"), found.sequence)
        if here is not None and here.lineage == found.lineage and here.sequence >= found.sequence:
            remove(fetched)
            self._upload_again(here, problem)
            return
        self._clear(here)
        system.replace(fetched, older_path(self.path, found.sequence))
        self._warn(f"{problem}; the older {self.address}.{found.sequence} is used")

    def _clear(self, here: State | None) -> None:
        """Make room for what the store has: what only this machine has is kept under another name."""
        if here is not None and here.digest not in states_in_common(self.path.parent)[:1]:
            aside = keep_aside(self.path, find_file_set(self.path).older)
            self._warn(f"{self.address} was continued elsewhere; what only this machine had is kept as {aside}")
        remove(self.path)
        for _, path in numbered(self.path):
            remove(path)

    def _upload_again(self, here: State, reason: str) -> None:
        self._warn(f"{reason}: this machine's copy {self.path} is used, and uploaded again")
        self._submit(here, keep=2)

    # --- what the run does

    def published(self, keep: int) -> None:
        """The file at the path is new: upload it."""
        with contextlib.suppress(Damaged):
            self._submit(state_of(self.path), keep)

    def _submit(self, state: State, keep: int) -> None:
        # A second name for the very file that is there now, whatever takes its place meanwhile.
        self._links += 1
        link = self.path.with_name(f".upload-{os.getpid()}-{self._links}")
        remove(link)
        os.link(self.path, link)
        self._uploads.submit(link, state, keep)

    def take_unreported(self) -> CheckpointError | None:
        """A failed upload of which the user was not told yet."""
        return self._uploads.take_unreported()

    def finish(self) -> CheckpointError | None:
        """Wait until the newest state is uploaded; the reason where it is not."""
        done = self._uploads.drain(self.address.remote.timeout_seconds)
        self._uploads.take_unreported()
        return None if done else self._uploads.problem

    def close(self) -> None:
        """Upload nothing more, and let other runs in."""
        self._uploads.stop()
        self._ownership.release()
        self._objects.store.close()

    # --- what is here

    def _here(self) -> State | None:
        try:
            return state_of(self.path)
        except (OSError, Damaged):
            return None

    def _note_common(self, state: State) -> None:
        self._mark(state.digest)

    def _note_on_its_way(self, state: State) -> None:
        """Before an upload: who is killed after it, and before it was noted, must not take it for another machine's."""
        self._mark(*states_in_common(self.path.parent)[:1] or ["none"], state.digest)

    def _mark(self, *digests: str) -> None:
        with contextlib.suppress(OSError, ArgumentError):
            write_whole(self.path.with_name(MARK), "\n".join(digests).encode())

    def _warn(self, sentence: str) -> None:
        warnings.warn(sentence, CheckpointWarning, stacklevel=7)


def _make_folder(folder: Path, address: CheckpointAddress) -> None:
    try:
        make_private_folder(folder)
    except OSError as error:
        raise CheckpointError(
            f"{address} needs a copy in the folder {folder}, which cannot be used: {error.strerror or error}"
        ) from None


def _remove_leftovers(root: Path) -> None:
    """Remove what readers that were killed have left."""
    stale = time.time() - _STALE_SECONDS
    for folder in root.glob(f"{_READING}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < stale:
                remove(folder)


@contextlib.contextmanager
def fetched(path: str | os.PathLike[str], *, older: bool = False, all_older: bool = False) -> Iterator[Path]:
    """A file to read for a block: the path itself, or what is at an address now, in a folder that is removed afterwards.

    With `older`, an older object stands in for a missing or damaged one; with `all_older`, all are beside the file. Errors
    name the address.
    """
    if not isinstance(path, str) or not is_address(path):
        yield real_path(path)
        return
    address = parse_address(path)
    root = address.path.parent.parent
    _make_folder(root, address)
    _remove_leftovers(root)
    objects = StoredObjects(address)
    with tempfile.TemporaryDirectory(dir=root, prefix=_READING) as folder:
        target = Path(folder) / address.name
        try:
            try:
                found = objects.fetch_newest(target)
            except Damaged as error:
                if not older or objects.fetch_older(target) is None:
                    raise CheckpointError(describe_refusal(address, error)) from None
                warnings.warn(
                    f"{describe_refusal(address, error)}; an older one is used", CheckpointWarning, stacklevel=4
                )
            else:
                if found is None and not (older and objects.fetch_older(target)):
                    raise CheckpointError(f"there is no checkpoint {address}")
            if all_older:
                for number in objects.older():
                    with contextlib.suppress(Damaged):
                        objects.fetch(f"{address.name}.{number}", older_path(target, number))
            yield target
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(target), address.location)) from error.__cause__
        finally:
            objects.store.close()
