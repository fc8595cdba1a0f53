"""Inside a supervised worker process: it calls the target and reports to the supervisor."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from ...errors import ArgumentError, CheckpointError, CompileError, DeviceError, Unsupported
from ...platforms import system
from ...processes import end_with
from .. import heartbeat
from ..checkpoints.run_claim import resume_by_default

# Mistakes of a program or its arguments: a new process would make them again.
_PERMANENT = (
    ArgumentError,
    CheckpointError,
    CompileError,
    Unsupported,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    ValueError,
)


class Started(msgspec.Struct, frozen=True):
    """The target is about to be called."""


class Done(msgspec.Struct, frozen=True):
    """The target returned: its result, pickled; `note` says why it could not be."""

    result: bytes
    note: str = ""


class Failed(msgspec.Struct, frozen=True):
    """The target raised."""

    name: str
    message: str
    traceback: str
    transient: bool
    iteration: int | None
    error: bytes  # pickled; empty where it cannot be


class Interrupted(msgspec.Struct, frozen=True):
    """The target ended with KeyboardInterrupt."""


Message = Started | Done | Failed | Interrupted


def is_transient(error: BaseException) -> bool:
    """Whether a new process may succeed: yes after a device's fault and unknown errors, no after mistakes of the program."""
    return isinstance(error, DeviceError) or not isinstance(error, _PERMANENT)


def worker_main(
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    channel: Connection,
    pulse: Connection,
    heartbeat_seconds: float,
    supervisor: int,
    replaces: tuple[str, str | None] | None = None,
) -> None:
    """Call the target and report how it ended.

    `replaces` is for a worker that replaces another: the checkpoint, and the lineage of the file before the first worker.
    """
    end_with(supervisor)
    # A terminal sends Ctrl-C to the whole process group; the supervisor forwards it, once.
    system.leave_group()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    heartbeat.start_beating(pulse, heartbeat_seconds)
    if replaces is not None:
        resume_by_default(*replaces)
    channel.send(Started())
    try:
        result = target(*arguments)
    except KeyboardInterrupt:
        channel.send(Interrupted())
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise
        channel.send(_done(None))
    except BaseException as error:
        channel.send(_failed(error))
        sys.exit(1)
    else:
        channel.send(_done(result))


def _done(result: Any) -> Done:
    try:
        data = pickle.dumps(result)
        pickle.loads(data)
    except Exception as error:
        kind = type(result).__name__
        return Done(pickle.dumps(None), f"the result, a {kind}, cannot be pickled: {error}")
    return Done(data)


def _failed(error: BaseException) -> Failed:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        data = b""
    text = "".join(traceback.format_exception(error))
    try:
        message = " ".join(str(error).split())
    except Exception:
        message = ""
    return Failed(type(error).__name__, message, text, is_transient(error), heartbeat.last_iteration(), data)
