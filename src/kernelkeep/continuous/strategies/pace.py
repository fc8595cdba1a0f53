"""The size of the next slice, from what the slices before it took.

Iterations follow each other, so their time grows with their number. Tasks of a queue run beside each other: a GPU handles
thousands in the time of one, and fewer tasks do not make a slice shorter than one task is. So a pace for tasks keeps two
numbers: what the smallest slice takes, and what each further task adds.
"""

from __future__ import annotations

AIM = 0.08  # of the deadline. Not 0.1: what a slice takes varies by a quarter, and ten times that must still fit
MOST = 0.7  # of the deadline, where one task alone takes longer than the aim
_FLAT = 1.25  # times the least: a slice that takes no longer ran beside others for free
_APART = 1.5  # two slices whose sizes differ by this factor show what a task adds
_LARGEST = 2**30


class Pace:
    """The size of the next slice. It starts at 1, at most doubles, and falls at once."""

    def __init__(self, deadline_seconds: float, *, aim: float = AIM, side_by_side: bool = False) -> None:
        self.deadline_seconds = deadline_seconds
        self.aim_seconds = deadline_seconds * aim
        self.side_by_side = side_by_side
        self.size = 1
        self.least_seconds = 0.0  # what the smallest slice takes; 0 until one was measured
        self._last: tuple[int, float] | None = None
        self._compared: tuple[int, float] | None = None  # what later slices are compared with

    def expected_seconds(self, size: int) -> float | None:
        """What a slice of this size should take; None where nothing was measured."""
        if self._last is None:
            return None
        done, taken = self._last
        if not self.side_by_side:
            return taken * size / done
        least = min(self.least_seconds, taken)
        return least + (taken - least) * size / done

    def note(self, size: int, taken_seconds: float) -> None:
        """Learn that a slice of `size` took so long."""
        if size < 1:
            return
        taken = max(taken_seconds, 1e-6)
        self._learn_least(size, taken)
        self._last = (size, taken)
        fitting = min(self._fitting(size, taken), _LARGEST)
        # Only a slice of full size shows that a larger one fits.
        if fitting < self.size:
            self.size = max(1, fitting)
        elif size >= self.size:
            self.size = min(fitting, self.size * 2)

    def _learn_least(self, size: int, taken: float) -> None:
        """Fit a line through this slice and the last one of a clearly different size."""
        earlier = self._compared
        if size == 1:
            self._compared = (size, taken)
            self.least_seconds = taken
        elif earlier is None:
            self._compared = (size, taken)
        elif max(size, earlier[0]) >= _APART * min(size, earlier[0]):
            self._compared = (size, taken)
            (few, short), (many, long) = sorted([earlier, (size, taken)])
            each = max(0.0, (long - short) / (many - few))
            self.least_seconds = min(long, max(0.0, short - few * each))

    def _fitting(self, size: int, taken: float) -> int:
        if not self.side_by_side or 2 * taken <= self.aim_seconds:
            return int(size * self.aim_seconds / taken)
        least, most = self.least_seconds, self.deadline_seconds * MOST
        if taken <= least * _FLAT:
            # Twice as many take at most twice as long.
            return 2 * size if 2 * taken <= most else size
        aim = max(self.aim_seconds, min(2 * least, most))
        return int(size * max(0.0, aim - least) / (taken - least))
