"""Which variant to try next: first at random, then around the best ones, in the end every one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from .space import Variant, VariantSpace

_MAX_LISTED = 100_000  # combinations; larger spaces are sampled
_DRAWS = 10_000
_BEST_FEW = 3


class Search:
    """Proposes each variant once. `tell` it how long each took, or None for one that failed."""

    def __init__(
        self, space: VariantSpace, problem: Mapping[str, Any], first: Iterable[Variant], seed: int = 0
    ) -> None:
        self._space = space
        self._problem = dict(problem)
        self._random = random.Random(seed)
        self._proposed: set[Variant] = set()
        self._times: dict[Variant, float] = {}
        self._first = list(first)
        self._rest: list[Variant] | None = None
        if space.combinations <= _MAX_LISTED:
            self._rest = space.variants(problem)
            self._random.shuffle(self._rest)
        # So many at random, before looking around the best ones.
        self._random_first = 8 + 2 * len(space.parameters)

    @property
    def size(self) -> int | None:
        """The number of variants; None where they are too many to list."""
        return None if self._rest is None else len(set(self._rest) | self._proposed)

    def next(self) -> Variant | None:
        """A variant that was not proposed yet; None when there is none."""
        variant = self._choose()
        if variant is not None:
            self._proposed.add(variant)
        return variant

    def _choose(self) -> Variant | None:
        while self._first:
            variant = self._first.pop(0)
            if variant not in self._proposed:
                return variant
        if len(self._proposed) >= self._random_first:
            best = sorted(self._times, key=lambda variant: self._times[variant])[:_BEST_FEW]
            for variant in best:
                near = [v for v in self._space.neighbours(variant, self._problem) if v not in self._proposed]
                if near:
                    return self._random.choice(near)
        return self._any()

    def _any(self) -> Variant | None:
        if self._rest is not None:
            while self._rest:
                variant = self._rest.pop()
                if variant not in self._proposed:
                    self._rest.append(variant)  # `size` counts it until it is proposed
                    return variant
            return None
        for _ in range(_DRAWS):
            values = {name: self._random.choice(values) for name, values in self._space.parameters.items()}
            variant = Variant(values)
            if variant not in self._proposed and self._space.allows(variant, self._problem):
                return variant
        return None

    def tell(self, variant: Variant, milliseconds: float | None) -> None:
        """Report a variant's time."""
        if milliseconds is not None:
            self._times[variant] = milliseconds
