"""A supervised worker with an emulated resident grid is killed: acknowledged tasks never run again, the others do."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.resident.journal_file import open_journal_file
from kernelkeep.resident.protocol import RingView
from kernelkeep.testing import open_or_skip, run_python

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


# Each process has other blocks or tasks than the one before, so that each writes the journal again, and ends by kill -9.
LOOP = """
import os, signal, sys
from pathlib import Path
import numpy as np
import kernelkeep as kk

HERE, turn, blocks, last = Path(sys.argv[1]), *map(int, sys.argv[2:5])
SAVED, STEP = HERE / "arrays.kkpt", "(int k) { if (kk_local_id(0) == 0) runs[k] += 1; }"
arrays = kk.read_checkpoint(SAVED) if turn else {"runs": np.zeros(100, "i4")}
with kk.open_device("reference") as device, kk.ProgramCache(device, HERE / "cache") as cache:
    tasks = {f"other{turn}": "() { }", "step": STEP}
    with kk.Resident.emulated(cache, tasks, arrays, blocks=blocks, journal=HERE / "work.kkj", capacity=64) as resident:
        found = sorted(args[0] for _, args in resident.recovered.tasks)
        first = sum(resident.submitted)
        if not turn:
            resident.submit_many("step", np.arange(20), ordered=False).result()
            resident.save(SAVED)
            first = 20
        resident.submit_many("step", np.arange(first, first + 10), ordered=False).result()
        resident.drain()
        print(first, found == list(range(20, first)), resident.arrays["runs"].numpy().tolist(), flush=True)
        if last:
            resident.save(SAVED)
        else:
            resident.pause()
            resident.submit("step", first + 10)  # which the next process runs
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_journal_that_is_written_again_and_again_goes_with_its_checkpoint(tmp_path: Path) -> None:
    first = 20
    blocks = (2, 1, 3, 3, 2)
    for turn, count in enumerate(blocks):
        last = turn == len(blocks) - 1
        done = run_python(LOOP, tmp_path, turn, count, int(last), check=False)
        assert done.returncode == (0 if last else -signal.SIGKILL), done.stderr
        assert done.stdout == f"{first} True {[1] * (first + 10) + [0] * (90 - first)}\n"
        first += 11
    check = kk.read_checkpoint(tmp_path / "arrays.kkpt")
    assert check.iteration == first - 1  # the sum over all blocks goes on, too


TASKS = {"step": "(int k) { if (kk_local_id(0) == 0) runs[k] += 1; }"}


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[kk.Resident]:
    arrays = {"runs": np.zeros(100, "i4")}
    with kk.open_device("reference") as device, kk.ProgramCache(device, folder / "cache") as cache:
        with kk.Resident.emulated(cache, TASKS, arrays, blocks=1, journal=folder / "work.kkj", **options) as resident:
            yield resident


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell how many blocks a file has")
@pytest.mark.parametrize("has_fallocate", [True, False])
def test_a_journal_has_no_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_fallocate: bool) -> None:
    def unsupported(*args: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if not has_fallocate:
        monkeypatch.setattr(os, "posix_fallocate", unsupported, raising=False)
    with opened(tmp_path):
        found = (tmp_path / "work.kkj").stat()
    assert found.st_blocks * 512 >= found.st_size


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no posix_fallocate")
def test_a_journal_with_holes_gets_its_blocks_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "work.kkj"
    with opened(tmp_path):
        pass
    data = path.read_bytes()
    with path.open("wb") as file:  # as a copy that leaves zeros out
        for at in range(0, len(data), 4096):
            if any(data[at : at + 4096]):
                file.seek(at)
                file.write(data[at : at + 4096])
        file.truncate(len(data))
    assert path.stat().st_blocks * 512 < len(data)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(kk.ArgumentError, match="cannot be opened: No space left"), opened(tmp_path):
            pass
    assert path.read_bytes() == data
    with opened(tmp_path):
        assert path.stat().st_blocks * 512 >= len(data)


def test_a_head_behind_the_newest_record_is_refused(tmp_path: Path) -> None:
    """Otherwise the tasks between would be lost, and their numbers used again."""
    pytest.importorskip("kernelkeep._ring", reason="only lanes in C keep a copy of the newest record beside the head")
    with opened(tmp_path, capacity=16) as resident:
        resident.pause()
        for k in range(12):
            resident.submit("step", k)
        resident.stop()
    path = tmp_path / "work.kkj"
    data = bytearray(path.read_bytes())
    data[(1 << 18) + 128] ^= 8
    path.write_bytes(data)
    with pytest.raises(kk.ArgumentError, match="block 0 was given 4 tasks, it says, and there is a later one"):
        with opened(tmp_path, capacity=16):
            pass
    assert path.read_bytes() == data


def test_a_journal_of_version_1_is_read(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=16) as resident:
        resident.pause()
        resident.submit_many("step", np.arange(5))
        resident.stop()
    path = tmp_path / "work.kkj"
    file = open_journal_file(path)
    RingView(file.layout, file.ring).slots[:, :, 4:8] = 0
    old = msgspec.structs.replace(file.description, tagged=False)
    file.close()
    body = msgspec.json.encode({key: getattr(old, key) for key in ("id", "tasks", "number", "base_id", "base_done")})
    head = struct.pack("<8sIIQI", b"\x89KKRJ\r\n\x1a", 1, len(body), old.number, zlib.crc32(body))
    with path.open("r+b") as changed:
        changed.seek((1 << 17) * (old.number % 2))
        changed.write(head + struct.pack("<I", zlib.crc32(head)) + body)
    for capacity in (16, 32):
        with opened(tmp_path, capacity=capacity) as resident:
            assert len(resident.recovered) == (5 if capacity == 16 else 0)
            resident.drain()
            assert resident.submitted == (5,)
            assert resident.arrays["runs"].numpy().sum() == len(resident.recovered)
