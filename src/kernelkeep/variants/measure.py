"""How long a variant takes, by the device's own clock.

A sample is the time of one launch, taken over as many launches as make the clock exact enough, given to the device as
one where it can take them so. Launches go round several sets of arrays, so that none finds its data where the one before
left it. Samples of several variants are taken in turn: what disturbs the machine for a while disturbs them all.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..devices.prepared import Prepared
from ..devices.replay import Replay
from ..programs.signature import Parameter

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from .case import Case
    from .template import Launch

__all__ = ["Arena", "Contender", "spread"]

_SAMPLE_SECONDS = 5e-4  # of launches in one sample, as far as there may be that many
_MOST_LAUNCHES = 256
_ROTATED_BYTES = 128 << 20  # more than the caches of today's devices hold
_MOST_SETS = 8
_WHOLE_FROM = 8  # launches; fewer are not worth a graph


class Arena:
    """The arrays that contenders are measured on: several sets of the same problem."""

    def __init__(
        self, cache: ProgramCache, params: Sequence[Parameter], case: Case, most_sets: int = _MOST_SETS
    ) -> None:
        device = cache.device
        sizes = {p.name: max(1, math.prod(case.shapes[p.name])) for p in params if p.kind == "buffer"}
        nbytes = sum(sizes[p.name] * _itemsize(p) for p in params if p.kind == "buffer")
        sets = max(1, min(most_sets, math.ceil(_ROTATED_BYTES / max(1, nbytes))))
        self.cache = cache
        self.arguments: list[tuple[Any, ...]] = []
        for _ in range(sets):
            self.arguments.append(
                tuple(
                    case.scalars[p.name]
                    if p.kind == "scalar"
                    else device.array(case.inputs[p.name])
                    if p.name in case.inputs
                    else device.empty(case.shapes[p.name], p.dtype)
                    for p in params
                )
            )

    def close(self) -> None:
        """Free the arrays."""
        for value in itertools.chain.from_iterable(self.arguments):
            if hasattr(value, "close"):
                value.close()


class Contender:
    """A variant that was found right, ready to be measured."""

    def __init__(self, arena: Arena, launch: Launch) -> None:
        self._device = arena.cache.device
        self._lease = arena.cache.get(launch.source)
        self._replay: Replay | None = None
        try:
            kernel = self._lease.kernel(launch.kernel)
            self._launches: list[Prepared] = [
                kernel.prepare(launch.grid, args, launch.group) for args in arena.arguments
            ]
            self._next = itertools.cycle(self._launches)
            self._count = self._warm_up()
        except BaseException:
            self.close()
            raise

    def _warm_up(self) -> int:
        """Run it until it is quick, and see how many launches make a sample."""
        for launch in self._launches[:2]:
            launch()
        self._device.synchronize()
        once = min(self._timed(1), self._timed(1))
        count = max(1, min(_MOST_LAUNCHES, math.ceil(_SAMPLE_SECONDS / max(once, 1e-7))))
        if count >= _WHOLE_FROM and self._device.replays_whole:
            self._replay = self._device.new_replay([next(self._next) for _ in range(count)])
            self._timed(count)  # the first time the driver prepares it
            count_again = math.ceil(_SAMPLE_SECONDS / max(self._timed(count) / count, 1e-7))
            if count < count_again <= _MOST_LAUNCHES:  # a launch alone took mostly the time to begin
                self._replay.close()
                self._replay = self._device.new_replay([next(self._next) for _ in range(count_again)])
                self._timed(count_again)
                count = count_again
        return count

    def _timed(self, count: int) -> float:
        return self._device.time_work(self._replay.launch if self._replay is not None else lambda: self._launch(count))

    def _launch(self, count: int) -> None:
        for _ in range(count):
            next(self._next)()

    def sample(self) -> float:
        """The time of one launch, in milliseconds."""
        return self._timed(self._count) / self._count * 1e3

    def close(self) -> None:
        """Let the program go."""
        if self._replay is not None:
            self._device.synchronize()
            self._replay.close()
            self._replay = None
        self._launches = []
        with contextlib.suppress(Exception):
            self._lease.release()


def in_turn(contenders: Sequence[Contender], rounds: int) -> list[list[float]]:
    """Samples of all of them, each round one of each."""
    samples: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for taken, contender in zip(samples, contenders, strict=True):
            taken.append(contender.sample())
    return samples


def spread(samples: Sequence[float]) -> float:
    """How far samples typically lie from their median, as a share of it."""
    if len(samples) < 2:
        return 0.0
    middle = median(samples)
    return median(abs(sample - middle) for sample in samples) / middle if middle else 0.0


def _itemsize(param: Parameter) -> int:
    return int(str(param.dtype)[1:])
