"""The inside of a supervised worker: the process that calls the target, and what it tells the supervisor."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from ...errors import ArgumentError, CheckpointError, CompileError, DeviceError, Unsupported
from ...processes import end_with
from .. import heartbeat
from ..checkpoints.claim import resume_by_default

__all__ = ["Done", "Failed", "Interrupted", "Message", "Started", "can_be_mended", "work"]

# Mistakes of a program or its arguments: they would be made again.
_LASTING = (
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
    """The target returned: its result, pickled, or why that cannot be."""

    result: bytes
    note: str = ""


class Failed(msgspec.Struct, frozen=True):
    """The target raised."""

    name: str
    message: str
    traceback: str
    mendable: bool
    iteration: int | None
    error: bytes  # pickled; empty where that cannot be


class Interrupted(msgspec.Struct, frozen=True):
    """The target ended with KeyboardInterrupt."""


Message = Started | Done | Failed | Interrupted


def can_be_mended(error: BaseException) -> bool:
    """Whether a new process may do better: yes for a device's fault and for what is not known, no for mistakes."""
    return isinstance(error, DeviceError) or not isinstance(error, _LASTING)


def work(
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    channel: Connection,
    pulse: Connection,
    heartbeat_seconds: float,
    supervisor: int,
    going_on: tuple[str, str | None] | None = None,
) -> None:
    """Call the target and tell how it went. Runs in the worker process.

    `going_on` is for a worker that replaces another: the checkpoint, and the lineage of the file there before the first one.
    """
    end_with(supervisor)
    # Ctrl-C on a terminal goes to a whole group; the supervisor passes it on, once.
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    heartbeat.start_beating(pulse.fileno(), heartbeat_seconds)
    if going_on is not None:
        resume_by_default(*going_on)
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
        return Done(pickle.dumps(None), f"the result, a {kind}, cannot be carried to another process: {error}")
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
    return Failed(type(error).__name__, message, text, can_be_mended(error), heartbeat.last_iteration(), data)
