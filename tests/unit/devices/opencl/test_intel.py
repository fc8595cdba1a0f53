"""Finding Intel's OpenCL driver in a Python environment, and showing it to the loader."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelkeep.devices.opencl import intel


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The library as pip puts it, and pyopencl's file in the same environment; the user has said nothing."""
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.delenv("OPENCL_VENDOR_PATH", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "elsewhere"))
    library = tmp_path / "lib" / "libintelocl.so"
    module = tmp_path / "lib" / "python3.11" / "site-packages" / "pyopencl" / "__init__.py"
    module.parent.mkdir(parents=True)
    library.touch()
    return library, module


def test_the_library_is_found_beside_pyopencl(installed: tuple[Path, Path], tmp_path: Path) -> None:
    library, module = installed
    assert intel.driver_library(str(module)) == library
    library.unlink()
    assert intel.driver_library(str(module)) is None


def test_the_loader_sees_the_driver_and_those_of_the_system(
    installed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, _ = installed
    system = tmp_path / "vendors"
    system.mkdir()
    (system / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    monkeypatch.setattr(intel, "_SYSTEM_VENDORS", system)
    with intel.visible_to_loader(library) as added:
        assert added
        folder = Path(os.environ["OCL_ICD_VENDORS"])
        named = {path.read_text().strip() for path in folder.glob("*.icd")}
        assert named == {str(library), "libnvidia-opencl.so.1"}
    assert "OCL_ICD_VENDORS" not in os.environ, "what the program starts later looks for drivers in the usual way"
    assert not folder.exists()


@pytest.mark.parametrize("name", ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"])
def test_a_folder_set_by_the_user_is_kept(
    installed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    with intel.visible_to_loader(installed[0]) as added:
        assert not added
        assert os.environ[name] == str(tmp_path)
