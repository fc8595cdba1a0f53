"""Paths that lead to a device, pipe, socket or folder: refused at once, and never replaced."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.errors import ArgumentError
from kernelkeep.execution.timeline import Timeline
from kernelkeep.pictures.file import check_picture
from kernelkeep.storage.files import NotRegular, check_destination, open_regular, write_whole
from kernelkeep.storage.locks import FileLock, LockUnavailable
from kernelkeep.variants.records import Records

KINDS = ("folder", "pipe", "socket", "device", "link to a pipe", "link to a device")


@pytest.fixture(params=KINDS)
def special(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path = tmp_path / "special"
    with socket.socket(socket.AF_UNIX) as server:
        makers: dict[str, Callable[[], object]] = {
            "folder": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
            "socket": lambda: server.bind(str(path)),
            "device": lambda: _null_device(path),
            "link to a pipe": lambda: path.symlink_to(_pipe(tmp_path / "pipe")),
            "link to a device": lambda: path.symlink_to("/dev/null"),
        }
        makers[request.param]()
        yield path


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _null_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error.strerror}")


def test_what_is_not_a_regular_file_is_not_opened(special: Path) -> None:
    with pytest.raises(NotRegular, match=r"^is (a folder|a named pipe|a socket|a device), not a regular file$"):
        open_regular(special)


def test_a_written_file_never_replaces_what_is_not_a_regular_file(special: Path) -> None:
    before = special.lstat()
    with pytest.raises(ArgumentError, match="not a regular file"):
        write_whole(special, b"new")
    after = special.lstat()
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)
    assert not [name for name in os.listdir(special.parent) if name.endswith(".tmp")]  # noqa: PTH208


def test_a_link_to_a_file_is_followed_on_reading_and_writing(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"old")
    link = tmp_path / "here"
    link.symlink_to("there")
    with open_regular(link) as file:
        assert file.read() == b"old"
    write_whole(link, b"new")
    assert link.is_symlink() and (tmp_path / "there").read_bytes() == b"new"
    with pytest.raises(NotRegular, match="a link"):
        open_regular(link, follow_links=False)


def test_every_path_that_a_user_names_is_a_regular_file(special: Path) -> None:
    """None of these waits for the other end of a pipe, and none replaces what is there."""
    before = special.lstat()
    named = special.with_name("special.png")
    special.rename(named)
    records = Records(None)
    timeline = Timeline.__new__(Timeline)
    timeline.chrome_trace = lambda origin=None: {}  # type: ignore[method-assign]
    calls: list[Callable[[], object]] = [
        lambda: kk.Source.from_file(named, language="opencl"),
        lambda: records.load(named),
        lambda: records.export(named),
        lambda: timeline.save(named),
        lambda: check_picture(named),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match="not a regular file"):
            call()
    after = named.lstat()
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)


def test_a_lock_file_with_a_second_name_is_refused(tmp_path: Path) -> None:
    """In a folder where others may write, somebody could link a file of ours to where a lock is to be."""
    precious, path = tmp_path / "precious", tmp_path / "lock"
    precious.write_text("data")
    path.hardlink_to(precious)
    lock = FileLock(path)
    with pytest.raises(LockUnavailable, match="other names"):
        lock.acquire(0)
    lock.leave_note("note")
    lock.release()
    assert precious.read_text() == "data"


def test_standard_output_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    """A file that output is redirected to would be replaced, and all that is printed would be lost."""
    with (tmp_path / "out.txt").open("w") as out:
        for name in (f"/dev/fd/{out.fileno()}", f"/proc/self/fd/{out.fileno()}"):
            with pytest.raises(NotRegular, match="open file"):
                check_destination(name)
        link = tmp_path / "link"
        link.symlink_to(f"/proc/self/fd/{out.fileno()}")
        with pytest.raises(NotRegular, match="open file"):
            check_destination(link)
    check_destination(tmp_path / "out.txt")
    check_destination(tmp_path / "new.txt")


def test_an_interruption_as_a_file_is_opened_closes_no_descriptor_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted file closes itself, so its number may belong to another thread's file already."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    fdopen = os.fdopen
    taken: list[int] = []

    def interrupted(descriptor: int, mode: str) -> object:
        fdopen(descriptor, mode).close()
        taken.append(os.open(path, os.O_RDONLY))  # another thread, which gets the same number
        assert taken == [descriptor]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_regular(path)
    assert os.read(taken[0], 7) == b"content"
    os.close(taken[0])
