"""What the parts share: a cache that compiles each form once, the strategies, and comparing a state with NumPy's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.program import StateProgram
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...devices.base import Device
from ...errors import Unsupported
from ...samples.states import STATE_SAMPLES, StateSample
from ...words import StrategyName
from ..device_parts.common import DevicePart

__all__ = ["ALL", "SAMPLES", "STRATEGIES", "StrategyPart", "check", "cuts_loops", "shared_programs"]

STRATEGIES: tuple[StrategyName, ...] = ("redispatch", "mega", "checkpointed", "supervised", "buffered", "auto")
SAMPLES = {sample.name: sample for sample in STATE_SAMPLES}
ALL = tuple(SAMPLES)
# The capabilities that a supervisor on the device needs.
_SUPERVISION = ("forward_progress", "cooperative", "mapped_ring")


def shared_programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache folder for the whole test run: compilers for the CPU take seconds for what takes milliseconds to run."""
    folder = tmp_path_factory.getbasetemp() / "state programs"
    folder.mkdir(exist_ok=True)
    return str(folder)


class StrategyPart(DevicePart):
    """A part of the suite: the device and a cache."""

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramCache]:
        """One for the class, on a folder for the whole test run."""
        with ProgramCache(device, shared_programs(tmp_path_factory)) as opened:
            yield opened

    @staticmethod
    def strategies(device: Device) -> list[StrategyName]:
        """The strategies that the device must have."""
        supervises = all(getattr(device.capabilities, name) for name in _SUPERVISION)
        return [name for name in STRATEGIES if supervises or name != "supervised"]

    @staticmethod
    def run_or_skip(
        cache: ProgramCache, program: StateProgram, iterations: int | None, strategy: StrategyName, **options: Any
    ) -> Run:
        """Run a program, or skip the test where the device raises `Unsupported` for the strategy."""
        try:
            return run(cache, program, iterations, strategy, **options)
        except Unsupported as error:
            refused = error
        lacking = [name for name in _SUPERVISION if not getattr(cache.device.capabilities, name)]
        assert strategy == "supervised", "the other strategies run everywhere"
        assert refused.capability in lacking
        assert cache.device.spec in str(refused) and "supervisor" in str(refused)
        pytest.skip(f"{cache.device.spec} has no {refused.capability}, which the strategy supervised needs")

    @staticmethod
    def run_in_two(
        cache: ProgramCache,
        program: StateProgram,
        path: Any,
        middle: int,
        end: int | None,
        first: StrategyName,
        then: StrategyName,
        **options: Any,
    ) -> Run:
        """Run to the middle, and resume from there with another strategy."""
        run(cache, program, middle, first, checkpoint=path, resume=False, **options).close()
        return resume(path, cache, program, end, then, **options)


def check(sample: StateSample, state: Mapping[str, Any], program: StateProgram, iterations: int | None) -> None:
    """Compare a state with the reference: bit by bit, or within the sample's tolerance."""
    for key, expected in sample.reference(program, iterations).items():
        found = state[key] if isinstance(state[key], np.ndarray) else state[key].numpy()
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
        if sample.tolerance:
            np.testing.assert_allclose(found, expected, rtol=0, atol=sample.tolerance, err_msg=key)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=key)


def cuts_loops(device: Device) -> bool:
    """Whether the device ends loops by itself, after 65,535 rounds."""
    return device.capabilities.max_loop_rounds is not None
