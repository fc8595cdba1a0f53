"""A worker whose device stops answering is replaced, and the new one resumes."""

from __future__ import annotations

from pathlib import Path

from kernelkeep.testing import run_python

WORK = """
import sys
from pathlib import Path

import numpy as np

import kernelkeep as kk
from kernelkeep.testing import FakeDevice

COUNT = kk.StateProgram(
    "count", coupling="independent", items=4, state={"u": np.zeros(4, "i4")},
    body="int i = kk_item();\\nu_next[i] = u[i] + 1;", group=4,
)


def target(folder, path):
    folder = Path(folder)
    with FakeDevice() as device, kk.ProgramCache(device, folder / "cache") as cache:
        options = {"checkpoint": folder / "count.kkpt", "resume": path is not None}
        with kk.run(cache, COUNT, 20, "redispatch", **options):
            pass
        if path is None:
            device.faults.hang("run", after=3)  # the device stops answering, for ever
        with kk.run(cache, COUNT, 40, "redispatch", **{**options, "resume": True}) as run:
            return run.state["u"].numpy().tolist()


if __name__ == "__main__":
    report = kk.run_supervised(
        target, checkpoint=Path(sys.argv[1]) / "count.kkpt", heartbeat_seconds=2.0, max_restarts=2, args=(sys.argv[1],)
    )
    print(report.result, report.restarts, report.history[0])
"""


def test_a_device_that_stops_answering_costs_one_worker(tmp_path: Path) -> None:
    path = tmp_path / "work.py"
    path.write_text(WORK)
    script = f"import runpy, sys; sys.argv = [{str(path)!r}, {str(tmp_path)!r}]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = run_python(script)
    assert done.stdout.startswith("[40, 40, 40, 40] 1 "), done.stdout + done.stderr
    assert "heartbeat" in done.stdout
