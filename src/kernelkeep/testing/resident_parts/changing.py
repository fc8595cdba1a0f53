"""Tasks that are added and replaced while the grid runs."""

from __future__ import annotations

import threading
import time

import pytest

from ...cache.program_cache import ProgramCache
from ...errors import ArgumentError, CompileError
from ...resident.resident import Resident
from ...resident.task import Task
from .common import TIMEOUT, ResidentPart

__all__ = ["ChangingTests"]

BY_ONE = "(int at) { if (kk_local_id(0) == 0) kk_atomic_add(total[at], 1); }"


class ChangingTests(ResidentPart):
    adds = 4

    def test_a_task_is_added_while_the_grid_runs(self, resident: Resident) -> None:
        before = resident.submit("twice", 1)
        paused = resident.add(
            "thrice", Task("if (kk_local_id(0) == 0) kk_result(3 * v);", args={"v": "i4"}, result="i4")
        )
        assert before.result(TIMEOUT) == 2
        assert resident.submit("thrice", 5).result(TIMEOUT) == 15
        assert resident.submit("twice", 5).result(TIMEOUT) == 10
        assert paused == resident.last_pause_seconds > 0
        assert "thrice" in resident.tasks

    def test_nothing_is_lost_or_done_twice_while_tasks_are_added(self, resident: Resident) -> None:
        """Threads submit all the time; between two additions at least one task of each thread is done."""
        stop = threading.Event()
        counts = [0, 0, 0]
        problems: list[BaseException] = []

        def produce(producer: int) -> None:
            try:
                while not stop.is_set():
                    resident.submit_many("count", [(producer, 1)] * 5)
                    resident.submit("count", producer, 1).result(TIMEOUT)
                    counts[producer] += 6
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=produce, args=(producer,)) for producer in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(self.adds):
                seen = list(counts)
                resident.add(
                    f"extra{number % 2}", f"() {{ if (kk_local_id(0) == 0) total[40 + {number}] = {number} + 1; }}"
                )
                resident.submit(f"extra{number % 2}").result(TIMEOUT)
                while not problems and any(now == then for now, then in zip(counts, seen, strict=True)):
                    time.sleep(0.001)
        finally:
            stop.set()
            for thread in threads:
                thread.join(TIMEOUT)
        assert not problems
        total = self.read(resident, "total")
        assert total[:3].tolist() == counts
        assert total[40 : 40 + self.adds].tolist() == list(range(1, self.adds + 1))

    def test_tasks_that_wait_run_the_new_body_with_the_same_arguments(self, cache: ProgramCache) -> None:
        with self.opened(cache, {"add": BY_ONE}, {"total": self.arrays()["total"]}) as resident:
            resident.submit("add", 1).result(TIMEOUT)
            resident.pause()
            waiting = [resident.submit("add", 1) for _ in range(3)]
            resident.add("add", BY_ONE.replace(", 1)", ", 10)"))
            resident.resume()
            for future in waiting:
                future.result(TIMEOUT)
            assert self.read(resident, "total")[1] == 31

    def test_tasks_that_wait_run_the_old_body_where_the_arguments_change(self, cache: ProgramCache) -> None:
        with self.opened(cache, {"add": BY_ONE}, {"total": self.arrays()["total"]}) as resident:
            resident.pause()
            waiting = [resident.submit("add", 1) for _ in range(3)]
            resident.add("add", "(float by, int at) { if (kk_local_id(0) == 0) kk_atomic_add(total[at], (int)by); }")
            waiting.append(resident.submit("add", 100.0, 1))
            resident.resume()
            for future in waiting:
                future.result(TIMEOUT)
            assert self.read(resident, "total")[1] == 103
            assert resident.tasks == ("add",)

    def test_a_task_that_cannot_be_added_changes_nothing(self, resident: Resident) -> None:
        with pytest.raises(CompileError, match="missing"):
            resident.add("wrong", "() { total[0] = missing; }")
        with pytest.raises(ArgumentError, match="argument_bytes="):
            resident.add("long", "(" + ", ".join(f"int a{number}" for number in range(20)) + ") { }")
        assert "wrong" not in resident.tasks
        with pytest.raises(ArgumentError, match="there is no task 'wrong'"):
            resident.submit("wrong")
        assert resident.submit("twice", 3).result(TIMEOUT) == 6
