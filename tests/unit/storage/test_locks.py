"""`FileLock`: a lock between processes that its holder cannot keep beyond its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.storage.locks import FileLock, LockUnavailable
from kernelkeep.testing import run_python

HOLDER = """
import sys, time
from pathlib import Path
from kernelkeep.storage.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire(10)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@contextmanager
def holder(path: Path, script: str = HOLDER) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its standard input ends."""
    package = str(Path(kk.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": package},
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "held"
            yield child
        finally:
            child.kill()


def test_a_lock_is_exclusive_within_a_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with FileLock(path).held(1):
        with pytest.raises(LockUnavailable, match="still held"):
            FileLock(path).acquire(0.05)
    FileLock(path).acquire(0)


def test_a_lock_is_exclusive_between_processes(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path) as child:
        with pytest.raises(LockUnavailable):
            FileLock(path).acquire(0.1)
        child.communicate("")
        assert child.returncode == 0
        with FileLock(path).held(1):
            pass


def test_killing_the_holder_frees_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path) as child:
        lock = FileLock(path)
        waiting = threading.Thread(target=lock.acquire, args=(10,))
        waiting.start()
        time.sleep(0.1)
        assert waiting.is_alive()
        child.send_signal(signal.SIGKILL)
        started = time.monotonic()
        waiting.join(5)
        assert time.monotonic() - started < 1
        lock.release()
    assert not list(tmp_path.iterdir())


def test_releasing_a_lock_removes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.lock"
    with FileLock(path).held(1):
        assert path.exists()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not list(path.parent.iterdir())


def test_releasing_what_is_not_held_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with FileLock(path).held(1):
        FileLock(path).release()
        assert path.exists()


def test_a_file_left_by_a_crash_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_bytes(b"")
    with FileLock(path).held(0):
        pass
    assert not path.exists()


def test_a_lock_whose_file_was_deleted_is_not_given_twice(tmp_path: Path) -> None:
    """The holder still holds its old file; a newcomer makes a new one; the two never share one path's lock."""
    path = tmp_path / "a.lock"
    first, second, third = FileLock(path), FileLock(path), FileLock(path)
    first.acquire(0)
    path.unlink()
    second.acquire(0)
    with pytest.raises(LockUnavailable):
        third.acquire(0.02)
    second.release()


@pytest.mark.parametrize("obstacle", ["folder", "link", "file as parent"])
def test_acquire_raises_where_no_lock_can_be_had(tmp_path: Path, obstacle: str) -> None:
    path = tmp_path / "a.lock"
    if obstacle == "folder":
        path.mkdir()
    elif obstacle == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "file").write_text("")
        path = tmp_path / "file" / "a.lock"
    with pytest.raises(LockUnavailable):
        FileLock(path).acquire(5)
    assert not (tmp_path / "elsewhere").exists()


FORKING = """
import os, sys, time
from pathlib import Path
from kernelkeep.storage.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire(10)
if os.fork() == 0:
    lock.release()  # a child that unwinds its parent's block
    assert Path(sys.argv[1]).exists()
    time.sleep(5)
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_forked_child_keeps_no_lock_of_its_killed_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path, FORKING) as parent:
        time.sleep(0.2)
        with pytest.raises(LockUnavailable):
            FileLock(path).acquire(0)
        parent.kill()
        parent.wait()
        with FileLock(path).held(1):
            pass


COUNT = """
import sys
import threading
from pathlib import Path
from kernelkeep.storage.locks import FileLock
lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(100):
    with FileLock(lock).held(60):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_no_two_processes_are_ever_inside(tmp_path: Path) -> None:
    lock, counter = tmp_path / "locks" / "a.lock", tmp_path / "counter"
    counter.write_text("0")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: run_python(COUNT, lock, counter), range(6)))
    assert counter.read_text() == "600"
    assert not list(lock.parent.iterdir())
