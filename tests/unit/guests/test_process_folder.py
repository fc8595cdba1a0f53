"""The folder that a process has for files of a guest: private, in memory where that works, and gone with the process."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernelkeep.guests import process_folder
from kernelkeep.guests.process_folder import ProcessFolder

FILES = {"add.cubin": b"\x7fELF" + bytes(range(256)), "add.json": b"{}", "größe.txt": b""}


def test_a_process_has_a_folder_for_itself() -> None:
    folder = ProcessFolder()
    first, second = folder.write(FILES), folder.write(FILES)
    assert {name: Path(path).read_bytes() for name, path in first.items()} == FILES
    assert first != second
    assert all(Path(path).name.endswith(name) for name, path in first.items())
    top = Path(first["add.json"]).parent
    assert stat.S_IMODE(top.stat().st_mode) == 0o700


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_folder_of_its_own() -> None:
    folder = ProcessFolder()
    mine = folder.write(FILES, "group")
    assert folder.find("group") == mine and folder.find("other") is None
    child = os.fork()
    if child == 0:
        fresh = folder.find("group") is None and folder.write(FILES, "group") != mine
        os._exit(0 if fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Path(mine["add.json"]).read_bytes() == FILES["add.json"]


def test_what_somebody_removed_is_not_found_and_written_anew() -> None:
    folder = ProcessFolder()
    first = folder.write(FILES, "group")
    shutil.rmtree(Path(first["add.json"]).parent)
    assert folder.find("group") is None
    again = folder.write(FILES, "group")
    assert {name: Path(path).read_bytes() for name, path in again.items()} == FILES
    assert folder.find("group") == again


def test_where_there_is_no_room_in_memory_another_place_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(process_folder, "_IN_MEMORY", tmp_path / "memory")
    monkeypatch.setattr(process_folder, "_runs_files", lambda folder: True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = ProcessFolder()
    first = folder.write({"small": b"x"})
    assert Path(first["small"]).is_relative_to(tmp_path / "memory")
    real = os.write

    def full(descriptor: int, data: memoryview) -> int:
        if "/memory/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    second = folder.write(FILES)
    assert {name: Path(path).read_bytes() for name, path in second.items()} == FILES
    assert not Path(second["add.json"]).is_relative_to(tmp_path / "memory")
    assert Path(first["small"]).read_bytes() == b"x"  # what was written before stays


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_folder, "_IN_MEMORY", tmp_path)
    mine = ProcessFolder()
    held = Path(mine.write(FILES)["add.json"]).parent
    left, young = tmp_path / "kernelkeep-files-left", tmp_path / "kernelkeep-files-young"
    for folder in (left, young):
        folder.mkdir()
        (folder / "0-add.cubin").write_bytes(b"x")
    for folder in (left, held):
        os.utime(folder, (1, 1))
    ProcessFolder().write(FILES)
    assert held.exists() and young.exists() and not left.exists()


_KILLED = """
import os, signal
from kernelkeep.guests.process_folder import ProcessFolder
print(ProcessFolder().write({"a": b"x"})["a"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_lets_its_folder_go() -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, check=False, timeout=60)
    left = Path(killed.stdout.strip())
    assert left.read_bytes() == b"x"
    os.utime(left.parent, (1, 1))  # as if it had been long ago
    ProcessFolder().write({"a": b"x"})
    assert not left.parent.exists()
