"""Many threads submit at once, to devices of host threads, through rings that are full most of the time."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelkeep.resident.future import BatchFuture
from kernelkeep.resident.protocol import pack_plan, row_dtype

from .device_threads import DeviceThreads

MakeRing = Callable[..., tuple[Any, list[Any]]]
PRODUCERS, TASKS = 4, 600
WITH_RESULT = pack_plan(1, "q", ["i", "i"])
WITHOUT = pack_plan(2, "", ["i", "i"])


def submit(lane: Any, plan: bytes, arguments: tuple[Any, ...]) -> Any:
    while (future := lane.push(plan, arguments)) is None:
        assert lane.wait_for_room(0, 60_000_000_000)
    return future


def submit_many(lane: Any, rows: Any) -> BatchFuture:
    parts, start = [], 0
    while start < len(rows):
        taken, part = lane.push_many(1, rows, 8, len(rows), "q", start)
        start += taken
        if taken:
            parts.append(part)
        else:
            assert lane.wait_for_room(0, 60_000_000_000)
    return BatchFuture(parts)


@pytest.mark.parametrize("begin", [0, (1 << 32) - 500])
def test_every_task_runs_once_in_order_and_every_future_has_its_own_result(make_ring: MakeRing, begin: int) -> None:
    """Producers 0 and 2 share lane 0, 1 and 3 lane 1. In the second case the tags wrap meanwhile."""
    ring, lanes = make_ring(lanes=2, capacity=8, begin=begin)
    ran: list[list[tuple[int, int]]] = [[], []]

    def body(lane: int, sequence: int, task: int, record: bytes) -> tuple[int, int] | None:
        assert sequence == begin + len(ran[lane])
        producer, number = struct.unpack_from("<ii", record, 8)
        ran[lane].append((producer, number))
        return (number * 3 + producer, producer) if task == 1 else None

    failures: list[BaseException] = []
    completed: Counter[int] = Counter()

    def produce(producer: int) -> None:
        try:
            lane = lanes[producer % 2]
            kept = []
            for number in range(0, TASKS, 20):
                for one in range(number, number + 10):
                    future = submit(lane, WITH_RESULT if one % 3 else WITHOUT, (producer, one))
                    kept.append((future, one))
                    if one % 7 == 0:
                        future.result()
                rows = np.zeros(10, row_dtype(["producer", "number"], ["i", "i"]))
                rows["producer"], rows["number"] = producer, np.arange(number + 10, number + 20)
                kept.append((submit_many(lane, rows), number + 10))
            for future, one in reversed(kept):
                result = future.result(60)
                if isinstance(future, BatchFuture):
                    expected = (np.arange(one, one + 10) * 3 + producer) | (producer << 32)
                    assert np.array_equal(result, expected)
                else:
                    assert result == ((one * 3 + producer) | (producer << 32) if one % 3 else None)
                completed[producer] += 1
        except BaseException as error:
            failures.append(error)
            raise

    with DeviceThreads(ring, body):
        threads = [threading.Thread(target=produce, args=(producer,)) for producer in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert completed == Counter(dict.fromkeys(range(PRODUCERS), TASKS // 20 * 11))
    for lane in (0, 1):
        assert lanes[lane].pending == 0
        assert lanes[lane].submitted == lanes[lane].done == begin + len(ran[lane]) == begin + 2 * TASKS
        for producer in (lane, lane + 2):
            assert [number for one, number in ran[lane] if one == producer] == list(range(TASKS))
