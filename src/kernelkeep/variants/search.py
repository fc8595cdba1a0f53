"""Which variant to try next: at random at first, then around the best ones, and in the end every one there is."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from .space import Variant, VariantSpace

__all__ = ["Search"]

_ENUMERATED = 100_000  # combinations; larger spaces are drawn from
_DRAWS = 10_000
_BEST_FEW = 3


class Search:
    """Asks for each variant once. Tell it how long each took, or None for one that failed."""

    def __init__(
        self, space: VariantSpace, problem: Mapping[str, Any], first: Iterable[Variant], seed: int = 0
    ) -> None:
        self._space = space
        self._problem = dict(problem)
        self._random = random.Random(seed)
        self._asked: set[Variant] = set()
        self._times: dict[Variant, float] = {}
        self._first = list(first)
        self._rest: list[Variant] | None = None
        if space.combinations <= _ENUMERATED:
            self._rest = space.variants(problem)
            self._random.shuffle(self._rest)
        # As many at random as show what the space is like, before it is walked.
        self._blind = 8 + 2 * len(space.parameters)

    @property
    def size(self) -> int | None:
        """How many there are; None where they are too many to count."""
        return None if self._rest is None else len(set(self._rest) | self._asked)

    def next(self) -> Variant | None:
        """One that was not asked for yet; None when there is none."""
        variant = self._choose()
        if variant is not None:
            self._asked.add(variant)
        return variant

    def _choose(self) -> Variant | None:
        while self._first:
            variant = self._first.pop(0)
            if variant not in self._asked:
                return variant
        if len(self._asked) >= self._blind:
            best = sorted(self._times, key=lambda variant: self._times[variant])[:_BEST_FEW]
            for variant in best:
                near = [v for v in self._space.neighbours(variant, self._problem) if v not in self._asked]
                if near:
                    return self._random.choice(near)
        return self._any()

    def _any(self) -> Variant | None:
        if self._rest is not None:
            while self._rest:
                variant = self._rest.pop()
                if variant not in self._asked:
                    self._rest.append(variant)  # it counts until it is asked for
                    return variant
            return None
        for _ in range(_DRAWS):
            values = {name: self._random.choice(values) for name, values in self._space.parameters.items()}
            variant = Variant(values)
            if variant not in self._asked and self._space.allows(variant, self._problem):
                return variant
        return None

    def tell(self, variant: Variant, milliseconds: float | None) -> None:
        """What came of it."""
        if milliseconds is not None:
            self._times[variant] = milliseconds
