"""What a resident grid is made of, put together from what the user gave: arrays, tasks, a program, a ring and its lanes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..continuous.checkpoints.checkpoint import Checkpoint
from ..devices.array import Array
from ..devices.base import Device
from ..errors import ArgumentError, DeviceError
from ..programs.languages import find_language
from ..programs.task_program import TaskArray
from .arguments import array_dtype, slot_bytes, threads_of
from .future import Waiting
from .journal import Journal, Recovered
from .lanes import Lanes
from .protocol import Layout
from .task_table import TaskTable


class Assembly:
    """The parts. `close` gives them back."""

    def __init__(
        self,
        grid: Any,
        device: Device,
        tasks: Mapping[str, Any],
        arrays: Mapping[str, Any] | Checkpoint | None,
        *,
        threads: int | None,
        blocks: int | None,
        capacity: int,
        argument_bytes: int,
        journal: str | os.PathLike[str] | None,
        waiting: Waiting,
    ) -> None:
        self.grid = grid
        self.journal: Journal | None = None
        try:
            if not isinstance(tasks, Mapping) or not tasks:
                raise ArgumentError("tasks must be a mapping of names to bodies, with at least one")
            given = arrays.state if isinstance(arrays, Checkpoint) else arrays or {}
            if not isinstance(given, Mapping):
                raise ArgumentError(f"arrays must be a mapping of names to arrays, got a {type(arrays).__name__}")
            self.threads = threads_of(tasks, threads, device)
            self._language = find_language(device.language)
            self.arrays = {name: _to_device(name, one, device) for name, one in given.items()}
            self._given = list(
                given.values()
            )  # tensors of other libraries live as long as the grid, even if the array is closed
            self.table = TaskTable.of(tasks, self._task_arrays(), self.threads, self._language)
            self._slot = slot_bytes(self.table.numbered, argument_bytes)
            Layout(1, capacity, self._slot)  # refuses a capacity that cannot be, before anything is compiled
            self._capacity = capacity
            program = self._program(self.table)
            grid.use(program)
            self.layout = Layout(grid.count_blocks(program, blocks), capacity, self._slot)
            ring = self._ring(journal, arrays if isinstance(arrays, Checkpoint) else None)
            self.lanes = Lanes(self.layout, ring, waiting, emulated=grid.emulated)
        except BaseException:
            self.close()
            raise

    @property
    def recovered(self) -> Recovered:
        """What a journal had the grid run."""
        return Recovered() if self.journal is None else self.journal.recovered

    def with_task(self, name: str, body: Any) -> tuple[TaskTable, Any]:
        """The tasks with one more, or with a new body for one, and their program. Nothing changes yet."""
        table = self.table.with_task(name, body, self._task_arrays(), self.threads, self._language)
        if slot_bytes(table.numbered, 0) > self._slot:
            needed = table.task(name).row_dtype.itemsize
            raise ArgumentError(
                f"task {name} needs {needed} bytes for its arguments, and there is room for {self._slot - 8}: pass "
                f"argument_bytes={needed} to kk.Resident"
            )
        return table, self._program(table)

    def use(self, table: TaskTable, program: Any) -> None:
        """Have other tasks from the next start of the grid on. It does not run."""
        self.grid.use(program)
        if self.journal is not None:
            self.journal.set_table(table)
        self.table = table

    def close(self) -> None:
        """Give everything back. The grid has ended."""
        self.grid.close()
        if self.journal is not None:
            self.journal.close()

    def _task_arrays(self) -> list[TaskArray]:
        return [TaskArray(name, array_dtype(name, one)) for name, one in self.arrays.items()]

    def _program(self, table: TaskTable) -> Any:
        return self.grid.get_program(table.numbered, self._task_arrays(), self._slot, self._capacity, self.threads)

    def _ring(self, journal: str | os.PathLike[str] | None, checkpoint: Checkpoint | None) -> Any:
        if journal is None:
            ring = self.grid.new_ring(self.layout)
        else:
            self.journal = Journal(journal, self.table, checkpoint)
            ring = self.journal.open_ring(self.layout)
        try:
            self.grid.place(ring, self.layout, list(self.arrays.values()), self.layout.lanes)
        except DeviceError as error:
            if journal is not None:
                error.add_note(
                    f"the journal {os.fspath(journal)} may be on a file system whose pages the device cannot use: put it into "
                    "/dev/shm"
                )
            raise
        return ring


def _to_device(name: str, given: Any, device: Device) -> Array:
    array = given if isinstance(given, Array) else device.array(given)
    array_dtype(name, array)
    if array.device is not device:
        raise ArgumentError(f"array {name} must be on {device.spec}, and is on {array.device.spec}")
    array.stop_recycling()  # the grid may write to it after it was closed
    return array
