"""The future of a batch. Who waits for it helps: the batch is completed in the thread that wants its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrivals import Arrivals


class BatchFuture(Future[Any]):
    """A `concurrent.futures.Future` that tells the executor who waits for it, and how.

    Callbacks never run in a thread that merely waits for a result: it may hold a lock that a callback needs.
    """

    settled = False
    urgent = False  # somebody depends on the executor's thread to complete it
    _called_back = False  # it has callbacks
    _results: Any = None  # the result once it is set, which takes no lock to read: a mapping, so never None then
    _result: Any = None
    _exception: BaseException | None = None
    _shared: threading.Condition | None = None

    def __init__(self, arrivals: Arrivals) -> None:
        # Not that of `Future`: making its condition takes a tenth of the time of a small batch, and most do without one.
        self._arrivals = arrivals
        self._state = PENDING
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []
        self._entered: list[Any] = []

    @property
    def _condition(self) -> threading.Condition:
        """What `Future` guards its state with, made when somebody other than the completing thread first asks for the state."""
        if self._shared is None:
            made = threading.Condition()
            with self._arrivals.settling:
                if self._shared is None:
                    self._shared = made
        return self._shared

    @_condition.setter
    def _condition(self, condition: threading.Condition) -> None:
        self._shared = condition

    def result(self, timeout: float | None = None) -> Any:
        if not self.settled:
            timeout = self._arrivals.help(self, timeout)
        results = self._results
        return super().result(timeout) if results is None else results

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(timeout if self.settled else self._arrivals.help(self, timeout))

    def done(self) -> bool:
        if not self.settled:
            self._arrivals.look()
        return super().done()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        self._called_back = True  # before it is added: `settle_quietly` may run beside this
        super().add_done_callback(fn)
        self.hurry()

    def hurry(self) -> None:
        """Have the executor's thread complete it."""
        if not self.settled:
            self.urgent = True
            self._arrivals.wake()

    def begin(self) -> None:
        """What `set_running_or_notify_cancel` does, where nobody else has the future yet."""
        self._state = RUNNING

    def settle_quietly(self, results: Any, problem: BaseException | None) -> bool:
        """Set the outcome, unless there are callbacks, which the caller must not run: then False."""
        if problem is None:
            with self._arrivals.settling:
                self._result = results
                if self._shared is None:  # so nobody sleeps, and there is no callback
                    self._state = FINISHED
                    self.settled = True
                    self._results = results
                    return True
        with self._condition:
            if self._called_back:
                return False
            self.settle(results, problem)
        return True

    def settle(self, results: Any, problem: BaseException | None) -> None:
        """Set the outcome, and run the callbacks."""
        self.settled = True
        if problem is None:
            self.set_result(results)
            self._results = results
        else:
            self.set_exception(problem)

    @property
    def _waiters(self) -> list[Any]:
        """Where `concurrent.futures.wait` and `as_completed` enter who sleeps until it is done: somebody must complete it."""
        self.hurry()
        return self._entered

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self._entered = waiters
