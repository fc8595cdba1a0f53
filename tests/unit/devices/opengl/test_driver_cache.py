"""Where an OpenGL driver keeps its native code: in a folder that nobody else could have put code into."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kernelkeep.devices import driver_cache
from kernelkeep.storage.private import default_trust
from kernelkeep.testing import run_python

PLACING = """
import os, sys
from pathlib import Path
from kernelkeep.devices import driver_cache
from kernelkeep.errors import ArgumentError
os.umask(0)
root, folder = Path(sys.argv[1]), "opengl_driver_0123456789ab"
driver_cache.must_be_set_first = lambda: False
driver_cache.set_default_folder("opengl", root, lambda: {"mesa": folder})
placed = os.environ.get("MESA_SHADER_CACHE_DIR")
print("placed" if placed == str(root / folder / "driver") else "not placed")
try:
    driver_cache.set_folder(root / folder / "driver")
    print("placed")
except ArgumentError as error:
    print(error)
"""


def place(root: Path) -> list[str]:
    return run_python(PLACING, root).stdout.splitlines()


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_a_drivers_folder_is_private(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    assert place(root) == ["placed", "placed"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert modes == {
        "cache": 0o700,
        "opengl_driver_0123456789ab": 0o700,
        "driver": 0o700,
        "opengl-devices.json": 0o600,
    }
    driver = root / "opengl_driver_0123456789ab" / "driver"
    (driver / "shader").write_bytes(b"native code")
    (driver / "shader").chmod(0o664)  # a driver that follows the umask
    assert place(root) == ["placed", "placed"], "nobody else can reach it"
    driver.chmod(0o755)
    assert "may be written to by others" in place(root)[1]
    driver.chmod(0o770)
    assert place(root)[0] == "not placed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
@pytest.mark.parametrize("planted", ["file", "folder", "whole"])
def test_code_that_another_user_planted_is_not_run(tmp_path: Path, planted: str) -> None:
    root = tmp_path / "cache"
    place(root)
    driver = root / "opengl_driver_0123456789ab" / "driver"
    (driver / "ab").mkdir(mode=0o700)
    (driver / "ab" / "shader").write_bytes(b"native code")
    path = {"file": driver / "ab" / "shader", "folder": driver / "ab", "whole": driver}[planted]
    os.chown(path, 12345, 12345)
    first, second = place(root)
    assert first == "not placed" and "belongs to user 12345" in second


def test_files_may_vanish_while_the_folder_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process of the same user compiles there."""
    (tmp_path / "shader").write_bytes(b"native code")
    seen = [(str(tmp_path), ["gone"], ["shader", "gone.tmp"])]
    monkeypatch.setattr(os, "walk", lambda path: iter(seen))
    default_trust().check_tree(tmp_path)


def test_finding_devices_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That folder may be /tmp, where anybody can put a json.py."""
    (tmp_path / "json.py").write_text("open('executed', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver_cache, "_CHILD_PROGRAM", "import json\nprint(json.dumps({'mesa': 'folder'}))")
    assert driver_cache._find_names_in_child("opengl") == {"mesa": "folder"}
    assert not Path("executed").exists()
