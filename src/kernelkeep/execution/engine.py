"""The executor at work: which batch goes to the device when, and what becomes of its future.

    submit ─▶ copied to a block ─▶ (backlog) ─▶ slot: upload ─▶ compute ─▶ download ─▶ future

A batch is checked and copied in the thread that submits it. If a slot is free, the same thread sends it to the device at once;
else it joins a short backlog, and the thread that frees a slot sends it. Who waits for a result completes it (`arrivals.py`);
the executor has one thread of its own for what nobody waits for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..activity import live, spans
from ..activity.facts import Facts
from ..devices.base import Device, Fence
from ..errors import DeviceError
from .arrivals import Arrivals
from .backlog import Backlog, Refused
from .batch_counts import BatchCounts
from .batch_future import BatchFuture
from .binding import Bindings
from .diary_notes import note_executor
from .dispatcher import Dispatcher
from .guest_batch import ordered_batch
from .job import Job
from .pipeline import Pipeline
from .submission import Submission
from .timeline import Timeline

Work = Job | Pipeline  # what a batch can be submitted to
_WAY_SECONDS = 300e-6  # how long a submission waits for a slot itself before it is left to the backlog


class Engine:
    """What an executor does. The executor is only a handle, which may be collected while batches are under way."""

    def __init__(self, device: Device, depth: int, timeline: Timeline | None, *, page_lock: bool = False) -> None:
        self.device = device
        self.timeline = timeline
        self.closing = False
        self.accepted = 0  # batches taken and not done
        self._depth = depth
        self._counts = BatchCounts(device.spec)
        self._dispatcher = Dispatcher(device, depth, timeline)
        self._dispatcher.buffers.page_lock = page_lock
        self._computes_at_once = self._dispatcher.lanes.computes_at_once
        self._bindings = Bindings(device)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._room = 2 * depth  # batches that may still be taken before submit waits
        self._deferred: set[BatchFuture] = set()  # futures of `run` whose batch is not in the backlog yet
        self._waiting = 0  # threads that wait for a change
        self._arrivals = Arrivals(self._complete, self._is_pressed)
        self._backlog = Backlog(depth, self._dispatcher, self._arrivals, self._drop)
        self._feeder: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()
        self._ending = threading.Lock()
        self._ended = False
        live.add("executor", self, Engine.live_facts)

    @property
    def ahead(self) -> int:
        """How many batches are best taken ahead of the result that somebody waits for."""
        lanes = self._dispatcher.lanes
        if self._depth == 1 or lanes.computes_at_once:
            return 1
        # Where cores compute, one batch is filled beside another; the memory of more would only push these out of the caches.
        if lanes.shares_memory:
            return 2
        buffers = self._dispatcher.buffers
        if buffers.small and lanes.small_batches_ahead is not None:
            return lanes.small_batches_ahead
        # A batch that finds a slot free is uploaded from the caller's own arrays, where these are page-locked.
        return self._depth if buffers.direct else self._depth + 1

    # --- taking batches

    def submit(self, work: Work, batch: Mapping[str, Any], *, relaxed: bool = False) -> BatchFuture:
        """Take a batch, after waiting for room. With `relaxed` the caller is about to wait for a result, and so makes way."""
        if (sent := self._send_small(work, batch)) is not None:
            return sent
        future = BatchFuture(self._arrivals)
        if not self._backlog.free_slots:
            self._arrivals.look()
        submission = Submission(work, future)
        submission.relaxed = relaxed
        self._wait_for_room(submission)
        try:
            submission.parent = spans.context()
            self._accept(submission, batch)
        except BaseException:
            self._take_back(submission)
            raise
        if not relaxed and self._backlog:
            self._arrivals.make_way(lambda: not self._backlog, _WAY_SECONDS)
            if self._backlog:
                self._arrivals.wake()
        return future

    def _send_small(self, work: Work, batch: Mapping[str, Any]) -> BatchFuture | None:
        """Send a batch that has memory of its own and need not wait: the short way, without any question that has one answer.

        None where it is not such a batch, or something is in its way.
        """
        backlog, wiring = self._backlog, self._bindings.known(work)
        if self.closing:  # before anything is copied: in a forked process the memory is the parent's
            return None
        if wiring is None or (pattern := wiring.pattern) is None or not backlog.has_free_slot or spans.is_on():
            return None
        start = time.perf_counter()
        if not pattern.fits(work, batch) or (kit := pattern.idle_kit()) is None:
            return None
        try:
            kit.fill(batch)
            submission = Submission.of_kit(work, BatchFuture(self._arrivals), (pattern, wiring), kit)
            submission.staged = (start, time.perf_counter())
        except BaseException as error:
            pattern.keep_kit(kit)
            if isinstance(error, Exception):
                return None  # the long way says it in the future
            raise
        free = False
        try:
            with self._lock:
                free = self._room > 0 and not self.closing and backlog.has_free_slot
                if free:
                    self._room -= 1
                    self.accepted += 1
                    refused = backlog.add(submission, unknown=True)
        except BaseException:
            if free:
                self._take_back(submission)
            else:
                pattern.keep_kit(kit)
            raise
        if not free:
            pattern.keep_kit(kit)
            return None
        self._dispatcher.buffers.small = True
        if refused:
            self._report_refused(refused)
        elif self._computes_at_once:
            submission.arrived = True
            self._arrivals.complete_only(submission)
        return submission.future

    def submit_deferred(self, work: Work, batch: Mapping[str, Any]) -> BatchFuture:
        """Take a batch without waiting and without touching the device: a thread of its own does both.

        Nor is the lock taken that others hold while they talk to the device.
        """
        future = BatchFuture(self._arrivals)
        self._check_open()
        if work.copy:  # as with submit: the caller may change its arrays once this returns
            batch = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in batch.items()}
        fences: list[Fence] = []
        if self.device.guests.supported:
            batch, fences = ordered_batch(batch, self.device)
        self._deferred.add(future)
        try:
            with self._starting:
                if self._feeder is None:
                    self._feeder = ThreadPoolExecutor(1, thread_name_prefix="kernelkeep-feeder")
            self._feeder.submit(self._accept_deferred, future, work, batch, fences, spans.context())
        except RuntimeError:  # the feeder was shut down this very moment, or the interpreter is ending
            self._deferred.discard(future)
            self.closing = True
            self._check_open()
        return future

    def _accept_deferred(
        self, future: BatchFuture, work: Work, batch: Mapping[str, Any], fences: list[Fence], parent: Any
    ) -> None:
        with self._changed:
            self._wait_until(lambda: self._room > 0 or future.cancelled())
            self._deferred.discard(future)
            self._changed.notify_all()
            if future.cancelled():
                return
            self._room -= 1
            self.accepted += 1
        submission = Submission(work, future)
        submission.parent = parent
        self._accept(submission, batch, fences)

    def _wait_for_room(self, submission: Submission) -> None:
        """Wait until a batch may be taken, and count it."""
        if self._room <= 0 and not self.closing:
            self._arrivals.make_way(lambda: self._room > 0, _WAY_SECONDS)
        counted = False
        try:
            with self._lock:
                self._check_open()
                # A callback of a future runs in the executor's thread, which is the one that makes room.
                if self._room <= 0 and not self._arrivals.is_here:
                    self._wait_until(lambda: self._room > 0 or self.closing)
                    self._check_open()
                self._room -= 1
                self.accepted += 1
                counted = True
        except BaseException:
            if counted:  # Ctrl-C while the lock was released
                self._make_room(submission)
            raise

    def _wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for what other threads do. The caller holds the lock."""
        self._waiting += 1
        try:
            self._arrivals.wake()
            self._changed.wait_for(holds)
        finally:
            self._waiting -= 1

    def _is_pressed(self) -> bool:
        """Whether the executor's thread is to complete what is under way, whoever may wait for it."""
        return self.closing or bool(self._waiting) or self._backlog.is_pressing

    def _accept(self, submission: Submission, batch: Mapping[str, Any], fences: list[Fence] | None = None) -> None:
        """Check and copy a batch for which there is room, and send it or put it into the backlog."""
        dispatcher = self._dispatcher
        try:
            wiring = self._bindings.get(submission.work)
            if not submission.stage_alike(wiring, batch, dispatcher.buffers, self._backlog.has_free_slot):
                if fences is None and self.device.guests.supported:
                    batch, fences = ordered_batch(batch, self.device)
                submission.fences = fences or []
                submission.stage(wiring, batch, dispatcher.lanes, dispatcher.buffers)
        except BaseException as error:
            self._refuse(submission, error)
            return
        problem: BaseException | None = None
        refused: Refused = []
        with self._lock:
            if submission.hasty and not self._backlog.has_free_slot:  # another thread took it
                try:
                    submission.copy_borrowed(dispatcher.buffers)
                except BaseException as error:  # such as no page-locked memory
                    problem = error
            if problem is None:
                # `run` has handed its future out already, and passes fences.
                refused = self._backlog.add(submission, unknown=fences is None)
        if problem is not None:
            self._refuse(submission, problem)
            return
        if submission.hasty:
            submission.wait_for_upload()
        if refused:
            self._report_refused(refused)

    def _refuse(self, submission: Submission, error: BaseException) -> None:
        """A batch could not be staged: its future says why."""
        self._dispatcher.buffers.give_blocks_back(submission)
        self._counts.settle(submission, error)
        if submission.future.set_running_or_notify_cancel():
            self._settle(submission, None, error)
        else:
            self._make_room(submission)
        if not isinstance(error, Exception):
            raise error

    # --- what becomes of them

    def _drop(self, submission: Submission) -> None:
        """A batch was cancelled before it was sent."""
        self._dispatcher.buffers.give_blocks_back(submission)
        self._make_room(submission)

    def _take_back(self, submission: Submission) -> None:
        """Ctrl-C came while a batch was taken: where nobody has it yet, it is not counted any more."""
        with self._lock:
            if self._backlog.has(submission):
                return
            refused = self._backlog.free(submission) if submission.has_slot else []
        self._dispatcher.buffers.forget(submission)  # it may have been on the device
        self._make_room(submission)
        self._report_refused(refused)

    def _report_refused(self, refused: Refused) -> None:
        for submission, error in refused:
            if submission is not None and not submission.future.settled:
                self._counts.settle(submission, error)
                self._settle(submission, None, error)
        for submission, error in refused:
            if submission is None or not isinstance(error, Exception):
                raise error  # Ctrl-C while a batch was being sent

    def _complete(self, submission: Submission, in_thread: bool) -> bool:
        """Complete a batch, the first of those under way. False if it has callbacks, which only the executor's thread runs."""
        if submission.outcome is None:
            try:
                submission.outcome = self._receive(submission, in_thread)
            except BaseException as error:  # Ctrl-C, in a thread that waits for its result
                self._give_up(submission, error)
                raise
            self._counts.settle(submission, submission.outcome[1])
        return self._settle(submission, *submission.outcome, in_thread=in_thread)

    def _give_up(self, submission: Submission, error: BaseException) -> None:
        """Completing a batch was interrupted: that is its outcome, and the next one gets its slot."""
        with self._lock:
            refused = self._backlog.free(submission) if submission.has_slot else []
        self._dispatcher.buffers.forget(submission)
        self._counts.settle(submission, error)
        try:
            self._settle(submission, None, error)
        finally:
            self._report_refused(refused)

    def _receive(self, submission: Submission, in_thread: bool) -> tuple[dict[str, Any] | None, BaseException | None]:
        """Wait for a batch, send the next one, and make the results of this one."""
        buffers = self._dispatcher.buffers
        problem: BaseException | None = None
        results: dict[str, Any] = {}
        try:
            if in_thread or not submission.arrived:
                submission.marks[-1].wait()
            if self.timeline is not None and submission.measured:
                # Now: the next batch may use the same marks.
                submission.ends = self._dispatcher.lanes.times(submission.marks)
        except Exception as error:
            problem = error
        submission.note_pace()
        kit = submission.kit
        is_small = kit is not None and kit.is_small
        with self._lock:
            if problem is None and not is_small:
                buffers.give_arrays_back(submission)
            refused = self._backlog.free(submission)  # the next is on its way before this one's result is made
        if refused:
            self._report_refused(refused)
        if problem is None:
            try:
                results = self._dispatcher.results(submission)
            except Exception as error:
                problem = error
        submission.held.clear()
        if problem is None:
            buffers.give_blocks_back(submission)
        else:
            buffers.forget(submission)
        return results, problem

    def _settle(
        self,
        submission: Submission,
        results: dict[str, Any] | None,
        problem: BaseException | None,
        in_thread: bool = True,
    ) -> bool:
        """Set the future's outcome. Its callbacks are the user's: not even `sys.exit()` in one ends the executor's thread."""
        if not in_thread:
            try:
                if not submission.future.settle_quietly(results, problem):
                    return False
                self._make_room(submission)
            except BaseException:
                if submission.future.settled:  # nobody completes it again
                    self._make_room(submission)
                raise
            return True
        try:
            submission.future.settle(results, problem)
        except BaseException:
            if not self._arrivals.is_here:
                raise
        finally:
            self._make_room(submission)
        return True

    def _make_room(self, submission: Submission) -> None:
        """A batch is not counted any more. Once for each: after Ctrl-C it may be called again."""
        try:
            with self._lock:
                if not submission.is_over:
                    submission.is_over = True
                    self._room += 1
                    self.accepted -= 1
                if self._waiting:
                    self._changed.notify_all()
        except BaseException:  # Ctrl-C, such as while another thread has the lock
            self._make_room(submission)
            raise

    # --- watching

    def live_facts(self) -> Facts:
        """What `kernelkeep top` and metrics show of this executor. Takes no lock."""
        busy = {} if self.timeline is None else self.timeline.busy_seconds
        return Facts(
            {"device": self.device.spec, "depth": self._depth},
            {**self._counts.read(), **{f"{engine}_busy_seconds": seconds for engine, seconds in busy.items()}},
            {
                "queued": len(self._backlog) + len(self._deferred),
                "in_flight": self._depth - len(self._backlog.free_slots),
                "closing": self.closing,
            },
            self._counts.histograms(),
        )

    # --- the end

    def _check_open(self) -> None:
        if self.closing:
            self.device.check_not_lost()
            raise DeviceError(f"the executor on {self.device.spec} is closed")

    def close(self, cancel: bool = False, timeout: float | None = None) -> None:
        """Finish what was submitted and free everything; see `Executor.close`."""
        if self.device.lost:
            return
        with self._changed:
            self.closing = True
            waiting = [*self._backlog.futures, *self._deferred]
            self._changed.notify_all()
        if cancel:
            for future in waiting:
                future.cancel()
            with self._changed:
                self._backlog.drop_cancelled()
                self._changed.notify_all()
        if self._arrivals.is_here:
            self._close_in_thread()  # in a callback: this very thread completes the rest of the batches
            return
        with self._changed:
            self._arrivals.wake()
            self._waiting += 1
            try:
                done = self._changed.wait_for(lambda: self.accepted == 0 and not self._deferred, timeout)
            finally:
                self._waiting -= 1
            if not done:
                raise DeviceError(
                    f"{self.accepted} batches on {self.device.spec} were not done after {timeout} seconds; "
                    "the device may hang"
                )
        self._free()

    def mark_lost(self, reason: str) -> None:
        """The device is lost to a forked process, which has none of the threads and may find any lock held."""
        self.closing = self._ended = True
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._starting, self._ending = threading.Lock(), threading.Lock()
        self._arrivals.renew_locks()

    def _free(self) -> None:
        with self._ending:  # once, though several threads may close
            if self._ended:
                return
            self._ended = True
            self._arrivals.close()
            self._backlog.close()
            if self._feeder is not None:
                self._feeder.shutdown()
            live.remove(self)
            counts = self._counts.read()
            if self._bindings.disk is not None and any(counts.values()):
                note_executor(self._bindings.disk, self.device, self._depth, counts, self.timeline)
            self._bindings.close()
            self._dispatcher.close()

    def abandon(self) -> None:
        """The executor was collected. Called by the garbage collector: another thread does what takes time."""
        self.closing = True
        self._close_in_thread()

    def _close_in_thread(self) -> None:
        if self._ended:
            return

        def close() -> None:
            with contextlib.suppress(Exception):
                self.close()

        with contextlib.suppress(RuntimeError):  # the interpreter is ending
            # Not a daemon: the interpreter waits for it instead of ending while batches are on the device.
            threading.Thread(target=close, name="kernelkeep-executor-end").start()
