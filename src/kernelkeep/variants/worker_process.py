"""A worker process, as the tuning process sees it. `worker.py` is the program it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from ..platforms import system
from .trial import FAILURES, Outcome
from .worker_messages import Begin

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache

_START_SECONDS = 60.0
_OUTCOMES = msgspec.msgpack.Decoder(Outcome)


class NoWorkerError(Exception):
    """No worker process can be started here."""


class WorkerProcess:
    """A worker process as the tuning process sees it: one request at a time.

    After a crash or a timeout `usable` is false, and another one is to be started.
    """

    def __init__(self) -> None:
        if not system.PASSES_DESCRIPTORS:
            raise NoWorkerError("no pipe can be passed to a child process on this operating system")
        to_child, from_parent = os.pipe()[::-1]
        from_child, to_parent = os.pipe()
        self.usable = True
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        # The worker must find the same package as this process.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._to, self._from = Connection(to_child, readable=False), Connection(from_child, writable=False)
        try:
            self._process = self._start(from_parent, to_parent, environment)
        except OSError as error:
            for opened in (self._to, self._from, self._errors):
                opened.close()
            raise NoWorkerError(str(error)) from None
        finally:
            os.close(from_parent)
            os.close(to_parent)

    def begin(self, cache: ProgramCache) -> None:
        """Have it open the device, before any other request."""
        device = cache.device
        begin = Begin(device.spec, str(cache.cache_dir), device.fingerprint.digest, cache.trusted_owner)
        outcome = self.ask(begin, _START_SECONDS)
        if outcome.failure:
            self.usable = False
            raise NoWorkerError(f"it {FAILURES[outcome.failure]}: {outcome.detail}")

    def _start(self, incoming: int, outgoing: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelkeep.variants.worker", str(incoming), str(outgoing), str(os.getpid())],
            pass_fds=(incoming, outgoing),
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env=environment,
            **system.NEW_GROUP,  # Ctrl-C is for this process; a compiler that the worker starts is killed with it
        )

    def ask(self, request: Any, seconds: float) -> Outcome:
        """Send a request and wait for its outcome. A dead or silent process is an outcome too."""
        try:
            self._to.send_bytes(msgspec.msgpack.encode(request))
            if not self._from.poll(seconds):
                self.usable = False
                self.kill()
                return Outcome("hung", f"no result after {seconds:g} s")
            outcome = _OUTCOMES.decode(self._from.recv_bytes())
        except (EOFError, OSError):
            how = self._how_it_ended()
            code = self._process.poll()
            # A process killed from outside, or ended by an exception, says nothing about the candidate.
            transient = code is not None and (code > 0 or code == -system.SIGKILL)
            outcome = Outcome("transient" if transient else "crashed", how)
            self.usable = False
        if outcome.failure == "crashed":
            self.usable = False  # after a fault the driver is not trusted, even where the process lives
        return outcome

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.poll()
        how = "the process died"
        if code is not None and code < 0:
            how = f"the process was ended by {_signal_name(-code)}"
        elif code:
            how = f"the process ended with exit code {code}"
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            if lines:
                return f"{how}: {lines[-1][:200]}"
        return how

    def kill(self) -> None:
        """Kill the process and the compilers it started."""
        self.usable = False
        with contextlib.suppress(OSError):
            system.kill_group(self._process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)  # longer only where it is stuck in a driver

    def close(self) -> None:
        """End the process and close the pipes."""
        self.kill()
        for connection in (self._to, self._from):
            with contextlib.suppress(OSError):
                connection.close()
        with contextlib.suppress(OSError):
            self._errors.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
