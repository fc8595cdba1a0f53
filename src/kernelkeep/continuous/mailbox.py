"""The control words: what a run knows about itself, in device memory, beside the state.

The kernel that finishes a slice writes them, the commit word last. Until that is written, the slice never happened: the
copy of the state it came from is untouched, and it is simply run again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

__all__ = ["LINE", "SIZE", "Stopped", "Word", "control_words"]

LINE = 32  # words of 32 bits: a line of 128 bytes that nothing else shares
SIZE = 4 * LINE


class Word(IntEnum):
    """Where each word is."""

    # the first line: what a commit says
    GENERATION = 0  # the commit word
    CURRENT = 1  # which copy of the state is the committed one
    ITERATION = 2
    PHASE = 3
    STOPPED = 4  # why no further slice is to be run
    TAKEN_LOW = 5  # tasks taken from the queue so far
    TAKEN_HIGH = 6
    COUNT = 8  # tasks in each copy of the queue: three words
    # the second line: what the slice that runs has to say
    STOP_ASKED = LINE  # 1 by the body, 2 by the condition
    PHASE_ASKED = LINE + 1  # the new phase plus one
    OVERRUN = LINE + 2  # a loop was cut short by the device
    OVERFLOW = LINE + 3  # the queue was too small
    # the third: how the groups of a slice find each other
    DONE = 2 * LINE
    ARRIVED = 2 * LINE + 1
    STOP_AT = 2 * LINE + 2  # the slice ends after this many iterations
    PHASE_NOW = 2 * LINE + 3  # the phase that was asked for in this slice, plus one
    TAKEN_NOW = 2 * LINE + 4  # tasks taken in this slice
    LATE = 2 * LINE + 5  # tasks that the clock left for the next slice
    BEGUN = 2 * LINE + 6  # when this slice began, by the device's clock; 0 before that
    # the fourth: the supervisor's
    HEARTBEAT = 3 * LINE
    FINISHED = 3 * LINE + 1  # groups that are through with their work
    ORDER = 3 * LINE + 2  # the workers are to end the slice


class Stopped(IntEnum):
    """Why a run has stopped, as the device sees it."""

    NO = 0
    BY_BODY = 1  # kk_stop()
    OVERRUN = 2
    OVERFLOW = 3
    EMPTY = 4  # no tasks are left
    BY_CONDITION = 5  # the condition that the caller of the run gave


def control_words(generation: int, iteration: int, phase: int, taken: int, tasks: int) -> np.ndarray[Any, Any]:
    """The control words at the beginning of a run, with the state in copy 0."""
    made = np.zeros(SIZE, "u4")
    made[Word.GENERATION] = generation & 0xFFFFFFFF
    made[Word.ITERATION] = iteration
    made[Word.PHASE] = phase
    made[Word.TAKEN_LOW], made[Word.TAKEN_HIGH] = taken & 0xFFFFFFFF, taken >> 32
    made[Word.COUNT] = tasks
    made[Word.STOP_AT] = 0xFFFFFFFF
    return made
