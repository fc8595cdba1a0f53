"""The executor at work: batches go through upload, compute and download so that all three are busy at once.

    submit ─▶ copied to a block ─▶ (line) ─▶ slot: upload ─▶ compute ─▶ download ─▶ future

A batch is checked and copied in the thread that submits it. If a slot is free it goes on to the device at once, in that
same thread; else it joins a short line, and the thread that sees a slot become free sends it on. So there is one thread
of our own, which waits for downloads in order, and none that a batch has to pass through on its way in.

Results are not copied where they need not be: a large result *is* the memory it was downloaded to, which comes back to the
executor when the last array on it is gone.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..devices.base import Device, Fence
from ..errors import DeviceError
from .buffers import Buffers
from .job import Job
from .submission import Binding, Submission, ordered_batch
from .timeline import Timeline

__all__ = ["Engine"]


class Engine:
    """What an executor does. The executor is only its handle: that one can be forgotten while batches are under way."""

    def __init__(self, device: Device, depth: int, timeline: Timeline | None) -> None:
        self.device = device
        self.depth = depth
        self.timeline = timeline
        self.closing = False
        self.accepted = 0  # batches taken and not done
        self._lanes = device.open_lanes(timed=timeline is not None)
        self._buffers = Buffers(device, self._lanes, depth)
        self._stale: list[Binding] = []
        self._bindings: weakref.WeakKeyDictionary[Job, Binding] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._room = 2 * depth  # batches that may still be taken before submit waits
        self._free_slots = list(range(depth))[::-1]
        self._line: deque[Submission] = deque()
        self._aside: set[Future[Any]] = set()  # futures of `run` whose batch has not joined the line
        self._under_way: SimpleQueue[Submission | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._feeder: ThreadPoolExecutor | None = None
        self._finalizers: list[weakref.finalize[Any, Any]] = []
        self._starting = threading.Lock()
        self._ending = threading.Lock()
        self._ended = False

    # --- taking batches

    def submit(self, job: Job, batch: Mapping[str, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._wait_for_room()
        self._accept(future, job, batch)
        return future

    def submit_aside(self, job: Job, batch: Mapping[str, Any]) -> Future[Any]:
        """Submit without waiting and without touching the device: a thread of its own does both.

        Nor is the lock taken that others hold while they talk to the device.
        """
        future: Future[Any] = Future()
        self._check_open()
        if job.copy:  # as with submit: the caller may change its arrays once this returns
            batch = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in batch.items()}
        fences: list[Fence] = []
        if self.device.guests.supported:
            batch, fences = ordered_batch(batch, self.device)
        self._aside.add(future)
        try:
            with self._starting:
                if self._feeder is None:
                    self._feeder = ThreadPoolExecutor(1, thread_name_prefix="kernelkeep-feeder")
            self._feeder.submit(self._accept_later, future, job, batch, fences)
        except RuntimeError:  # the feeder was shut down this very moment, or the interpreter is ending
            self._aside.discard(future)
            self.closing = True
            self._check_open()
        return future

    def _accept_later(self, future: Future[Any], job: Job, batch: Mapping[str, Any], fences: list[Fence]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._room > 0 or future.cancelled())
            self._aside.discard(future)
            self._changed.notify_all()
            if future.cancelled():
                return
            self._room -= 1
            self.accepted += 1
        self._accept(future, job, batch, fences)

    def _wait_for_room(self) -> None:
        with self._changed:
            self._check_open()
            # A callback of a future runs in our own thread, which is the one that makes room.
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._room > 0 or self.closing)
                self._check_open()
            self._room -= 1
            self.accepted += 1

    def _accept(
        self, future: Future[Any], job: Job, batch: Mapping[str, Any], fences: list[Fence] | None = None
    ) -> None:
        """Check and copy a batch for which there is room, and send it on its way."""
        submission = self._stage(future, job, batch, fences)
        if submission is not None:
            self._join_line(submission)

    def _stage(
        self, future: Future[Any], job: Job, batch: Mapping[str, Any], fences: list[Fence] | None
    ) -> Submission | None:
        submission = Submission(job, future)
        try:
            if fences is None and self.device.guests.supported:
                batch, fences = ordered_batch(batch, self.device)
            submission.fences = fences or []
            submission.stage(self._bind(job), batch, self._lanes, self._buffers.blocks, self._buffers.copier)
        except BaseException as error:
            self._buffers.give_blocks_back(submission)
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            self._done_with(submission)
            if not isinstance(error, Exception):
                raise
            return None
        return submission

    def _join_line(self, submission: Submission) -> None:
        with self._lock:
            self._line.append(submission)
            refused = self._send_on()
        self._tell(refused)

    def _bind(self, job: Job) -> Binding:
        binding = self._bindings.get(job)
        if binding is None:
            while self._stale:  # of jobs that are gone
                self._stale.pop().close()
            made = Binding(job, self.device)
            with self._lock:
                binding = self._bindings.setdefault(job, made)
                if binding is made:
                    # The collector may run anywhere, so it only notes what is to be let go.
                    finalizer = weakref.finalize(job, self._stale.append, made)
                    finalizer.atexit = False
                    self._finalizers = [one for one in self._finalizers if one.alive] + [finalizer]
            if binding is not made:
                made.close()
        return binding

    # --- sending them to the device

    def _send_on(self) -> list[tuple[Submission, BaseException]]:
        """Send as much of the line to the device as there are slots, and give back what could not be sent.

        The caller has the lock; telling those futures runs callbacks, and is for when it has let go of it.
        """
        refused: list[tuple[Submission, BaseException]] = []
        while self._line and self._free_slots:
            submission = self._line.popleft()
            if not submission.future.set_running_or_notify_cancel():
                self._buffers.give_blocks_back(submission)
                self._done_with(submission)
                continue
            submission.slot = self._free_slots.pop()
            submission.number = next(self._numbers)
            try:
                self._dispatch(submission)
            except BaseException as error:
                self._free_slots.append(submission.slot)
                self._recover(submission)
                refused.append((submission, error))
                continue
            if self._thread is None:
                self._thread = threading.Thread(target=self._complete_all, name="kernelkeep-executor", daemon=True)
                self._thread.start()
            self._under_way.put(submission)
        return refused

    def _tell(self, refused: list[tuple[Submission, BaseException]]) -> None:
        for submission, error in refused:
            self._settle(submission, None, error)
        for _, error in refused:
            if not isinstance(error, Exception):
                raise error  # Ctrl-C while a batch was being sent

    def _dispatch(self, submission: Submission) -> None:
        start = time.perf_counter()
        lanes, marks = self._lanes, submission.marks
        # The end of the upload and of the computing: where nothing is moved, there is only one end.
        told = not lanes.single or (self.timeline is not None and not lanes.shares_memory)
        upload, compute, download = lanes.upload, lanes.compute, lanes.download
        with self.device.exclusive():
            handles = self._buffers.place(submission)
            launch = submission.binding.launch_of(submission, handles, lanes)
            for index, block in submission.blocks.items():
                submission.held.append(upload.upload(handles[index], block))
            for index, host in submission.borrowed.items():
                if host.nbytes:
                    submission.held.append(upload.upload_from(handles[index], host))
            if told:
                marks.append(upload.mark())
            if not lanes.single:
                upload.flush()
                compute.wait_for(marks[-1])
            if submission.on_device:
                compute.wait_for(self.device.fence())  # what made the arrays was given to the device's own queue
                for fence in submission.fences:
                    compute.wait_for(fence)
            if not lanes.shares_memory:
                for result in submission.results:
                    if result.index in submission.cleared:
                        submission.held.append(compute.clear(handles[result.index], max(result.nbytes, 16)))
            launch()
            if not lanes.single:
                self._buffers.set_aside(submission, handles)
            if told:
                marks.append(compute.mark())
            if not lanes.single:
                compute.flush()
                download.wait_for(marks[-1])
            if lanes.shares_memory:
                for index, block in submission.blocks.items():
                    submission.held.append(download.download(handles[index], block))
            for result in submission.results:
                self._buffers.bring_back(submission, result, handles)
            marks.append(download.mark())
            download.flush()
            if lanes.shares_memory:
                _ = marks[-1].done  # software OpenGL has computed by now; seen here, nobody needs its context for that
        submission.dispatched = (start, time.perf_counter())

    # --- seeing them arrive

    def _complete_all(self) -> None:
        while True:
            submission = self._under_way.get()
            if submission is None:
                return
            self._complete(submission)
            del submission

    def _complete(self, submission: Submission) -> None:
        problem: BaseException | None = None
        results: dict[str, Any] = {}
        try:
            submission.marks[-1].wait()
        except Exception as error:
            problem = error
        with self._lock:
            self._free_slots.append(submission.slot)
            if problem is None:
                # The next batch is on its way before this one's result is made.
                self._buffers.give_arrays_back(submission)
            refused = self._send_on()
        self._tell(refused)
        if problem is None:
            try:
                results = {result.name: self._buffers.made(result) for result in submission.results}
                if self.timeline is not None:
                    self.timeline.add(submission, self._lanes.times(submission.marks), self._lanes)
            except Exception as error:
                problem = error
        submission.held.clear()
        if problem is None:
            self._buffers.give_blocks_back(submission)
        else:
            self._buffers.forget(submission)
        self._settle(submission, results, problem)

    def _settle(self, submission: Submission, results: dict[str, Any] | None, problem: BaseException | None) -> None:
        """Tell the future. Its callbacks are the user's: not even `sys.exit()` in one ends the thread that all wait for."""
        try:
            if problem is None:
                submission.future.set_result(results)
            else:
                submission.future.set_exception(problem)
        except BaseException:
            if threading.current_thread() is not self._thread:
                raise
        finally:
            self._done_with(submission)

    # --- when something is wrong

    def _recover(self, submission: Submission) -> None:
        """A submission failed half way to the device: once what was given to the device is done, its memory is free."""
        try:
            for lane in self._lanes.all:
                mark = lane.mark()
                lane.flush()
                mark.wait()
        except Exception:
            return  # the device is beyond use; nobody gets this memory again
        if self._lanes.shares_memory:
            return  # a block may be the device's or the host's now: let it go
        self._buffers.give_arrays_back(submission)
        self._buffers.give_blocks_back(submission)

    def _done_with(self, submission: Submission) -> None:
        with self._changed:
            self._room += 1
            self.accepted -= 1
            self._changed.notify_all()

    # --- the end

    def _check_open(self) -> None:
        if self.closing:
            self.device.check_not_lost()
            raise DeviceError(f"the executor on {self.device.spec} is closed")

    def close(self, cancel: bool = False, timeout: float | None = None) -> None:
        if self.device.lost:
            return
        with self._changed:
            self.closing = True
            waiting = [submission.future for submission in self._line] + list(self._aside)
            self._changed.notify_all()
        if cancel:
            for future in waiting:
                future.cancel()
            with self._changed:
                for submission in [submission for submission in self._line if submission.future.cancelled()]:
                    self._line.remove(submission)
                    submission.future.set_running_or_notify_cancel()
                    self._buffers.give_blocks_back(submission)
                    self._done_with(submission)
                self._changed.notify_all()
        if threading.current_thread() is self._thread:
            self._end_elsewhere()  # in a callback: this very thread sees the rest of the batches through
            return
        with self._changed:
            if not self._changed.wait_for(lambda: self.accepted == 0 and not self._aside, timeout):
                raise DeviceError(
                    f"{self.accepted} batches on {self.device.spec} were not done after {timeout} seconds; "
                    "the device may hang"
                )
        self._let_go()

    def mark_lost(self, reason: str) -> None:
        """The device is lost to a forked process, which does not have our threads either, and may find any lock held."""
        self.closing = self._ended = True
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._starting, self._ending = threading.Lock(), threading.Lock()
        if self.timeline is not None:
            self.timeline.renew_lock()

    def _let_go(self) -> None:
        with self._ending:  # once, though several threads may come to close
            if self._ended:
                return
            self._ended = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._under_way.put(None)
                thread.join()
            if self._feeder is not None:
                self._feeder.shutdown()
            for finalizer in self._finalizers:
                finalizer.detach()  # or a job that lives on would keep what this executor had of it
            for binding in (*self._bindings.values(), *self._stale):
                binding.close()
            self._bindings.clear()
            self._stale.clear()
            self._buffers.close()
            if not self.device.closed:
                self._lanes.close()

    def abandon(self) -> None:
        """The executor was forgotten. Called by the garbage collector: what takes time is done elsewhere."""
        self.closing = True
        self._end_elsewhere()

    def _end_elsewhere(self) -> None:
        if self._ended:
            return
        with contextlib.suppress(RuntimeError):  # the interpreter is ending
            # Not a daemon: the interpreter waits for it instead of ending under what is on the device.
            threading.Thread(target=self._end_quietly, name="kernelkeep-executor-end").start()

    def _end_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self.close(cancel=False, timeout=None)
