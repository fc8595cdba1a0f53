"""What the end-to-end tests share."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.cli import main
from kernelkeep.devices.registry import backend_module
from kernelkeep.errors import DeviceError
from kernelkeep.testing import note_skipped


@pytest.fixture(scope="session", autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's own cache out of it, also in the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELKEEP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def opencl_device() -> str:
    """The spec of an OpenCL device. Without one the test is skipped, or fails where OpenCL is required."""
    try:
        return backend_module("opencl").list_devices()[0].spec
    except (DeviceError, IndexError) as error:
        if "opencl" in settings.required_backends():
            pytest.fail(f"OpenCL is required and not here: {error}")
        note_skipped("opencl", str(error))
        pytest.skip(f"no OpenCL device: {error}")


@pytest.fixture
def devices_for(opencl_device: str) -> Callable[[int], list[str]]:
    """For each of many scripts, by its number, the devices to run it on: every GPU, and OpenCL or, for every second script, the
    other drivers in turn. What they can do is for the conformance tests to prove."""
    found = [info for info in kk.list_devices() if not info.is_interpreter and info.spec != opencl_device]
    gpus = [info.spec for info in found if info.is_gpu]
    others = [info.spec for info in found if not info.is_gpu]

    def devices_for(number: int) -> list[str]:
        first = opencl_device if number % 2 or not others else others[number // 2 % len(others)]
        return [first, *gpus]

    return devices_for


@pytest.fixture
def run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command line in this process, for tests of many: starting Python takes longer than most commands."""
    monkeypatch.setenv("NO_COLOR", "1")

    def run_here(*arguments: str | Path, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        words = [str(one) for one in arguments]
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = main(words)
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    return run_here
