"""Whether a checkpoint fits a program: what differs, in words, and whether its numbers fit a device's words.

Digests do not make a file trustworthy: whoever can write the file can make them right. All of this is checked before an array
is read.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...errors import CheckpointError
from ...escaping import escaped
from ..initial_state import InitialState
from ..mailbox import MAX_ITERATIONS
from ..program import MOST_ITEMS, StateProgram
from .checkpoint import TASK, Checkpoint
from .header import ArrayInfo, CheckpointHeader, stored_body

_WORD = 2**32 - 1
_LONGEST_SHOWN = 60


def start_from(shown: str | os.PathLike[str], checkpoint: Checkpoint, program: StateProgram) -> InitialState:
    """Where a run of the program begins that is resumed from this checkpoint."""
    header = checkpoint.header
    check_fits(shown, header, program)
    state, tasks = checkpoint.state, checkpoint.tasks
    return InitialState(
        {key: state[key] for key in program.state},
        {key: tasks[key] for key in program.tasks},
        header.iteration,
        header.phase,
        header.generation,
        header.queue_head,
        header.finished,
    )


def check_fits(shown: str | os.PathLike[str], header: CheckpointHeader, program: StateProgram) -> None:
    """`CheckpointError` where a run of this program cannot be resumed from this header; it says all that differs."""
    layout, meaning = differences(header, program)
    if layout or meaning:
        differing = "; ".join([*layout, *meaning])
        hint = ""
        if not layout:
            hint = (
                f"; to continue with these changes, start a run from its state, with another file for its checkpoints: "
                f"kk.run(…, initial_state=kk.read_checkpoint({os.fspath(shown)!r}))"
            )
        raise CheckpointError(f"the checkpoint {os.fspath(shown)} does not fit {program.name}: {differing}{hint}")
    if problem := _out_of_range(header, program):
        raise CheckpointError(f"the checkpoint {os.fspath(shown)} is not valid: {problem}")


def differences(header: CheckpointHeader, program: StateProgram) -> tuple[list[str], list[str]]:
    """What differs in the layout of the state, and what differs in what an iteration computes; each as `old → new`."""
    layout, meaning = _layout(header, program), _scalars(header, program)
    if header.body:
        if header.body != program.body:
            meaning.append(_first_line_that_differs(header.body, program.body))
    elif not layout and not meaning and header.program_digest != program.program_digest:
        meaning.append("the body differs")  # the file does not hold it, and nothing else is left
    if not layout and not meaning and header.program_digest != program.program_digest:
        meaning.append("the order of its arrays or scalars differs")
    return layout, meaning


def _layout(header: CheckpointHeader, program: StateProgram) -> list[str]:
    found = []
    if header.coupling != program.coupling:
        found.append(f"coupling: {header.coupling!r} → {program.coupling!r}")
    elif header.items != program.items:
        found.append(f"items: {header.items:,} → {program.items:,}")
    kept = {info.name: info for info in header.arrays}
    wanted = {key: (f"{key}", array) for key, array in program.state.items()}
    wanted |= {f"{TASK}{key}": (f"task field {key}", array) for key, array in program.tasks.items()}
    for name, (label, array) in wanted.items():
        info = kept.pop(name, None)
        if info is None:
            found.append(f"{label} is not in the checkpoint")
            continue
        if info.dtype != array.dtype.newbyteorder("<").str:
            found.append(f"dtype of {label}: {info.dtype} → {array.dtype.str}")
        if name in program.state and info.shape != array.shape:
            found.append(f"shape of {label}: {info.shape} → {array.shape}")
    found += [f"the checkpoint's array {name!r} is not in the program" for name in kept]
    return found


def _scalars(header: CheckpointHeader, program: StateProgram) -> list[str]:
    found = []
    kept = dict(header.scalars)
    for key, array in program.scalars.items():
        new, scalar = array[()], kept.pop(key, None)
        if scalar is None:
            found.append(f"scalar {key}: not in the checkpoint → {new!s}")
            continue
        old = scalar.numpy()
        if old.dtype != new.dtype:
            found.append(f"scalar {key}: {old!s} ({old.dtype}) → {new!s} ({new.dtype})")
        elif not _same(old, new):
            found.append(f"scalar {key}: {old!s} → {new!s}")
    return found + [f"scalar {escaped(key)}: {scalar.numpy()!s} → not in the program" for key, scalar in kept.items()]


def _same(one: Any, other: Any) -> bool:
    """Equal bit by bit, so that -0.0 is not 0.0; a header has only one kind of NaN."""
    return one.tobytes() == other.tobytes() or bool(np.isnan(one) and np.isnan(other))


def _first_line_that_differs(old: str, new: str) -> str:
    if not stored_body(new):
        return "the body differs"
    before, after = old.splitlines(), new.splitlines()
    for number in range(max(len(before), len(after))):
        lines = [_shown(text[number]) if number < len(text) else "nothing" for text in (before, after)]
        if number >= min(len(before), len(after)) or before[number] != after[number]:
            return f"the body differs, first in line {number + 1}: {lines[0]} → {lines[1]}"
    return "the body differs"


def _shown(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…")


def _out_of_range(header: CheckpointHeader, program: StateProgram) -> str:
    if header.iteration > MAX_ITERATIONS:
        return f"its iteration {header.iteration:,} is above {MAX_ITERATIONS:,}"
    if not 0 <= header.phase <= _WORD:
        return f"its phase {header.phase:,} is not between 0 and {_WORD:,}"
    tasks = [info for info in header.arrays if info.name.startswith(TASK)]
    if not program.tasks:
        return "it has a queue, and the program has none" if header.queue_head or header.queue_tail else ""
    return _queue_out_of_range(header, tasks)


def _queue_out_of_range(header: CheckpointHeader, tasks: list[ArrayInfo]) -> str:
    waiting = header.queue_tail - header.queue_head
    if not 0 <= waiting <= MOST_ITEMS // 2:
        return f"{waiting:,} tasks cannot wait in its queue"
    for info in tasks:
        if info.shape != (waiting,):
            return f"its task field {info.name.removeprefix(TASK)} has shape {info.shape}, and {waiting:,} tasks wait"
    return ""
