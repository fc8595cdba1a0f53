"""How a resident grid ends: with tasks that wait, with its device or cache, in a forked child."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import DeviceError
from ..process import run_python
from ..skipped import open_or_skip
from .common import TIMEOUT, ResidentPart

__all__ = ["EndingTests"]

_FORKED = """
import faulthandler, os, sys
import numpy as np
import kernelkeep as kk

spec, folder, emulated = sys.argv[1:4]
device = kk.open_device(spec, cache_dir=folder)
cache = kk.ProgramCache(device, folder)
make = kk.Resident.emulated if emulated == "True" else kk.Resident
resident = make(cache, {"twice": kk.Task("if (kk_local_id(0) == 0) kk_result(2 * v);", args={"v": "i4"}, result="i4")}, blocks=2)
assert resident.submit("twice", 2).result(60) == 4
with resident.paused():
    waiting = resident.submit("twice", 3)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True)
        for use in (lambda: resident.submit("twice", 1), waiting.result, resident.pause, lambda: resident.add("a", "() { }")):
            try:
                use()
            except kk.DeviceError as error:
                assert "fork" in str(error), error
            else:
                sys.exit("the child used the parent's grid")
        resident.close()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert waiting.result(60) == 6
assert resident.submit("twice", 4).result(60) == 8
resident.close()
print("fine")
"""

_UNCLOSED = """
import faulthandler, gc, sys, warnings
import kernelkeep as kk

faulthandler.dump_traceback_later(50, exit=True)
warnings.simplefilter("ignore")
warnings.filterwarnings("default", "<Resident", ResourceWarning)
spec, folder, emulated = sys.argv[1:4]
device = kk.open_device(spec, cache_dir=folder)
cache = kk.ProgramCache(device, folder)
make = kk.Resident.emulated if emulated == "True" else kk.Resident
resident = make(cache, {"twice": kk.Task("if (kk_local_id(0) == 0) kk_result(2 * v);", args={"v": "i4"}, result="i4")}, blocks=2)
assert resident.submit("twice", 2).result(60) == 4
del resident
gc.collect()
print("fine")
"""


class EndingTests(ResidentPart):
    def test_leaving_the_block_waits_for_all_tasks(self, cache: ProgramCache) -> None:
        with self.make(cache) as resident:
            futures = [resident.submit("twice", number) for number in range(50)]
        assert [future.result() for future in futures] == [2 * number for number in range(50)]
        assert "stopped" in repr(resident)

    def test_stop_fails_the_tasks_that_wait(self, cache: ProgramCache) -> None:
        with self.opened(cache) as resident:
            done = resident.submit("twice", 1)
            assert done.result(TIMEOUT) == 2
            resident.pause()
            called: list[object] = []
            waiting = [resident.submit("twice", number) for number in range(5)]
            waiting[0].add_done_callback(called.append)
            many = resident.submit_many("count", [(0, 1)] * 5)
            resident.stop()
            for future in (*waiting, many):
                assert future.done()
                with pytest.raises(DeviceError, match="stopped before this task"):
                    future.result(TIMEOUT)
            assert called == [waiting[0]]
            assert done.result() == 2
            for again in (resident.stop, resident.close):
                again()

    def test_a_stopped_grid_is_not_used_any_more(self, cache: ProgramCache) -> None:
        with self.make(cache) as resident:
            pass
        uses: list[Callable[[], object]] = [
            lambda: resident.submit("twice", 1),
            lambda: resident.submit_many("twice", [1]),
            resident.pause,
            resident.resume,
            resident.drain,
            lambda: resident.add("more", "() { }"),
        ]
        for use in uses:
            with pytest.raises(DeviceError, match="this resident grid was stopped"):
                use()

    def test_a_callback_may_stop_it(self, cache: ProgramCache) -> None:
        with self.opened(cache) as resident:
            stopped = threading.Event()

            def stop(_: object) -> None:
                resident.stop(TIMEOUT)
                stopped.set()

            resident.submit("nothing").add_done_callback(stop)
            assert stopped.wait(TIMEOUT)
            resident.stop()
            with pytest.raises(DeviceError, match="this resident grid was stopped"):
                resident.submit("nothing")

    def test_an_error_in_the_block_stops_at_once(self, cache: ProgramCache) -> None:
        futures = []

        def fail_inside() -> None:
            with self.make(cache) as resident:
                resident.pause()
                futures.append(resident.submit("twice", 1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_inside()
        with pytest.raises(DeviceError, match="stopped before this task"):
            futures[0].result(TIMEOUT)

    @pytest.mark.parametrize("first", ["resident", "cache", "device"])
    def test_device_and_cache_are_closed_in_any_order(self, device: Device, tmp_path: Path, first: str) -> None:
        with open_or_skip(device.backend, device.spec) as own, ProgramCache(own, tmp_path) as cache:
            resident = self.make(cache, {"nothing": "() { }", "count": "(int at) { if (kk_local_id(0) == 0) total[at] = 1; }"},
                                 {"total": np.zeros(4, "i4")})  # fmt: skip
            future = resident.submit("count", 1)
            closed: dict[str, Any] = {"resident": resident, "cache": cache, "device": own}
            closed[first].close()
            assert future.result(TIMEOUT) is None
            with pytest.raises(DeviceError, match="this resident grid was stopped"):
                resident.submit("nothing")
            resident.close()

    def test_a_grid_that_nobody_closes_ends_with_the_interpreter(self, device: Device, tmp_path: Path) -> None:
        done = run_python(_UNCLOSED, device.spec, str(tmp_path), str(self.emulated))
        assert done.stdout.split() == ["fine"], done.stderr
        assert done.stderr.count("was never closed") == 1, done.stderr
        assert "ResourceWarning: <Resident" in done.stderr

    def test_a_forked_child_has_no_grid(self, device: Device, tmp_path: Path) -> None:
        done = run_python(_FORKED, device.spec, str(tmp_path), str(self.emulated))
        assert done.stdout.split() == ["fine"], done.stderr
