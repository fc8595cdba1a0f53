"""The diary under forks, read-only folders and kills: the program does what it does without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelkeep.activity.diary import FILE_NAME, add_record, read_records
from kernelkeep.testing import run_python

USE = """
import os, sys
import kernelkeep as kk
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.cache_parts.common import adder
device = FakeDevice()
cache = kk.ProgramCache(device, sys.argv[1])
cache.get(adder(device, 1)).release()
"""


@pytest.fixture(autouse=True)
def _with_diary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DIARY", raising=False)


def test_a_forked_child_records_nothing_of_its_parent(tmp_path: Path) -> None:
    forked = "child = os.fork()\nif child:\n    assert os.waitpid(child, 0)[1] == 0\n"  # both end through atexit
    run_python(USE + forked, tmp_path / "cache")
    found = [record for record in read_records(tmp_path / "cache") if record["kind"] == "counts"]
    assert [record["counts"]["misses"] for record in found] == [1]


def test_a_forked_child_has_a_minute_of_its_own(tmp_path: Path) -> None:
    script = """
import os, sys, threading
from kernelkeep.activity import minutes
minutes.start()
child = os.fork()
if child == 0:
    assert "kernelkeep-diary" not in [thread.name for thread in threading.enumerate()]
    called = threading.Event()
    minutes.every_minute(called.set)
    minutes.start()
    minutes.wake()
    os._exit(0 if called.wait(30) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    run_python(script)


@pytest.mark.skipif(os.name != "posix" or not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_a_program_whose_diary_cannot_be_written_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    run_python(USE + "cache.close()", root)
    before = (root / FILE_NAME).read_bytes()
    # Root may write everywhere, so the file system refuses instead: no file of this process may grow.
    limited = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    )
    again = "assert cache.get(adder(device, 1)).origin == 'memory'; cache.close(); sys.exit(7)"
    assert run_python(limited + USE + again, root, check=False).returncode == 7
    assert (root / FILE_NAME).read_bytes() == before


def test_a_writer_that_is_killed_leaves_a_diary_that_is_read_and_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    script = (
        "import sys; from pathlib import Path; from kernelkeep.activity.diary import add_record\n"
        "while True: add_record(Path(sys.argv[1]), 'counts', {'counts': {'misses': 1}, 'padding': 'x' * 20_000})"
    )
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", script, str(root)])
        grown = _misses(root) + 200  # 4 MB: it was condensed several times
        while _misses(root) < grown:  # the time limit of the test ends it otherwise
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
    before = _misses(root)
    add_record(root, "run", {"name": "after"})
    assert before >= 600 and _misses(root) == before and read_records(root)[-1]["name"] == "after"
    lines = [line for line in (root / FILE_NAME).read_bytes().split(b"\n") if line]
    assert sum(_is_damaged(line) for line in lines) <= 3, "a kill costs one line at most"


def _misses(root: Path) -> int:
    return sum(record["counts"]["misses"] for record in read_records(root) if record["kind"] == "counts")


def _is_damaged(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
