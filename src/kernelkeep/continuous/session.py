"""A state program on a device, ready to be advanced slice by slice. Strategies decide how long a slice is, and when."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..devices.lanes import Mark
from ..devices.prepared import Prepared
from ..devices.replay import Replay
from ..errors import ArgumentError, DeviceError, Unsupported
from .lowering.forms import FORMS, Form, lower
from .mailbox import Stopped, Word
from .program import StateProgram
from .report import Measured
from .state import InitialState, State

if TYPE_CHECKING:
    from ..cache.lease import Lease

__all__ = ["Session"]

_MOST_GROUPS = 2048  # enough for the largest device; each has its part in a commit
_QUEUE_GROUPS = 512  # tasks come and go: the grid is what keeps a GPU busy, and groups without tasks end at once
_lost: list[Session] = []
_MEETINGS = 2**31  # of all groups, counted in one word


class Session:
    """The state, and the launches that advance it. One thread uses it."""

    def __init__(
        self,
        cache: ProgramCache,
        program: StateProgram,
        start: InitialState,
        *,
        in_place: bool = False,
        condition: str | None = None,
    ) -> None:
        if not isinstance(cache, ProgramCache):
            raise ArgumentError(f"a state program runs with a kk.ProgramCache, not with a {type(cache).__name__}")
        if not isinstance(program, StateProgram):
            raise ArgumentError(f"what is run is a kk.StateProgram, not a {type(program).__name__}")
        _close_recovered()
        self.cache = cache
        self.device = cache.device
        self.program = program
        self.condition = condition
        self.steers = program.steers or condition is not None
        # Forms before which arrays are carried over in a dispatch of its own.
        self._copies_before = FORMS if program.tasks else ("step",) if program.keeps_whole else ()
        self.measured = Measured()
        # A slice whose loops the device cut short is run again, and so must not destroy what it came from.
        self.state = State(
            self.device, program, start, in_place=in_place and self.device.capabilities.max_loop_rounds is None
        )
        self.iteration = start.iteration  # as far as the control words were read
        self.phase = start.phase
        self.generation = start.generation
        self.taken = start.taken
        self.pending_tasks = len(next(iter(start.tasks.values()), ()))
        self.stopped = Stopped.BY_BODY if start.over else Stopped.NO
        self.largest_budget = 2**30  # that the device was seen to bear
        self.lost = False  # the device hangs: whatever asks it for something hangs too
        self._given_up: Mark | None = None
        self.chunk = 1  # iterations of independent items between two looks at the clock
        self.lanes = self.device._open_lanes()
        self._leases: list[Lease] = []
        self._forms: dict[tuple[str, bool], tuple[Form, Any, int]] = {}
        self._prepared: dict[tuple[str, bool, int], Prepared] = {}
        self._settings: dict[tuple[str, bool, int], dict[str, int]] = {}
        self._mark_seconds: float | None = None
        self._replays: dict[tuple[int, int], Replay] = {}
        self.mailbox: np.ndarray[Any, Any] | None = None
        self.device.synchronize()

    # --- what can be done here

    def require(self, kind: str) -> None:
        """Raise `Unsupported` where a form cannot run on this device, naming why."""
        program, capabilities = self.program, self.device.capabilities
        if kind == "span" and (program.coupling != "independent" or self.steers):
            raise Unsupported(
                "independent items",
                f"{program.name} cannot run many iterations of one item alone: its items depend on each other",
            )
        if kind == "span" and any(array.size > program.items for array in program.state.values()):
            # An even number of iterations ends in the scratch copy, and each item brings home what is its own: index i.
            raise Unsupported("one element an item", f"{program.name} has arrays with more elements than items")
        if kind == "span" and program.keeps_whole:
            raise Unsupported("one element an item", f"{program.name} may write other elements than each item's own")
        if kind == "grid":
            capabilities.require("cooperative")

    def can(self, kind: str) -> bool:
        """Whether a form can run on this device."""
        try:
            self.require(kind)
        except Unsupported:
            return False
        return True

    @property
    def many(self) -> str:
        """The form that runs many iterations in one dispatch: the widest this device has for this program."""
        return next(kind for kind in ("span", "grid", "group") if self.can(kind))

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
        """Give the device a slice: `budget` iterations from the committed state to the next. Returns at once.

        By the device's clock the slice ends early; `tasks` bounds what is taken from the queue in one round.
        """
        prepared = self._launch_of(kind, supervised)
        if kind != "step" or tasks is not None:
            self._set(prepared, (kind, supervised, self.state.current), kind, budget, deadline_seconds, tasks)
        if kind in self._copies_before:
            self._launch_of("copy", False)()
        prepared()
        self.state.current = 1 - self.state.current
        self.measured.dispatches += 1

    def part(self, first: int, count: int) -> None:
        """Give the device some items of an iteration, in their order from 0 on; the last of them commit it. Returns at once."""
        key = ("step", False, self.state.current)
        prepared = self._launch_of("step", False)
        self._update(prepared, key, {"kkfrom": first, "kkupto": first + count})
        if first == 0 and "step" in self._copies_before:
            self._launch_of("copy", False)()
        prepared()
        if first + count >= self.program.items:
            self.state.current = 1 - self.state.current
        self.measured.dispatches += 1

    def steps(self, count: int) -> None:
        """Give the device an even number of single iterations as one, where the driver takes them so."""
        assert count % 2 == 0 and self.device.replays_whole
        key = (count, self.state.current)
        if key not in self._replays:
            recorded: list[Prepared] = []
            for _ in range(count):
                if "step" in self._copies_before:
                    recorded.append(self._launch_of("copy", False))
                recorded.append(self._launch_of("step", False))
                self.state.current = 1 - self.state.current
            self._replays[key] = self.device._new_replay(recorded, self.lanes.compute.queue)
        self._replays[key].launch()
        self.measured.dispatches += count

    def _set(
        self, prepared: Prepared, key: tuple[str, bool, int], kind: str, budget: int, deadline: float, tasks: int | None
    ) -> None:
        wanted = {"kkbudget": budget} if kind != "step" else {}
        if kind == "grid" or tasks is not None:
            wanted["kkdeadline"] = min(round(deadline * 1e6), 2**31 - 1)
        if kind == "grid":
            wanted["kkchunk"] = 1 if self.steers else self.chunk
        if tasks is not None:
            wanted["kklimit"] = tasks
        self._update(prepared, key, wanted)

    def _update(self, prepared: Prepared, key: tuple[str, bool, int], wanted: dict[str, int]) -> None:
        settings = self._settings[key]
        for name, value in wanted.items():
            if settings.get(name) != value:
                prepared.update(name, value)
                settings[name] = value

    def mark(self) -> Mark:
        """A point after everything given to the device so far, on its way."""
        mark = self.lanes.compute.mark()
        self.lanes.compute.flush()
        return mark

    def mark_seconds(self) -> float:
        """What lies between two marks with nothing in between: the price of looking, which is no gap."""
        if self._mark_seconds is None:
            marks = [self.lanes.compute.mark() for _ in range(32)]
            self.lanes.compute.flush()
            self.wait(marks[-1])
            times = self.lanes.times(marks)
            apart = sorted(later - earlier for earlier, later in itertools.pairwise(times))
            self._mark_seconds = max(0.0, apart[len(apart) // 2])
        return self._mark_seconds

    def copy_seconds(self) -> float:
        """How long copying the state on the device takes, which is all of a checkpoint that a run has to wait for.

        The copy goes to where the next slice writes. Nothing else is under way.
        """
        start = time.perf_counter()
        held = [
            self.lanes.compute.copy(self.state.copy(1)[name].handle, array.handle, array.nbytes)
            for name, array in self.state.copy(0).items()
        ]
        self.wait(self.mark())
        held.clear()
        return time.perf_counter() - start

    def synchronize(self) -> None:
        """Wait for everything, and learn from the control words how far it came."""
        self.wait(self.mark())
        control = self.state.read_control()
        self.iteration = int(control[Word.ITERATION])
        self.phase = int(control[Word.PHASE])
        self.generation = int(control[Word.GENERATION])
        self.taken = int(control[Word.TAKEN_LOW]) + (int(control[Word.TAKEN_HIGH]) << 32)
        self.pending_tasks = int(control[Word.COUNT + self.state.current]) if self.program.tasks else 0
        self.stopped = Stopped(int(control[Word.STOPPED]))

    def wait(self, mark: Mark) -> None:
        """Wait for a mark: closely on a GPU, whose host has nothing better to do; without a core on a CPU."""
        if not self.device.capabilities.cheap_polling:
            mark.wait()
            return
        give_up = time.perf_counter() + 200e-6
        while not mark.done:
            if time.perf_counter() > give_up:
                mark.wait()
                return

    def wait_at_most(self, mark: Mark, seconds: float) -> bool:
        """Wait for a mark as `wait` does, but not for ever; False if the time passed first."""
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
        """Wait for this mark no longer: nothing more is asked of the device until it has passed."""
        self.lost = True
        self._given_up = mark

    def warm_up(self, kind: str) -> None:
        """Have the driver compile and load a form, so that its first slice takes no longer than the others.

        A run that has stopped does nothing, so that is what the device is told for the moment.
        """
        control = self.state.control.numpy()
        stopped = control.copy()
        stopped[Word.STOPPED] = Stopped.BY_BODY
        self.state.control.copy_from(stopped)
        self.device.synchronize()
        self.slice(kind)
        self.measured.dispatches -= 1
        self.wait(self.mark())
        self.state.current = int(control[Word.CURRENT])
        self.state.control.copy_from(control)
        self.device.synchronize()

    def mend(self, budget: int) -> None:
        """After a slice that the device could not finish: see to it that it can, and let it be run again."""
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
            self._drop_launches()
            self.measured.queue_grown += 1
        self.state.clear(Word.STOPPED, Word.OVERFLOW, Word.OVERRUN)
        self.stopped = Stopped.NO

    def look_every(self, seconds: float, iteration_seconds: float) -> None:
        """Have independent items look at the clock about every so many seconds, given what an iteration takes."""
        self.chunk = max(1, min(64, int(seconds / max(iteration_seconds, 1e-9))))

    def budget(self, wanted: int) -> int:
        """As many iterations as one dispatch may have, at most as wanted."""
        groups = max((groups for _, _, groups in self._forms.values()), default=1)
        return max(1, min(wanted, self.largest_budget, _MEETINGS // (4 * groups)))

    # --- launches

    def _form(self, kind: str, supervised: bool) -> tuple[Form, Any, int]:
        key = (kind, supervised)
        if key not in self._forms:
            self.require(kind)
            form = lower(self.program, kind, supervised=supervised, condition=self.condition)
            lease = self.cache.get(form.kernel)
            self._leases.append(lease)
            kernel = lease.kernel(form.kernel.name)
            self._forms[key] = form, kernel, self._groups(kind, kernel, supervised)
        return self._forms[key]

    def _groups(self, kind: str, kernel: Any, supervised: bool) -> int:
        if kind == "group":
            return 1
        items = self.state.capacity if self.program.tasks else self.program.items
        if kind == "copy":
            items = max(array.size for array in self.state.arrays[0].values())
        wanted = -(-items // math.prod(kernel.group))
        if kind == "grid":
            most = int(kernel.resident_groups()) - supervised
            if most < 1:
                raise Unsupported("cooperative", f"no group of {self.program.name} fits on {self.device.spec}")
            return int(min(wanted, most)) + supervised
        most = _QUEUE_GROUPS if self.program.tasks else min(_MOST_GROUPS, self.device.capabilities.max_grid[0])
        return int(min(wanted, most))

    def _launch_of(self, kind: str, supervised: bool) -> Prepared:
        key = (kind, supervised, self.state.current)
        if key not in self._prepared:
            form, kernel, groups = self._form(kind, supervised)
            args = tuple(self._argument(name) for name in form.arguments)
            self._prepared[key] = kernel.prepare(
                groups, args, queue=self.lanes.compute.queue, cooperative=kind == "grid"
            )
            self._settings[key] = {}
        return self._prepared[key]

    def _argument(self, name: str) -> Any:
        state, program = self.state, self.program
        if name == "control":
            return state.control
        if name == "mailbox":
            return self._mailbox_array()
        if ":" in name:
            key, role = name.split(":")
            if role == "2" and state.in_place:
                return state.copy(0)[key]
            return state.copy(int(role))[key]
        if "@" in name:
            key, role = name.split("@")
            return state.queue(int(role))[key]
        if name in program.scalars:
            return program.scalars[name][()]
        if name.startswith("kksize_"):
            return state.arrays[0][name.removeprefix("kksize_")].size
        own = {"kkitems": program.items, "kkcurrent": state.current, "kkbudget": 1, "kktwo": 2, "kkdeadline": 0}
        own |= {"kkcapacity": state.capacity, "kklimit": 2**31 - 1, "kkchunk": 1, "kkfrom": 0, "kkupto": program.items}
        return own[name]

    def prepare_mailbox(self) -> np.ndarray[Any, Any]:
        """Host memory that a running kernel reads and writes, emptied for the next slice."""
        self.device.capabilities.require("mapped_ring")
        if self.mailbox is None:
            self.mailbox = self.device.pinned_empty(96, "u4")
        self.mailbox[:] = 0
        return self.mailbox

    def _mailbox_array(self) -> Array:
        if self.mailbox is None:
            self.prepare_mailbox()
        assert self.mailbox is not None
        return Array(self.device, (96,), np.dtype("u4"), self.mailbox.ctypes.data, guest=self.mailbox)

    def _drop_launches(self) -> None:
        for replay in self._replays.values():
            replay.close()
        self._replays.clear()
        self._prepared.clear()

    def close(self) -> None:
        """Let go of everything but the committed arrays."""
        if self.lost:
            _lost.append(self)  # freeing memory would wait for the device
            return
        self._drop_launches()
        for lease in self._leases:
            lease.release()
        self._leases.clear()
        self.state.close()
        self.lanes.close()


def _close_recovered() -> None:
    """Free what sessions left behind on a device that hung and has gone on since."""
    for session in list(_lost):
        with contextlib.suppress(DeviceError):
            if session.device.closed or (session._given_up is not None and session._given_up.done):
                _lost.remove(session)
                session.lost = False
                session.close()
