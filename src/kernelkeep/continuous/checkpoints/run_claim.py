"""How a run begins with its checkpoint: it continues, starts again, or is refused."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import CheckpointError
from ...escaping import escaped
from .address import shown
from .claim import HANDOVER_SECONDS, CheckpointClaim
from .file_set import FileSet, real_path

_replaced_worker: tuple[Path, str | None] | None = None


def resume_by_default(path: str | os.PathLike[str], lineage_before: str | None) -> None:
    """From now on every run in this process with this checkpoint resumes from it, as a worker that replaces another must.

    `lineage_before` is that of the file that existed before the first worker: the run's own `resume=` decides about that one.
    """
    global _replaced_worker
    _replaced_worker = real_path(path), lineage_before


def _written_by_replaced_worker(files: FileSet) -> bool:
    if _replaced_worker is None or not files.all:
        return False
    path, lineage_before = _replaced_worker
    return path == files.path and lineage_before != files.all[0].header.lineage


def claim_to_continue(path: str | os.PathLike[str], wait_seconds: float = HANDOVER_SECONDS) -> CheckpointClaim:
    """A claim on the files of any run, to write its next checkpoint without having read the last."""
    claim = CheckpointClaim(path).acquire(wait_seconds)
    files = claim.files().all
    if files:
        claim.continue_lineage(files[0].header.lineage, holds_state=False)
    return claim


def claim_for_run(path: str | os.PathLike[str], resume: bool | None) -> tuple[CheckpointClaim, bool]:
    """A run's claim on its checkpoint, and whether the run is to resume from it.

    `CheckpointError` where another run has the claim, or where files exist and `resume` does not say what to do with them.
    """
    claim = CheckpointClaim(path).acquire()
    try:
        files = claim.files()
        if not files.exists:
            return claim, False
        if _written_by_replaced_worker(files):
            resume = True
        if resume is None:
            raise CheckpointError(_refusal(shown(path), files))
        if not resume:
            claim.start_over()
    except BaseException:
        claim.release()
        raise
    return claim, resume


def _refusal(named: str, files: FileSet) -> str:
    start_again = "resume=False to start again and keep it under another name"
    if files.all:
        newest = files.all[0].header
        content = f"iteration {newest.iteration:,} of {escaped(newest.program)}"
        return f"{named} exists already ({content}): pass resume=True to resume from it, or {start_again}"
    problem = files.problems[0]
    return f"{named} exists already, and cannot be resumed from ({problem}): pass another checkpoint=, or {start_again}"


def claim_new(path: str | os.PathLike[str]) -> tuple[CheckpointClaim, bool]:
    """A run's claim on a checkpoint that does not exist yet; `CheckpointError` where it does.

    True with it where the worker that this one replaces has written it: then the run resumes from there.
    """
    claim = CheckpointClaim(path).acquire()
    files = claim.files()
    if files.exists and not _written_by_replaced_worker(files):
        claim.release()
        raise CheckpointError(
            f"{shown(path)} exists already: a run that resumes from one file and writes to another needs a new name for "
            "it; pass another checkpoint="
        )
    return claim, files.exists
