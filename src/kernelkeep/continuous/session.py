"""A state program on a device, advanced slice by slice. Strategies decide how long a slice is, and when it is dispatched."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable

from ..cache.program_cache import ProgramCache
from ..devices.lanes import Mark
from ..devices.prepared import Prepared
from ..errors import DeviceError
from .initial_state import InitialState
from .launches import Launches
from .lowering.forms import FORMS
from .mailbox import Stopped, Word
from .program import StateProgram
from .report import Measured
from .run_options import RunOptions
from .state import State

lost_sessions: list[Session] = []  # sessions on a device that hangs: freeing their memory would wait for it
_MEETINGS = 2**31  # of all groups at grid barriers, counted in one word


class Session:
    """The state, and the launches that advance it. One thread uses it."""

    def __init__(self, cache: ProgramCache, program: StateProgram, start: InitialState, options: RunOptions) -> None:
        _close_recovered()
        self.cache = cache
        self.device = cache.device
        self.program = program
        # Forms before which a dispatch of its own copies arrays to where the form writes.
        self._copies_before = FORMS if program.tasks else ("step",) if program.keeps_whole else ()
        self.measured = Measured()
        self.steered = False  # somebody has written into the state since it was read
        # A slice whose loops the device cut short is run again, and so must not overwrite what it read.
        self.state = State(
            self.device, program, start, in_place=options.in_place and self.device.capabilities.max_loop_rounds is None
        )
        self.iteration = start.iteration  # this and the next five as the control words were last read
        self.phase = start.phase
        self.generation = start.generation
        self.taken = start.taken
        self.pending_tasks = len(next(iter(start.tasks.values()), ()))
        self.stopped = Stopped.BY_BODY if start.over else Stopped.NO
        self.largest_budget = 2**30  # iterations in a dispatch that the device finishes
        self.lost = False  # the device hangs, and so does every call to it
        self._enqueued = 0  # slices since the control words were last read; each commits one generation
        self._given_up: Mark | None = None
        self.chunk = 1  # iterations of independent items between two reads of the clock
        self.lanes = self.device.open_lanes()
        self.launches = Launches(cache, program, self.state, self.lanes, options.condition)
        self.steers = self.launches.steers
        self._mark_seconds: float | None = None
        self._encoded: tuple[tuple[Prepared, int], Callable[[], None]] | None = None  # what it is, and the call
        self.device.synchronize()

    # --- slices

    def slice(
        self,
        kind: str,
        budget: int = 1,
        *,
        deadline_seconds: float = 0.0,
        tasks: int | None = None,
        supervised: bool = False,
    ) -> None:
        """Enqueue a slice: `budget` iterations from the committed state to the next. Returns at once.

        With a device clock the slice ends at the deadline; `tasks` bounds what is taken from the queue in one round.
        """
        launches = self.launches
        if kind == "step" and tasks is None:
            launch = launches.get(kind, supervised)
        else:
            launch = launches.get(kind, supervised, **self._scalars(kind, budget, deadline_seconds, tasks))
        encoded, self._encoded = self._encoded, None
        if encoded is not None and encoded[0] == (launch, self.state.current):
            encoded[1]()
        else:
            if kind in self._copies_before:
                launches.get("copy")()
            launch()
        self._enqueued += 1
        self.state.current = 1 - self.state.current
        self.measured.dispatches += 1

    def encode_step(self) -> None:
        """Have the next single iteration encoded while the one before it runs, where the driver encodes something."""
        step = self.launches.get("step")
        before = [self.launches.get("copy")] if "step" in self._copies_before else []
        call = self.device.encode_ahead([*before, step])
        self._encoded = None if call is None else ((step, self.state.current), call)

    def part(self, first: int, count: int) -> None:
        """Enqueue `count` items of an iteration, in order from item 0 on; the last of them commit it. Returns at once."""
        launch = self.launches.get("step", kkfrom=first, kkupto=first + count)
        if first == 0 and "step" in self._copies_before:
            self.launches.get("copy")()
        launch()
        if first + count >= self.program.items:
            self._enqueued += 1
            self.state.current = 1 - self.state.current
        self.measured.dispatches += 1

    def steps(self, count: int) -> None:
        """Enqueue an even number of single iterations as one launch, where the driver takes them so."""
        assert count % 2 == 0 and self.device.replays_whole
        self.launches.replay(count, copies_before="step" in self._copies_before).launch()
        self._enqueued += count
        self.measured.dispatches += count

    def chain(self, iterations: int) -> None:
        """Enqueue an even number of iterations as one launch with two commits, where the driver takes them so."""
        assert iterations % 2 == 0
        self.launches.chains.get(iterations).launch()
        self._enqueued += 2
        self.measured.dispatches += iterations

    def _scalars(self, kind: str, budget: int, deadline_seconds: float, tasks: int | None) -> dict[str, int]:
        wanted = {"kkbudget": budget} if kind != "step" else {}
        grid = kind in ("grid", "block")
        if grid or tasks is not None:
            wanted["kkdeadline"] = min(round(deadline_seconds * 1e6), 2**31 - 1)
        if grid:
            wanted["kkchunk"] = 1 if self.steers else self.chunk
        if tasks is not None:
            wanted["kklimit"] = tasks
        return wanted

    def mark(self, *, timed: bool = False) -> Mark:
        """A point after everything that is enqueued so far; flushes it to the device. `timed`: its time will be asked for."""
        lane = self.lanes.compute
        mark = lane.mark() if timed else lane.point()
        self.lanes.compute.flush()
        return mark

    def mark_seconds(self) -> float:
        """The time between two marks with nothing in between: what measuring itself costs."""
        if self._mark_seconds is None:
            marks = [self.lanes.compute.mark() for _ in range(32)]
            self.lanes.compute.flush()
            self.wait(marks[-1])
            times = self.lanes.times(marks)
            apart = sorted(later - earlier for earlier, later in itertools.pairwise(times))
            self._mark_seconds = max(0.0, apart[len(apart) // 2])
        return self._mark_seconds

    def synchronize(self) -> None:
        """Wait for everything that is enqueued, and read how far it came. `DeviceError` where a slice did not run."""
        self.wait(self.mark())
        commit = self.state.read_commit()
        missing = (self.generation + self._enqueued - commit.generation) & 0xFFFFFFFF
        # One more than was counted is right: a signal may end the call that had just enqueued it.
        if 0 < missing < 2**31 and commit.stopped is Stopped.NO:
            # Later slices may have run all the same, on a copy of the state that was never written.
            raise DeviceError(
                f"{missing} of the last {self._enqueued} dispatches of {self.program.name} did not run on "
                f"{self.device.spec}, and the state after them is wrong: resume from a checkpoint"
            )
        self._enqueued = 0
        self.iteration = commit.iteration
        self.phase = commit.phase
        self.generation = commit.generation
        self.taken = commit.taken
        self.pending_tasks = commit.tasks
        self.stopped = commit.stopped

    def wait(self, mark: Mark) -> None:
        """Wait for a mark: by polling on a GPU, whose host has nothing better to do; without using a core on a CPU."""
        if not self.device.capabilities.cheap_polling:
            mark.wait()
            return
        give_up = time.perf_counter() + 200e-6
        while not mark.done:
            if time.perf_counter() > give_up:
                mark.wait()
                return

    def wait_at_most(self, mark: Mark, seconds: float) -> bool:
        """Wait for a mark at most this long; False if the time passed first."""
        start = time.perf_counter()
        closely = 200e-6 if self.device.info.is_gpu else 0.0
        while not mark.done:
            passed = time.perf_counter() - start
            if passed > seconds:
                return mark.done
            if passed >= closely:
                time.sleep(min(1e-3, max(20e-6, passed / 32)))
        return True

    def give_up(self, mark: Mark) -> None:
        """Stop waiting for this mark: the device hangs, and gets no more work until the mark has passed."""
        self.lost = True
        self._given_up = mark

    def warm_up(self, kind: str) -> None:
        """Have the driver compile and load a form, so that its first slice takes no longer than the others.

        A kernel does nothing in a run that has stopped, so the control words say for a moment that it has.
        """
        control = self.state.control.numpy()
        stopped = control.copy()
        stopped[Word.STOPPED] = Stopped.BY_BODY
        self.state.control.copy_from(stopped)
        self.device.synchronize()
        self.slice(kind)
        self._enqueued -= 1
        self.measured.dispatches -= 1
        self.wait(self.mark())
        self.state.current = int(control[Word.CURRENT])
        self.state.control.copy_from(control)
        self.device.synchronize()

    def mend(self, budget: int) -> None:
        """After a slice that the device could not finish: make it possible, so that it can be run again."""
        if self.stopped is Stopped.OVERRUN:
            if budget <= 1:
                raise DeviceError(
                    f"{self.device.spec} ends loops after a number of rounds, and one iteration of {self.program.name} "
                    "needs more: its result would be wrong"
                )
            self.largest_budget = max(1, budget // 2)
            self.measured.overruns += 1
        elif self.stopped is Stopped.OVERFLOW:
            self.state.grow_queue(self.pending_tasks)
            self._encoded = None
            self.launches.drop()
            self.measured.queue_grown += 1
        self.state.clear(Word.STOPPED, Word.OVERFLOW, Word.OVERRUN)
        self.stopped = Stopped.NO

    def read_clock_every(self, seconds: float, iteration_seconds: float) -> None:
        """Have independent items read the clock about every so many seconds, given what an iteration takes."""
        self.chunk = max(1, min(64, int(seconds / max(iteration_seconds, 1e-9))))

    def budget(self, wanted: int) -> int:
        """The number of iterations of a dispatch: as wanted, or as many as it may have."""
        return max(1, min(wanted, self.largest_budget, _MEETINGS // (4 * self.launches.largest_grid)))

    def close(self) -> None:
        """Free everything but the committed arrays."""
        if self.lost:
            lost_sessions.append(self)
            return
        self._encoded = None
        self.launches.close()
        self.state.close()
        self.lanes.close()


def _close_recovered() -> None:
    """Free what sessions left behind on a device that hung and has recovered since."""
    for session in list(lost_sessions):
        with contextlib.suppress(DeviceError):
            if session.device.closed or (session._given_up is not None and session._given_up.done):
                lost_sessions.remove(session)
                session.lost = False
                session.close()
