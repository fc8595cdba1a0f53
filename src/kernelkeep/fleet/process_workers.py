"""Processes of this machine that do parts, one for each slot. One that dies is replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from ..platforms import system
from ..processes import end_with
from .parts import Part, PartFailed, PartLost, Slot, perform, whereabouts
from .workers import Ended, Told, Workers

_STOP_SECONDS = 30.0  # for a worker that was asked to stop, to make its checkpoint


class ProcessWorkers(Workers):
    """As many processes as there are slots; each is started when it is first needed."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._idle: list[_Worker] = []
        self._free: list[Slot] = list(slots)[::-1]
        self._count = len(self._free)
        self._busy: dict[int, _Worker] = {}
        self._tokens = 0

    @property
    def description(self) -> str:
        """How many."""
        return f"{self._count} process{'' if self._count == 1 else 'es'} of this machine"

    def start(self, part: Part) -> int | None:
        """Give it to an idle process, or to a new one where a slot is free."""
        while self._idle or self._free:
            worker = self._idle.pop() if self._idle else _Worker(self._free.pop())
            try:
                worker.connection.send((part.call, part.payload))
            except (BrokenPipeError, ConnectionResetError):  # it died while it was idle
                self._free.append(worker.close())
                continue
            self._tokens += 1
            self._busy[self._tokens] = worker
            return self._tokens
        return None

    def wait(self, seconds: float) -> Sequence[Told | Ended]:
        """Read what the processes send; the end of one that still had a part is a loss."""
        if not self._busy:
            return []
        multiprocessing.connection.wait([worker.connection for worker in self._busy.values()], seconds)
        found: list[Told | Ended] = []
        for token, worker in list(self._busy.items()):
            with contextlib.suppress(EOFError, OSError):
                while token in self._busy and worker.connection.poll():
                    kind, value = worker.connection.recv()
                    if kind == "told":
                        found.append(Told(token, *value))
                    else:
                        found.append(Ended(token, value))
                        self._idle.append(self._busy.pop(token))
                continue
            del self._busy[token]
            found.append(Ended(token, PartLost(worker.why_dead())))
            self._free.append(worker.close())
        return found

    def interrupt(self) -> None:
        """Ctrl-C for each, and time to end."""
        for worker in self._busy.values():
            with contextlib.suppress(OSError):
                system.interrupt(worker.process.pid or 0)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._busy and time.monotonic() < deadline:
            self.wait(0.2)

    def close(self) -> None:
        """Kill what is left."""
        for worker in (*self._idle, *self._busy.values()):
            worker.close()
        self._idle.clear()
        self._busy.clear()


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        context = multiprocessing.get_context("spawn")  # no driver survives a fork
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, slot, os.getpid()), name="kernelkeep fleet worker")
        self.process.start()
        theirs.close()

    def why_dead(self) -> str:
        self.process.join(1.0)
        code = self.process.exitcode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"process {self.process.pid} was killed by {signal.Signals(-code).name}"
        return f"process {self.process.pid} ended with exit code {code}"

    def close(self) -> Slot:
        self.connection.close()
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join(5.0)
        return self.slot


def _serve(connection: Any, slot: Slot, parent: int) -> None:
    end_with(parent)
    system.leave_group()  # a terminal's Ctrl-C goes to the parent, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def tell(note: str) -> None:
        connection.send(("told", (whereabouts(), note)))

    while True:
        try:
            call, payload = connection.recv()
        except (EOFError, OSError):
            return
        except Exception as error:  # a function or an argument that is not importable here
            connection.send(("ended", PartFailed(f"the part cannot be read in another process: {error}")))
            continue
        tell("")
        try:
            outcome = perform(call, payload, slot, tell)
        except KeyboardInterrupt:
            outcome = PartFailed("it was interrupted")
        try:
            connection.send(("ended", outcome))
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:
            connection.send(("ended", PartFailed(f"the result cannot be sent to another process: {error}")))
