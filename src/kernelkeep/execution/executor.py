"""`Executor`: jobs on batches, as futures, as an iterator, and for `await`. What it does with them is in `engine.py`."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Never, Self

import numpy as np

from ..devices.base import Device
from ..errors import ArgumentError
from ..progress.reporter import Wanted, check_wanted, reported
from ..weak_set import WeakSet
from .engine import Engine, Work
from .job import Job
from .pipeline import Pipeline
from .timeline import Timeline

_MOST_DEPTH = 65_536  # each has slots, whether it is used or not
open_executors: WeakSet[Executor] = WeakSet()


class Executor:
    """Runs jobs on a device, `depth` batches at a time. Safe under threads; a context manager.

    `depth=1` is the synchronous loop. `submit` waits when `depth` batches are on the device and `depth` more in the backlog.
    `page_lock=True` page-locks large host arrays that come again and again where they are (CUDA), see docs/executor.md for
    what that asks of the program. An executor that nobody refers to is closed when it is collected, or when the interpreter
    ends.
    """

    def __init__(self, device: Device, depth: int = 3, *, trace: bool = True, page_lock: bool = False) -> None:
        if not isinstance(device, Device):
            raise ArgumentError(f"device must be a device that kk.open_device returned, got {device!r}")
        if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= _MOST_DEPTH:
            raise ArgumentError(f"depth must be a number of batches from 1 to {_MOST_DEPTH:,}, got {depth!r}")
        if not isinstance(page_lock, bool):
            raise ArgumentError(f"page_lock must be True or False, got {page_lock!r}")
        device.check_open()
        self.device = device
        self.depth = depth
        self._engine = Engine(device, depth, Timeline(device.spec, depth) if trace else None, page_lock=page_lock)
        self._closer = weakref.finalize(self, self._engine.abandon)
        self._closer.atexit = False  # atexit below does it in the right order, and waits
        device.add_tenant(self._engine)  # not this handle, which may be collected while batches are under way
        open_executors.add(self)

    @property
    def closed(self) -> bool:
        """Whether it takes no more batches."""
        return self._engine.closing

    def submit(self, job: Work, /, *unnamed: Never, **batch: Any) -> Future[dict[str, np.ndarray[Any, Any]]]:
        """Run a job on one batch: NumPy arrays, device arrays and scalars by the names of the kernel's parameters.

        Host arrays are copied before this returns, unless the job says otherwise. An error of this batch is the
        future's exception. The future can be cancelled until the batch is on its way to the device.
        """
        return self._engine.submit(self._checked(job, unnamed), batch)

    def map(
        self,
        job: Work,
        batches: Iterable[Mapping[str, Any]],
        /,
        *,
        return_exceptions: bool = False,
        progress: Wanted = False,
        **common: Any,
    ) -> Iterator[Any]:
        """Results of a job on each batch, in order; `common` arguments go to every batch.

        Lazy: only a few batches are taken ahead of the results, so the iterable may be endless. A batch that fails raises
        at its turn and ends the iteration, or with `return_exceptions` yields the exception and goes on. When the
        iterable itself raises, the results of the batches before come first. `progress` shows how many results are done,
        or is a function that is called with a `kk.Progress`.
        """
        check_wanted(progress)
        results = self._map(self._checked(job), iter(batches), return_exceptions, common)
        return _shown(results, job.name, operator.length_hint(batches, -1), progress) if progress else results

    async def run(self, job: Work, /, *unnamed: Never, **batch: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Run a job on one batch without blocking the event loop. Cancelling the task cancels a batch that waits."""
        import asyncio

        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[Any] = loop.create_future()
        future = self._engine.submit_deferred(self._checked(job, unnamed), batch)

        def arrive(done: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody is waiting any more
                loop.call_soon_threadsafe(_copy_outcome, done, arrived)

        future.add_done_callback(arrive)
        try:
            return await arrived  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            future.cancel()
            raise

    async def stream(
        self, job: Work, batches: Iterable[Mapping[str, Any]], /, **common: Any
    ) -> AsyncIterator[dict[str, np.ndarray[Any, Any]]]:
        """`map` for `async for`."""
        import asyncio

        ahead: deque[asyncio.Task[Any]] = deque()
        problem: Exception | None = None
        source = iter(batches)
        try:
            while True:
                try:
                    arguments = _merged(common, next(source))
                except StopIteration:
                    break
                except Exception as error:  # the results of the batches before come first
                    problem = error
                    break
                ahead.append(asyncio.ensure_future(self.run(job, **arguments)))
                if len(ahead) > self.depth:
                    yield await ahead.popleft()
            while ahead:
                yield await ahead.popleft()
            if problem is not None:
                raise problem
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    @property
    def timeline(self) -> Timeline:
        """What ran when, of the last few thousand batches."""
        if self._engine.timeline is None:
            raise ArgumentError("this executor was made with trace=False and has no timeline; pass trace=True")
        return self._engine.timeline

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open."""
        self.timeline.save(path)

    def close(self, cancel: bool = False, timeout: float | None = None) -> None:
        """Finish what was submitted and free everything; with `cancel`, finish only what is on the device already.

        After `timeout` seconds it raises `DeviceError` and leaves the rest to finish by itself.
        """
        self._engine.close(cancel, timeout)
        self._closer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # After an error, batches that have not begun are cancelled.
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._engine.accepted} under way"
        return f"<Executor on {self.device.spec}, depth {self.depth}, {state}>"

    def _repr_html_(self) -> str:
        from .html import executor_html

        return executor_html(self)

    def _checked(self, job: Any, unnamed: tuple[Any, ...] = ()) -> Work:
        if not isinstance(job, (Job, Pipeline)):  # quicker than a union, and asked for each batch
            raise ArgumentError(f"job must be a kk.Job or a kk.Pipeline, got a {type(job).__name__}")
        if unnamed:
            raise ArgumentError(
                "a batch goes by the names of the kernel's parameters: submit(job, x=array, n=100), or submit(job, **batch) "
                f"where it is a dict; got {', '.join(f'a {type(one).__name__}' for one in unnamed)} without a name"
            )
        return job

    def _map(
        self, job: Work, batches: Iterator[Mapping[str, Any]], return_exceptions: bool, common: Mapping[str, Any]
    ) -> Generator[Any]:
        pending: deque[Future[Any]] = deque()
        problem: BaseException | None = None
        exhausted = False
        try:
            while True:
                ahead = self._engine.ahead
                while not exhausted and len(pending) < ahead:
                    try:
                        batch = next(batches)
                    except StopIteration:
                        exhausted = True
                        break
                    except Exception as error:
                        exhausted, problem = True, error
                        break
                    try:
                        arguments = _merged(common, batch)
                    except ArgumentError as error:
                        pending.append(_failed(error))  # raises at its turn, like any other bad batch
                    else:
                        pending.append(self._engine.submit(job, arguments, relaxed=True))
                if not pending:
                    break
                first = pending.popleft()
                try:
                    result = first.result()
                except Exception as error:
                    if not return_exceptions:
                        raise
                    result = error
                del first  # or a result that the caller dropped would stay alive for another round
                yield result
                del result
            if problem is not None:
                raise problem
        finally:
            for future in pending:
                future.cancel()


def _shown(results: Generator[Any], title: str, total: int, progress: Wanted) -> Iterator[Any]:
    """The results, with their progress; `total` is -1 where the number of batches is not known."""
    reporting = reported(title, None if total < 0 else total, progress, unit="batches")
    with reporting as report, contextlib.closing(results):
        report.begin("loading or compiling")
        for result in results:
            report.step("")
            yield result


def _merged(common: Mapping[str, Any], batch: Any) -> dict[str, Any]:
    if batch.__class__ is not dict and not isinstance(batch, Mapping):  # the first question takes a tenth of the second
        raise ArgumentError(f"a batch must be a mapping of argument names to values, got a {type(batch).__name__}")
    return {**common, **batch}


def _failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _copy_outcome(done: Future[Any], arrived: Any) -> None:
    """Copy the outcome to the event loop's future, in its thread."""
    if arrived.done():
        return
    if done.cancelled():
        arrived.cancel()
    elif (error := done.exception()) is not None:
        arrived.set_exception(error)
    else:
        arrived.set_result(done.result())


@atexit.register
def _close_all() -> None:
    for executor in list(open_executors):
        with contextlib.suppress(Exception, CancelledError):
            executor.close()
