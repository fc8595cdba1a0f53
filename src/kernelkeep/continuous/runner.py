"""`kk.run` and `kk.resume`: a state program from its beginning, or from a checkpoint, to its end."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Unpack

from ..cache.program_cache import ProgramCache
from ..errors import ArgumentError, CheckpointError
from ..words import StrategyName
from .checkpoints.address import shown
from .checkpoints.checkpoint import Checkpoint, CheckpointWarning
from .checkpoints.claim import CheckpointClaim
from .checkpoints.file_set import real_path
from .checkpoints.files import newest_checkpoint
from .checkpoints.match import check_fits, start_from
from .checkpoints.run_claim import claim_for_run, claim_new
from .initial_state import InitialState, parse_initial_state
from .program import StateProgram
from .run import Run, run_to_end
from .run_options import RunKeywords, RunOptions


def run(
    cache: ProgramCache,
    program: StateProgram,
    iterations: int | None = None,
    strategy: StrategyName = "auto",
    *,
    resume: bool | None = None,
    initial_state: Mapping[str, Any] | Checkpoint | None = None,
    **options: Unpack[RunKeywords],
) -> Run:
    """Run a state program from its beginning, from its checkpoint, or from `initial_state`.

    It ends after `iterations`, when a body calls `kk_stop()`, when a queue is empty, or when `until` is true: a function of
    the `Run`, asked between turns, or a condition in C that the device checks for each item after each iteration. With
    `checkpoint`, a path or an address such as `s3://bucket/run.kkpt`, the state goes there every `checkpoint_every` seconds (or
    `checkpoint_iterations`), and however the run ends: also by Ctrl-C, SIGTERM, SIGHUP or an error, which then do what they
    always do.

    `resume` says what happens where that file exists already. True continues from it, as `kk.resume` does. None, the
    default, raises `CheckpointError`: nothing is overwritten. False starts again, and keeps the old file beside the new one,
    as `heat.kkpt.before-<time>`. One run at a time writes to a file: a second one gets a `CheckpointError`.

    `initial_state` replaces the program's own arrays: a mapping with the same names, dtypes and shapes, which begins at
    iteration 0, or a checkpoint from `kk.read_checkpoint`, which continues at its own iteration, phase and tasks. Use it to
    continue with changed scalars or another body. A checkpoint that `resume=True` finds comes first.

    Every option with its default is in the guide (docs/continuous.md), and in `kernelkeep.continuous.run_options.RunOptions`.
    """
    _check_types(cache, program)
    parsed = RunOptions.parse(
        options, iterations=iterations, strategy=strategy, resume=resume, initial_state=initial_state
    )
    parsed.check_ends(program)
    start, origin = parse_initial_state(program, initial_state), None
    if parsed.checkpoint is None:
        return run_to_end(cache, program, start, parsed)
    claim, continues = claim_for_run(parsed.checkpoint, resume)
    try:
        if continues:
            start, origin = _newest(parsed.checkpoint, program, claim)
        return run_to_end(cache, program, start, parsed, claim, origin)
    finally:
        claim.release()


def resume(
    path: str | os.PathLike[str],
    cache: ProgramCache,
    program: StateProgram,
    iterations: int | None = None,
    strategy: StrategyName = "auto",
    **options: Unpack[RunKeywords],
) -> Run:
    """Continue from a checkpoint: in this process, a new one, on another device, on another backend.

    `iterations` are counted from the very beginning. New checkpoints go to the same file, or to `checkpoint`, which must not
    exist yet. Where the newest file is damaged, the one before it is used, with a `CheckpointWarning`. `CheckpointError` when
    there is none, or when it belongs to another program; it says what differs. Everything else is as in `run`.
    """
    _check_types(cache, program)
    parsed = RunOptions.parse({"checkpoint": path, **options}, iterations=iterations, strategy=strategy)
    parsed.check_ends(program)
    if parsed.checkpoint is None:
        start, origin = _newest(path, program, None)
        return run_to_end(cache, program, start, parsed, None, origin)
    if real_path(parsed.checkpoint) == real_path(path):
        claim, same = claim_for_run(path, True)[0], True
    else:
        claim, same = claim_new(parsed.checkpoint)
    try:
        start, origin = _newest(parsed.checkpoint if same else path, program, claim if same else None)
        return run_to_end(cache, program, start, parsed, claim, origin)
    finally:
        claim.release()


def _newest(path: Any, program: StateProgram, claim: CheckpointClaim | None) -> tuple[InitialState, str]:
    """The state of the newest good checkpoint, and where it came from in words; `claim` holds the same files, if given."""
    named = shown(path)
    here = claim.path if claim is not None and claim.at_address else path  # what is at the address was brought here
    try:
        found = newest_checkpoint(here, lambda header: check_fits(named, header, program))
    except CheckpointError as error:
        raise CheckpointError(str(error).replace(str(here), named)) from error.__cause__
    for sentence in found.skipped:
        warnings.warn(f"{sentence}; an older checkpoint is used", CheckpointWarning, stacklevel=3)
    start = start_from(named, found.checkpoint, program)
    if claim is not None:
        claim.continue_lineage(found.checkpoint.lineage if found.continues else "", holds_state=found.at_path)
    return start, f"{named} at iteration {start.iteration:,}"


def _check_types(cache: Any, program: Any) -> None:
    if not isinstance(cache, ProgramCache):
        raise ArgumentError(f"cache must be a kk.ProgramCache, got a {type(cache).__name__}")
    if not isinstance(program, StateProgram):
        raise ArgumentError(f"program must be a kk.StateProgram, got a {type(program).__name__}")
