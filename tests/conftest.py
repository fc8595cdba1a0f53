"""What the whole run shares: backends that were skipped are printed at its end, with the reason."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kernelkeep.testing import skipped_backends


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Say which backends this run went without, below everything else."""
    yield
    for backend, reason in sorted(skipped_backends().items()):
        terminalreporter.write_line(f"SKIPPED BACKEND {backend}: {reason}", yellow=True, bold=True)
