"""The tasks of a resident grid by name and by number.

A number never changes its meaning: records that wait in the ring, graphs and journals hold numbers. A task that is replaced by
one with the same arguments keeps its number, and what waits runs the new body. One with other arguments gets a new number,
and what waits runs the old body, which stays in the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from ..programs.languages import Language
from ..programs.task_program import TaskArray
from .task import PreparedTask, prepare


class TaskTable:
    """Prepared tasks. Never changes; `with_task` makes another."""

    def __init__(self, numbered: Sequence[PreparedTask], named: Mapping[str, PreparedTask]) -> None:
        self.numbered = tuple(numbered)
        self.named = dict(named)
        self.plans = {name: task.plan() for name, task in self.named.items()}

    @classmethod
    def of(cls, given: Mapping[str, Any], arrays: Sequence[TaskArray], threads: int, language: Language) -> TaskTable:
        """The tasks that a user gave."""
        named = {
            name: prepare(name, body, number, arrays, threads, language)
            for number, (name, body) in enumerate(given.items())
        }
        return cls(tuple(named.values()), named)

    def with_task(
        self, name: str, body: Any, arrays: Sequence[TaskArray], threads: int, language: Language
    ) -> TaskTable:
        """The same with one more task, or with a new body for one."""
        fresh = prepare(name, body, len(self.numbered), arrays, threads, language)
        numbered = list(self.numbered)
        old = self.named.get(name)
        if old is not None and old.form == fresh.form:
            fresh = fresh.with_number(old.number)
            numbered[old.number] = fresh
        else:
            numbered.append(fresh)
        return TaskTable(numbered, {**self.named, name: fresh})

    def task(self, name: str) -> PreparedTask:
        """A task by its name; ArgumentError names those there are."""
        try:
            return self.named[name]
        except (KeyError, TypeError):
            raise ArgumentError(f"there is no task {name!r}; the tasks are: {', '.join(self.named)}") from None

    def by_number(self) -> dict[int, PreparedTask]:
        """For what reads records."""
        return dict(enumerate(self.numbered))
