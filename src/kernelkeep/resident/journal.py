"""A journal: the ring in a file, so that a new process can run exactly the tasks that were not acknowledged.

    kk.Resident(cache, tasks, arrays, journal="/dev/shm/work.kkj")

Opened again, the tasks that were submitted and not acknowledged run again, those of a block in their order. `resident.recovered`
tells which. With `arrays=checkpoint`, which `resident.save` wrote, all tasks since that checkpoint run again, so that the arrays
are what they would have been; the journal must hold them all, so save at least once in `capacity` tasks of a block.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import msgspec

from ..continuous.checkpoints.checkpoint import Checkpoint
from ..errors import ArgumentError
from ..storage.locks import FileLock, LockHeld, LockUnavailable
from .argument_checks import check_folder
from .journal_file import Description, JournalFile, JournalTask, create_journal, new_id, open_journal_file
from .protocol import HEADER_BYTES, TAG_MASK, Layout, RingView
from .saving import saved_done
from .task import CODES, GRAPH, WIDE, PreparedTask
from .task_table import TaskTable


class Recovered(msgspec.Struct, frozen=True):
    """What a journal had the new grid run: (name, arguments) of each task, block after block.

    `graphs` counts runs of graphs that were not acknowledged. They are not run: the process that built the graphs is gone.
    """

    tasks: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    graphs: int = 0

    def __len__(self) -> int:
        return len(self.tasks)


class Journal:
    """A ring in a file that this process alone uses."""

    def __init__(self, path: str | os.PathLike[str], table: TaskTable, checkpoint: Checkpoint | None) -> None:
        try:
            self.path = Path(os.path.realpath(os.fspath(path)))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"journal must be the path of a file, got {path!r}: {error}") from None
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        self._table = table
        self._file: JournalFile | None = None
        self.recovered = Recovered()
        self._take_lock()
        try:
            self._found = open_journal_file(self.path) if os.path.lexists(self.path) else None
            self._waiting = self._unacknowledged(checkpoint) if self._found is not None else []
        except BaseException:
            self._lock.release()
            raise

    def _take_lock(self) -> None:
        check_folder(self.path, "journal")
        try:
            self._lock.acquire(0.2)
        except LockHeld:
            raise ArgumentError(
                f"the journal {self.path} is in use by process {self._lock.note() or '?'}: wait for it, or pass another journal="
            ) from None
        except (LockUnavailable, OSError) as error:
            raise ArgumentError(f"the journal {self.path} cannot be locked: {error}") from None
        self._lock.leave_note(str(os.getpid()))

    @property
    def id(self) -> str:
        """What checkpoints of this journal's arrays name."""
        assert self._file is not None
        return self._file.description.id

    # --- what an earlier process left

    def _unacknowledged(self, checkpoint: Checkpoint | None) -> list[list[bytes]]:
        """The records of each lane that were not acknowledged, or that came after the checkpoint."""
        found = self._found
        assert found is not None
        view = RingView(found.layout, found.ring)
        capacity = found.layout.capacity
        counts = [(int(view.done[lane]), int(view.head[lane])) for lane in range(found.layout.lanes)]
        too_many = sum(head for _, head in counts) >> 62
        for lane, (done, head) in enumerate(counts):
            if done == head + 1:  # killed between the copy of a record, which the device ran, and its head
                head, counts[lane] = done, (done, done)
            if not 0 <= head - done <= capacity or too_many:
                raise ArgumentError(
                    f"the journal {self.path} is damaged: {head} tasks of block {lane} were submitted and {done} were done"
                )
        self._heads = [head for _, head in counts]
        if checkpoint is None:
            self._since = [done for done, _ in counts]
            self._base = found.description.id, tuple(self._since)
        else:
            journal, saved = saved_done(checkpoint)
            self._since = self._done_at(journal, saved, counts)
            self._base = journal, tuple(saved)
        for lane, ((_, head), since) in enumerate(zip(counts, self._since, strict=True)):
            if head - since > capacity:
                raise self._too_many_since(capacity, lane, head - since)
        records = [
            [bytes(view.slots[lane, number % capacity]) for number in range(since, head)]
            for lane, ((_, head), since) in enumerate(zip(counts, self._since, strict=True))
        ]
        if found.description.tagged:
            self._check_tags(view, records)
        return records

    def _too_many_since(self, capacity: int, lane: int, count: object) -> ArgumentError:
        return ArgumentError(
            f"the journal {self.path} holds the last {capacity} tasks of block {lane}, and {count} were submitted since the "
            "checkpoint was saved: save more often, or pass a larger capacity="
        )

    def _check_tags(self, view: RingView, lanes: list[list[bytes]]) -> None:
        """Refuse a head that disagrees with the records, or with the copy of the newest one."""
        for lane, (records, since, head) in enumerate(zip(lanes, self._since, self._heads, strict=True)):
            for number, record in enumerate(records, since):
                tag = (number + 1) & TAG_MASK
                if _tag(record) == (tag + view.layout.capacity) & TAG_MASK:  # killed before it stored the head
                    raise self._too_many_since(view.layout.capacity, lane, "more")
                if _tag(record) != tag:
                    raise ArgumentError(
                        f"the journal {self.path} is damaged: block {lane} was given {head} tasks, it says, and the record of "
                        f"number {number} is that of another task"
                    )
            ahead = ((int(view.copy[lane, 0]) >> 32) - head) & TAG_MASK
            if 1 < ahead <= TAG_MASK >> 1:  # 1: killed between a copy and its head; behind: there is no copy
                raise ArgumentError(
                    f"the journal {self.path} is damaged: block {lane} was given {head} tasks, it says, and there is a later one"
                )

    def _done_at(self, journal: str, saved: list[int], counts: list[tuple[int, int]]) -> list[int]:
        """How many tasks each block of this ring had done when a checkpoint was saved."""
        assert self._found is not None
        description = self._found.description
        done = saved
        if journal and journal == description.base_id and tuple(saved) == description.base_done:
            done = list(description.base_at) or [0] * len(counts)
        elif journal != description.id or len(saved) != len(counts):
            raise ArgumentError(
                f"the checkpoint was not saved by a resident grid with the journal {self.path}, or the journal was opened "
                "without it since, for other blocks or tasks: pass arrays=checkpoint.state to run the tasks that were not "
                "acknowledged, or another journal="
            )
        if any(not saved <= now for saved, (now, _) in zip(done, counts, strict=True)):
            raise ArgumentError(f"the checkpoint is ahead of the journal {self.path}: they do not belong together")
        return done

    # --- the ring of this process

    def open_ring(self, layout: Layout) -> Any:
        """The ring, with the tasks of an earlier process in it."""
        found = self._found
        if found is None:
            description = Description(new_id(), _described(self._table), tagged=True)
            self._file = create_journal(self.path, layout, description, lambda ring: None)
        elif found.layout == layout and self._is_prefix(found.description.tasks) and not self._graph_runs():
            self._file = found
            self.recovered = self._told(self._numbered(found))
            view = RingView(layout, found.ring)
            view.head[:], view.done[:] = self._heads, self._since
            view.forget_copies()
            view.beat[:], view.running[:], view.since[:] = 0, 0, 0
            found.describe(_described(self._table))
        else:
            self._file = self._written_again(found, layout)
        return self._file.ring

    def set_table(self, table: TaskTable) -> None:
        """Other tasks, from now on."""
        assert self._file is not None
        self._file.describe(_described(table))

    def close(self) -> None:
        """Let other processes use the file. The grid has ended."""
        self._lock.release()

    def _graph_runs(self) -> int:
        return sum(_number(record) == GRAPH for lane in self._waiting for record in lane)

    def _is_prefix(self, tasks: tuple[JournalTask, ...]) -> bool:
        return _described(self._table)[: len(tasks)] == tasks

    def _numbered(self, found: JournalFile) -> list[list[tuple[PreparedTask, bytes]]]:
        """For each lane its records with the tasks of this process."""
        lanes = []
        for lane, records in enumerate(self._waiting):
            ours = []
            for record in records:
                number = _number(record)
                if number == GRAPH:
                    continue
                if number & ~WIDE >= len(found.description.tasks):
                    raise ArgumentError(
                        f"the journal {self.path} is damaged: block {lane} has a task with the number {number & ~WIDE}"
                    )
                ours.append((self._same_task(found.description.tasks[number & ~WIDE]), record))
            lanes.append(ours)
        return lanes

    def _same_task(self, wanted: JournalTask) -> PreparedTask:
        task = self._table.named.get(wanted.name)
        if task is None:
            raise ArgumentError(
                f"the journal {self.path} has runs of the task {wanted.name} that were not acknowledged, and tasks= has none of "
                "that name: add it, or move the journal away to forget them"
            )
        if _as_described(task) != wanted:
            raise ArgumentError(
                f"the journal {self.path} has runs of {_in_words(wanted)} that were not acknowledged, and tasks= has "
                f"{_in_words(_as_described(task))}: pass the task as it was, or move the journal away to forget them"
            )
        return task

    def _told(self, lanes: list[list[tuple[PreparedTask, bytes]]]) -> Recovered:
        tasks = tuple((task.parts.name, _arguments(task, record)) for lane in lanes for task, record in lane)
        return Recovered(tasks, self._graph_runs())

    def _written_again(self, found: JournalFile, layout: Layout) -> JournalFile:
        """A new file for other blocks or other tasks. The old one stays as it is until the new one takes its place.

        What a block was given, and how much, goes to one block, so that the sum over all blocks stays.
        """
        old = self._numbered(found)
        lanes: list[list[tuple[PreparedTask, bytes]]] = [[] for _ in range(layout.lanes)]
        heads = [0] * layout.lanes
        for number, (one, head) in enumerate(zip(old, self._heads, strict=True)):
            lanes[number % layout.lanes].extend(one)
            heads[number % layout.lanes] += head
        done = [head - len(one) for head, one in zip(heads, lanes, strict=True)]
        longest = max(len(one) for one in lanes)
        if longest > layout.capacity:
            raise ArgumentError(
                f"the journal {self.path} has {longest} tasks for one block that were not acknowledged: pass capacity= of at "
                f"least {1 << (longest - 1).bit_length()}, or more blocks"
            )

        def fill(ring: Any) -> None:
            view = RingView(layout, ring)
            for lane, one in enumerate(lanes):
                for number, (task, record) in enumerate(one, done[lane]):
                    view.slots[lane, number % layout.capacity] = bytearray(
                        _renumbered(task, record, layout.slot, number)
                    )
            view.head[:], view.done[:] = heads, done
            view.forget_copies()

        # The ring still holds all that came after the checkpoint, however often it was written again since that was saved.
        base_id, base_done = self._base
        description = Description(
            new_id(), _described(self._table), base_id=base_id, base_done=base_done, base_at=tuple(done), tagged=True
        )
        self.recovered = self._told(lanes)
        found.close()  # some systems replace no file that is mapped
        return create_journal(self.path, layout, description, fill)


def _described(table: TaskTable) -> tuple[JournalTask, ...]:
    return tuple(_as_described(task) for task in table.numbered)


def _as_described(task: PreparedTask) -> JournalTask:
    return JournalTask(task.parts.name, tuple(zip(task.names, task.dtypes, strict=True)), task.result, task.whole_grid)


def _in_words(task: JournalTask) -> str:
    wide = " on all blocks" if task.whole_grid else ""
    result = f" → {task.result}" if task.result else ""
    return f"{task.name}({', '.join(f'{name}: {dtype}' for name, dtype in task.arguments)}){result}{wide}"


def _number(record: bytes) -> int:
    return int(struct.unpack_from("<I", record)[0])


def _tag(record: bytes) -> int:
    return int(struct.unpack_from("<I", record, 4)[0])


def _arguments(task: PreparedTask, record: bytes) -> tuple[Any, ...]:
    places = ((CODES[dtype], at) for _, dtype, at in task.parts.arguments)
    return tuple(struct.unpack_from("<" + code, record, at)[0] for code, at in places)


def _renumbered(task: PreparedTask, record: bytes, slot: int, sequence: int) -> bytes:
    number = task.number | (WIDE if task.whole_grid else 0)
    arguments = record[HEADER_BYTES:slot].ljust(slot - HEADER_BYTES, b"\0")
    return struct.pack("<II", number, (sequence + 1) & TAG_MASK) + arguments
