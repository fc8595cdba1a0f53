"""State in device memory: two copies and a scratch copy of every array, the queue likewise, and the control words.

A slice reads the committed copy and writes the other one, so what it read stays until the next commit. Slices of many
iterations go back and forth between that other copy and a third one. *In place* does without the third: a slice then
overwrites what it read, and one that fails loses the work since the last checkpoint file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..devices.array import Array
from ..devices.base import Device
from ..errors import ArgumentError
from .initial_state import InitialState
from .mailbox import Commit, Word, control_words
from .program import StateProgram


class State:
    """A program's state on a device."""

    def __init__(self, device: Device, program: StateProgram, start: InitialState, *, in_place: bool) -> None:
        self.device = device
        self.program = program
        self.in_place = in_place
        self.current = 0
        count = len(next(iter(start.tasks.values()), ()))
        self.capacity = max(program.queue_capacity, 2 * count) if program.tasks else 0
        # All copies begin equal: what no item ever writes is then the same in each.
        self.arrays = [{key: device.array(array) for key, array in start.arrays.items()} for _ in range(2)]
        self.tasks = [self._empty_tasks() for _ in range(2)] if program.tasks else [{}, {}]
        for key, array in start.tasks.items():
            self._fill(self.tasks[0][key], array)
        self._scratch: tuple[dict[str, Array], dict[str, Array]] | None = None
        control = control_words(start.generation, start.iteration, start.phase, start.taken, count)
        self.control = device.array(control)

    def copy(self, role: int) -> dict[str, Array]:
        """The arrays in a role: 0 the committed ones, 1 those that a slice writes, 2 scratch."""
        if role < 2:
            return self.arrays[self.current if role == 0 else 1 - self.current]
        return self.scratch[0]

    def queue(self, role: int) -> dict[str, Array]:
        """The task fields in a role."""
        if role < 2:
            return self.tasks[self.current if role == 0 else 1 - self.current]
        return self.scratch[1]

    @property
    def scratch(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """A third copy of the arrays and of the queue, made when a slice first needs it."""
        if self._scratch is None:
            # Tasks need one in any case: what is read and what is pushed must not be the same memory.
            tasks = self._empty_tasks() if self.program.tasks else {}
            arrays: dict[str, Array] = {}
            if not self.in_place and not self.program.tasks:
                for key, array in self.arrays[0].items():
                    arrays[key] = self.device.empty(array.shape, array.dtype).copy_from(array)
                self.device.synchronize()  # these copies are in another queue than the next slice
            self._scratch = arrays, tasks
        return self._scratch

    def grow_queue(self, count: int) -> None:
        """Double the room for tasks; the committed ones stay. Nothing runs meanwhile."""
        self.capacity *= 2
        for index in range(2):
            old, self.tasks[index] = self.tasks[index], self._empty_tasks()
            if index == self.current:
                for key, array in old.items():
                    self._fill(self.tasks[index][key], array.numpy()[:count])
        self._scratch = None

    def write(self, values: Mapping[str, Any]) -> None:
        """Overwrite arrays in every copy: one that no item writes must be the same in all of them. Nothing runs meanwhile."""
        for key in values:
            if key not in self.arrays[0]:
                raise ArgumentError(f"the state has no array {key!r}: it has {', '.join(self.arrays[0])}")
        self.device.synchronize()  # what was copied for a checkpoint was read
        copies = [*self.arrays, self._scratch[0]] if self._scratch is not None else self.arrays
        for key, value in values.items():
            wanted = self.arrays[0][key].dtype
            if not isinstance(value, Array) and np.can_cast(np.asarray(value).dtype, wanted, "same_kind"):
                value = np.asarray(value).astype(wanted)  # NumPy computes with doubles
            for arrays in copies:
                if key in arrays:
                    arrays[key].copy_from(value)
        self.device.synchronize()  # the next slice is in another queue

    def read_commit(self) -> Commit:
        """What was committed last. Nothing runs meanwhile."""
        commit = Commit.of(self.control.numpy())
        self.current = commit.current
        return commit

    def clear(self, *which: Word) -> None:
        """Set control words to zero. Nothing runs meanwhile."""
        control = self.control.numpy()
        for word in which:
            control[word] = 0
        self.control.copy_from(control)

    def close(self) -> None:
        """Free everything but the committed arrays, which are the result."""
        scratch = self._scratch or ({}, {})
        spare = [self.arrays[1 - self.current], *self.tasks, *scratch]
        for arrays in spare:
            for array in arrays.values():
                array.close()
        self.control.close()

    def _empty_tasks(self) -> dict[str, Array]:
        return {key: self.device.empty(self.capacity, array.dtype) for key, array in self.program.tasks.items()}

    def _fill(self, target: Array, tasks: np.ndarray[Any, Any]) -> None:
        padded = np.zeros(target.shape, target.dtype)
        padded[: len(tasks)] = tasks
        target.copy_from(padded)
