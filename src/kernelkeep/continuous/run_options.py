"""What a run may be asked for, checked before anything begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..errors import ArgumentError
from .program import StateProgram
from .progress import Progress
from .strategies import Options

if TYPE_CHECKING:
    from .runner import Run

__all__ = ["RunOptions", "Settings"]

Until = Callable[["Run"], bool] | str | None
OnState = Callable[[int, dict[str, np.ndarray[Any, Any]]], object]


class RunOptions(TypedDict, total=False):
    """What `run` and `resume` take beside what is to be done; the defaults are in `docs/continuous.md`."""

    deadline_seconds: float | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float | None
    checkpoint_iterations: int | None
    keep_checkpoints: int
    until: Until
    on_progress: Callable[[Progress], object] | None
    on_state: OnState | None
    state_iterations: int | None
    progress: bool
    ahead: int
    iterations_per_dispatch: int | None
    in_place: bool
    hang_seconds: float


@dataclass(frozen=True)
class Settings:
    """The options of a run, with their defaults."""

    deadline_seconds: float | None = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float | None = 5.0
    checkpoint_iterations: int | None = None
    keep_checkpoints: int = 2
    until: Until = None
    on_progress: Callable[[Progress], object] | None = None
    on_state: OnState | None = None
    state_iterations: int | None = None
    progress: bool = False
    ahead: int = 64
    iterations_per_dispatch: int | None = None
    in_place: bool = False
    hang_seconds: float = 30.0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Settings:
        known = {field.name for field in fields(cls)}
        for name in options:
            if name not in known:
                raise ArgumentError(f"a run has no option {name!r}; it has: {', '.join(sorted(known))}")
        return cls(**options)

    def __post_init__(self) -> None:
        for name in ("hang_seconds", "ahead", "keep_checkpoints"):
            if getattr(self, name) is None:
                raise ArgumentError(f"{name} must be a positive number, got None; leave it out for the default")
        for name in ("deadline_seconds", "checkpoint_every", "hang_seconds"):
            _check_number(name, getattr(self, name), float)
        for name in (
            "checkpoint_iterations",
            "state_iterations",
            "iterations_per_dispatch",
            "ahead",
            "keep_checkpoints",
        ):
            _check_number(name, getattr(self, name), int)
        if (
            self.until is not None
            and not callable(self.until)
            and not (isinstance(self.until, str) and self.until.strip())
        ):
            raise ArgumentError(f"until is a function of the run, or a condition in C, not {self.until!r}")
        if self.on_progress is not None and not callable(self.on_progress):
            raise ArgumentError(f"on_progress is a function of a kk.Progress, not {self.on_progress!r}")

        if self.on_state is not None and not callable(self.on_state):
            raise ArgumentError(f"on_state must be a function of (iteration, state), got {self.on_state!r}")
        if (self.on_state is None) != (self.state_iterations is None):
            raise ArgumentError(
                "on_state and state_iterations must be given together: on_state=f, state_iterations=1000 calls "
                "f(iteration, state) after every 1000 iterations"
            )

    def for_strategy(self, program: StateProgram, iterations: int | None) -> Options:
        asks = program.steers or "kk_iteration" in program.body or iterations is not None or self.until is not None
        asks = asks or self.on_state is not None
        return Options(
            self.deadline_seconds,
            self.ahead,
            self.iterations_per_dispatch,
            self.hang_seconds,
            splits_rounds=not asks,
            makes_checkpoints=self.checkpoint is not None,
        )

    @property
    def on_device(self) -> str | None:
        """The condition that the device looks at."""
        return self.until if isinstance(self.until, str) else None

    def next_stop(self, iteration: int, goal: int) -> int:
        """Where the turns from here on must end at the latest: at the goal, or where the state is to be shown."""
        if self.state_iterations is None:
            return goal
        return min(goal, (iteration // self.state_iterations + 1) * int(self.state_iterations))

    def asks_to_end(self, seen: Run) -> bool:
        return callable(self.until) and self.until(seen)


def _check_number(name: str, value: Any, kind: type) -> None:
    numbers = int | np.integer if kind is int else int | float | np.number
    if value is not None and (not isinstance(value, numbers) or isinstance(value, bool) or not value > 0):
        raise ArgumentError(f"{name} is a positive {'integer' if kind is int else 'number'}, not {value!r}")
