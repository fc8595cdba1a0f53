"""Several files as one run of bytes, and the folder that a process has for itself."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kernelkeep.guests import files
from kernelkeep.guests.files import ProcessFolder, pack, unpack
from kernelkeep.storage.files import Damaged

FILES = {"add.cubin": b"\x7fELF" + bytes(range(256)), "add.json": b"{}", "größe.txt": b""}


def test_files_come_back_as_they_were() -> None:
    assert unpack(pack(FILES)) == FILES
    assert unpack(pack({})) == {}


def test_bytes_that_are_cut_off_or_longer_are_damaged() -> None:
    data = pack(FILES)
    for size in range(len(data)):
        with pytest.raises(Damaged):
            unpack(data[:size])
    with pytest.raises(Damaged):
        unpack(data + b"x")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\\b", "a\0b"])
def test_a_name_that_is_a_path_is_damaged(name: str) -> None:
    with pytest.raises(Damaged):
        unpack(pack({name: b"x"}))


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


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_IN_MEMORY", tmp_path)
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
