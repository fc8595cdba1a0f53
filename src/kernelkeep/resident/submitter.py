"""What a resident is derived from: `submit` in C where that was built.

A round trip to the device takes a few microseconds. A method in Python that finds the thread's lane and the task's plan takes a
fifth of one, so `kernelkeep._ring` has a type that does it. What is unusual (an unknown task, wrong arguments, a full ring)
comes to `_submit_slowly` of the resident, which is in Python.
"""

from __future__ import annotations

from typing import Any

from .lane import future_type
from .python_lane import PythonFuture


class PythonSubmitter:
    """The twin in plain Python of `kernelkeep._ring.Submitter`."""

    def set_plans(self, plans: dict[str, bytes], lanes: tuple[Any, ...]) -> None:
        """What `submit` finds tasks and lanes in. Here that is left to `_submit_slowly`."""

    def submit(self, name: str, /, *args: Any, **named: Any) -> Any:
        """Have a task run; returns at once, unless the ring of the block is full. The future has its result."""
        return self._submit_slowly(name, *args, **named)

    def _submit_slowly(self, name: str, *args: Any, **named: Any) -> Any:
        raise NotImplementedError("a subclass submits")


def submitter_type() -> Any:
    """The type in C where futures are in C, else `PythonSubmitter`."""
    if issubclass(future_type(), PythonFuture):
        return PythonSubmitter
    from .._ring import Submitter

    return Submitter
