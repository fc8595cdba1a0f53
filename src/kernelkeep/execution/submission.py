"""A submitted batch: its arguments are checked and its host arrays copied before anything is on the device."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.arguments import dimensions
from ..devices.array import Array
from ..devices.base import Fence
from ..devices.host_data import host_view, parse_dtype
from ..devices.lanes import Block, Lanes, Mark
from ..errors import ArgumentError, DeviceError, OutOfMemory
from .arrivals import PATIENCE_SECONDS
from .intermediate import Intermediate
from .pattern import pattern_of
from .plan import check_output_dtype

if TYPE_CHECKING:
    from ..programs.signature import Parameter
    from .batch_future import BatchFuture
    from .binding import Binding, Wiring
    from .buffers import Buffers
    from .job import Job
    from .kit import Kit
    from .pace import Pace
    from .pattern import Pattern
    from .pipeline import Pipeline
    from .plan import Step
    from .timeline import BatchTimes

_NEAR_SECONDS = 60e-6  # before a batch is expected: too short to sleep, and to wake up again
_LATE_SECONDS = 100e-6
_LONG_SECONDS = (
    300e-6  # for three batches: while two are behind, it does no harm to notice the end of one a little later
)
_NAP_SECONDS = 20e-6  # of which the system makes about 75e-6

_OF_ONE_BATCH = ("work", "future", "marks", "held", "alike", "kit")  # `alike` and `kit` would have the kit hold itself

Shape = tuple[tuple[int, ...], np.dtype[Any]]


class Result:
    """One array that comes back: the cell it is in, and the block it is downloaded to."""

    __slots__ = ("block", "cell", "dtype", "name", "nbytes", "shape")

    def __init__(self, name: str, cell: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name = name
        self.cell = cell
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.block: Block | None = None


class Launch:
    """One kernel of a submission. Arguments go by the index of the parameter, memory by its cell (see `plan.py`)."""

    __slots__ = (
        "binding", "buffers", "cleared", "grid", "group", "made", "name", "originals", "shared_bytes", "step", "values"
    )  # fmt: skip

    def __init__(self, job: Job, step: Step, binding: Binding) -> None:
        self.name = job.name  # not the job, which may be collected while what is known of its batches is kept
        self.group = job.group
        self.shared_bytes = job.shared_bytes
        self.step = step
        self.binding = binding
        self.grid: Any = None
        self.values: dict[int, Any] = {}  # scalars as the driver takes them
        self.originals: dict[int, Any] = {}  # and as the caller passed them
        self.buffers: dict[int, int] = {}  # parameters that are arrays, and their cells
        self.made: list[int] = []  # cells that nobody passed: they begin here
        self.cleared: list[int] = []  # those of them that start as zeros


class Submission:
    """One submitted batch."""

    # What never changes in most batches is not set for each of them.
    number = 0
    slot = 0
    has_slot = False
    is_over = False  # it is not counted any more among the batches that were taken
    on_one_lane = False
    uploaded_bytes = 0
    moved_bytes = 0  # up and down
    staged = (0.0, 0.0)  # when the host arrays were copied
    dispatched = (0.0, 0.0)
    received = 0.0  # when it was seen to have arrived
    measured = True  # the device tells when its stages ended, where a timeline is kept
    arrived = False  # the last mark was seen to have passed
    seen = 0.0  # when, if that was earlier than now
    outcome: tuple[dict[str, Any] | None, BaseException | None] | None = None  # before the future has it
    hasty = False  # the device reads the caller's arrays: `submit` returns when it has
    relaxed = False  # whoever submitted it is about to wait for a result
    pace: Pace | None = None
    kit: Kit | None = None
    alike: tuple[Pattern, Wiring] | None = None
    times: BatchTimes | None = None  # where a timeline is kept and somebody traces
    parent: Any = None  # what the submitting thread did, while somebody traces

    def __init__(self, work: Job | Pipeline, future: BatchFuture) -> None:
        self.work = work
        self.future = future
        self.launches: list[Launch] = []
        self.job_names: tuple[str, ...] = ()
        # Arrays, by their cells:
        self.shapes: dict[int, Shape] = {}
        self.blocks: dict[int, Block] = {}  # copies of host arrays
        self.borrowed: dict[int, np.ndarray[Any, Any]] = {}  # host arrays that are read while under way
        self.on_device: dict[int, Any] = {}  # the caller's device arrays, as the driver takes them
        self.kept: list[Array] = []  # and themselves, which keeps them alive
        self.fences: list[Fence] = []  # after what other libraries do with arrays that they share
        self.results: list[Result] = []
        # While it is on the device:
        self.arrays: list[tuple[int, Array]] = []
        self.held: list[Any] = []
        self.marks: list[Mark] = []
        self.ends: list[float] = []  # when the marks were passed, where a timeline is kept

    @classmethod
    def of_kit(cls, work: Job | Pipeline, future: BatchFuture, alike: tuple[Pattern, Wiring], kit: Kit) -> Submission:
        """A small batch, which differs from the one that had the kit before in little; its arrays are in the kit."""
        made = cls.__new__(cls)
        if kit.common is None:
            made.__init__(work, future)  # type: ignore[misc]
            made.belong(*alike, None)
            # What each batch sets: a dictionary that has room for it need not grow.
            made.number = made.slot = 0
            made.has_slot = made.is_over = made.arrived = False
            made.staged = made.dispatched = (0.0, 0.0)
            made.received, made.outcome = 0.0, None
            # What is shared is never written to: a batch with a kit has neither blocks nor arrays of its own.
            kit.common = {name: value for name, value in vars(made).items() if name not in _OF_ONE_BATCH}
        vars(made).update(kit.common)
        made.work, made.future, made.marks, made.held = work, future, [], []
        made.alike, made.kit = alike, kit
        return made

    def stage(self, wiring: Wiring, batch: Mapping[str, Any], lanes: Lanes, buffers: Buffers) -> None:
        """Check a batch's arguments and copy its host arrays."""
        start = time.perf_counter()
        buffers.small = False
        plan = wiring.plan
        self.pace = wiring.pace
        given = dict(plan.constants)
        for name, value in batch.items():
            cell = plan.arguments.get(name)
            if cell is None:
                known = ", ".join(plan.arguments) or "none"
                raise ArgumentError(f"{self.work.label} has no argument {name!r}; it has: {known}")
            given[cell] = value
        for job, step, binding in zip(self.work.jobs, plan.steps, wiring.bindings, strict=True):
            launch = Launch(job, step, binding)
            arguments = batch if plan.plain else self._arguments(step, given)
            launch.grid = dimensions(job.grid_for(arguments), "grid")
            for index, param in enumerate(step.params):
                cell, is_output = step.cells[index], param.name in job.outputs
                if cell in self.shapes:
                    self._hand_on(launch, index, param, given.get(cell))
                elif cell in given:
                    self._take(launch, index, param, given[cell], lanes, buffers)
                elif not is_output:
                    self._refuse_missing(launch, index)
                if is_output:
                    self._expect(job, launch, index, param, arguments)
            self.launches.append(launch)
        self.job_names = tuple(launch.name for launch in self.launches)
        self.results = [Result(name, cell, *self.shapes[cell]) for name, cell in plan.returns]
        self.moved_bytes = self.uploaded_bytes + sum(result.nbytes for result in self.results)
        self.staged = (start, time.perf_counter())
        if plan.plain:
            wiring.learn(pattern_of(self, batch, buffers))

    def stage_alike(self, wiring: Wiring, batch: Mapping[str, Any], buffers: Buffers, is_sent_now: bool) -> bool:
        """Copy the host arrays of a batch that is like the one before; False if it is not, and everything is to be checked.

        What is sent at once need not be copied where the device reads as fast from the caller's array (`hasty`).
        """
        pattern = wiring.pattern
        if pattern is None:
            return False
        start = time.perf_counter()
        if not pattern.fits(self.work, batch):
            return False
        kit = pattern.take_kit(wiring, buffers, size="small")
        self.belong(pattern, wiring, kit)
        buffers.small = kit is not None
        if kit is not None:
            kit.fill(batch)
            self.staged = (start, time.perf_counter())
            return True
        for array in pattern.arrays:
            host = batch[array.name]
            direct = not array.borrowed and buffers.copies_directly(host)
            if array.borrowed or (direct and is_sent_now):
                self.borrowed[array.cell] = host
                self.hasty = self.hasty or direct
            else:
                block = self.blocks[array.cell] = buffers.blocks.take(array.room)
                buffers.fill(block, host)
        self.results = [Result(name, cell, *self.shapes[cell]) for name, cell in wiring.plan.returns]
        self.staged = (start, time.perf_counter())
        return True

    def belong(self, pattern: Pattern, wiring: Wiring, kit: Kit | None) -> None:
        """Be a batch of a pattern, with the memory that belongs to it where there is some."""
        self.pace = wiring.pace
        self.launches, self.shapes, self.job_names = pattern.launches, pattern.shapes, pattern.job_names
        self.uploaded_bytes, self.moved_bytes = pattern.uploaded_bytes, pattern.moved_bytes
        self.alike = pattern, wiring
        self.kit = kit

    def copy_borrowed(self, buffers: Buffers) -> None:
        """Copy what was to be read from the caller's arrays: the batch has to wait for a slot after all."""
        assert self.alike is not None
        for array in self.alike[0].arrays:
            if not array.borrowed and array.cell in self.borrowed:
                block = self.blocks[array.cell] = buffers.blocks.take(array.room)
                buffers.fill(block, self.borrowed.pop(array.cell))
        self.hasty = False

    def wait_for_upload(self) -> None:
        """Wait until the device has read the caller's arrays. What went wrong there is said by completing the batch."""
        with contextlib.suppress(DeviceError, IndexError):  # IndexError: it was cancelled before it was sent
            uploaded = self.marks[0]
            deadline = time.perf_counter() + PATIENCE_SECONDS
            if not self._polled(uploaded, deadline) and not uploaded.wait(PATIENCE_SECONDS):
                uploaded.wait()

    def _arguments(self, step: Step, given: Mapping[int, Any]) -> dict[str, Any]:
        """What the functions of a job see: its own arguments, by the names of its parameters."""
        return {
            param.name: given[cell] if cell in given else Intermediate(*self.shapes[cell])
            for param, cell in zip(step.params, step.cells, strict=True)
            if cell in given or cell in self.shapes
        }

    def _take(self, launch: Launch, index: int, param: Parameter, value: Any, lanes: Lanes, buffers: Buffers) -> None:
        """An argument of the batch: a scalar, or an array that is used here for the first time."""
        if param.kind not in ("buffer", "any") or (param.kind == "any" and isinstance(value, np.generic | bytes)):
            launch.values[index] = launch.binding.kernel.convert(index, value)
            launch.originals[index] = value
            return
        cell = launch.step.cells[index]
        launch.buffers[index] = cell
        if isinstance(value, Array):
            self.on_device[cell] = launch.binding.kernel.convert(index, value)
            self.kept.append(value)
            self.shapes[cell] = tuple(value.shape), parse_dtype(param.dtype or value.dtype)
            value.stop_recycling()  # lanes are orders of their own
            return
        host = _host_array(value, launch, param)
        dtype = host.dtype if param.dtype is None else np.dtype(param.dtype)
        if host.dtype != dtype:
            label = _argument_label(launch, param)
            raise ArgumentError(f"{label} must be {dtype.name}, got {host.dtype.name}; convert it with .astype")
        if self.work.copy or lanes.shares_memory or not host.flags.c_contiguous:
            block = self.blocks[cell] = buffers.blocks.take(buffers.room_for(host.nbytes))
            buffers.fill(block, host)
        else:
            self.borrowed[cell] = host
        self.uploaded_bytes += host.nbytes
        self.shapes[cell] = host.shape, dtype

    def _hand_on(self, launch: Launch, index: int, param: Parameter, value: Any) -> None:
        """An array that an earlier launch has made or used."""
        cell = launch.step.cells[index]
        label, dtype = f"parameter {param.name!r} of job {launch.name}", self.shapes[cell][1]
        if param.kind not in ("buffer", "any"):
            raise ArgumentError(f"{label} is a {param.kind}, and {launch.step.names[index]!r} is an array")
        if param.dtype is not None and np.dtype(param.dtype) != dtype:
            raise ArgumentError(
                f"{label} must be {np.dtype(param.dtype).name}, got {launch.step.names[index]!r}, which is {dtype.name}"
            )
        if isinstance(value, Array):
            launch.binding.kernel.convert(index, value)  # it may not fit this kernel
        launch.buffers[index] = cell

    def _refuse_missing(self, launch: Launch, index: int) -> None:
        name, called = launch.step.params[index].name, launch.step.names[index]
        what = "it" if name == called else repr(called)
        raise ArgumentError(f"job {launch.name} needs its argument {name!r}; pass {what} with the batch")

    def _expect(self, job: Job, launch: Launch, index: int, param: Parameter, arguments: Mapping[str, Any]) -> None:
        """An output: where nobody passed it, it begins here."""
        cell = launch.step.cells[index]
        wanted = job.output_for(param.name, arguments)
        passed = self.shapes.get(cell)
        if passed is None:
            if wanted is None:
                raise ArgumentError(
                    f"{_output_label(launch, param)} has neither shape nor dtype: name them in outputs=, or pass the array with "
                    "the batch"
                )
            check_output_dtype(job, param, wanted[1])
            launch.buffers[index] = cell
            launch.made.append(cell)
            if param.access != "w":
                launch.cleared.append(cell)
            self.shapes[cell] = wanted
            nbytes = byte_count(*wanted)
            if nbytes > sys.maxsize:  # drivers and NumPy have many names for this
                label = _output_label(launch, param)
                raise OutOfMemory(f"{label} would be {nbytes:,} bytes, more than can be addressed")
        elif wanted is not None and passed[1] != wanted[1]:
            label = _output_label(launch, param)
            raise ArgumentError(f"{label} must be {wanted[1].name} as in outputs=, got an array of {passed[1].name}")
        elif wanted is not None and passed[0] != wanted[0]:
            # The kernel may write as far as outputs= says: a smaller array would be written beyond its end.
            origin = "comes from an earlier job" if self._was_made(cell) else "was passed with the batch"
            raise ArgumentError(
                f"{_output_label(launch, param)} has the shape {wanted[0]} in outputs=, but the array {origin}, with the "
                f"shape {passed[0]}"
            )

    # --- when it is under way

    def arrives_before(self, deadline: float, behind: int = 0) -> bool:
        """Whether the batch is done. Waits until the deadline where batches of this kind arrive soon.

        `behind` is how many are under way behind it.
        """
        try:
            last = self.marks[-1]
            if not deadline or self.pace is None or self.pace.seconds > PATIENCE_SECONDS:
                self.arrived = last.done
            elif last.waits_asleep:
                self.arrived = last.wait()
            else:
                self.arrived = self._look_until(last, self.pace.seconds, deadline, behind)
        except Exception:
            return True  # completing it finds the error again
        return self.arrived

    def _look_until(self, last: Mark, usual: float, deadline: float, behind: int) -> bool:
        """Look again and again, where that costs nobody anything but a core; else with naps.

        On a busy host a thread that naps loses its core to others, and one that never sleeps keeps it. Where it has to share
        one all the same, it stands still for milliseconds when it is the other's turn, unless it naps. So it naps for a while
        once it stood still.
        """
        return self._polled(last, deadline) or self._nap_until(last, usual, deadline, behind)

    def _polled(self, mark: Mark, deadline: float) -> bool:
        """Look again and again; False at the deadline, or where naps are better."""
        if not mark.is_polled_in_c or self.pace is None or self.pace.shares_core:
            return False
        passed = mark.passes_before(deadline)
        if mark.stood_still:
            self.pace.note_sharing()
        return passed

    def _nap_until(self, last: Mark, usual: float, deadline: float, behind: int) -> bool:
        """Look with naps as long as the batch is not expected soon, or the device has enough to do."""
        now, sent = time.perf_counter, self.dispatched[0]
        near, late = sent + usual - _NEAR_SECONDS, sent + usual + _LATE_SECONDS
        if behind > 1 and usual > _LONG_SECONDS:
            near = deadline
        missed = 0.0
        while not last.done:
            moment = now()
            if moment >= deadline:
                return False
            missed = 0.0
            if moment < near or moment > late:
                time.sleep(_NAP_SECONDS)
                missed = moment
            elif last.passes_before(min(late, deadline)):
                return True
        if missed:
            self.seen = missed  # it arrived during the nap: the next one is looked for earlier
        return True

    def note_pace(self) -> None:
        """The batch has arrived: how long did it take on the device?"""
        self.received = now = time.perf_counter()
        if self.pace is not None:
            self.pace.note((self.seen or now) - self.dispatched[0])

    def _was_made(self, cell: int) -> bool:
        return any(cell in launch.made for launch in self.launches)


def byte_count(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The size of an array; not by NumPy, whose numbers wrap round at 2**63."""
    return math.prod(shape) * dtype.itemsize


def _host_array(value: Any, launch: Launch, param: Parameter) -> np.ndarray[Any, Any]:
    """A NumPy array, contiguous or not: it is copied anyway. A list of Python's numbers gets the dtype of the parameter."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OU" and value.dtype.isnative:
        return value
    if isinstance(value, int | float | complex | np.generic):  # the kernel would read beyond its one element
        raise ArgumentError(
            f"{_argument_label(launch, param)} must be an array, got the number {value!r}: [{value}] is one"
        )
    try:
        return host_view(value, default=None if param.dtype is None else np.dtype(param.dtype))
    except ArgumentError as error:
        raise ArgumentError(f"{_argument_label(launch, param)}: {error}") from None


# Made where something is wrong, not for every batch.
def _argument_label(launch: Launch, param: Parameter) -> str:
    return f"argument {param.name!r} of job {launch.name}"


def _output_label(launch: Launch, param: Parameter) -> str:
    return f"output {param.name!r} of job {launch.name}"
