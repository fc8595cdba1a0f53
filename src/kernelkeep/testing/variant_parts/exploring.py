"""With `explore`, real calls find the fastest variant: always right, and with a bounded loss of time."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.array import Array
from ...devices.base import Device
from ...errors import ArgumentError
from ...programs.portable import PortableKernel
from ...variants.explore import Explorer
from ...variants.space import VariantSpace
from ...variants.tuned import Tuned
from ..device_parts.common import together
from .common import BODY, PARAMS, PROBLEM, VariantPart, twice
from .failures import child_processes

__all__ = ["ExploringTests"]

_X = np.arange(PROBLEM["n"], dtype="f4")
_SECONDS = 60.0  # for every wait


def explorer_of(tuned: Tuned, cache: ProgramCache) -> Explorer:
    """The explorer behind the calls."""
    explorer = tuned.call(cache, PROBLEM).explorer
    assert isinstance(explorer, Explorer)
    return explorer


class ExploringTests(VariantPart):
    """`run(…, explore=share)`."""

    @staticmethod
    def call(tuned: Tuned, cache: ProgramCache, share: float, until: Callable[[Explorer], Any]) -> list[Explorer]:
        """Call until a condition holds, and check every result. Returns the explorers behind the calls: usually one."""
        deadline = time.monotonic() + _SECONDS
        seen: list[Explorer] = []
        while True:
            y = tuned.run(cache, PROBLEM, explore=share, x=_X)
            assert isinstance(y, Array)
            np.testing.assert_array_equal(y.numpy(), 2 * _X)
            explorer = explorer_of(tuned, cache)
            seen = seen if seen and seen[-1] is explorer else [*seen, explorer]
            if until(explorer):
                return seen
            assert time.monotonic() < deadline, "it takes too long"

    def test_exploring_is_off_by_default(
        self, device: Device, open_cache: Callable[..., ProgramCache], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
        tuned, cache = twice("quiet", [1, 2]), open_cache()
        for _ in range(20):
            self.check_run(tuned, cache)
        assert tuned.records(cache).of_device("quiet", device.fingerprint.digest) == []
        assert cache.stats().compiles <= 1

    def test_a_faster_variant_takes_over(self, device: Device, programs: ProgramCache) -> None:
        tuned = twice("taken", [self.heavier(device), 1])
        assert tuned.select(programs, PROBLEM).variant == {"STEPS": self.heavier(device)}
        (explorer,) = self.call(tuned, programs, 0.9, lambda explorer: explorer.exhausted)
        found = tuned.select(programs, PROBLEM)
        assert (dict(found.variant), found.basis) == ({"STEPS": 1}, "exact")
        assert f"faster than STEPS={self.heavier(device)} on real calls" in found.reason
        records = tuned.records(programs).of_device("taken", device.fingerprint.digest)
        assert {record.variant["STEPS"] for record in records if record.samples_ms} == {1, self.heavier(device)}
        assert not any(record.failure for record in records)
        assert explorer.total_ms > 0
        # It is remembered: the next time nothing is left to explore.
        again = twice("taken", [self.heavier(device), 1])
        assert again.select(programs, PROBLEM).variant == {"STEPS": 1}
        self.call(again, programs, 0.9, lambda explorer: explorer.exhausted)
        assert again.select(programs, PROBLEM).variant == {"STEPS": 1}

    def test_threads_explore_together(self, device: Device, programs: ProgramCache) -> None:
        tuned, done = twice("together", [self.heavier(device), 1]), threading.Event()

        def work(number: int) -> list[Explorer]:
            def until(explorer: Explorer) -> bool:
                if explorer.exhausted:
                    done.set()
                return done.is_set()

            return self.call(tuned, programs, 0.9, until)

        seen = together(work, 4)
        assert len({id(explorer) for explorers in seen for explorer in explorers}) == 1
        assert tuned.select(programs, PROBLEM).variant == {"STEPS": 1}

    def test_a_wrong_variant_never_runs_on_a_call(self, device: Device, programs: ProgramCache) -> None:
        """Every result of `call` is right, though the wrong variant would be the fastest."""
        wrong = BODY.replace("2.0f * x[i]", "(STEPS == 1 ? 3.0f : 2.0f) * x[i]")
        tuned = twice("wrong", [self.heavier(device), 1], wrong)
        self.call(tuned, programs, 0.9, lambda explorer: explorer.exhausted)
        (record,) = [
            record
            for record in tuned.records(programs).of_device("wrong", device.fingerprint.digest)
            if record.variant == {"STEPS": 1}
        ]
        assert record.failure == "wrong"
        assert tuned.select(programs, PROBLEM).variant == {"STEPS": self.heavier(device)}

    def test_the_time_lost_is_bounded(self, device: Device, programs: ProgramCache) -> None:
        """A variant that is far too slow is verified in another process, and no call runs it."""
        tuned, slow = twice("bounded", [1, self.endless(device)]), {"STEPS": self.endless(device)}
        (explorer,) = self.call(tuned, programs, 0.02, lambda explorer: explorer.regret_ms > 0 and not explorer.busy)
        lost = explorer.regret_ms
        for _ in range(100):
            self.check_run(tuned, programs, PROBLEM["n"], explore=0.02)
        assert explorer.regret_ms == lost, "what the verification took is all that was lost"
        records = tuned.records(programs).of_device("bounded", device.fingerprint.digest)
        assert [record.failure for record in records if record.variant == slow] == ["slow"]
        assert tuned.select(programs, PROBLEM).variant == {"STEPS": 1}
        tuned.forget(programs)
        assert not child_processes(), "forgetting ends the exploration, too"

    def test_closing_the_cache_ends_exploring(self, device: Device, open_cache: Callable[..., ProgramCache]) -> None:
        tuned, cache = twice("ended", [1, 2, 3]), open_cache()
        self.call(tuned, cache, 0.9, lambda explorer: explorer.pool is not None)
        cache.close()
        assert not child_processes()
        cache = open_cache()
        records = tuned.records(cache).of_device("ended", device.fingerprint.digest)
        assert not any(record.failure for record in records), "that a child was ended is no fault of a variant"

    def test_an_edited_template_is_explored_again(self, device: Device, programs: ProgramCache) -> None:
        twice("edited again", [1, 2]).tune(programs, PROBLEM, isolate=False)
        edited = twice("edited again", [1, 2], BODY.replace("2.0f * x[i]", "x[i] + x[i]"))
        self.call(edited, programs, 0.9, lambda explorer: explorer.exhausted)
        known = edited.records(programs).known("edited again", device.fingerprint.digest, PROBLEM)
        assert len(known) == 4

    def test_exploring_needs_a_reference(self, programs: ProgramCache) -> None:
        tuned = Tuned("blind", PortableKernel("twice", PARAMS, BODY, group=64), VariantSpace(STEPS=[1, 2]))
        self.check_run(tuned, programs)
        with pytest.raises(ArgumentError, match="blind has no reference"):
            tuned.run(programs, PROBLEM, explore=0.1, x=_X)

    def test_a_failing_reference_ends_exploring_and_fails_no_call(self, programs: ProgramCache) -> None:
        kernel = PortableKernel("twice", PARAMS, BODY, group=64)
        tuned = Tuned("broken", kernel, VariantSpace(STEPS=[1, 2]), reference=lambda x: 1 // 0)
        self.call(tuned, programs, 0.9, lambda explorer: explorer.exhausted)
        self.check_run(tuned, programs, explore=0.9)

    def test_exploring_tries_nothing_where_no_process_can_be_started(
        self, device: Device, programs: ProgramCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor in this process: exploring must not put the user's program at risk."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError("no more processes")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        tuned = twice("careful", [1, 2])
        self.call(tuned, programs, 0.9, lambda explorer: explorer.exhausted)
        assert tuned.records(programs).of_device("careful", device.fingerprint.digest) == []
