"""What happened to the workers of a supervised run: facts, and one line to read."""

from __future__ import annotations

import signal
from typing import Any

import msgspec


class Incident(msgspec.Struct, frozen=True):
    """One worker that did not finish. `str()` is the diagnosis in one line."""

    when: float  # seconds since 1970
    what: str
    pid: int
    seconds: float  # how long it had run
    exit_code: int | None = None  # None where a signal ended it
    signal: str | None = None  # such as SIGSEGV
    # The last that was reported: at most a second old, or a quarter of the heartbeat interval.
    last_iteration: int | None = None
    heartbeat_age_seconds: float | None = None  # None: there was none
    checkpoint: str = ""  # what the checkpoint held then
    traceback: str = ""  # of an exception

    def __str__(self) -> str:
        if self.heartbeat_age_seconds is None:
            beat = "it never gave a heartbeat"
        else:
            at = "" if self.last_iteration is None else f", at iteration {self.last_iteration:,}"
            beat = f"its last heartbeat was {self.heartbeat_age_seconds:.1f} s before{at}"
        held = f"; {self.checkpoint}" if self.checkpoint else ""
        return f"worker {self.pid} {self.what} after {self.seconds:.1f} s; {beat}{held}"


class SupervisedReport(msgspec.Struct, frozen=True):
    """A supervised run that finished; `str()` lists what happened.

    `result` is what the target returned. Where that cannot be pickled it is None, and `note`
    says so.
    """

    result: Any
    restarts: int
    history: tuple[Incident, ...]
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        restarts = "no restart" if not self.restarts else f"{self.restarts} restart{'s' if self.restarts > 1 else ''}"
        lines = [f"done in {self.seconds:.1f} s with {restarts}", *(f"  {incident}" for incident in self.history)]
        return "\n".join([*lines, self.note] if self.note else lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from ..html import supervised_html

        return supervised_html(self)


def describe_exit(code: int) -> tuple[str, int | None, str | None]:
    """How a process ended, as `multiprocessing` counts it: in words, its exit code, and its signal."""
    if code >= 0:
        return f"ended by itself with exit code {code}", code, None
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    by_whom = " (by a person, or by a system out of memory)" if name == "SIGKILL" else ""
    return f"was killed by {name}{by_whom}", None, name
