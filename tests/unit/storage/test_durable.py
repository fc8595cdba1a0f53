"""Files that are replaced in one step: what a failure leaves behind, and second names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from kernelkeep.storage.durable import link_or_rename, remove_if_same, remove_leftovers, replace_durably


def nothing() -> None:
    """Leave what is at the path as it is."""


def write_new(file: BinaryIO) -> None:
    file.write(b"new")


def test_a_new_file_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    seen = []
    replace_durably(path, write_new, lambda: seen.append(path.read_bytes()))
    assert path.read_bytes() == b"new" and seen == [b"old"]
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("where", ["fill", "before_rename"])
def test_a_failure_leaves_the_old_file_alone(tmp_path: Path, where: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        replace_durably(path, fail if where == "fill" else write_new, fail if where != "fill" else nothing)
    assert path.read_bytes() == b"old" and [file.name for file in tmp_path.iterdir()] == ["x"]


def test_leftovers_of_this_path_are_removed(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in (f".x.1-{'0' * 16}.tmp", f".x.2-{'0' * 16}.tmp", ".y.tmp"))
    for file in (old, new, other):
        file.write_bytes(b"")
    os.utime(old, (0, 0))
    remove_leftovers(tmp_path / "x", only_stale=True)
    assert not old.exists() and new.exists() and other.exists()
    remove_leftovers(tmp_path / "x", only_stale=False)
    assert not new.exists() and other.exists()


@pytest.mark.parametrize("links", [True, False])
def test_a_second_name_never_replaces_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path, name = tmp_path / "x", tmp_path / "x.1"
    path.write_bytes(b"mine")
    link_or_rename(path, name)
    assert name.read_bytes() == b"mine" and path.exists() is links
    path.write_bytes(b"mine")
    name.unlink()
    name.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        link_or_rename(path, name)
    assert name.read_bytes() == b"theirs"


def test_only_a_name_of_the_same_file_is_removed(tmp_path: Path) -> None:
    path, other = tmp_path / "x", tmp_path / "y"
    path.write_bytes(b"")
    other.write_bytes(b"")
    remove_if_same(path, other)
    assert path.exists()
    other.unlink()
    link_or_rename(path, other)
    remove_if_same(path, other)
    assert not path.exists() and other.exists()
