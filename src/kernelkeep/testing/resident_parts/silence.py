"""Tasks that take too long are reported, and not waited for."""

from __future__ import annotations

import contextlib
import re
import threading

import numpy as np
import pytest

from ... import settings
from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import DeviceError, TaskSilent
from ...resident.resident import Resident
from ..executor_parts.common import eventually
from .common import TIMEOUT, ResidentPart, result_of, silence_of

__all__ = ["SilenceTests"]

# They end when the host changes an element, so they need a device that copies while a kernel runs.
LOOPS = {
    "endless": "(int n, float rate) { if (kk_local_id(0) == 0) while (kk_atomic_load(flag[0]) == 0) { } }",
    "quick": "(int at) { if (kk_local_id(0) == 0) kk_atomic_add(flag[1], at); }",
}


@pytest.mark.usefixtures("no_garbage")
class SilenceTests(ResidentPart):
    def looping(self, cache: ProgramCache, device: Device, **options: float) -> Resident:
        if not device.capabilities.queues:
            pytest.skip(f"{device.spec} has one queue, so nothing ends a task that waits")
        return self.make(cache, LOOPS, {"flag": np.zeros(4, "i4")}, silence_seconds=0.2, **options)

    @staticmethod
    def let_go(resident: Resident) -> None:
        resident.arrays["flag"].copy_from(np.array([1, 0, 0, 0], "i4"))

    def test_a_task_that_takes_long_is_named(self, cache: ProgramCache, device: Device) -> None:
        resident = self.looping(cache, device)
        try:
            future = resident.submit("endless", 42, 0.5)
            behind = resident.submit("quick", 1)
            for waiting in (future, behind):
                said = silence_of(waiting, r"block \d runs endless\(n=42, rate=0\.5\) for ")
                assert re.match(r"nothing was done for \d+\.\d+ s: block ", said)
                assert "stop(timeout)" in said
                assert "1 more wait" in said
            assert not future.done()
            with pytest.raises((TimeoutError, TaskSilent)):
                future.result(0.01)
            assert re.match(r"block \d runs endless\(n=42, rate=0\.5\)", resident.describe())
        finally:
            self.let_go(resident)
        assert result_of(future) is None
        assert result_of(behind) is None
        resident.close()

    def test_a_callback_waits_for_a_task_that_takes_long(
        self, cache: ProgramCache, device: Device, caplog: pytest.LogCaptureFixture
    ) -> None:
        resident = self.looping(cache, device)
        called = threading.Event()
        try:
            future = resident.submit("endless", 42, 0.5)
            future.add_done_callback(lambda future: called.set())
            silence_of(future, r"runs endless\(")
            assert eventually(lambda: "runs endless(n=42" in caplog.text, collects=False)
            assert not called.is_set()
        finally:
            self.let_go(resident)
        assert called.wait(TIMEOUT)
        assert result_of(future) is None
        assert caplog.text.count("runs endless(n=42") == 1
        resident.close()

    def test_close_tells_what_it_waits_for_and_loses_nothing(self, cache: ProgramCache, device: Device) -> None:
        own = ProgramCache(device, cache.cache_dir)
        resident = self.looping(own, device)
        try:
            with (
                pytest.raises(TaskSilent, match=r"runs endless\(n=42.*1 more wait.*close\(\) may be called again"),
                resident,
            ):
                futures = [resident.submit("endless", 42, 0.5), resident.submit("quick", 1)]
            with pytest.raises(TaskSilent, match=r"runs endless\(n=42"):
                own.close()
            assert not resident.closed
            assert not own.closed
        finally:
            self.let_go(resident)
        assert eventually(lambda: self.closes(own))
        assert resident.closed
        assert [future.result() for future in futures] == [None, None]
        assert resident.arrays["flag"].numpy()[1] == 1

    @staticmethod
    def closes(cache: ProgramCache) -> bool:
        with contextlib.suppress(TaskSilent):
            cache.close()
        return cache.closed

    def test_pause_tells_what_does_not_end_and_the_grid_goes_on(
        self, cache: ProgramCache, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(settings, "RESIDENT_END_SECONDS", 0.3)
        resident = self.looping(cache, device, blocks=1)
        future, behind = resident.submit("endless", 7, 1.0), resident.submit("quick", 3)
        silence_of(future, r"runs endless\(")
        try:
            with pytest.raises(
                DeviceError, match=r"the resident grid does not end: block 0 runs endless\(n=7, rate=1\)"
            ):
                resident.pause()
        finally:
            self.let_go(resident)
        assert result_of(future) is None
        assert result_of(behind) is None
        with resident.paused():  # it is whole again
            behind = resident.submit("quick", 4)
        assert result_of(behind) is None
        resident.stop(TIMEOUT)

    def test_stop_does_not_wait_for_a_task_that_never_ends(self, cache: ProgramCache, device: Device) -> None:
        resident = self.looping(cache, device, blocks=1)
        future, behind = resident.submit("endless", 7, 1.0), resident.submit("quick", 1)
        try:
            silence_of(future, r"runs endless\(")
            with pytest.raises(
                DeviceError, match=r"the resident grid does not end: block 0 runs endless\(n=7, rate=1\)"
            ):
                resident.stop(0.3)
            with pytest.raises(DeviceError, match="stopped before this task"):
                future.result(TIMEOUT)
        finally:
            self.let_go(resident)
        resident.stop(TIMEOUT)
        assert resident.arrays["flag"].numpy().tolist() == [1, 0, 0, 0]  # what waited was not run
        with pytest.raises(DeviceError, match="stopped before this task"):
            behind.result(TIMEOUT)
