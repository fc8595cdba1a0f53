"""The backlog in front of the device: how long it gets, what can still be cancelled, and what callbacks may do."""

from __future__ import annotations

import contextlib
import logging
import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device
from ...execution.executor import Executor
from ...execution.job import Job
from ..device_parts.common import GROUP
from .common import TIMEOUT, ExecutorPart, eventually, saxpy_batch, saxpy_result, stalled

__all__ = ["BacklogTests"]


class BacklogTests(ExecutorPart):
    """`depth` batches on the device, as many in the backlog, and then `submit` waits."""

    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_submit_waits_when_the_backlog_is_full(self, device: Device, job: Job, depth: int) -> None:
        futures: list[Future[Any]] = []
        with Executor(device, depth) as executor:

            def submit_many() -> None:
                for number in range(4 * depth):
                    futures.append(executor.submit(job, **saxpy_batch(number)))

            with stalled(executor, job, **saxpy_batch(0)):
                submitter = threading.Thread(target=submit_many)
                submitter.start()
                # One more batch is between backlog and device, and may or may not count.
                assert eventually(lambda: len(futures) >= 2 * depth - 1)
                submitter.join(0.2)
                assert submitter.is_alive(), "submit took more than the device and the line hold"
                assert len(futures) <= 2 * depth
                assert sum(future.running() for future in futures) == depth
            submitter.join(TIMEOUT)
            assert not submitter.is_alive()
            for number, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))

    def test_submit_waits_for_a_slow_kernel(self, device: Device, chain: Job) -> None:
        batch = self.slow_batch(device, chain, 0.05)
        with Executor(device, 2) as executor:
            futures: list[Future[Any]] = []
            most = 0
            for _ in range(10):
                futures.append(executor.submit(chain, **batch))
                most = max(most, sum(not future.done() for future in futures))
            assert most <= 4, "two on the device and two in the line"
            first = futures[0].result(TIMEOUT)["y"]
            assert all((future.result(TIMEOUT)["y"] == first).all() for future in futures)

    def test_a_waiting_batch_can_be_cancelled_and_never_runs(self, device: Device, job: Job, tally: Job) -> None:
        total = device.array(np.zeros(GROUP, "i4"))
        with Executor(device, 2) as executor:
            with stalled(executor, job, **saxpy_batch(0)):
                running = [executor.submit(tally, total=total, by=by, n=GROUP) for by in (1, 10)]
                waiting = executor.submit(tally, total=total, by=100, n=GROUP)
                assert waiting.cancel()
                assert [future.cancel() for future in running] == [False, False]
                assert waiting.cancelled() and all(future.running() for future in running)
            assert [int(future.result(TIMEOUT)["total"][0]) for future in running] == [1, 11]
            with pytest.raises(CancelledError):
                waiting.result(TIMEOUT)
            assert (executor.submit(tally, total=total, by=1000, n=GROUP).result(TIMEOUT)["total"] == 1011).all()
        assert (total.numpy() == 1011).all()

    def test_a_cancelled_batch_makes_room(self, device: Device, job: Job, tally: Job) -> None:
        total = device.array(np.zeros(GROUP, "i4"))
        executor, seen = Executor(device, 2), []

        def work() -> None:
            for _ in range(10):
                with stalled(executor, job, **saxpy_batch(0)):
                    for _ in range(2):  # on the device
                        executor.submit(tally, total=total, by=1, n=GROUP)
                    assert executor.submit(tally, total=total, by=1000, n=GROUP).cancel()
            seen.append(executor.submit(tally, total=total, by=0, n=GROUP).result(TIMEOUT)["total"])

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(TIMEOUT)
        assert not worker.is_alive(), "the executor counts cancelled batches for ever"
        executor.close()
        assert (seen[0] == 20).all()

    # --- callbacks

    def test_a_callback_may_submit(self, device: Device, ramp: Job) -> None:
        with Executor(device, 2) as executor:
            done, everything = threading.Event(), 20
            later: list[Future[Any]] = []

            def go_on(future: Future[Any]) -> None:
                start = int(future.result()["numbers"][0])
                # More than there is room for: the thread that makes room must not wait for it.
                later.extend(executor.submit(ramp, start=1000 * start + k, n=5) for k in range(10))
                if start == everything - 1:
                    done.set()

            for number in range(everything):
                executor.submit(ramp, start=number, n=5).add_done_callback(go_on)
            assert done.wait(TIMEOUT)
            assert eventually(lambda: len(later) == 10 * everything)
            starts = [int(future.result(TIMEOUT)["numbers"][0]) for future in later]
        assert sorted(starts) == [1000 * number + k for number in range(everything) for k in range(10)]

    def test_callbacks_may_submit_in_a_chain(self, executor: Executor, ramp: Job) -> None:
        end: Future[int] = Future()

        def step(future: Future[Any]) -> None:
            number = int(future.result()["numbers"][0])
            if number == 100:
                end.set_result(number)
            else:
                executor.submit(ramp, start=number + 1, n=5).add_done_callback(step)

        executor.submit(ramp, start=0, n=5).add_done_callback(step)
        assert end.result(TIMEOUT) == 100

    @pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
    def test_a_callback_that_raises_harms_no_other_batch(
        self, executor: Executor, ramp: Job, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
    ) -> None:
        def burst(_: Future[Any]) -> None:
            raise kind("not the executor's business")

        with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
            for number in range(12):
                future = executor.submit(ramp, start=number, n=5)
                with contextlib.suppress(kind):  # where it is done already, the callback is run here
                    future.add_done_callback(burst)
            assert int(future.result(TIMEOUT)["numbers"][0]) == 11
        assert int(executor.submit(ramp, start=5, n=5).result(TIMEOUT)["numbers"][0]) == 5
