"""The options of a run: named, documented and checked here, for `kk.run`, `kk.resume` and all that they use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..errors import ArgumentError
from ..progress.progress import Progress
from ..progress.reporter import Wanted, check_wanted
from ..words import StrategyName, did_you_mean
from .mailbox import MAX_ITERATIONS
from .program import StateProgram

if TYPE_CHECKING:
    from .checkpoints.checkpoint import Checkpoint
    from .run import Run

STRATEGY_NAMES = ("redispatch", "mega", "checkpointed", "supervised", "buffered")
_OF_CHECKPOINTS = ("checkpoint_every", "checkpoint_iterations", "keep_checkpoints")
_FOREVER = 1e9  # seconds, and so is whatever is longer
Until = Callable[["Run"], bool] | str | None
OnState = Callable[[int, dict[str, np.ndarray[Any, Any]]], object]


class RunKeywords(TypedDict, total=False):
    """For type checkers: the options of `RunOptions` that `run` and `resume` both take as keywords."""

    deadline_seconds: float | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float | None
    checkpoint_iterations: int | None
    keep_checkpoints: int
    until: Until
    on_progress: Callable[[Progress], object] | None
    on_state: OnState | None
    state_iterations: int | None
    progress: Wanted
    ahead: int
    iterations_per_dispatch: int | None
    in_place: bool
    hang_seconds: float


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Everything that a caller may ask of a run. Making one checks it: `ArgumentError` names the option that is wrong."""

    # How far the run goes, and how.
    iterations: int | None = None  # the run ends here, counted from the very beginning
    until: Until = None  # it ends when this is true: a function of the `Run`, asked between turns, or a condition in C
    strategy: StrategyName = "auto"  # or one of STRATEGY_NAMES
    deadline_seconds: float | None = None  # bounds a dispatch, where the strategy can
    hang_seconds: float = 30.0  # a dispatch that outlives its deadline by this much is given up with `DeviceError`
    ahead: int = 64  # *buffered*: at most this many dispatches wait behind the one that runs; a chain is one
    iterations_per_dispatch: int | None = None  # *mega* and *buffered*; None: as measured
    in_place: bool = False  # saves one copy of the state; a slice that fails can then not be run again

    # Where it begins.
    initial_state: Mapping[str, Any] | Checkpoint | None = None  # in the place of the program's own arrays
    resume: bool | None = None  # an existing checkpoint file: True continues, False starts again, None refuses

    # Its checkpoint files.
    checkpoint: str | os.PathLike[str] | None = field(default=None, repr=False)  # an address may hold secrets
    checkpoint_every: float | None = 5.0  # seconds
    checkpoint_iterations: int | None = None
    keep_checkpoints: int = 2  # files in all

    # What it reports.
    on_progress: Callable[[Progress], object] | None = None  # called between turns
    progress: Wanted = False  # True shows how far it is; a function is called like on_progress
    on_state: OnState | None = None  # called with the iteration and NumPy copies of the arrays
    state_iterations: int | None = None  # after every so many iterations, exactly

    @classmethod
    def parse(cls, keywords: Mapping[str, Any], **named: Any) -> RunOptions:
        """The options of a call: `keywords` as the user wrote them, beside the arguments that the call itself names."""
        known = RunKeywords.__annotations__
        for name in keywords:
            if name not in known:
                options = sorted({*known, *named})
                hint = did_you_mean(name, options)
                raise ArgumentError(f"a run has no option {name!r}{hint}; it has: {', '.join(options)}")
            if name in _OF_CHECKPOINTS and "checkpoint" not in keywords:  # checkpoint=None says that there is none
                raise ArgumentError(f"{name} needs checkpoint=…, the file that the state is written to")
        return cls(**named, **keywords)

    def __post_init__(self) -> None:
        # As Python's numbers: those of NumPy overflow.
        for name in ("deadline_seconds", "checkpoint_every", "hang_seconds"):
            value = _checked_number(name, getattr(self, name), optional=name != "hang_seconds")
            object.__setattr__(self, name, value)
        for name in ("checkpoint_iterations", "state_iterations", "iterations_per_dispatch"):
            object.__setattr__(self, name, _checked_number(name, getattr(self, name), whole=True, optional=True))
        for name in ("ahead", "keep_checkpoints"):
            object.__setattr__(self, name, _checked_number(name, getattr(self, name), whole=True))
        self._check_iterations()
        if self.strategy != "auto" and self.strategy not in STRATEGY_NAMES:
            hint = did_you_mean(self.strategy, ("auto", *STRATEGY_NAMES))
            names = ", ".join(STRATEGY_NAMES)
            raise ArgumentError(f"strategy must be auto or one of {names}, got {self.strategy!r}{hint}")
        if self.resume is not None and not isinstance(self.resume, bool):
            raise ArgumentError(f"resume must be True, False or None, got {self.resume!r}")
        if self.resume and self.checkpoint is None:
            raise ArgumentError("resume=True needs checkpoint=…, the file to resume from")
        if not (self.until is None or callable(self.until) or (isinstance(self.until, str) and self.until.strip())):
            raise ArgumentError(f"until must be a function of the run, or a condition in C, got {self.until!r}")
        if self.on_progress is not None and not callable(self.on_progress):
            raise ArgumentError(f"on_progress must be a function of a kk.Progress, got {self.on_progress!r}")
        check_wanted(self.progress)
        if self.on_state is not None and not callable(self.on_state):
            raise ArgumentError(f"on_state must be a function of (iteration, state), got {self.on_state!r}")
        if (self.on_state is None) != (self.state_iterations is None):
            raise ArgumentError(
                "on_state and state_iterations must be given together: on_state=f, state_iterations=1000 calls "
                "f(iteration, state) after every 1000 iterations"
            )

    def _check_iterations(self) -> None:
        whole = isinstance(self.iterations, int | np.integer) and not isinstance(self.iterations, bool)
        if self.iterations is not None and not (whole and 0 <= self.iterations <= MAX_ITERATIONS):
            raise ArgumentError(f"iterations must be an integer from 0 to {MAX_ITERATIONS:,}, got {self.iterations!r}")

    def check_ends(self, program: StateProgram) -> None:
        """`ArgumentError` where nothing would ever end a run of this program."""
        endless = self.iterations is None and self.until is None
        if endless and program.coupling != "queue" and "kk_stop" not in program.outline:
            raise ArgumentError(
                f"{program.name} would never end: pass iterations=…, until=…, or call kk_stop() in its body"
            )

    @property
    def goal(self) -> int:
        """The iteration at which the run ends at the latest."""
        return MAX_ITERATIONS if self.iterations is None else int(self.iterations)

    @property
    def condition(self) -> str | None:
        """The condition in C that the device checks after each iteration."""
        return self.until if isinstance(self.until, str) else None

    def asks_to_end(self, run: Run) -> bool:
        """Whether the caller's `until` function says that the run is to end."""
        return callable(self.until) and self.until(run)

    def next_stop(self, iteration: int, goal: int) -> int:
        """Where the turns from here on must end at the latest: at the goal, or where `on_state` is called."""
        if self.state_iterations is None:
            return goal
        return min(goal, (iteration // self.state_iterations + 1) * self.state_iterations)

    def is_state_due(self, iteration: int) -> bool:
        """Whether `on_state` is called after this iteration."""
        return self.state_iterations is not None and iteration % self.state_iterations == 0

    def splits_rounds(self, program: StateProgram) -> bool:
        """Whether a slice may take a part of a queue's round: nothing in this run depends on which round it is."""
        depends = program.steers or "kk_iteration" in program.outline or self.iterations is not None
        return not (depends or self.until is not None or self.on_state is not None)


def _checked_number(name: str, value: Any, *, whole: bool = False, optional: bool = False) -> Any:
    if value is None and optional:
        return None
    numbers = int | np.integer if whole else int | float | np.number
    if not isinstance(value, numbers) or isinstance(value, bool) or not value > 0:
        hint = "; leave it out for the default" if value is None else ""
        raise ArgumentError(f"{name} must be a positive {'integer' if whole else 'number'}, got {value!r}{hint}")
    if whole:
        return int(value)
    try:
        return min(float(value), _FOREVER)
    except OverflowError:
        return _FOREVER
