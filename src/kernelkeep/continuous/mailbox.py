"""The words that the host and the kernels of a run share: where each is, what it means, and who writes it.

The *control words* are in device memory beside the state (`kkcontrol` in a kernel). The host writes them only while nothing
runs: at the beginning of a run, and to clear why a slice failed. During a slice the kernel writes them. The group that
finishes last writes the first line, the commit word `GENERATION` at the very end. Until then the slice never happened: the
copy of the state that it read is untouched, and the slice is run again.

The *mailbox* is in host memory that a running kernel reads and writes (`kkmailbox`); only a supervised slice has one. Across
the bus only plain loads and stores are safe, so each word has one writer and a line of its own.

All words have 32 bits. The generated kernels and the host take every index and value from here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

LINE = 32  # words: 128 bytes, which is what a device fetches at once
CONTROL_WORDS = 4 * LINE
MAILBOX_WORDS = 3 * LINE
MAX_ITERATIONS = 2**31 - 1  # kernels count them as `int`
NEVER = 0xFFFFFFFF  # in STOP_AT: no iteration ends the slice early


class Word(IntEnum):
    """The control words."""

    # Line 1, the commit: written by the group that finishes last; the host writes it at the beginning of a run.
    GENERATION = 0  # counts commits, and is written last
    CURRENT = 1  # which copy of the state is the committed one
    ITERATION = 2
    PHASE = 3
    STOPPED = 4  # a `Stopped`: why no further slice does anything; the host clears it after OVERRUN and OVERFLOW
    TAKEN_LOW = 5  # tasks taken from the queue so far, 64 bits
    TAKEN_HIGH = 6
    COUNT = 8  # tasks in each copy of the queue: three words, which any work-item that pushes a task adds to
    # Line 2, requests: written by any work-item of the slice, read and cleared by the group that commits.
    STOP_ASKED = LINE  # bits of `StopRequest`
    PHASE_ASKED = LINE + 1  # the new phase plus one
    OVERRUN = LINE + 2  # the device cut a loop short
    OVERFLOW = LINE + 3  # the queue was too small
    # Line 3, the slice itself: cleared by the group that commits.
    DONE = 2 * LINE  # groups that have finished; each adds one
    ARRIVED = 2 * LINE + 1  # groups that have reached a grid barrier; each adds one
    STOP_AT = 2 * LINE + 2  # the slice ends after this many iterations; written by the first work-item
    PHASE_NOW = 2 * LINE + 3  # the phase asked for in this slice, plus one; written by the first work-item
    TAKEN_NOW = 2 * LINE + 4  # tasks taken in this slice; written by the first work-item
    LATE = 2 * LINE + 5  # tasks left for the next slice because of the deadline; work-items add to it
    BEGUN = 2 * LINE + 6  # when this slice began, by the device's clock; written by the work-item that looks first
    # Line 4, the supervising group and its workers: cleared by the group that commits.
    HEARTBEAT = 3 * LINE  # iterations done in this slice; written by the first worker
    FINISHED = 3 * LINE + 1  # workers that have finished; each adds one
    ORDER = 3 * LINE + 2  # the workers are to end the slice; written by the supervising group


class HostWord(IntEnum):
    """The words of the mailbox. The host clears all of them before each slice."""

    BEATS = 0  # counts up while the supervising group runs; it writes it
    PROGRESS = LINE  # the iteration that the workers have reached; the supervising group writes it
    STOP = 2 * LINE  # the slice is to end; the host writes it


class StopRequest(IntEnum):
    """Who asked for the end of the run, as bits of STOP_ASKED."""

    BODY = 1  # kk_stop()
    CONDITION = 2  # `until=` in C


class Stopped(IntEnum):
    """Why a run has stopped, as the device sees it."""

    NO = 0
    BY_BODY = 1  # kk_stop()
    OVERRUN = 2
    OVERFLOW = 3
    EMPTY = 4  # no tasks are left
    BY_CONDITION = 5  # `until=` in C


class Commit(NamedTuple):
    """What the control words say was committed last."""

    current: int
    iteration: int
    phase: int
    generation: int
    taken: int
    tasks: int  # in the committed copy of the queue
    stopped: Stopped

    @classmethod
    def of(cls, words: np.ndarray[Any, Any]) -> Commit:
        """Decode the control words."""
        current = int(words[Word.CURRENT])
        return cls(
            current,
            int(words[Word.ITERATION]),
            int(words[Word.PHASE]),
            int(words[Word.GENERATION]),
            int(words[Word.TAKEN_LOW]) + (int(words[Word.TAKEN_HIGH]) << 32),
            int(words[Word.COUNT + current]),
            Stopped(int(words[Word.STOPPED])),
        )


def control_words(generation: int, iteration: int, phase: int, taken: int, tasks: int) -> np.ndarray[Any, Any]:
    """The control words at the beginning of a run, with the state in copy 0."""
    words = np.zeros(CONTROL_WORDS, "u4")
    words[Word.GENERATION] = generation & 0xFFFFFFFF
    words[Word.ITERATION] = iteration
    words[Word.PHASE] = phase
    words[Word.TAKEN_LOW], words[Word.TAKEN_HIGH] = taken & 0xFFFFFFFF, taken >> 32
    words[Word.COUNT] = tasks
    words[Word.STOP_AT] = NEVER
    return words
