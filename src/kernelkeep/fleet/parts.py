"""The parts that a fleet's work is cut into, and how one is done, in a process of this machine or on a cluster."""

from __future__ import annotations

import enum
import os
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..errors import CompileError, KernelKeepError

Tell = Callable[[str], None]


class Slot(msgspec.Struct, frozen=True):
    """What a worker may use while it does a part. `device` is None for the best that it finds."""

    device: str | None = None
    cache_dir: str | None = None  # of this machine; None on a cluster, whose machines have their own


class Part(msgspec.Struct, frozen=True):
    """A piece of work: `call(payload, slot, tell)` in another process. `call` is a function of a module, and all can be pickled.

    `num_cpus` and `num_gpus` are what a cluster reserves for it.
    """

    name: str
    call: Callable[[Any, Slot, Tell], Any]
    payload: Any
    num_cpus: float = 1.0
    num_gpus: float = 0.0


class PartFailed(msgspec.Struct, frozen=True):
    """A part whose call raised: doing it again would fail again."""

    sentence: str
    traceback: str = ""


class PartLost(msgspec.Struct, frozen=True):
    """A part whose worker died: it is done again elsewhere."""

    why: str


class State(enum.Enum):
    """Where a part is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class PartStatus:
    """What is known of a part while the fleet works, and afterwards."""

    part: Part
    state: State = State.WAITING
    where: str = ""  # host and process
    note: str = ""  # what its worker said last
    losses: int = 0  # workers that died over it
    began: float = 0.0
    seconds: float = 0.0
    result: Any = None
    error: str = ""
    lost_because: list[str] = field(default_factory=list)

    @property
    def elapsed_seconds(self) -> float:
        """How long its worker has been at it, or took."""
        return time.monotonic() - self.began if self.state is State.RUNNING else self.seconds


def perform(call: Callable[[Any, Slot, Tell], Any], payload: Any, slot: Slot, tell: Tell) -> Any:
    """Do a part: its result, or `PartFailed`. KeyboardInterrupt passes."""
    try:
        return call(payload, slot, tell)
    except (Exception, SystemExit) as error:
        return PartFailed(one_sentence(error), traceback.format_exc())


def one_sentence(error: BaseException) -> str:
    """What an error says, in one line; its type too where it is not one of kernelkeep's."""
    # A mistake in a body goes on with the line and a caret, which need lines of their own.
    said = str(error).partition("\n    ")[0] if isinstance(error, CompileError) else str(error)
    text = " ".join(said.split())
    if isinstance(error, KernelKeepError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def whereabouts() -> str:
    """This process, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"
