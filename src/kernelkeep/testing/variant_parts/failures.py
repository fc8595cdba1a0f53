"""A variant may be wrong, crash or never end: the failure is stored, and nothing else is affected."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...programs.portable import PortableKernel
from ...variants import trial_pool
from ...variants.space import VariantSpace
from ...variants.template import Template
from ...variants.trial import FAILURES
from ...variants.tuned import Tuned
from .common import PARAMS, PROBLEM, Listener, VariantPart, doubled, twice

__all__ = ["TrialFailureTests", "child_processes"]

_BODY = """int i = kk_global_id(0);
{% if MODE == "compile" %}
y[i] = no_such_thing;
{% elif MODE == "crashed" %}
y[i + 0x10000000] = x[0];
{% elif MODE == "hung" %}
int k = 0;
while (k < n) { y[i] = y[i] + 1.0f; if (x[0] == 12345.0f) k = n; }
{% elif MODE == "guard" %}
if (i < n) y[i] = 2.0f * x[i];
if (i < 3) y[n + 2 - i] = 0.0f;
{% elif MODE == "wrong" %}
if (i < n) y[i] = i == 7 ? 3.0f * x[i] : 2.0f * x[i];
{% elif MODE == "slow" %}
uint v = kk_uint(i);
for (int k = 0; k < {{ STEPS }}; k = k + 1) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
if (i < n) y[i] = 2.0f * x[i] + (v == 12345u ? 1e-9f : 0.0f);
{% else %}
if (i < n) y[i] = 2.0f * x[i];
{% endif %}"""


def _kernel(device: Device, name: str, modes: list[str], steps: int) -> Tuned:
    kernel = PortableKernel("failing", PARAMS, _BODY, group=64)
    return Tuned(name, Template(kernel), VariantSpace(MODE=modes, STEPS=[steps]), reference=doubled)


def _loops_for_ever(device: Device) -> bool:
    """Whether a loop may be endless here: no driver cuts it short, and no GPU stays busy forever."""
    return device.capabilities.max_loop_rounds is None and not device.info.is_gpu


class TrialFailureTests(VariantPart):
    """Candidates are tried in worker processes."""

    out_of_bounds_write = "crashed"  # its class of failure; "wrong" where the driver drops the write

    def test_every_class_of_failure_is_reported_and_stored(
        self, device: Device, programs: ProgramCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        crash = self.out_of_bounds_write
        wanted = {"": "", "wrong": "wrong", "guard": "guard", "compile": "compile", "crashed": crash, "slow": "slow"}
        if _loops_for_ever(device):
            wanted["hung"] = "hung"
        monkeypatch.setattr(trial_pool, "_FIRST_LAUNCH_SECONDS", 2.0)
        tuned = _kernel(device, "failing", list(wanted), self.endless(device))
        # What is far too slow is seen beside one that is not, which is known before the others are tried.
        assert (
            _kernel(device, "failing", [""], self.endless(device)).tune(programs, PROBLEM, isolate=False).measured == 1
        )
        report = tuned.tune(programs, PROBLEM, trial_seconds=3.0)
        self.check_failures(report, wanted)
        assert report.best == {"MODE": "", "STEPS": self.endless(device)} and report.complete
        details = {str(attempt.variant["MODE"]): attempt.detail for attempt in report.attempts}
        assert details["wrong"].startswith("y[7] is ") and " instead of " in details["wrong"]
        # Seen at the ragged size first, which is 67.
        assert details["guard"] == "wrote y[67], and it has 67 elements"
        assert "no_such_thing" in details["compile"]
        assert "ms, and the best takes" in details["slow"]
        if self.out_of_bounds_write == "crashed" and not device.info.is_gpu:
            assert "SIGSEGV" in details["crashed"]
        for failure in set(wanted.values()) - {""}:
            assert FAILURES[failure] in str(report)

        # All of it is remembered, with its class, and nothing of it is ever chosen or tried again.
        records = tuned.records(programs).of_device("failing", device.fingerprint.digest)
        assert {str(record.variant["MODE"]): record.failure for record in records} == wanted
        assert all(record.verified == (not record.failure) and bool(record.detail) == bool(record.failure)
                   for record in records)  # fmt: skip
        assert tuned.select(programs, PROBLEM).variant == report.best
        assert tuned.select(programs, {"n": 5000}).variant == report.best
        told = Listener()
        assert tuned.tune(programs, PROBLEM, listen=told).best == report.best and told.new == []
        self.check_run(tuned, programs)

        # Whatever happened to the children, this process and its device go on.
        self.check_run(twice("after", [1]), programs)
        assert not child_processes(), "a child process was left behind"

    def test_tuning_tries_variants_here_where_no_process_can_be_started(
        self, programs: ProgramCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError("no more processes")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        report = twice("alone", [1, 2]).tune(programs, PROBLEM)
        assert report.measured == 2 and report.failures == {}

    def test_a_budget_ends_a_candidate_that_does_not_end(self, device: Device, programs: ProgramCache) -> None:
        """The outcome of a candidate that was still running is unknown, so nothing is stored of it."""
        if not _loops_for_ever(device):
            pytest.skip("no endless loop on this device")
        tuned = _kernel(device, "unending", ["", "hung"], 1)
        report = tuned.tune(programs, PROBLEM, budget_seconds=4.0, trial_seconds=120.0)
        assert not report.complete and report.seconds < 60 and report.failures == {}
        assert not child_processes()

    def test_several_threads_may_tune(self, programs: ProgramCache) -> None:
        reports = {}

        def tune(name: str) -> None:
            reports[name] = twice(name, [1, 2]).tune(programs, PROBLEM)

        threads = [threading.Thread(target=tune, args=(f"thread{number}",)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [report.measured for report in reports.values()] == [2, 2]


def child_processes() -> list[str]:
    """The worker processes that this process has now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if parent == os.getpid() and "kernelkeep.variants.worker" in command:
            found.append(folder.name)
    return found
