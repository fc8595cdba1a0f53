"""A ring in a file: what was not acknowledged runs again, nothing else does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_checkpoint
from ...errors import ArgumentError, DeviceError
from ...resident.resident import Resident
from .common import TASKS, TIMEOUT, ResidentPart

__all__ = ["JournalTests"]

_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class JournalTests(ResidentPart):
    @pytest.fixture
    def journal(self) -> Iterator[Path]:
        """In a folder in memory where there is one: not every file system lets a driver keep its pages."""
        with tempfile.TemporaryDirectory(dir=None if self.emulated else _IN_MEMORY) as folder:
            yield Path(folder) / "work.kkj"

    def interrupted(self, cache: ProgramCache, journal: Path, **options: Any) -> Resident:
        """A grid that did one task of each kind, and was stopped with ten more in its journal."""
        resident = self.make(cache, journal=journal, capacity=64, **options)
        assert len(resident.recovered) == 0
        assert resident.submit("twice", 1).result(TIMEOUT) == 2
        resident.submit("count", 0, 5).result(TIMEOUT)
        resident.pause()
        waiting = [resident.submit("note", 1, number) for number in range(8)]
        waiting += [resident.submit("count", 2, 7), resident.submit("everywhere", 1)]
        resident.stop()
        with pytest.raises(DeviceError, match="it stays in the journal"):
            waiting[0].result(TIMEOUT)
        return resident

    def check_recovered(self, resident: Resident) -> None:
        notes = tuple(("note", (1, number)) for number in range(8))
        assert resident.recovered.tasks == (*notes, ("count", (2, 7)), ("everywhere", (1,)))
        assert len(resident.recovered) == 10
        total = self.read(resident, "total")
        assert (total[0], total[2]) == (0, 7)  # the arrays are new; what was acknowledged did not run again
        assert self.read(resident, "log")[512:520].tolist() == list(range(8))
        assert self.read(resident, "tail")[1] == 8
        assert self.read(resident, "part")[: resident.blocks].tolist() == [1] * resident.blocks

    def test_what_was_not_acknowledged_runs_again(self, cache: ProgramCache, journal: Path) -> None:
        self.interrupted(cache, journal)
        with self.opened(cache, journal=journal, capacity=64) as resident:
            self.check_recovered(resident)
            assert sum(resident.submitted) == 12
            assert resident.submit("twice", 4).result(TIMEOUT) == 8
        with self.opened(cache, journal=journal, capacity=64) as resident:
            assert len(resident.recovered) == 0
            assert sum(resident.submitted) == 13

    def test_a_process_that_was_killed_before_it_stored_a_head(self, cache: ProgramCache, journal: Path) -> None:
        """The device had run the task by then, from the copy of its record."""
        with self.opened(cache, journal=journal, capacity=64, blocks=1) as resident:
            resident.submit_many("count", [(0, 1)] * 5).result(TIMEOUT)
        data = np.frombuffer(journal.read_bytes(), "u1").copy()
        data[1 << 18 :].view("u8")[16] -= 1
        journal.write_bytes(data.tobytes())
        with self.opened(cache, journal=journal, capacity=64, blocks=1) as resident:
            assert len(resident.recovered) == 0
            assert resident.submit("twice", 4).result(TIMEOUT) == 8
            assert resident.submitted == resident.done == (6,)

    @pytest.mark.parametrize("change", ["blocks", "capacity", "tasks"])
    def test_the_grid_may_be_another_one(self, cache: ProgramCache, journal: Path, change: str) -> None:
        self.interrupted(cache, journal)
        options: dict[str, Any] = {"capacity": 64, "tasks": TASKS}
        changes: dict[str, dict[str, Any]] = {
            "blocks": {"blocks": 1},
            "capacity": {"capacity": 16},
            "tasks": {"tasks": {"other": "() { }", **dict(reversed(TASKS.items()))}},
        }
        options |= changes[change]
        with self.opened(cache, journal=journal, **options) as resident:
            self.check_recovered(resident)
            assert sum(resident.submitted) == 12
        with self.opened(cache, journal=journal, **options) as resident:
            assert len(resident.recovered) == 0
            assert sum(resident.submitted) == sum(resident.done) == 12

    def test_tasks_that_were_added_are_known(self, cache: ProgramCache, journal: Path) -> None:
        added = "(int at) { if (kk_local_id(0) == 0) total[at] = 77; }"
        with self.opened(cache, journal=journal) as resident:
            resident.add("late", added)
            resident.pause()
            resident.submit("late", 3)
        with pytest.raises(
            ArgumentError, match="runs of the task late that were not acknowledged, and tasks= has none"
        ):
            self.make(cache, journal=journal)
        with pytest.raises(ArgumentError, match=r"has runs of late\(at: i4\) that .* tasks= has late\(at: f4\)"):
            self.make(cache, {**TASKS, "late": "(float at) { }"}, journal=journal)
        with self.opened(cache, {**TASKS, "late": added}, journal=journal) as resident:
            assert resident.recovered.tasks == (("late", (3,)),)
            assert self.read(resident, "total")[3] == 77

    def test_runs_of_graphs_are_counted_and_not_repeated(self, cache: ProgramCache, journal: Path) -> None:
        with self.opened(cache, journal=journal) as resident:
            graph = resident.graph()
            graph.task("count", 1, 1)
            graph.run().result(TIMEOUT)
            resident.pause()
            resident.submit("count", 0, 5)
            graph.run()
            resident.submit("count", 0, 7)
        with self.opened(cache, journal=journal) as resident:
            assert resident.recovered.graphs == 1
            assert resident.recovered.tasks == (("count", (0, 5)), ("count", (0, 7)))
            assert self.read(resident, "total")[:2].tolist() == [12, 0]

    def test_too_small_a_ring_is_refused_and_nothing_is_lost(self, cache: ProgramCache, journal: Path) -> None:
        self.interrupted(cache, journal)
        before = journal.read_bytes()
        with pytest.raises(ArgumentError, match="pass capacity= of at least 16"):
            self.make(cache, journal=journal, capacity=8)
        assert journal.read_bytes() == before

    def test_two_grids_cannot_use_it(self, cache: ProgramCache, journal: Path) -> None:
        with self.opened(cache, journal=journal), pytest.raises(ArgumentError, match="is in use by process"):
            self.make(cache, journal=journal)
        with self.opened(cache, journal=journal) as resident:
            assert resident.submit("twice", 2).result(TIMEOUT) == 4

    def test_all_tasks_since_a_checkpoint_run_again(self, cache: ProgramCache, journal: Path, tmp_path: Path) -> None:
        """The arrays are lost with the process; with the checkpoint they become what they were."""
        saved = tmp_path / "arrays.kkpt"
        with self.opened(cache, journal=journal, capacity=64) as resident:
            resident.submit_many("count", [(0, 1)] * 20)
            resident.drain(TIMEOUT)
            resident.save(saved)
            resident.submit_many("count", [(0, 1)] * 30).result(TIMEOUT)
            resident.pause()
            resident.submit_many("count", [(1, 1)] * 5)
        for blocks in (self.blocks, 1, 2, 1, 1):  # written again more than once
            with self.opened(
                cache, arrays=read_checkpoint(saved), journal=journal, capacity=64, blocks=blocks
            ) as resident:
                assert len(resident.recovered) == 35
                assert self.read(resident, "total")[:2].tolist() == [50, 5]
                assert sum(resident.submitted) == 55
        with self.opened(
            cache, arrays=read_checkpoint(saved).state, journal=journal, capacity=64, blocks=1
        ) as resident:
            assert len(resident.recovered) == 0
            resident.submit_many("count", [(0, 1)] * 80).result(TIMEOUT)
        with pytest.raises(ArgumentError, match="holds the last 64 tasks of block 0, and 115 were submitted"):
            self.make(cache, arrays=read_checkpoint(saved), journal=journal, capacity=64, blocks=1)
        another = journal.with_name("another.kkj")
        self.make(cache, journal=another).close()
        with pytest.raises(ArgumentError, match="the checkpoint was not saved by a resident grid with the journal"):
            self.make(cache, arrays=read_checkpoint(saved), journal=another)

    def test_arrays_are_saved_and_read(self, cache: ProgramCache, tmp_path: Path) -> None:
        with self.opened(cache) as resident:
            resident.submit("fill", 0, 256, 0.5)
            resident.submit("count", 9, 4)
            resident.drain(TIMEOUT)
            assert resident.save(tmp_path / "arrays.kkpt").raw_bytes == sum(
                one.nbytes for one in resident.arrays.values()
            )
            assert resident.submit("twice", 1).result(TIMEOUT) == 2  # it runs again
        checkpoint = read_checkpoint(tmp_path / "arrays.kkpt")
        assert checkpoint.iteration == 2
        assert (checkpoint.state["x"] == 0.5).all()
        with self.opened(cache, arrays=checkpoint.state) as resident:
            assert resident.submit("sum", 256).result(TIMEOUT) == 128
            assert self.read(resident, "total")[9] == 4

    @pytest.mark.parametrize("damage", ["empty", "foreign", "beginning", "cut", "counters", "head", "number", "folder"])
    def test_damaged_and_foreign_files_are_refused_and_kept(
        self, cache: ProgramCache, journal: Path, damage: str
    ) -> None:
        self.interrupted(cache, journal)
        data = np.frombuffer(journal.read_bytes(), "u1").copy()
        said = "is no journal of a resident grid"
        ring = data[1 << 18 :].view("u8")
        if damage == "empty":
            data = data[:0]
        elif damage == "foreign":
            data = np.resize(np.frombuffer(b"somebody's notes\n", "u1"), 300_000)
        elif damage == "beginning":
            data[: 1 << 18] ^= 0x55
        elif damage == "cut":
            data, said = data[: (1 << 18) + 4096], "cannot be used: the ring is cut short"
        elif damage == "counters":
            ring[16], said = 1 << 40, "is damaged: .* tasks of block 0 were submitted and .* were done"
        elif damage == "head":  # one bit, and the ring could be as full as that
            ring[16] ^= 32
            said = (
                "is damaged: block 0 was given 44 tasks, it says, and the record of number 12 is that of another task"
            )
        elif damage == "number":
            slots = data[-64 * self.blocks * 32 :]
            slots.view("u4")[::8] = 1000
            said = "is damaged: block . has a task with the number 1000"
        if damage == "folder":
            journal.unlink()
            journal.mkdir()
        else:
            journal.write_bytes(data.tobytes())
        with pytest.raises(ArgumentError, match=said):
            self.make(cache, journal=journal, capacity=64)
        assert journal.is_dir() if damage == "folder" else journal.read_bytes() == data.tobytes()
