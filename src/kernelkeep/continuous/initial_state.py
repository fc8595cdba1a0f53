"""Where a run begins: with the program's own arrays, with those of `initial_state=`, or at a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..devices.array import Array
from ..errors import ArgumentError
from .checkpoints.checkpoint import Checkpoint
from .mailbox import MAX_ITERATIONS
from .program import StateProgram


@dataclass(frozen=True)
class InitialState:
    """Where a run begins: the arrays, the tasks, and how far the work is."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    tasks: Mapping[str, np.ndarray[Any, Any]]
    iteration: int = 0
    phase: int = 0
    generation: int = 0
    taken: int = 0  # tasks that were taken from the queue so far
    over: bool = False  # the program itself ended the work: nothing is left to do

    @classmethod
    def of(cls, program: StateProgram) -> InitialState:
        """The program's own arrays and tasks, at iteration 0."""
        return cls(program.state, program.tasks)


def parse_initial_state(program: StateProgram, initial_state: Any) -> InitialState:
    """The program's own beginning; or the arrays of a mapping, at iteration 0; or a checkpoint, at its own iteration.

    The arrays must be those of the program, by name, dtype and shape. Body and scalars may differ from the checkpoint's.
    """
    if initial_state is None:
        return InitialState.of(program)
    if isinstance(initial_state, Checkpoint):
        return _from_checkpoint(program, initial_state)
    if not isinstance(initial_state, Mapping):
        raise ArgumentError(
            f"initial_state must be a mapping of names to arrays, or a checkpoint from kk.read_checkpoint, got "
            f"{type(initial_state).__name__}"
        )
    return InitialState(_fitting("initial_state", program.name, initial_state, program.state), program.tasks)


def _from_checkpoint(program: StateProgram, checkpoint: Checkpoint) -> InitialState:
    """The state, the tasks, the phase and the iteration of a checkpoint."""
    if checkpoint.coupling != program.coupling:
        raise ArgumentError(
            f"initial_state is a checkpoint of a program with coupling {checkpoint.coupling!r}, and {program.name} has "
            f"{program.coupling!r}"
        )
    iteration, phase = checkpoint.iteration, checkpoint.phase
    if not 0 <= iteration <= MAX_ITERATIONS or not 0 <= phase < 2**31:
        raise ArgumentError(
            f"initial_state has iteration {iteration:,} and phase {phase:,}; both must be from 0 to {MAX_ITERATIONS:,}"
        )
    state = _fitting("initial_state", program.name, checkpoint.state, program.state)
    tasks = _fitting("the tasks of initial_state", program.name, checkpoint.tasks, program.tasks, any_length=True)
    if len({len(array) for array in tasks.values()}) > 1:
        raise ArgumentError("the task fields of initial_state must have one length")
    return InitialState(state, tasks, iteration, phase, taken=checkpoint.header.queue_head)


def _fitting(
    label: str,
    program: str,
    given: Mapping[Any, Any],
    wanted: Mapping[str, np.ndarray[Any, Any]],
    *,
    any_length: bool = False,
) -> dict[str, np.ndarray[Any, Any]]:
    if given.keys() != wanted.keys():
        missing, unknown = [key for key in wanted if key not in given], [key for key in given if key not in wanted]
        wrong = [f"it lacks {', '.join(missing)}"] if missing else []
        wrong += [f"it has {', '.join(map(str, unknown))}"] if unknown else []
        raise ArgumentError(
            f"{label} must have the arrays of {program} ({', '.join(wanted)}): {', and '.join(wrong)}; pass exactly these names"
        )
    return {key: _array(f"{key!r} of {label}", program, given[key], array, any_length) for key, array in wanted.items()}


def _array(label: str, program: str, value: Any, like: np.ndarray[Any, Any], any_length: bool) -> np.ndarray[Any, Any]:
    try:
        found = np.array(value.numpy() if isinstance(value, Array) else value, order="C")
    except Exception as error:
        raise ArgumentError(f"{label} must be an array, got {type(value).__name__}: {error}") from None
    if not isinstance(value, np.ndarray | Array):
        found = found.astype(like.dtype) if np.can_cast(found.dtype, like.dtype, "same_kind") else found
    found = found.astype(found.dtype.newbyteorder("="), copy=False)
    if found.dtype != like.dtype:
        raise ArgumentError(f"{label} must be {like.dtype} as in {program}, got {found.dtype}; convert it with .astype")
    if found.shape != like.shape and not (any_length and found.ndim == like.ndim == 1):
        raise ArgumentError(f"{label} must have shape {like.shape} as in {program}, got {found.shape}")
    return found
