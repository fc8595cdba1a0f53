"""What the whole run shares: where PoCL is; and at its end every skip is printed once, with its reason and its tests."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.testing import note_skipped, skipped_backends


@pytest.fixture(scope="session")
def pocl() -> str:
    """The spec of PoCL, whatever other OpenCL devices there are."""
    from kernelkeep.devices import opencl

    reason = "no PoCL among the OpenCL devices"
    try:
        found = [info for info in opencl.list_devices() if "portable" in info.driver.lower()]
    except kk.DeviceError as error:
        found, reason = [], str(error)
    if not found:
        if "opencl" in settings.required_backends() and not kk.list_devices():
            pytest.fail(reason)
        note_skipped("pocl", reason)
        pytest.skip(reason)
    return found[0].spec


@pytest.fixture
def reachable_path() -> Iterator[Path]:
    """A folder like `tmp_path` that other users can walk down to; pytest closes its own whenever one starts."""
    path = Path(tempfile.mkdtemp(prefix="kernelkeep-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Say what this run went without, below everything else: whole backends, then the other skips by reason."""
    yield
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    lines = []
    for backend, said in sorted(skipped_backends().items()):
        why = " ".join(said.split())
        missing = [reason for reason in reasons if why in reason]
        tests = sum(reasons.pop(reason) for reason in missing)
        lines.append(f"SKIPPED BACKEND {backend}: {why} ({_tests(tests)})")
    others = [f"SKIPPED {_tests(tests)}: {reason}" for reason, tests in sorted(reasons.items())]
    for line in (*others, *lines):
        terminalreporter.write_line(line, yellow=True, bold=True)


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped; pytest has it as a file, a line and a text."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(said.removeprefix("Skipped: ").split())


def _tests(count: int) -> str:
    return f"{count} test{'' if count == 1 else 's'}"
