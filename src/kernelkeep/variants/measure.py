"""How long a variant takes, by the device's own clock.

A sample is the mean over as many launches as make the clock exact enough, submitted as one replay where the device can.
Launches go round several sets of arrays, so that none finds its data in a cache where the one before left it. Samples of
several variants are taken in turn, so that a disturbance of the machine affects all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ..devices.prepared import Prepared
from ..devices.replay import Replay
from ..programs.signature import Parameter

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from .case import Case
    from .space import Variant
    from .template import Launch

_SAMPLE_SECONDS = 5e-4  # of launches in one sample, unless that were more than _MAX_LAUNCHES
_CPU_SAMPLE_SECONDS = 5e-3  # the first launches of a sample wait for the driver's threads to wake up
_MAX_LAUNCHES = 256
_ROTATED_BYTES = 128 << 20  # more than the caches of today's devices hold
_MAX_SETS = 8
_REPLAY_FROM = 8  # launches; fewer are not worth a replay


class Bench:
    """Where variants are measured: several sets of the same problem's arrays, and the variants that are ready.

    `case` makes the problem's arguments; it is called when the first variant is to be measured.
    """

    def __init__(
        self,
        cache: ProgramCache,
        params: Sequence[Parameter],
        case: Callable[[], Case],
        max_sets: int = _MAX_SETS,
    ) -> None:
        self._cache = cache
        self._params = params
        self._case = case
        self._max_sets = max_sets
        self._arguments: list[tuple[Any, ...]] = []
        self._contenders: dict[Variant, Contender] = {}

    def contender(self, variant: Variant, launch: Launch) -> Contender:
        """A variant, ready to be measured."""
        if not self._arguments:
            self._allocate()
        if variant not in self._contenders:
            self._contenders[variant] = Contender(self._cache, launch, self._arguments)
        return self._contenders[variant]

    def _allocate(self) -> None:
        device, case = self._cache.device, self._case()
        buffers = [p for p in self._params if p.kind == "buffer"]
        nbytes = sum(max(1, math.prod(case.shapes[p.name])) * int(str(p.dtype)[1:]) for p in buffers)
        self._arguments = [
            tuple(
                case.scalars[p.name]
                if p.kind == "scalar"
                else device.array(case.inputs[p.name])
                if p.name in case.inputs
                else device.empty(case.shapes[p.name], p.dtype)
                for p in self._params
            )
            for _ in range(max(1, min(self._max_sets, math.ceil(_ROTATED_BYTES / max(1, nbytes)))))
        ]

    def drop(self, variant: Variant) -> None:
        """Release a variant's program."""
        contender = self._contenders.pop(variant, None)
        if contender is not None:
            contender.close()

    def keep(self, ranked: Sequence[Variant], count: int) -> None:
        """Drop all but the first `count` of those that are ready."""
        for variant in [variant for variant in ranked if variant in self._contenders][count:]:
            self.drop(variant)

    def close(self) -> None:
        """Release the programs and free the arrays."""
        for variant in list(self._contenders):
            self.drop(variant)
        for value in itertools.chain.from_iterable(self._arguments):
            if hasattr(value, "close"):
                value.close()
        self._arguments = []


class Contender:
    """A verified variant, ready to be measured on sets of arguments."""

    def __init__(self, cache: ProgramCache, launch: Launch, arguments: Sequence[tuple[Any, ...]]) -> None:
        self._device = cache.device
        self._lease = cache.get(launch.source)
        self._replay: Replay | None = None
        try:
            kernel = self._lease.kernel(launch.kernel)
            self._launches: list[Prepared] = [
                kernel.prepare(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes) for args in arguments
            ]
            self._next = itertools.cycle(self._launches)
            self._count = self._warm_up()
        except BaseException:
            self.close()
            raise

    def _warm_up(self) -> int:
        """Run it until it is fast, and find how many launches make a sample."""
        for launch in self._launches[:2]:
            launch()
        self._device.synchronize()
        once = min(self._timed(1), self._timed(1))
        seconds = _SAMPLE_SECONDS if self._device.info.is_gpu else _CPU_SAMPLE_SECONDS
        count = max(1, min(_MAX_LAUNCHES, math.ceil(seconds / max(once, 1e-7))))
        if count >= _REPLAY_FROM and self._device.replays_whole:
            self._replay = self._device.new_replay([next(self._next) for _ in range(count)])
            self._timed(count)  # at the first launch the driver prepares it
            count_again = math.ceil(seconds / max(self._timed(count) / count, 1e-7))
            if count < count_again <= _MAX_LAUNCHES:  # a single launch was mostly overhead
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
        """Release the program."""
        if self._replay is not None:
            self._device.synchronize()
            self._replay.close()
            self._replay = None
        self._launches = []
        with contextlib.suppress(Exception):
            self._lease.release()


def in_turn(contenders: Sequence[Contender], rounds: int) -> list[list[float]]:
    """Samples of each contender; in every round one of each."""
    samples: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for taken, contender in zip(samples, contenders, strict=True):
            taken.append(contender.sample())
    return samples


def spread(samples: Sequence[float]) -> float:
    """The median distance of samples from their median, as a share of it."""
    if len(samples) < 2:
        return 0.0
    middle = median(samples)
    return median(abs(sample - middle) for sample in samples) / middle if middle else 0.0
