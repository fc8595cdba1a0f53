"""Compiling for GPUs that are not here, with NVRTC and for the fake device."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.upkeep import list_entries, survey_root
from kernelkeep.devices.ahead import parse_target
from kernelkeep.samples.basic import SAXPY, STENCIL
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.fake import ahead as fake_ahead

KERNELS = [SAXPY.kernel, STENCIL.kernel]
CUDA = pytest.mark.skipif(find_spec("cuda") is None, reason="cuda-bindings is not installed")


@pytest.fixture(autouse=True)
def fake_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelkeep.devices import registry

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    kk.register_backend("fake", sys.modules["kernelkeep.testing.fake"])


def test_a_device_of_the_architecture_compiles_nothing(tmp_path: Path) -> None:
    report = kk.compile_ahead(KERNELS, ["fake:any"], tmp_path)
    assert report.ok and (report.compiled, report.kept) == (2, 0) and report.bytes > 0
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        for kernel in KERNELS:
            with cache.get(kernel) as lease:
                assert lease.origin == "disk" and lease.kernel(kernel.name)
        assert cache.stats().compiles == 0


def test_another_architecture_compiles_for_itself(tmp_path: Path) -> None:
    kk.compile_ahead(KERNELS, "fake:other", tmp_path)
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache, cache.get(KERNELS[0]) as lease:
        assert lease.origin == "compiled"


def test_what_is_there_is_kept_until_the_compiler_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kk.compile_ahead(KERNELS, "fake:any", tmp_path)
    assert (lambda r: (r.compiled, r.kept))(kk.compile_ahead([*KERNELS, KERNELS[0]], "fake:any", tmp_path)) == (0, 2)
    monkeypatch.setattr(type(fake_ahead), "version", lambda self: "Python, the next one")
    assert (lambda r: (r.compiled, r.kept))(kk.compile_ahead(KERNELS, "fake:any", tmp_path)) == (2, 0)
    assert len(list(list_entries(tmp_path))) == 2
    for stored in list_entries(tmp_path):
        stored.path.write_bytes(b"damaged")
    assert kk.compile_ahead(KERNELS, "fake:any", tmp_path).compiled == 2


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = kk.Source("no kernel (", "bad", "python")
    other = kk.Source("x", "ocl", "opencl")
    report = kk.compile_ahead([bad, other, SAXPY.kernel], ["fake:any", "fake:other"], tmp_path)
    assert not report.ok and report.compiled == 2
    assert {(one.name, one.target) for one in report.failed} == {
        (name, f"fake:{architecture}") for name in ("bad", "ocl") for architecture in ("any", "other")
    }
    assert "takes python" in str(report)


@pytest.mark.parametrize(
    ("sources", "targets", "said"),
    [
        ([], ["fake:any"], "sources must not be empty"),
        (
            "saxpy.cu",
            ["fake:any"],
            "sources must be a list of kk.Source or kk.PortableKernel or kk.StateProgram, got 'saxpy.cu'",
        ),
        ([3], ["fake:any"], "got a int in it"),
        (KERNELS, [], "targets must not be empty"),
        (KERNELS, ["fake"], "must be one of any, other"),
        (KERNELS, ["fake:none"], "must be one of any, other"),
        (KERNELS, ["opencl:0"], "must be written like cuda:"),
        (KERNELS, 3, "targets must be a list of str"),
    ],
)
def test_wrong_arguments(tmp_path: Path, sources: object, targets: object, said: str) -> None:
    with pytest.raises(kk.ArgumentError) as caught:
        kk.compile_ahead(sources, targets, tmp_path / "cache")  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(kk.ArgumentError, match="cannot be used"):
        kk.compile_ahead(KERNELS, "fake:any", tmp_path / "file")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(kk.ArgumentError, match="may be written to by others"):
        kk.compile_ahead(KERNELS, "fake:any", tmp_path / "open")


def test_the_folder_of_an_architecture_is_not_taken_for_a_gpu_that_is_gone(tmp_path: Path) -> None:
    kk.compile_ahead(KERNELS, "fake:other", tmp_path)
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        assert cache.prune(max_age_days=None, gone=True).folders == ()
    (folder,) = (one for one in survey_root(tmp_path).folders if "other" in one.folder)
    assert folder.entries == 2 and folder.fingerprint["architecture"] == "other"


@CUDA
def test_nvrtc_compiles_for_architectures_from_sm_75_to_sm_120(tmp_path: Path) -> None:
    targets = [f"cuda:sm_{number}" for number in (75, 80, 86, 89, 90, 100, 120)] + ["cuda:sm_90a"]
    report = kk.compile_ahead(SAXPY.kernel, targets, tmp_path)
    assert report.ok and report.compiled == len(targets)
    found = list(list_entries(tmp_path))
    assert len({stored.folder for stored in found}) == len(targets)
    for stored in found:
        assert stored.facts is not None
        assert stored.facts.kernels == ("saxpy",) and stored.facts.compiler.startswith("nvrtc")
    with pytest.raises(kk.ArgumentError, match="must be one of sm_75"):
        parse_target("cuda:compute_90")


@CUDA
def test_a_gpu_runs_what_was_compiled_for_an_older_one_of_its_generation() -> None:
    from kernelkeep.devices.cuda.architectures import loadable_architectures

    assert loadable_architectures("sm_75") == ("sm_75",)
    assert loadable_architectures("sm_89") == ("sm_89", "sm_86", "sm_80")
    assert loadable_architectures("sm_90") == ("sm_90", "sm_90a")
    assert loadable_architectures("sm_87") == ("sm_87",)
    assert loadable_architectures("sm_103") == ("sm_103", "sm_103a", "sm_103f", "sm_100", "sm_100f")


@CUDA
def test_a_missing_compiler_does_not_hide_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelkeep.devices.cuda import toolkit

    def missing() -> str:
        raise kk.DeviceError("CUDA needs NVRTC")

    monkeypatch.setattr(toolkit, "compiler_version", missing)
    assert toolkit.compiler_or_none(tmp_path) == "none"
