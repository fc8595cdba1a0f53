"""Many tasks at once: rows of arguments, spread or in order, from one thread or many."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...errors import ArgumentError
from ...resident.resident import Resident
from ...resident.task import Task
from ..device_parts.common import together
from .common import TIMEOUT, ResidentPart

__all__ = ["BatchTests"]


class BatchTests(ResidentPart):
    producers = 8
    tasks_each = 120

    @pytest.mark.parametrize("ordered", [True, False])
    def test_results_come_in_the_order_of_the_rows(self, resident: Resident, ordered: bool) -> None:
        rows = np.zeros(300, resident.rows_dtype("twice"))
        rows["v"] = np.arange(300)
        found = resident.submit_many("twice", rows, ordered=ordered).result(TIMEOUT)
        assert found.dtype == np.int32
        assert found.tolist() == [2 * v for v in range(300)]

    def test_rows_come_in_several_forms(self, resident: Resident) -> None:
        given = [
            np.array([(1, 2), (3, 4)], [("at", "i4"), ("by", "i4")]),
            np.array([(2, 1), (4, 3)], [("by", "i8"), ("at", "u1")]),
            np.array([[1, 2], [3, 4]], "i8"),
            np.array([[1.0, 2.0], [3.0, 4.0]]),
            [(1, 2), (3, 4)],
            np.array([[1, 2], [9, 9], [3, 4], [9, 9]], "i4")[::2],
        ]
        for rows in given:
            assert resident.submit_many("count", rows).result(TIMEOUT) is None
        total = self.read(resident, "total")
        assert (total[1], total[3]) == (2 * len(given), 4 * len(given))
        assert total.sum() == 6 * len(given)
        assert resident.submit_many("twice", [4, 5]).result(TIMEOUT).tolist() == [8, 10]
        assert resident.submit_many("nothing", 7).count == resident.submit_many("nothing", np.int64(7)).count == 7
        assert resident.submit_many("twice", np.zeros((0, 1), "i4")).result(TIMEOUT).tolist() == []

    def test_more_rows_than_the_ring_holds(self, cache: ProgramCache) -> None:
        with self.opened(cache, capacity=16) as resident:
            for ordered in (True, False):
                rows = np.stack([np.arange(200) % 8, np.ones(200)], 1)
                future = resident.submit_many("count", rows, ordered=ordered)
                assert future.count == 200
                future.result(TIMEOUT)
            assert self.read(resident, "total")[:8].tolist() == [50] * 8

    @pytest.mark.parametrize(
        ("name", "rows", "said"),
        [
            ("twice", np.array([1.5]), "argument v of task twice must be int32"),
            ("twice", np.array([2**31]), "argument v of task twice must be int32"),
            ("twice", ["a"], "argument v of task twice must be int32"),
            ("fill", [(0, 1, 1e39)], "argument value of task fill must be float32"),
            ("count", [1, 2, 3], "must have 2 columns"),
            ("count", np.zeros(3, [("at", "i4"), ("to", "i4")]), "must have the fields at, by"),
            ("twice", [1, 2, 2**31], "must be int32, and row 2 does not fit: 2147483648"),
            (
                "twice",
                np.zeros(3, [("v", "i4", (2,))]),
                r"field v of the rows for task twice must be one number, got .* shape \(2,\)",
            ),
            ("twice", np.zeros((3, 1), [("v", "i4")]), r"must be records in one dimension, got shape \(3, 1\)"),
            ("twice", np.ma.array([1, 2], mask=[False, True]), "must be an array without a mask"),
            ("nothing", 2**62, "must fit into memory, a byte for each task, got 4611686018427387904"),
            ("nothing", [1, 2], "takes no arguments"),
            ("missing", [1], "there is no task 'missing'"),
        ],
    )
    def test_rows_that_do_not_fit_are_refused(self, resident: Resident, name: str, rows: object, said: str) -> None:
        with pytest.raises(ArgumentError, match=said):
            resident.submit_many(name, rows)
        assert resident.drain(TIMEOUT)

    def test_the_tasks_of_a_thread_run_in_order(self, resident: Resident) -> None:
        def produce(producer: int) -> None:
            for number in range(100):
                resident.submit("note", producer, number)
            resident.submit_many("note", [(producer, number) for number in range(100, 200)])
            resident.submit("note", producer, 200).result(TIMEOUT)

        together(produce, self.producers)
        log, tail = self.read(resident, "log"), self.read(resident, "tail")
        assert tail.tolist() == [201] * self.producers
        for producer in range(self.producers):
            assert log[producer * 512 :][:201].tolist() == list(range(201))

    @pytest.mark.parametrize("threads", [32, 64, 256])
    def test_blocks_of_any_size_run_tasks_in_order(self, cache: ProgramCache, threads: int) -> None:
        """Each task continues what all work-items of the one before did, by itself, among many, for all blocks and in a graph."""
        step = "int i = kk_local_id(0), n = kk_group_size(0); int before = x[(i + 1) % n]; kk_barrier(); "
        step += "x[i] = (3 * before + by) % 65521; if (i == n - 1) kk_result(x[i]);"
        tasks = {
            "step": Task(step, args={"by": "i4"}, result="i4"),
            "all": Task("if (kk_local_id(0) == 0) kk_atomic_add(calls[0], 1);", whole_grid=True),
        }
        arrays = {"x": np.zeros(threads, "i4"), "calls": np.zeros(1, "i4")}
        with self.opened(cache, tasks, arrays, threads=threads) as resident:
            expected = [0]
            for by in range(1, 40):
                expected.append((3 * expected[-1] + by) % 65521)
            assert resident.submit("step", 0).result(TIMEOUT) == expected[0]
            assert resident.submit_many("step", np.arange(1, 20)).result(TIMEOUT).tolist() == expected[1:20]
            resident.submit("all").result(TIMEOUT)
            graph = resident.graph()
            last: Any = ()
            for by in range(20, 40):
                last = graph.task("step", by, after=last)
                if by == 30:
                    last = graph.task("all", after=last)
            graph.run().result(TIMEOUT)
            assert graph.result(last) == expected[-1]
            assert self.read(resident, "x").tolist() == [expected[-1]] * threads
            assert self.read(resident, "calls")[0] == 2 * self.blocks

    def test_many_threads_submit_all_kinds_of_tasks(self, resident: Resident) -> None:
        """Every future completes once, with its own result, and nothing runs twice or not at all."""
        each = self.tasks_each

        def produce(producer: int) -> int:
            completed: list[object] = []
            futures = []
            for number in range(each):
                future = resident.submit("twice", producer * 1000 + number)
                future.add_done_callback(completed.append)
                futures.append((future, 2 * (producer * 1000 + number)))
                resident.submit("count", producer, 1)
                if number % 40 == 0:
                    futures.append((resident.submit("everywhere", 1), self.blocks))
            resident.submit_many("count", [(32 + producer, 2)] * each, ordered=False).result(TIMEOUT)
            assert [future.result(TIMEOUT) for future, _ in futures] == [wanted for _, wanted in futures]
            while len(completed) < each:
                time.sleep(0.001)
            assert len({id(one) for one in completed}) == each
            return sum(1 for number in range(each) if number % 40 == 0)

        wide = sum(together(produce, self.producers))
        total = self.read(resident, "total")
        assert total[: self.producers].tolist() == [each] * self.producers
        assert total[32 : 32 + self.producers].tolist() == [2 * each] * self.producers
        assert self.read(resident, "part")[: self.blocks].tolist() == [wide] * self.blocks
