"""Whole files in one call: in C and in plain Python, which must agree."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from kernelkeep.platforms import system
from kernelkeep.storage import reading

OWNERS = frozenset({system.user_number()})
FLAGS = os.O_RDONLY | system.OPEN_FLAGS | system.NO_WAITING | system.NO_LINKS


def _modules() -> list[Any]:
    try:
        from kernelkeep import _reading
    except ImportError:
        return []
    return [pytest.param((_reading.read_file, _reading.read_files), id="c")]


IN_PYTHON = pytest.param((reading.read_file_in_python, reading.read_files_in_python), id="python")


@pytest.fixture(params=[*_modules(), IN_PYTHON])
def functions(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("size", [0, 1, 4096, 300_000])
def test_a_file_and_what_it_is(functions: Any, tmp_path: Path, size: int) -> None:
    path = tmp_path / "größe"
    content = random.Random(1).randbytes(size)
    path.write_bytes(content)
    path.chmod(0o640)
    os.utime(path, ns=(5, 1_234_567_890_123_456_789))
    found = path.stat()
    for named in (path, str(path)):
        data = functions[0](named, FLAGS, size)
        assert data == (content, found.st_mtime, size, found.st_mode, found.st_uid)
    if size:
        assert functions[0](path, FLAGS, size - 1)[:3] == (None, found.st_mtime, size)


def test_what_is_no_regular_file_is_not_read(functions: Any, tmp_path: Path) -> None:
    assert functions[0](tmp_path, FLAGS, 100)[0] is None
    assert functions[0]("/dev/zero", FLAGS, 100)[0] is None
    os.mkfifo(tmp_path / "pipe")
    assert functions[0](tmp_path / "pipe", FLAGS, 100)[0] is None
    assert functions[1](f"{tmp_path}/", [("pipe", 0)], FLAGS, OWNERS) is None


def test_errors_name_the_path(functions: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for read in (
        lambda name: functions[0](f"{tmp_path}/{name}", FLAGS, 9),
        lambda name: functions[1](f"{tmp_path}/", [(name, 9)], FLAGS, OWNERS),
    ):
        with pytest.raises(FileNotFoundError) as missing:
            read("missing")
        assert missing.value.filename == f"{tmp_path}/missing"
        with pytest.raises(OSError, match="link"):
            read("link")
        with pytest.raises(ValueError, match="null"):
            read("a\0b")


def test_several_files_one_behind_the_other(functions: Any, tmp_path: Path) -> None:
    contents = {"a": b"first", "b": b"", "größe": bytes(70_000), "d": b"last"}
    for name, data in contents.items():
        (tmp_path / f"x-{name}").write_bytes(data)
    files = [(name, len(data)) for name, data in contents.items()]
    prefix = f"{tmp_path}/x-"
    assert functions[1](prefix, files, FLAGS, OWNERS) == b"".join(contents.values())
    assert functions[1](prefix, [], FLAGS, OWNERS) == b""
    for at in range(len(files)):
        for more in (-1, 1):
            wrong = [(name, size + more * (at == number)) for number, (name, size) in enumerate(files)]
            if min(size for _, size in wrong) >= 0:
                assert functions[1](prefix, wrong, FLAGS, OWNERS) is None


@pytest.mark.skipif(not system.HAS_OWNERS, reason="no owners here")
def test_files_that_another_user_could_have_written_are_refused(functions: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "b").write_bytes(b"")
    files = [("a", 5), ("b", 0)]
    others = frozenset({system.user_number() + 1})
    assert functions[1](f"{tmp_path}/", files, FLAGS, OWNERS | others) == b"first"
    assert functions[1](f"{tmp_path}/", files, FLAGS, others) is None
    for name in "ab":
        for mode in (0o620, 0o602):
            (tmp_path / name).chmod(mode)
            assert functions[1](f"{tmp_path}/", files, FLAGS, OWNERS) is None
        (tmp_path / name).chmod(0o644)
    assert functions[1](f"{tmp_path}/", files, FLAGS, OWNERS) == b"first"


TRUSTED = [pytest.param((reading.read_trusted_in_python, reading.is_private_folder_in_python), id="python")]
if _modules():
    from kernelkeep import _reading

    TRUSTED.append(pytest.param((_reading.read_trusted, _reading.is_private_folder), id="c"))


@pytest.mark.parametrize("pair", TRUSTED)
def test_only_the_usual_file_is_read_as_trusted(pair: Any, tmp_path: Path) -> None:
    read = pair[0]
    path = tmp_path / "entry"
    path.write_bytes(b"abc")
    path.chmod(0o600)
    os.utime(path, ns=(5, 1_234_567_890_123_456_789))
    assert read(str(path), FLAGS, 3, OWNERS) == (b"abc", path.stat().st_mtime)
    assert read(str(path), FLAGS, 2, OWNERS) is None  # too large
    assert read(str(path), FLAGS, 3, frozenset({system.user_number() + 1})) is None
    assert read(str(tmp_path / "missing"), FLAGS, 3, OWNERS) is None
    assert read(str(tmp_path), FLAGS, 1 << 20, OWNERS) is None
    (tmp_path / "link").symlink_to(path)
    assert read(str(tmp_path / "link"), FLAGS, 3, OWNERS) is None
    path.chmod(0o620)
    assert read(str(path), FLAGS, 3, OWNERS) is None


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here that can be opened and not be read")
@pytest.mark.parametrize("pair", TRUSTED)
def test_a_file_that_the_system_cannot_read_is_not_trusted(pair: Any) -> None:
    with pytest.raises(OSError):
        reading.read_file("/proc/self/mem", FLAGS, 3)
    assert pair[0]("/proc/self/mem", FLAGS, 3, OWNERS) is None


@pytest.mark.parametrize("pair", TRUSTED)
def test_only_a_folder_that_others_cannot_write_to_is_private(pair: Any, tmp_path: Path) -> None:
    is_private = pair[1]
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    assert is_private(str(folder), OWNERS) and is_private(folder, OWNERS)
    assert not is_private(str(folder), frozenset({system.user_number() + 1}))
    assert not is_private(str(tmp_path / "missing"), OWNERS)
    (tmp_path / "link").symlink_to(folder)
    assert not is_private(str(tmp_path / "link"), OWNERS)
    (folder / "file").write_bytes(b"")
    assert not is_private(str(folder / "file"), OWNERS)
    folder.chmod(0o770)
    assert not is_private(str(folder), OWNERS)
