"""A supervised worker with an emulated resident grid is killed: acknowledged tasks never run again, the others do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.testing import open_or_skip

pytestmark = pytest.mark.slow

TOTAL, KILLS = 2000, 2

# One producer, so task k is number k of its block. Each run of a task is noted in a file before it is acknowledged.
SCRIPT = """
import json, os, signal, struct, sys, threading, time
from pathlib import Path
import numpy as np
import kernelkeep as kk
from kernelkeep.resident import emulated_program
from kernelkeep.resident.journal_file import open_journal_file
from kernelkeep.resident.protocol import RingView

HERE, SPEC, EMULATED, MODE, TOTAL, KILLS = Path(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6])
JOURNAL, SAVED = HERE / "work.kkj", HERE / "arrays.kkpt"
TASKS = {"step": "(int k) { if (kk_local_id(0) == 0) { runs[k] += 1; sum[k % 16] += k; } }"}

def work(path):
    attempt = sum(1 for _ in HERE.glob("attempt*"))
    log = os.open(HERE / f"attempt{attempt}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    run = emulated_program.EmulatedTask.run
    def noted(self, record, *args):
        value = run(self, record, *args)
        os.write(log, record[8:12])
        return value
    emulated_program.EmulatedTask.run = noted
    found = [0, 0]
    if JOURNAL.exists():
        file = open_journal_file(JOURNAL)
        view = RingView(file.layout, file.ring)
        found = [int(view.done.sum()), int(view.head.sum())]
        del view
        file.close()
    checkpoint = kk.read_checkpoint(path) if path else None
    fresh = {"runs": np.zeros(TOTAL, "i4"), "sum": np.zeros(16, "i4")}
    arrays = fresh if checkpoint is None else checkpoint if MODE == "checkpoint" else checkpoint.state
    with kk.open_device(SPEC, cache_dir=HERE) as device, kk.ProgramCache(device, HERE / "cache") as cache:
        make = kk.Resident if EMULATED == "False" else kk.Resident.emulated
        with make(cache, TASKS, arrays, journal=JOURNAL, capacity=256, silence_seconds=60) as resident:
            recovered = [args[0] for _, args in resident.recovered.tasks]
            (HERE / f"found{attempt}.json").write_text(json.dumps([*found, recovered]))
            if attempt < KILLS:
                end = (attempt + 1) * TOTAL // (KILLS + 2) + 37 * attempt
                def kill():
                    while max(resident.done) < end:
                        time.sleep(0.0005)
                    os.kill(os.getpid(), signal.SIGKILL)
                threading.Thread(target=kill, daemon=True).start()
            first = sum(resident.submitted)
            for k in range(first, TOTAL):
                resident.submit("step", k)
                if k % 200 == 199:  # so that the ring holds all tasks since the last one
                    resident.drain()
                    resident.save(SAVED)
            resident.drain()
            resident.save(SAVED)
    return attempt

if __name__ == "__main__":
    report = kk.run_supervised(work, checkpoint=SAVED, heartbeat_seconds=30, max_restarts=KILLS + 2)
    print(json.dumps({"attempts": report.result, "restarts": report.restarts}))
"""


def supervise(folder: Path, mode: str, backend: str, *, emulated: bool = True) -> None:
    with open_or_skip(backend) as device:
        spec = device.spec
    path = folder / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path), str(folder), spec, str(emulated), mode, str(TOTAL), str(KILLS)],
        env={**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"attempts": KILLS, "restarts": KILLS}, done.stderr


def ran(folder: Path, attempt: int) -> list[int]:
    data = (folder / f"attempt{attempt}").read_bytes()
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


@pytest.mark.opencl
def test_exactly_the_unacknowledged_tasks_run_again(tmp_path: Path) -> None:
    supervise(tmp_path, "unacknowledged", "opencl")
    expected = 0
    for attempt in range(KILLS + 1):
        done, head, recovered = json.loads((tmp_path / f"found{attempt}.json").read_text())
        runs = ran(tmp_path, attempt)
        assert recovered == list(range(done, head))
        assert runs == list(range(done, done + len(runs)))  # nothing acknowledged, nothing left out, in order
        assert expected - 1 <= done <= expected  # the last one may have been killed before it was acknowledged
        expected = done + len(runs)
    assert expected == TOTAL


@pytest.mark.opencl
def test_arrays_are_exact_with_the_tasks_since_the_checkpoint(tmp_path: Path) -> None:
    supervise(tmp_path, "checkpoint", "opencl")
    check_arrays(tmp_path)
    assert sum(len(ran(tmp_path, attempt)) for attempt in range(KILLS + 1)) > TOTAL


@pytest.mark.cuda
def test_arrays_of_a_grid_on_the_device_are_exact() -> None:
    # In memory where that is possible: not every file system lets a driver keep its pages.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        supervise(Path(folder), "checkpoint", "cuda", emulated=False)
        check_arrays(Path(folder))


def check_arrays(folder: Path) -> None:
    state = kk.read_checkpoint(folder / "arrays.kkpt").state
    assert (state["runs"] == 1).all()
    assert state["sum"].tolist() == [sum(range(start, TOTAL, 16)) for start in range(16)]


# The first worker's task number 57 writes to an address that is not mapped.
FAULT = """
import json, sys
from pathlib import Path
import numpy as np
import kernelkeep as kk

HERE, SPEC = Path(sys.argv[1]), sys.argv[2]

def work():
    attempt = sum(1 for _ in HERE.glob("attempt*"))
    (HERE / f"attempt{attempt}").touch()
    fault = "" if attempt else "if (k == 57) *(volatile int*)8 = 1;"
    text = f"__device__ void step(int* runs, int k) {{ if (threadIdx.x == 0) {{ {fault} runs[k] += 1; }} }}"
    with kk.open_device(SPEC, cache_dir=HERE) as device, kk.ProgramCache(device, HERE / "cache") as cache:
        tasks, arrays = {"step": kk.Source(text, "step", language="cuda")}, {"runs": np.zeros(100, "i4")}
        with kk.Resident(cache, tasks, arrays, blocks=2, journal=HERE / "work.kkj") as resident:
            futures = [resident.submit("step", k) for k in range(sum(resident.submitted), 100)]
            for future in futures:
                future.result(60)
            resident.drain(60)
            with resident.paused():
                return [args[0] for _, args in resident.recovered.tasks], resident.arrays["runs"].numpy().tolist()

if __name__ == "__main__":
    report = kk.run_supervised(work, checkpoint=None, heartbeat_seconds=60)
    print(json.dumps([report.restarts, *report.result]))
"""


@pytest.mark.cuda
def test_after_a_fault_of_the_device_exactly_the_unacknowledged_tasks_run_again() -> None:
    with open_or_skip("cuda") as device:
        spec = device.spec
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / "script.py"
        path.write_text(FAULT)
        done = subprocess.run(
            [sys.executable, str(path), folder, spec],
            env={**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        restarts, recovered, runs = json.loads(done.stdout)
    assert restarts == 1
    first = recovered[0]
    assert first <= 57
    assert recovered == list(range(first, 100))
    assert runs == [0] * first + [1] * (100 - first)
