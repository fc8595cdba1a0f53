"""A checkpoint in memory: the state of a run at one iteration, and everything known of it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from ...escaping import escaped
from .header import CheckpointHeader

TASK = "task "  # begins the names of arrays that are fields of tasks


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or locked; the run goes on, and the older files are unchanged."""


class Checkpoint(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A state that a run committed: its arrays, how far it is, and which program it belongs to.

    `arrays` are those of the file, fields of tasks among them; `header` has the facts for which there is no property.
    """

    header: CheckpointHeader
    arrays: Mapping[str, np.ndarray[Any, Any]]

    @property
    def program(self) -> str:
        """The program's name."""
        return self.header.program

    @property
    def body(self) -> str:
        """What an iteration does, in C; empty where the file does not say."""
        return self.header.body

    @property
    def coupling(self) -> str:
        """How its items depend on each other."""
        return self.header.coupling

    @property
    def items(self) -> int:
        """How many items an iteration handles; 0 for tasks in a queue."""
        return self.header.items

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of the state, by name."""
        return {name: array for name, array in self.arrays.items() if not name.startswith(TASK)}

    @property
    def tasks(self) -> dict[str, np.ndarray[Any, Any]]:
        """The tasks that were waiting, field by field; empty without a queue."""
        return {name.removeprefix(TASK): array for name, array in self.arrays.items() if name.startswith(TASK)}

    @property
    def scalars(self) -> dict[str, np.generic]:
        """The program's scalars, each with its type."""
        return {name: scalar.numpy() for name, scalar in self.header.scalars.items()}

    @property
    def iteration(self) -> int:
        """Iterations that are complete, counted from the very beginning."""
        return self.header.iteration

    @property
    def phase(self) -> int:
        """The phase, as the body last set it."""
        return self.header.phase

    @property
    def generation(self) -> int:
        """How often the state was committed."""
        return self.header.generation

    @property
    def finished(self) -> bool:
        """Whether the program itself ended the work."""
        return self.header.finished

    @property
    def device(self) -> str:
        """The device it ran on, such as `opencl:0`."""
        return self.header.device

    @property
    def created(self) -> datetime.datetime:
        """When the state was taken from the device, in UTC."""
        return datetime.datetime.fromtimestamp(self.header.created, datetime.UTC)

    @property
    def lineage(self) -> str:
        """What all files of one run share; empty in files of an earlier kernelkeep."""
        return self.header.lineage

    def __repr__(self) -> str:
        names = ", ".join(f"{escaped(name)} {array.dtype} {array.shape}" for name, array in self.arrays.items())
        return f"<Checkpoint: {self.header}; {names}>"

    def _repr_html_(self) -> str:
        from ..html import checkpoint_html

        return checkpoint_html(self)


class Written(msgspec.Struct, frozen=True):
    """A checkpoint that was written: bytes of the file, bytes of the arrays, and the time it took.

    `written_bytes` is what went to the disk: less than the file has where most of it had not changed.
    """

    nbytes: int
    raw_bytes: int
    seconds: float
    written_bytes: int
