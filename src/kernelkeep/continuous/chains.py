"""Chains: many single iterations that the driver takes as one, and that are committed together.

A dispatch that commits reads the control words before its items, and the group that ends last writes them: that costs as much
as a small iteration. A link of a chain does neither. Its launches go from copy to copy: the first reads the committed copy, the
others go back and forth between the two others, and the last one writes the one that the commit then names. What was committed
before stays untouched until then, so a chain that did not end never happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..devices.base import Device
from ..devices.prepared import Prepared
from ..devices.replay import Replay
from .program import StateProgram
from .state import State

if TYPE_CHECKING:
    from .launches import Launches


class Chains:
    """The chains of a run, each recorded once. They have two halves with a commit each, so that the second ends in the copy
    from which the first began, and one recording serves every time."""

    def __init__(self, launches: Launches, program: StateProgram, state: State, device: Device) -> None:
        self._launches = launches
        self._state = state
        self._device = device
        self._counts = "kk_iteration" in program.outline  # else all links between two copies are the same launch
        self._links: dict[tuple[int, int, int, int], Prepared] = {}
        self._recorded: dict[tuple[int, int], Replay] = {}

    def get(self, iterations: int) -> Replay:
        """An even number of iterations as one launch, from the committed copy and back to it, in two commits."""
        state = self._state
        key = (iterations, state.current)
        if key not in self._recorded:
            steps: list[Prepared] = []
            for _ in range(2):
                steps += self._half(iterations // 2)
                state.current = 1 - state.current
            self._recorded[key] = self._device.new_replay(steps, self._launches.queue)
        return self._recorded[key]

    def _half(self, iterations: int) -> list[Prepared]:
        links = []
        old = 0
        for after in range(iterations):
            new = 1 if (iterations - after) % 2 else 2  # the last one is 1
            links.append(self._link(old, new, after if self._counts else 0))
            old = new
        return [*links, self._launches.bind("commit", kkbudget=iterations)]

    def _link(self, old: int, new: int, after: int) -> Prepared:
        key = (old, new, after, self._state.current)
        if key not in self._links:
            self._links[key] = self._launches.bind("link", (old, new), kkafter=after)
        return self._links[key]

    def drop(self) -> None:
        """Forget them: the memory that they were bound to was replaced, or the run is over."""
        for replay in self._recorded.values():
            replay.close()
        self._recorded.clear()
        self._links.clear()
