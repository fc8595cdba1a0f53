"""Futures of tasks: waiting, awaiting, callbacks, and devices that are gone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelkeep.errors import DeviceError
from kernelkeep.resident.future import BatchFuture, TaskFuture, Waiting
from kernelkeep.resident.lane import future_type
from kernelkeep.resident.protocol import pack_plan, result_words
from kernelkeep.resident.python_lane import PythonFuture

from .device_threads import DeviceThreads

MakeRing = Callable[..., tuple[Any, list[Any]]]
PLAIN = pack_plan(3, "", [])
LONG = pack_plan(4, "q", ["q"])


def argument_times_two(lane: int, sequence: int, task: int, record: bytes) -> tuple[int, int]:
    bits = 2 * int.from_bytes(record[8:16], "little")
    return bits & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF


def finish(ring: Any, value: int = 0) -> None:
    sequence = int(ring.done[0])
    ring.results[0, sequence % ring.layout.capacity] = result_words(sequence, "q", value)
    ring.done[0] = sequence + 1


def test_result_waits_for_the_device(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring()
    with DeviceThreads(ring, argument_times_two):
        for number in range(100):
            future = lane.push(LONG, (number << 30,))
            assert future.result() == number << 31
            assert future.done() and future.exception() is None
            assert not future.cancel() and not future.cancelled()
            assert future.result(timeout=1) == future.result(1.0) == number << 31


def test_result_gives_up_after_its_timeout(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring()
    future = lane.push(LONG, (1,))
    for timeout in (0, 1e-6, 0.01):
        with pytest.raises(TimeoutError, match="not done after"):
            future.result(timeout=timeout)
    with pytest.raises(TimeoutError):
        future.exception(0.001)
    assert not future.done()
    finish(ring, 5)
    assert future.result(timeout=0) == 5


def test_repr_tells_the_state(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring()
    future = lane.push(LONG, (1,))
    lost = lane.push(LONG, (2,))
    both = BatchFuture([future, lost])
    assert repr(future).endswith("TaskFuture of 1 task: pending>")
    finish(ring, 5)
    assert repr(future).endswith("TaskFuture of 1 task: done>")
    assert repr(both) == "<BatchFuture of 2 tasks: pending>"
    lane.failure = DeviceError("it is gone")
    assert repr(future).endswith("TaskFuture of 1 task: done>")
    assert repr(lost).endswith("TaskFuture of 1 task: failed, DeviceError: it is gone>")
    assert repr(both) == "<BatchFuture of 2 tasks: failed, DeviceError: it is gone>"


def test_arguments_of_result(make_ring: MakeRing) -> None:
    _, [lane] = make_ring()
    future = lane.push(PLAIN, ())
    with pytest.raises(TypeError):
        future.result(1, 2)
    with pytest.raises(TypeError):
        future.result(seconds=1)


def test_silence_is_looked_into_and_raised(make_ring: MakeRing) -> None:
    """What `on_silence` raises ends the wait, not the future."""
    looks: list[Any] = []

    def on_silence(lane: Any) -> None:
        looks.append(lane)
        if len(looks) == 3:
            raise DeviceError("task 4 runs on block 0 since 20 s")

    ring, [lane] = make_ring(context=Waiting(on_silence))
    future = lane.push(LONG, (1,))
    with pytest.raises(DeviceError, match="since 20 s"):
        future.result()
    assert looks == [lane] * 3 and not future.done()
    finish(ring, 7)
    assert future.result() == 7


def test_a_lost_device_ends_all_futures_that_are_not_done(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(context=Waiting())
    before, after = lane.push(LONG, (1,)), lane.push(LONG, (2,))
    called: list[Any] = []
    waiting = concurrent.futures.ThreadPoolExecutor(1)
    waited = waiting.submit(after.exception)
    after.add_done_callback(called.append)
    finish(ring, 3)
    lane.failure = lost = DeviceError("the device is lost")
    assert before.result() == 3 and before.exception() is None
    assert after.done() and not after.ready() and after.exception() is lost
    with pytest.raises(DeviceError, match="is lost"):
        after.result()
    with pytest.raises(DeviceError, match="is lost"):
        asyncio.run(gather([after]))
    assert waited.result(60) is lost
    waiting.shutdown()
    lane.context.close()
    assert called == [after]


async def gather(futures: list[Any]) -> list[Any]:
    async def one(future: Any) -> Any:
        return await future

    return await asyncio.gather(*map(one, futures))


def test_await(make_ring: MakeRing) -> None:
    ring, lanes = make_ring(lanes=2, capacity=64)
    with DeviceThreads(ring, argument_times_two):
        futures = [lanes[number % 2].push(LONG, (number,)) for number in range(100)]
        assert asyncio.run(gather(futures)) == [2 * number for number in range(100)]
        assert asyncio.run(gather(futures[:1])) == [0]


def test_a_loop_goes_on_while_a_coroutine_awaits(make_ring: MakeRing) -> None:
    """The coroutine that ends the wait runs in the same loop; each turn stops the loop for 50 µs at most, so it gets many."""
    ring, [lane] = make_ring()

    async def main() -> tuple[Any, int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            for _ in range(50):
                turns += 1
                await asyncio.sleep(0.001)
            finish(ring, 11)

        task = asyncio.create_task(others())
        value = await lane.push(LONG, (1,))
        await task
        return value, turns

    assert asyncio.run(main()) == (11, 50)


def test_awaiting_looks_at_the_device(make_ring: MakeRing) -> None:
    def on_silence(lane: Any) -> None:
        raise DeviceError("gone")

    _, [lane] = make_ring(context=Waiting(on_silence))
    with pytest.raises(DeviceError, match="gone"):
        asyncio.run(gather([lane.push(PLAIN, ())]))


def test_many_awaits_are_one_poll(make_ring: MakeRing) -> None:
    """The device is looked at for the first of them only."""
    looks: list[Any] = []
    ring, [lane] = make_ring(capacity=256, context=Waiting(looks.append))

    async def main() -> list[Any]:
        def finish_all() -> None:
            for number in range(200):
                finish(ring, number)

        asyncio.get_running_loop().call_later(0.35, finish_all)
        return await gather([lane.push(LONG, (1,)) for _ in range(200)])

    assert asyncio.run(main()) == list(range(200))
    assert 1 <= len(looks) <= 8


def test_awaits_in_any_order(make_ring: MakeRing) -> None:
    """One that is awaited later may be done sooner; one that is cancelled holds up nobody."""
    ring, [lane] = make_ring()

    async def main() -> None:
        futures = [lane.push(LONG, (1,)) for _ in range(3)] + [BatchFuture([lane.push_many(1, bytes(8), 8, 1, "q")[1]])]
        awaits = [asyncio.ensure_future(gather([future])) for future in reversed(futures)]
        await asyncio.sleep(0.01)
        awaits.pop().cancel()
        for number in range(4):
            finish(ring, number)
            if number:
                assert await asyncio.wait_for(awaits.pop(), 60) == [number]

    asyncio.run(main())


def test_callbacks_are_called_once_each_from_one_thread(make_ring: MakeRing) -> None:
    ring, lanes = make_ring(lanes=2, capacity=64, context=(context := Waiting()))
    called: list[tuple[Any, threading.Thread]] = []

    def note(future: Any) -> None:
        called.append((future, threading.current_thread()))
        raise ValueError("this is logged")

    futures = [lanes[number % 2].push(LONG, (number,)) for number in range(60)]
    for future in futures:
        future.add_done_callback(note)
    assert not called
    with DeviceThreads(ring, argument_times_two):
        for future in futures:
            future.result()
        while len(called) < 60:
            time.sleep(0.001)
    context.close()
    assert {id(future) for future, _ in called} == {id(future) for future in futures} and len(called) == 60
    assert len({thread for _, thread in called}) == 1 and threading.current_thread() not in dict(called).values()
    with pytest.raises(ValueError):  # is done: called at once, and there is a caller to tell
        futures[0].add_done_callback(note)
    assert called[-1] == (futures[0], threading.current_thread())


def test_callbacks_are_called_in_the_order_of_the_tasks(make_ring: MakeRing) -> None:
    """One that was added later, of a task that is done sooner, does not wait for the others."""
    ring, [lane] = make_ring(context=(context := Waiting()))
    called = threading.Event()
    first = BatchFuture([lane.push_many(1, bytes(8), 8, 1, "q")[1]])
    lane.push(LONG, (1,)).add_done_callback(lambda future: None)
    first.add_done_callback(lambda future: called.set())
    finish(ring)
    assert called.wait(5)
    context.close()


def test_a_waiter_that_is_closed_calls_what_is_left(make_ring: MakeRing) -> None:
    _, [lane] = make_ring(context=(context := Waiting()))
    called: list[Any] = []
    future = lane.push(PLAIN, ())
    future.add_done_callback(called.append)
    context.close()
    context.close()
    assert called == [future]
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_a_forked_child_does_not_wait_for_the_waiters_thread(make_ring: MakeRing) -> None:
    _, [lane] = make_ring(context=(context := Waiting()))
    waiter = context.waiter
    holder = threading.Thread(target=waiter._changed.acquire)  # as the child finds it
    holder.start()
    holder.join()
    waiter.mark_lost()
    context.close()
    called: list[Any] = []
    lane.push(PLAIN, ()).add_done_callback(called.append)
    assert len(called) == 1


def test_a_callback_learns_that_the_device_is_silent(make_ring: MakeRing) -> None:
    def on_silence(lane: Any) -> None:
        raise DeviceError("gone")

    _, [lane] = make_ring(context=(context := Waiting(on_silence)))
    called = threading.Event()
    future = lane.push(PLAIN, ())
    future.add_done_callback(lambda future: called.set())
    assert called.wait(60)
    assert str(future.exception()) == "gone"
    with pytest.raises(DeviceError, match="gone"):
        future.result()
    context.close()


def test_a_batch_over_several_lanes(make_ring: MakeRing) -> None:
    ring, lanes = make_ring(lanes=3, capacity=8)
    rows = np.arange(30, dtype=np.int64)
    called: list[Any] = []
    with DeviceThreads(ring, argument_times_two):
        parts, start = [], 0
        while start < len(rows):
            lane = lanes[start % 3]
            taken, part = lane.push_many(1, rows, 8, min(len(rows), start + 5), "q", start)
            if taken:
                parts.append(part)
                start += taken
            else:
                assert lane.wait_for_room(0, 60_000_000_000)
        batch = BatchFuture(parts)
        assert batch.count == 30
        assert np.array_equal(batch.result(timeout=60), 2 * rows)
        assert batch.done() and batch.exception() is None and not batch.cancel()
        batch.add_done_callback(called.append)
        assert np.array_equal(asyncio.run(gather([batch]))[0], 2 * rows)
        without = BatchFuture([lane.push_many(1, rows, 8, 2)[1] for lane in lanes])
        assert without.result() is None
    assert called == [batch]
    silent = BatchFuture([lanes[0].push_many(1, rows, 8, 2)[1]])
    with pytest.raises(TimeoutError):
        silent.result(0.01)
    lanes[0].failure = DeviceError("gone")
    assert silent.done() and str(silent.exception()) == "gone"
    assert BatchFuture([]).result() is None


def test_room_is_waited_for(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(capacity=8)
    assert lane.wait_for_room(0, 0)
    for _ in range(8):
        lane.push(LONG, (1,))
    assert not lane.wait_for_room(0, 1_000_000)
    ring.done[0] = 1  # its result is not there
    assert not lane.wait_for_room(0, 1_000_000)
    ring.done[0] = 0
    thread = threading.Timer(0.02, finish, (ring,))
    thread.start()
    assert lane.wait_for_room(1000, 60_000_000_000)
    assert lane.push(LONG, (1,)) is not None
    thread.join()
    for _ in range(3):
        finish(ring)
    assert lane.wait_for_room(0, 0, 3) and not lane.wait_for_room(0, 1000, 4)
    for slots in (0, 9):
        with pytest.raises(ValueError, match="slots must be 1 to 8"):
            lane.wait_for_room(0, 0, slots)


def test_only_lanes_make_futures_in_c(make_ring: MakeRing, twins: tuple[Any, Any]) -> None:
    _, [lane] = make_ring()
    assert issubclass(TaskFuture, future_type())
    if not issubclass(twins[1], PythonFuture):
        with pytest.raises(TypeError):
            twins[1]()
        with pytest.raises(TypeError):
            copy.copy(lane.push(PLAIN, ()))


def test_spinning_is_short_and_only_for_the_next_task(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring()
    first, second = lane.push(LONG, (1,)), lane.push(LONG, (2,))
    assert first.is_next() and not second.is_next() and not lane.push_many(1, b"", 0, 1)[1].is_next()
    for held_ns in (0, 100_000):
        lane.held_ns = held_ns
        assert not first.spin()
        with pytest.raises(TimeoutError):
            first.result(0.001)
    finish(ring, 1)
    assert first.spin() and second.is_next() and not second.spin()
    timer = threading.Timer(0.02, finish, (ring, 2))
    timer.start()
    assert asyncio.run(gather([second])) == [2]
    timer.join()
