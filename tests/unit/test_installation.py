"""The command that a message names for a missing extra is one that works for this installation."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelkeep.errors import ArgumentError
from kernelkeep.installation import install_command
from kernelkeep.observe.benchmarks.parts import scripts_folder


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed kernelkeep, the only one that is found."""
    folder = tmp_path / "site-packages"
    (folder / "kernelkeep-9.dist-info").mkdir(parents=True)
    (folder / "kernelkeep-9.dist-info" / "METADATA").write_text("Name: kernelkeep\nVersion: 9\n")
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder / "kernelkeep-9.dist-info"


def installed_from(packages: Path, url: str, **facts: Any) -> None:
    (packages / "direct_url.json").write_text(json.dumps({"url": url, **facts}))


def test_from_an_index(packages: Path) -> None:
    assert install_command("cuda") == "pip install 'kernelkeep[cuda]'"


def test_from_a_clone_in_use(packages: Path, tmp_path: Path) -> None:
    clone = tmp_path / "it's a clone"
    clone.mkdir()
    installed_from(packages, clone.as_uri(), dir_info={"editable": True})
    assert shlex.split(install_command("cuda")) == ["pip", "install", "-e", f"{clone}[cuda]"]


def test_from_a_copied_folder(packages: Path, tmp_path: Path) -> None:
    installed_from(packages, tmp_path.as_uri(), dir_info={})
    assert install_command("opencl") == f"pip install '{tmp_path}[opencl]'"


def test_the_benchmarks_of_the_clone_that_was_installed_are_found(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernelkeep.observe.benchmarks.parts._CHECKOUT", tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match="pass --scripts CLONE/benchmarks"):
        scripts_folder()
    scripts = tmp_path / "clone" / "benchmarks"
    scripts.mkdir(parents=True)
    (scripts / "parts.toml").touch()
    installed_from(packages, (tmp_path / "clone").as_uri(), dir_info={})
    assert scripts_folder() == scripts


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"url": 3}', '{"url": "https://example.org/kernelkeep.whl"}'])
def test_what_cannot_be_used_falls_back_to_the_name(packages: Path, text: str) -> None:
    (packages / "direct_url.json").write_text(text)
    assert install_command("tune") == "pip install 'kernelkeep[tune]'"


def test_a_folder_that_is_gone_falls_back_to_the_name(packages: Path, tmp_path: Path) -> None:
    installed_from(packages, (tmp_path / "gone").as_uri(), dir_info={"editable": True})
    assert install_command("tune") == "pip install 'kernelkeep[tune]'"
