"""What a process finds of NVRTC, and what a later one believes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda import toolkit
from kernelkeep.testing import skip_backend

pytestmark = pytest.mark.cuda
FILE = "cuda_compiler.json"


@pytest.fixture
def known(tmp_path: Path) -> str:
    """A cache folder in which a process has written down what it found."""
    try:
        toolkit.compiler_version()
    except kk.DeviceError as error:
        skip_backend("cuda", str(error))
    return toolkit.compiler_or_none(tmp_path)


def test_the_compiler_is_known_without_loading_it(tmp_path: Path, known: str) -> None:
    code = (
        "import sys; from kernelkeep.devices.cuda.toolkit import compiler_or_none;"
        f"print(compiler_or_none({str(tmp_path)!r})); print([name for name in sys.modules if 'nvrtc' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [known, "[]"]


@pytest.mark.parametrize("variable", ["CUDA_PATH", "LD_LIBRARY_PATH"])
def test_it_is_searched_again_in_another_environment(
    tmp_path: Path, known: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    asked = count_searches(monkeypatch)
    assert toolkit.compiler_or_none(tmp_path) == known and not asked
    monkeypatch.setenv(variable, str(tmp_path))
    assert toolkit.compiler_or_none(tmp_path) == known and len(asked) == 1


def test_it_is_searched_again_after_a_package_was_installed(
    tmp_path: Path, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    toolkit.compiler_or_none(tmp_path)
    asked = count_searches(monkeypatch)
    assert toolkit.compiler_or_none(tmp_path) == known and not asked
    (packages / "nvidia").mkdir()
    assert toolkit.compiler_or_none(tmp_path) == known and len(asked) == 1


def test_it_is_searched_again_when_the_library_was_replaced(
    tmp_path: Path, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_searches(monkeypatch)
    library = tmp_path / "libnvrtc.so"
    library.write_bytes(b"one")
    edit(tmp_path, library=str(library))
    assert toolkit.compiler_or_none(tmp_path) == known and len(asked) == 1


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 1}', b"\xff"])
def test_a_damaged_file_is_as_none(tmp_path: Path, known: str, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    asked = count_searches(monkeypatch)
    assert toolkit.compiler_or_none(tmp_path) == known and len(asked) == 1
    assert toolkit.compiler_or_none(tmp_path) == known and len(asked) == 1


def test_what_turns_out_to_be_wrong_is_forgotten(tmp_path: Path, known: str) -> None:
    edit(tmp_path, version="1.0")
    assert toolkit.compiler_or_none(tmp_path).startswith("nvrtc 1.0")
    toolkit.find_toolkit.cache_clear()
    toolkit.find_toolkit()
    assert not (tmp_path / FILE).exists()
    assert toolkit.compiler_or_none(tmp_path) == known


def test_a_folder_that_cannot_be_written_to_costs_nothing_but_time(tmp_path: Path, known: str) -> None:
    (tmp_path / "file").touch()
    assert toolkit.compiler_or_none(tmp_path / "file") == known


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    asked: list[None] = []
    found = toolkit.compiler_version()

    def search() -> str:
        asked.append(None)
        return found

    monkeypatch.setattr(toolkit, "compiler_version", search)
    return asked


def edit(folder: Path, **fields: Any) -> None:
    path = folder / FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
