"""State programs on every backend, and work that begins on one and ends on another."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.testing import StrategyTests, open_or_skip
from kernelkeep.testing.strategy_parts.common import SAMPLES, StrategyPart, check, shared_programs

BACKENDS = ("opencl", "opengl", "webgpu", "cuda")
PAIRS = list(permutations(BACKENDS, 2))


@pytest.mark.opencl
class TestOpenCL(StrategyTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(StrategyTests):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(StrategyTests):
    backend = "cuda"


class TestFromOneBackendToAnother:
    """A checkpoint knows nothing of the device that made it."""

    @pytest.fixture(scope="class")
    @classmethod
    def caches(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, kk.ProgramCache]]:
        """Those that were opened so far; a device stays open for the class."""
        opened: dict[str, kk.ProgramCache] = {}
        yield opened
        for cache in opened.values():
            cache.close()
            cache.device.close()

    @pytest.fixture
    def both(
        self,
        pair: tuple[str, str],
        caches: dict[str, kk.ProgramCache],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> list[kk.ProgramCache]:
        """The caches of the two, or the test is skipped for want of one."""
        for backend in pair:
            if backend not in caches:
                caches[backend] = kk.ProgramCache(open_or_skip(backend), shared_programs(tmp_path_factory))
        return [caches[backend] for backend in pair]

    @pytest.mark.parametrize("name", SAMPLES)
    @pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-to-{pair[1]}")
    def test_half_a_run_on_one_backend_and_half_on_another(
        self, both: list[kk.ProgramCache], pair: tuple[str, str], name: str, tmp_path: Path
    ) -> None:
        sample = SAMPLES[name]
        program = sample.program(sample.size)
        first, second = both
        dice = random.Random(f"{pair} {name}")
        for number in range(2):
            path = tmp_path / f"{number}.kkpt"
            middle = dice.randrange(1, sample.iterations or 4)
            strategies = [dice.choice(StrategyPart.strategies(cache.device)) for cache in both]
            with kk.run(first, program, middle, strategies[0], checkpoint=path) as begun:
                assert begun.report.device == first.device.spec
                before = begun.iteration
            with kk.resume(path, second, program, sample.iterations, strategies[1]) as done:
                check(sample, done.state, program, sample.iterations)
                assert done.report.device == second.device.spec
                assert done.report.iterations == done.iteration - before
                assert sample.iterations is None or before == middle

    @pytest.mark.parametrize("pair", PAIRS[:1], ids=lambda pair: f"{pair[0]}-and-{pair[1]}")
    def test_a_run_may_change_backends_many_times(self, both: list[kk.ProgramCache], tmp_path: Path) -> None:
        """Ten times over, with one file."""
        sample = SAMPLES["scramble"]
        program = sample.program(sample.size)
        path = tmp_path / "wandering.kkpt"
        kk.run(both[0], program, 1, "mega", checkpoint=path).close()
        for turn in range(2, 12):
            with kk.resume(path, both[turn % 2], program, turn * 7, "mega") as now:
                check(sample, now.state, program, turn * 7)
