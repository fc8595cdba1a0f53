"""AMD GPUs are compiled for, and there are no devices to run on."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.upkeep import list_entries
from kernelkeep.devices import hip
from kernelkeep.observe.doctor import diagnose
from kernelkeep.samples.basic import SAXPY, STENCIL
from kernelkeep.testing import note_skipped


@pytest.fixture
def hiprtc() -> None:
    try:
        hip.ahead.architectures()
    except kk.DeviceError as error:
        note_skipped("hip", str(error))
        pytest.skip(str(error))


def test_there_are_no_devices() -> None:
    assert not [info for info in kk.list_devices() if info.backend == "hip"]
    for spec in ("hip", "hip:0"):
        with pytest.raises(kk.DeviceError, match="no devices and runs nothing"):
            kk.open_device(spec)
    (health,) = diagnose("hip")
    assert not health.usable and not health.devices
    assert health.compiles_only == all(check.ok for check in health.checks)


@pytest.mark.usefixtures("hiprtc")
def test_portable_kernels_compile_for_several_architectures(tmp_path: Path) -> None:
    targets = ["hip:gfx90a", "hip:gfx1030"]
    report = kk.compile_ahead([SAXPY.kernel, STENCIL.kernel], targets, tmp_path)
    assert report.ok and report.compiled == 4
    payloads = set()
    for stored in list_entries(tmp_path):
        assert stored.facts is not None and stored.facts.compiler.startswith("hiprtc")
        assert stored.facts.kernels == (stored.facts.name,)
        data = stored.path.read_bytes()
        architecture = stored.folder.split("_")[1].removeprefix("any-")
        assert f"amdgcn-amd-amdhsa--{architecture}".encode() in data, "compiled for another architecture"
        payloads.add(data)
    assert len(payloads) == 4


@pytest.mark.usefixtures("hiprtc")
def test_a_mistake_has_its_line() -> None:
    source = kk.Source("__global__ void f(int* x) {\n  x[0] = missing;\n}\n", "f", "cuda")
    with pytest.raises(kk.CompileError, match="f, line 2: use of undeclared identifier 'missing'") as caught:
        hip.ahead.compile(source, "gfx90a")
    assert caught.value.line == 2 and "missing" in caught.value.log


@pytest.mark.usefixtures("hiprtc")
def test_an_architecture_that_the_compiler_does_not_know_is_refused() -> None:
    """HIPRTC itself would end the process."""
    with pytest.raises(kk.ArgumentError, match="must be one of"):
        hip.ahead.compile(SAXPY.kernel.source("cuda"), "gfx9999")
    with pytest.raises(kk.ArgumentError, match="must be one of"):
        kk.compile_ahead(SAXPY.kernel, "hip:gfx9999")
