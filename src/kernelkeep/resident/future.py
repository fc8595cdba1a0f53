"""The future of a task: wait for it, await it, or be called when it is done.

    future = resident.submit("axpy", 1.5, 3)
    future.result(timeout=1.0)        # or: await future; or: future.add_done_callback(print)

A task that is in the ring cannot be taken back, so `cancel` returns False, always.

Who waits calls, about ten times a second, the `on_silence` of the lane's context (see `Waiting`). That looks whether the device
still lives, and raises what is wrong: so nobody waits for a device that is gone, or for a task that never ends. What
it raises comes out of `result`, and leaves the future as it is: `result` may be called again. When a device is lost for good, the
resident sets the `failure` of its lanes; from then on that is the outcome of every future there that is not done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from .argument_checks import timeout_seconds
from .lane import future_type
from .waiter import Waiter

if TYPE_CHECKING:
    from typing import Self

    from .python_lane import PythonFuture as Future
else:
    Future = future_type()

SLICE_NS = 100_000_000  # signals are handled and the device is looked at between two slices
SPIN_NS = 50_000


class Waiting:
    """How the futures of a resident wait; the `context` of its lanes.

    `on_silence(lane)` is called between two slices of a wait, from the thread that waits; it raises to end the wait.
    """

    def __init__(self, on_silence: Callable[[Any], None] | None = None, *, spin_ns: int = SPIN_NS) -> None:
        self.on_silence = on_silence
        self.spin_ns = spin_ns
        self.waiter = Waiter()

    def look(self, lane: Any) -> None:
        """Raise what is wrong with the lane's device."""
        if lane.failure is not None:
            raise lane.failure
        if self.on_silence is not None:
            self.on_silence(lane)

    def close(self) -> None:
        """End the thread that calls callbacks. Those of futures that are not done are called as they are."""
        self.waiter.close()


_ALONE = Waiting()  # for lanes without a context


class FutureWaits:
    """What all futures do once they can tell whether they are `ready`, and `wait`."""

    __slots__ = ()

    if TYPE_CHECKING:
        failure: BaseException | None

        def ready(self) -> bool: ...
        def wait(self, spin_ns: int, timeout_ns: int) -> bool: ...
        def outcome(self) -> Any: ...
        def lanes(self) -> Iterable[Any]: ...
        def result(self, timeout: float | None = None) -> Any: ...
        def queue(self) -> int: ...
        def place(self) -> int: ...
        def is_next(self) -> bool: ...
        def spin(self) -> bool: ...

    def wait_for_result(self, timeout: float | None = None) -> Any:
        """The result; TimeoutError after `timeout` seconds. `result` comes here when the result is not there at once."""
        limit = timeout_seconds(timeout)
        end = None if limit is None else time.monotonic_ns() + int(limit * 1e9)
        spin_ns = self.context.spin_ns
        while not self.settled():
            self.raise_loss()
            left = SLICE_NS if end is None else min(SLICE_NS, end - time.monotonic_ns())
            if left > 0 and self.wait(spin_ns, left):
                break
            self.look()
            if end is not None and time.monotonic_ns() >= end:
                raise TimeoutError(f"the task is not done after {timeout} s")
            spin_ns = 0  # what takes longer than a slice is no matter of microseconds
        if self.failure is not None:
            raise self.failure
        return self.outcome()

    def raise_loss(self) -> None:
        """Raise the failure of a lane whose device is lost."""
        for lane in self.lanes():
            if lane.failure is not None and not self.ready():
                raise lane.failure

    def settled(self) -> bool:
        """Whether it is ready, or has failed."""
        return self.failure is not None or self.ready()

    def done(self) -> bool:
        """Whether there is a result or a failure. Never waits."""
        return self.settled() or any(lane.failure is not None for lane in self.lanes())

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; the failure of the device that ended it, or None."""
        try:
            self.result(timeout)
        except BaseException as error:
            if error is self.failure or any(error is lane.failure for lane in self.lanes()):
                return error
            raise
        return None

    def cancel(self) -> bool:
        """False: a task in the ring cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        return False

    def add_done_callback(self, function: Callable[[Self], object]) -> None:
        """Call `function(future)` when it is done: now if it is, else from the resident's waiter thread."""
        if not callable(function):
            raise ArgumentError(f"function must be callable, got {function!r}")
        if self.done():
            function(self)
        else:
            self.context.waiter.add(self, function)

    @property
    def context(self) -> Waiting:
        """How the lanes' resident wants futures to wait."""
        return next((lane.context for lane in self.lanes() if lane.context is not None), _ALONE)

    def look(self) -> None:
        """Raise what is wrong with the device, if anything is."""
        context = self.context
        for lane in self.lanes():
            context.look(lane)

    def __repr__(self) -> str:
        return described(self)

    def __await__(self) -> Generator[Any, None, Any]:
        # A few microseconds for a task that is next; a loop that awaits many must not stand still for each of them.
        if not (self.settled() or (self.is_next() and self.spin())):
            yield from self._wait_in_loop().__await__()
        return self.result()

    async def _wait_in_loop(self) -> None:
        from .awaiting import loop_waits  # imports asyncio

        if not self.done():
            await loop_waits().wait(self)


def described(future: Any) -> str:
    """A future in one line, without waiting for it."""
    what = f"{type(future).__name__} of {future.count:,} task{'' if future.count == 1 else 's'}"
    if future.ready():
        return f"<{what}: done>"
    failure = future.failure or next((lane.failure for lane in future.lanes() if lane.failure is not None), None)
    return f"<{what}: pending>" if failure is None else f"<{what}: failed, {type(failure).__name__}: {failure}>"


class LaneFuture(FutureWaits):
    """What futures do that belong to one lane, whichever type they are derived from."""

    __slots__ = ()

    if TYPE_CHECKING:
        lane: Any
        batch: bool
        sequence: int
        code: str

        count: int

        def value(self) -> Any: ...

    def lanes(self) -> Iterable[Any]:
        return (self.lane,)

    def queue(self) -> int:
        """Futures of the same queue are done one after the other."""
        return id(self.lane)

    def place(self) -> int:
        """Which one of its queue it is: one with a lower place is done before."""
        return self.sequence + self.count

    def is_next(self) -> bool:
        """Whether it is one task and nothing is before it."""
        return not self.batch and bool(self.lane.done >= self.sequence)

    def outcome(self) -> Any:
        """The result, which is there: of a batch a NumPy array, or None for tasks without one."""
        value = self.value()
        return value if value is None or not self.batch else np.frombuffer(value, self.code)


class TaskFuture(LaneFuture, Future):
    """The future of one task, or of one `submit_many`, whose result is a NumPy array, or None for tasks without results."""

    __slots__ = ()


class BatchFuture(FutureWaits):
    """Several futures as one: a `submit_many` that took several pushes, or went to several lanes."""

    __slots__ = ("_code", "_lanes", "failure", "parts")

    def __init__(self, parts: Iterable[Any], code: str = "") -> None:
        self.parts: tuple[Any, ...] = tuple(parts)
        self._code = self.parts[0].code if self.parts else code
        self.failure: BaseException | None = None
        self._lanes = tuple({id(part.lane): part.lane for part in self.parts}.values())

    @property
    def count(self) -> int:
        """How many tasks these are."""
        return sum(part.count for part in self.parts)

    def lanes(self) -> Iterable[Any]:
        return self._lanes

    def queue(self) -> int:
        return id(self._lanes[0] if len(self._lanes) == 1 else self)

    def place(self) -> int:
        return int(self.parts[-1].place()) if self.parts else 0

    def is_next(self) -> bool:
        return False

    def ready(self) -> bool:
        return all(part.ready() for part in reversed(self.parts))  # the last one tells soonest that it is not

    def wait(self, spin_ns: int, timeout_ns: int) -> bool:
        end = time.monotonic_ns() + timeout_ns
        return all(part.ready() or part.wait(spin_ns, max(0, end - time.monotonic_ns())) for part in self.parts)

    def result(self, timeout: float | None = None) -> Any:
        """The results in the order of the rows, as one NumPy array; None for tasks without results."""
        return self.wait_for_result(timeout)

    def outcome(self) -> Any:
        if not self._code:
            return None
        if not self.parts:
            return np.zeros(0, self._code)
        return np.frombuffer(bytearray().join([part.value() for part in self.parts]), self._code)
