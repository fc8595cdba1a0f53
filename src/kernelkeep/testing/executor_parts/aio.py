"""`await executor.run(…)` and `async for` do not block the event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import ArgumentError, CompileError, DeviceError
from ...execution.executor import Executor
from ...execution.job import Job
from ...programs.portable import Buffer, PortableKernel
from ..device_parts.common import GROUP
from .common import ITEMS, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result, stalled

__all__ = ["AsyncTests"]


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop of its own, with a timeout."""
    return asyncio.run(asyncio.wait_for(work, TIMEOUT))


class _Ticker:
    """A task that would be late if anything blocked the loop."""

    def __init__(self) -> None:
        self.ticks = 0
        self.longest = 0.0
        self._last = time.perf_counter()
        self._task = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.002)
            now = time.perf_counter()
            self.ticks += 1
            self.longest, self._last = max(self.longest, now - self._last), now

    async def stop(self) -> None:
        await asyncio.sleep(0.01)  # one tick at least sees how late it is
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class AsyncTests(ExecutorPart):
    """Nothing of an executor waits in the event loop's thread."""

    def test_awaiting_one_batch_and_fifty(self, executor: Executor, job: Job) -> None:
        async def main() -> None:
            np.testing.assert_array_equal((await executor.run(job, **saxpy_batch(3)))["y"], saxpy_result(3))
            results = await asyncio.gather(*(executor.run(job, **saxpy_batch(n)) for n in range(50)))
            for number, result in enumerate(results):
                np.testing.assert_array_equal(result["y"], saxpy_result(number))

        _run(main())

    def test_the_loop_goes_on_while_a_result_is_waited_for(self, executor: Executor, job: Job) -> None:
        async def main() -> None:
            with stalled(executor, job, **saxpy_batch(0)) as go_on:
                # If it blocked the loop, the timer would release it, and the test would fail instead of hanging.
                rescue = threading.Timer(TIMEOUT / 2, go_on.set)
                rescue.start()
                tasks = [asyncio.ensure_future(executor.run(job, **saxpy_batch(n))) for n in range(20)]
                ticker = _Ticker()
                while ticker.ticks < 30:
                    await asyncio.sleep(0.002)
                assert not go_on.is_set() and not any(task.done() for task in tasks)
                rescue.cancel()
                await ticker.stop()
            for number, result in enumerate(await asyncio.gather(*tasks)):
                np.testing.assert_array_equal(result["y"], saxpy_result(number))

        _run(main())

    def test_the_loop_goes_on_while_the_device_is_busy(self, device: Device, chain: Job) -> None:
        batch = self.slow_batch(device, chain, 0.5)

        async def stood_still() -> tuple[float, float]:
            """For how long at most, and how long a batch takes."""
            with Executor(device) as executor:
                start = time.perf_counter()
                await executor.run(chain, **batch)
                alone = time.perf_counter() - start
                ticker = _Ticker()
                tasks = []
                for _ in range(3):  # the second and third come while the first is on the device
                    tasks.append(asyncio.ensure_future(executor.run(chain, **batch)))
                    await asyncio.sleep(alone / 8)
                await asyncio.gather(*tasks)
                await ticker.stop()
                return ticker.longest, alone

        # A busy machine may keep the loop's thread waiting once; an executor that blocks the loop does so every time.
        tries = []
        for _ in range(4):
            longest, alone = _run(stood_still())
            if longest < alone / 3:
                return
            tries.append(f"{longest:.3f} s of {alone:.3f} s")
        raise AssertionError(f"the loop stood still every time, for {', '.join(tries)}")

    def test_the_loop_goes_on_while_a_program_is_compiled(self, executor: Executor, cache: ProgramCache) -> None:
        lines = "\n".join(f"v = v * {n}.5f + sin(v + {n}.25f);" for n in range(60))
        text = f"float v = y[kk_global_id(0)];\n{lines}\ny[kk_global_id(0)] = v;"
        slow = PortableKernel("slow_to_compile", params=[Buffer("y", "f4", "rw")], body=text, group=GROUP)
        job = Job(cache, slow, grid=1, outputs=["y"])

        async def main() -> None:
            ticker, start = _Ticker(), time.perf_counter()
            await executor.run(job, y=np.zeros(GROUP, "f4"))
            took = time.perf_counter() - start
            await ticker.stop()
            assert ticker.longest < max(took / 5, 0.05), f"{ticker.longest:.3f} s of {took:.3f} s"

        _run(main())

    def test_run_copies_arrays_that_change_while_the_batch_waits(self, device: Device, job: Job) -> None:
        async def main() -> None:
            with Executor(device, 1) as executor:
                with stalled(executor, job, **saxpy_batch(0)):
                    tasks = []
                    for number in range(5):
                        batch = saxpy_batch(number)
                        tasks.append(asyncio.ensure_future(executor.run(job, **batch)))
                        await asyncio.sleep(0)  # it has started
                        batch["y"][:] = -1
                        batch["x"][:] = -1
                for number, task in enumerate(tasks):
                    np.testing.assert_array_equal((await task)["y"], saxpy_result(number))

        _run(main())

    def test_a_cancelled_task_never_runs_its_batch(self, device: Device, job: Job, tally: Job) -> None:
        total = device.array(np.zeros(GROUP, "i4"))

        async def main() -> None:
            with Executor(device, 1) as executor:
                await executor.run(tally, total=total, by=0, n=GROUP)
                with stalled(executor, job, **saxpy_batch(0)):
                    keep = asyncio.ensure_future(executor.run(tally, total=total, by=1, n=GROUP))  # on the device
                    await asyncio.sleep(0.05)
                    drop = [asyncio.ensure_future(executor.run(tally, total=total, by=100, n=GROUP)) for _ in range(4)]
                    await asyncio.sleep(0.05)
                    for task in drop:
                        assert task.cancel()
                    for result in await asyncio.gather(*drop, return_exceptions=True):
                        assert isinstance(result, asyncio.CancelledError)
                    after = asyncio.ensure_future(executor.run(tally, total=total, by=1000, n=GROUP))
                    await asyncio.sleep(0)
                assert int((await keep)["total"][0]) == 1
                assert int((await after)["total"][0]) == 1001

        _run(main())
        assert (total.numpy() == 1001).all()

    def test_a_timeout_cancels_the_batch(self, executor: Executor, job: Job) -> None:
        async def main() -> None:
            with stalled(executor, job, **saxpy_batch(0)):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(executor.run(job, **saxpy_batch(1)), 0.05)
            np.testing.assert_array_equal((await executor.run(job, **saxpy_batch(2)))["y"], saxpy_result(2))

        _run(main())

    def test_a_loop_that_is_closed_midway_harms_nobody(
        self, executor: Executor, job: Job, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop = asyncio.new_event_loop()
        with stalled(executor, job, **saxpy_batch(0)):
            tasks = [loop.create_task(executor.run(job, **saxpy_batch(n))) for n in range(12)]
            loop.run_until_complete(asyncio.sleep(0.05))
            with caplog.at_level("CRITICAL", "asyncio"):  # asyncio logs that tasks were destroyed
                loop.close()
                del tasks
        for number in range(12):
            np.testing.assert_array_equal(
                executor.submit(job, **saxpy_batch(number)).result(TIMEOUT)["y"], saxpy_result(number)
            )

        async def main() -> None:
            np.testing.assert_array_equal((await executor.run(job, **saxpy_batch(4)))["y"], saxpy_result(4))

        _run(main())  # another loop

    def test_two_event_loops_in_two_threads_share_an_executor(self, executor: Executor, job: Job) -> None:
        async def main(first: int) -> None:
            for number in range(first, first + 20):
                np.testing.assert_array_equal(
                    (await executor.run(job, **saxpy_batch(number)))["y"], saxpy_result(number)
                )

        problems: list[BaseException] = []

        def work(first: int) -> None:
            try:
                _run(main(first))
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        assert not problems and not any(thread.is_alive() for thread in threads)

    def test_run_and_submit_can_be_mixed(self, executor: Executor, job: Job) -> None:
        async def main() -> None:
            for number in range(10):
                future = executor.submit(job, **saxpy_batch(number))
                mine, theirs = await asyncio.gather(
                    executor.run(job, **saxpy_batch(-number)), asyncio.wrap_future(future)
                )
                np.testing.assert_array_equal(mine["y"], saxpy_result(-number))
                np.testing.assert_array_equal(theirs["y"], saxpy_result(number))

        _run(main())

    def test_errors_are_raised_where_they_are_awaited(self, executor: Executor, job: Job, cache: ProgramCache) -> None:
        broken = PortableKernel("unfit", params=[Buffer("y", "f4", "rw")], body="y[0] = no_such_thing;", group=64)

        async def main() -> None:
            calls = [
                executor.run(job, **saxpy_batch(0)), executor.run(job, **saxpy_batch(1) | {"a": "2"}),
                executor.run(Job(cache, broken, 1, ["y"]), y=np.zeros(4, "f4")), executor.run(job, **saxpy_batch(2)),
                executor.run(None, **saxpy_batch(0)),  # type: ignore[arg-type]
            ]  # fmt: skip
            results = await asyncio.gather(*calls, return_exceptions=True)
            kinds = [type(result) for result in results]
            assert kinds == [dict, ArgumentError, CompileError, dict, ArgumentError]

        _run(main())

    def test_run_on_a_closed_executor_raises(self, device: Device, job: Job) -> None:
        executor = Executor(device)
        executor.close()
        with pytest.raises(DeviceError, match="closed"):
            _run(executor.run(job, **saxpy_batch(0)))

    # --- async for

    def test_stream_yields_results_in_order(self, executor: Executor, ramp: Job) -> None:
        async def main() -> None:
            taken = 0

            def batches() -> Iterator[dict[str, int]]:
                nonlocal taken
                for number in itertools.count():
                    taken += 1
                    yield {"start": number}

            results = executor.stream(ramp, batches(), n=ITEMS)
            number = 0
            async for result in results:
                assert int(result["numbers"][0]) == number
                number += 1
                assert taken <= number + executor.depth + 1, "an endless iterator is taken from as it is needed"
                if number == 30:
                    break
            await results.aclose()  # type: ignore[attr-defined]
            finite = [
                int(r["numbers"][-1]) async for r in executor.stream(ramp, [{"start": n, "n": 5} for n in range(9)])
            ]
            assert finite == [n + 4 for n in range(9)]

        _run(main())

    @pytest.mark.parametrize("kind", ["raises", "no mapping", "bad batch"])
    def test_a_stream_whose_batches_break_off_yields_the_results_before(
        self, executor: Executor, ramp: Job, kind: str
    ) -> None:
        def batches() -> Iterator[Any]:
            yield from ({"start": k, "n": 3} for k in range(7))
            if kind == "raises":
                raise ArgumentError("the disk is on fire")
            yield 7 if kind == "no mapping" else {"start": "x", "n": 3}
            yield from ({"start": k, "n": 3} for k in range(7))

        async def main() -> None:
            seen: list[int] = []

            async def consume() -> None:
                async for result in executor.stream(ramp, batches()):
                    seen.append(int(result["numbers"][0]))

            with pytest.raises(ArgumentError):
                await consume()
            assert seen == list(range(7)), "what came before comes first"
            assert int((await executor.run(ramp, start=4, n=3))["numbers"][0]) == 4

        _run(main())
