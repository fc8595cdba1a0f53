"""A time limit for each test: one that hangs shows the stacks of all its threads, fails, and the run goes on.

    pytest -p kernelkeep.testing.time_limit --time-limit 450

At the limit an alarm fails the test, as an assertion would. A test that does not hear it (it waits in a driver's C code)
ends the whole process a little later; whoever started the process can read in `--test-log` which test that was, and run
the rest with `--only-tests`. On Windows, which has no alarms, every test that is too slow ends the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

__all__ = ["RunLog", "TimeLimit"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kernelkeep")
    group.addoption("--time-limit", type=float, default=450, metavar="SECONDS", help="for each test; 0 is no limit")
    group.addoption("--only-tests", type=Path, metavar="FILE", help="run the tests that FILE names, one on each line")
    group.addoption("--test-log", type=Path, metavar="FILE", help="a line of JSON for each test; stacks go beside it")


def pytest_configure(config: pytest.Config) -> None:
    log: Path | None = config.option.test_log
    if config.option.time_limit:
        stacks = log.with_suffix(".stacks") if log else None
        config.pluginmanager.register(TimeLimit(config.option.time_limit, stacks))
    if log is not None:
        config.pluginmanager.register(RunLog(log))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.only_tests is not None:
        wanted = set(config.option.only_tests.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


class TimeLimit:
    """A pytest plugin that ends a test after so many seconds.

    `stacks` is where the stacks go; without it they go to the stderr that the process was started with.
    """

    def __init__(self, seconds: float, stacks: Path | None = None) -> None:
        self._seconds = seconds
        # From the alarm to the end of the process: what a test that failed may need to clean up.
        self._grace_seconds = min(10.0, seconds)
        # Opened now: while a test runs, pytest has another file at stderr's number.
        self._stacks: TextIO = stacks.open("a") if stacks else os.fdopen(os.dup(2), "w")
        self._test = ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        restore = self._set_alarm()
        # A thread in C that needs no interpreter: it also ends a test that hangs in C and holds the interpreter's lock.
        faulthandler.dump_traceback_later(self._seconds + self._grace_seconds, exit=True, file=self._stacks)
        try:
            return (yield)
        finally:
            self._cancel()
            restore()

    def _set_alarm(self) -> Callable[[], object]:
        """Returns what puts the handler back that was there before."""
        if sys.platform == "win32":
            return lambda: None
        before = signal.signal(signal.SIGALRM, self._too_long)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return lambda: signal.signal(signal.SIGALRM, before)

    def pytest_enter_pdb(self) -> None:
        """A person at the debugger has all the time in the world."""
        self._cancel()

    def pytest_unconfigure(self) -> None:
        self._stacks.close()

    @staticmethod
    def _cancel() -> None:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()

    def _too_long(self, *_: object) -> None:
        print(f"\n{self._test} ran longer than {self._seconds:g} s:", file=self._stacks, flush=True)
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        pytest.fail(f"the test ran longer than {self._seconds:g} s; the stacks of its threads were written")


class RunLog:
    """A pytest plugin that writes a line of JSON for each test as it begins and as it ends.

    A process that dies leaves a test that began and did not end.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._outcome, self._why = "passed", ""

    def write(self, event: str, **facts: Any) -> None:
        self._file.write(json.dumps({"event": event, **facts}) + "\n")
        self._file.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marks = sorted({mark.name for mark in item.iter_markers()})
            self.write("collected", test=item.nodeid, file=str(item.path), marks=marks)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._outcome, self._why = "passed", ""
        self.write("begin", test=item.nodeid)
        begun = time.monotonic()
        result = yield
        seconds = time.monotonic() - begun
        self.write("end", test=item.nodeid, outcome=self._outcome, why=self._why, seconds=round(seconds, 3))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed or self._outcome == "failed":
            return
        self._outcome, self._why = report.outcome, _first_line(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self.write("done")

    def pytest_unconfigure(self) -> None:
        self._file.close()


def _first_line(report: pytest.TestReport) -> str:
    """Why a test failed or was skipped, in one line."""
    said = getattr(report, "wasxfail", None)
    if said is None and isinstance(report.longrepr, tuple):
        said = report.longrepr[2].removeprefix("Skipped: ")
    if said is None:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message if crash is not None else str(report.longrepr)
    lines = [line for line in said.splitlines() if line.strip()]
    where = "" if report.when == "call" else f"in {report.when}: "
    return where + (lines[0] if lines else "") if not report.skipped else " ".join(said.split())
