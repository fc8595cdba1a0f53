"""The decisions of a generator: numbers that can be drawn, recorded, repeated and made simpler."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Takes decisions. Each is a number below a limit, and 0 is the simplest one."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw
        self.taken: list[int] = []

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        if limit < 2:
            return 0
        self.taken.append(self._draw(limit))
        return self.taken[-1]

    def pick(self, *options: T) -> T:
        """One of these; the first is the simplest."""
        return options[self.below(len(options))]

    def one_of(self, options: Sequence[T]) -> T:
        """One of these; the last is the simplest: in a list of variables, the newest one."""
        return options[-1 - self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.below(one_in) == one_in - 1


def seeded(seed: int) -> Choices:
    """The decisions that belong to a seed: the same ones on every machine."""
    return Choices(random.Random(seed).randrange)


def repeated(decisions: Sequence[int]) -> Choices:
    """Decisions that were taken before. Where they end, and where they do not fit, the simplest or the nearest ones."""
    left = iter(decisions)
    return Choices(lambda limit: min(next(left, 0), limit - 1))
