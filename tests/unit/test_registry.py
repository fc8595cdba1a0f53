"""Finding and opening devices by name."""

from __future__ import annotations

from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.devices.registry import BACKENDS


@pytest.mark.parametrize(
    "spec", ["vulkan", "cuda:", "cuda:x", "cuda:-1", "opencl:0:1", " opencl", "opencl:0\n", "OpenCL", 3, b"cuda"]
)
def test_specs_that_name_no_device(spec: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="is not a device") as caught:
        kk.open_device(spec)
    assert "cuda, opencl, opengl" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_index_that_is_not_there(backend: str) -> None:
    with pytest.raises(kk.DeviceError):
        kk.open_device(f"{backend}:4711")


def test_the_environment_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_DEVICE", "nonsense:1")
    with pytest.raises(kk.ArgumentError, match="nonsense:1"):
        kk.open_device()
    monkeypatch.setenv("KERNELKEEP_DEVICE", "")
    assert settings.device_spec() is None


def test_the_list_is_in_order_of_preference() -> None:
    devices = kk.list_devices()
    order = [(not info.is_gpu, BACKENDS.index(info.backend), info.index) for info in devices]
    assert order == sorted(order)
    assert len({info.spec for info in devices}) == len(devices)
    for info in devices:
        assert info.spec == f"{info.backend}:{info.index}"


def test_without_a_spec_the_best_one_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DEVICE", raising=False)
    devices = kk.list_devices()
    if not devices:
        pytest.skip("no device here")
    with kk.open_device() as device:
        assert device.spec == devices[0].spec


def test_required_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_REQUIRE", " opencl, opengl ,,")
    assert settings.required_backends() == {"opencl", "opengl"}
    monkeypatch.delenv("KERNELKEEP_REQUIRE")
    assert settings.required_backends() == frozenset()
