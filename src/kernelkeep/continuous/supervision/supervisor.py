"""`kk.run_supervised`: work in a process that is replaced when it dies or hangs.

The supervisor only watches: it loads no driver, so no fault of a worker can reach it. A worker reports through two pipes, one
for heartbeats and one for how it ended, and the operating system reports its death. Workers share nothing but the checkpoint.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ArgumentError, CheckpointError, SupervisionError
from ..checkpoints.address import is_address, shown
from ..checkpoints.claim import CheckpointClaim
from ..checkpoints.file_set import find_file_set, real_path
from ..checkpoints.files import newest_header
from ..checkpoints.header import CheckpointHeader
from ..interruption import EndingSignal, raise_ending_signals
from .incident import Incident, SupervisedReport
from .worker_handle import WorkerHandle
from .worker_main import Done, Failed, Interrupted, Message

_log = logging.getLogger("kernelkeep")
RESTART_CAP = 10  # times max_restarts: the end, even with progress
_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 5.0


def run_supervised(
    target: Callable[..., Any],
    *,
    checkpoint: str | os.PathLike[str] | None,
    heartbeat_seconds: float = 30.0,
    max_restarts: int = 5,
    args: Sequence[Any] = (),
    start_seconds: float = 300.0,
    on_event: Callable[[Incident], object] | None = None,
) -> SupervisedReport:
    """Run `target` in a worker process, and again in a new one when it dies or hangs, until it returns.

    The target is called with `args` and, if it takes one more, the path of the checkpoint to resume from, or None where there
    is none yet. It must be importable from its module, as with `multiprocessing`: a script calls this function behind
    `if __name__ == "__main__":`. `kk.run` gives the heartbeats; other work calls `kernelkeep.continuous.heartbeat.beat`.

    A worker is replaced when it was killed, crashed or exited, when `heartbeat_seconds` pass without a heartbeat
    (`start_seconds` until the first: compiling takes its time), and when its target raised what may not happen again in
    a new process, such as `DeviceError`. Each time one line says what happened; it is logged, kept in the history, and passed
    to `on_event`. What would only happen again (`CompileError`, `ArgumentError`, `Unsupported`, `CheckpointError`, `TypeError`,
    `ImportError`, …) is raised at once, with the worker's traceback as a note.

    `max_restarts` counts restarts without progress: whenever the checkpoint has moved on since the incident before, counting
    begins anew. After ten times as many restarts it gives up in any case. Then `SupervisionError` has the history.

    Ctrl-C asks the worker to stop, which makes its checkpoint, and is raised when it has; so do SIGTERM and SIGHUP, which then
    end the process, unless you handle them yourself. A worker never outlives its supervisor (on Linux; elsewhere until its
    next heartbeat).
    """
    if not callable(target):
        raise ArgumentError(f"target must be a function, got {target!r}, which cannot be called")
    numbers = all(isinstance(value, int | float) for value in (heartbeat_seconds, start_seconds, max_restarts))
    if not numbers or not heartbeat_seconds > 0 or not start_seconds > 0 or not max_restarts >= 0:
        raise ArgumentError(
            f"heartbeat_seconds and start_seconds must be numbers above 0, and max_restarts one from 0 on, got "
            f"{heartbeat_seconds!r}, {start_seconds!r} and {max_restarts!r}"
        )
    if not isinstance(args, Sequence):
        raise ArgumentError(f"args must be a tuple of arguments for the target, got {args!r}")
    if checkpoint is not None:
        _bring_here(checkpoint)
    args = tuple(args)
    takes_path = _takes_path(target, args)
    began = time.monotonic()
    history: list[Incident] = []
    without_progress = 0
    saved = _newest_header(checkpoint)
    lineage = saved.lineage if isinstance(saved, CheckpointHeader) else None
    with raise_ending_signals():
        while True:
            arguments = (*args, _resume_from(checkpoint)) if takes_path else args
            replaces = (os.fspath(checkpoint), lineage) if checkpoint is not None and history else None
            worker = WorkerHandle(target, arguments, heartbeat_seconds, start_seconds, replaces)
            try:
                ended = worker.watch()
            except (KeyboardInterrupt, EndingSignal):
                worker.stop()
                raise
            finally:
                worker.kill()
            if isinstance(ended, Done):
                result, note = _unpickled(ended)
                return SupervisedReport(result, len(history), tuple(history), time.monotonic() - began, note)
            if isinstance(ended, Interrupted):
                raise KeyboardInterrupt
            before, saved = saved, _newest_header(checkpoint)
            incident = worker.incident(ended, _in_words(checkpoint, saved))
            history.append(incident)
            if _progress(saved) != _progress(before):
                without_progress = 0
            restarts = len(history) - 1
            last = without_progress >= max_restarts or restarts >= RESTART_CAP * max_restarts
            permanent = (isinstance(ended, Failed) and not ended.transient) or worker.never_started
            _log.warning("%s; %s", incident, "giving up" if last or permanent else "starting another")
            if on_event is not None:
                on_event(incident)
            if permanent or last:
                raise _final_error(ended, history, permanent)
            without_progress += 1
            time.sleep(min(_BACKOFF_SECONDS * 2 ** (without_progress - 1), _LONGEST_BACKOFF_SECONDS))


def _unpickled(done: Done) -> tuple[Any, str]:
    try:
        return pickle.loads(done.result), done.note
    except Exception as error:
        return None, f"the result cannot be read in this process: {error}"


def _takes_path(target: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # a built-in function has no signature
        return False
    for more in ((None,), ()):
        with contextlib.suppress(TypeError):
            signature.bind(*args, *more)
            return bool(more)
    raise ArgumentError(
        f"{target!r} can be called neither with {len(args)} arguments nor with the checkpoint after them"
    )


# --- the checkpoint


def _resume_from(checkpoint: str | os.PathLike[str] | None) -> str | None:
    """The path, if any file of this checkpoint exists; a damaged one is reported by the target that reads it."""
    if checkpoint is None or not find_file_set(real_path(checkpoint)).exists:
        return None
    return os.fspath(checkpoint)


def _bring_here(checkpoint: str | os.PathLike[str]) -> None:
    """Have what is at an address on this machine, where the workers will go on with it; and check the path."""
    real_path(checkpoint)
    if is_address(checkpoint):
        CheckpointClaim(checkpoint).acquire().release()


def _newest_header(checkpoint: str | os.PathLike[str] | None) -> CheckpointHeader | str:
    if checkpoint is None:
        return ""
    here = real_path(checkpoint) if is_address(checkpoint) else checkpoint
    try:
        return newest_header(here)
    except CheckpointError as error:
        return str(error).replace(str(here), shown(checkpoint))


def _progress(saved: CheckpointHeader | str) -> object:
    """How far the work is. A file that was only written again is no progress."""
    if isinstance(saved, str):
        return saved
    return saved.iteration, saved.generation, saved.queue_head, saved.queue_tail, saved.finished


def _in_words(checkpoint: str | os.PathLike[str] | None, saved: CheckpointHeader | str) -> str:
    if isinstance(saved, str) or checkpoint is None:
        return str(saved)
    return f"{shown(checkpoint)} holds {saved}"


# --- the end


def _final_error(ended: Message | None, history: list[Incident], permanent: bool) -> BaseException:
    cause = _raised(ended) if isinstance(ended, Failed) else None
    if permanent and isinstance(ended, Failed):
        return cause or SupervisionError(f"the target failed with {ended.name}: {ended.message}", history=history)
    if permanent:
        return SupervisionError(
            f"worker {history[-1].pid} {history[-1].what} before the target was called; its own message is above. The "
            "target must be importable, and a script calls run_supervised behind `if __name__ == '__main__':`",
            history=history,
        )
    restarts = len(history) - 1
    made = SupervisionError(
        f"gave up after {restarts} restart{'' if restarts == 1 else 's'}: {history[-1]}", history=history
    )
    made.__cause__ = cause
    return made


def _raised(failed: Failed) -> BaseException | None:
    """The exception itself, with the worker's traceback; None where it could not be pickled."""
    try:
        error = pickle.loads(failed.error)
        assert isinstance(error, BaseException)
    except Exception:
        return None
    error.add_note(f"In the worker process:\n{failed.traceback.rstrip()}")
    return error
