"""Finding and opening devices by name."""

from __future__ import annotations

import importlib
import math
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.devices.registry import SHIPPED, backend_names
from kernelkeep.devices.requirements import Check
from kernelkeep.devices.spec_hint import count_and_use
from kernelkeep.observe.doctor import diagnose
from kernelkeep.observe.inventory import open_device_for


def test_an_index_that_is_too_large_is_answered_with_those_there_are() -> None:
    assert count_and_use("opencl", 1) == "1 here: use opencl:0"
    assert count_and_use("opencl", 3) == "3 here: use opencl:0 … opencl:2"
    assert count_and_use("opencl", 0).startswith("none here: ")


@pytest.mark.parametrize(
    "spec", ["vulkan", "cuda:", "cuda:x", "cuda:-1", "opencl:0:1", " opencl", "opencl:0\n", "OpenCL", 3, b"cuda"]
)
def test_specs_that_name_no_device(spec: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="is not a device") as caught:
        kk.open_device(spec)
    assert "cuda, opencl, opengl" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "meant"), [("vulkan", "webgpu:vulkan"), ("Metal", "webgpu:metal"), ("cudaa", "cuda"), ("OpenCL", "opencl")]
)
def test_a_spec_that_is_nearly_right_is_answered_with_the_right_one(spec: str, meant: str) -> None:
    with pytest.raises(kk.ArgumentError, match=rf"is not a device \(did you mean {meant}\?\)"):
        kk.open_device(spec)


@pytest.mark.parametrize("backend", SHIPPED)
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
    order = [(not info.is_gpu, backend_names().index(info.backend), info.index) for info in devices]
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


# --- backends of others


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The registry, as it is before anybody registered anything, for the length of a test."""
    from kernelkeep.devices import registry

    shipped = {name: registry._registered[name] for name in SHIPPED}
    monkeypatch.setattr(registry, "_registered", shipped)
    monkeypatch.setattr(registry, "_entry_points_read", True)
    return registry


def info_of(backend: str, index: int = 0, *, is_gpu: bool = False) -> kk.DeviceInfo:
    return kk.DeviceInfo(f"{backend}:{index}", backend, "a device", "a vendor", "a driver", is_gpu, index)


def backend_with(devices: list[kk.DeviceInfo], **more: Any) -> Any:
    return SimpleNamespace(
        list_devices=lambda cache_dir=None: devices,
        open_device=lambda index=None, **folders: f"device {index}",
        __name__="a.backend",
        **more,
    )


def give_entry_points(registry: ModuleType, monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> list[str]:
    """Have these installed; the list says how often somebody asked."""
    asked: list[str] = []

    def entry_points(group: str) -> tuple[EntryPoint, ...]:
        asked.append(group)
        return points

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    monkeypatch.setattr(registry, "_entry_points_read", False)
    return asked


def test_a_registered_backend_is_listed_and_opened(registry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DEVICE", raising=False)
    kk.register_backend("mine", backend_with([info_of("mine", 1), info_of("mine", 0, is_gpu=True)]))
    listed = [info.spec for info in kk.list_devices() if info.backend == "mine"]
    assert listed == ["mine:0", "mine:1"]
    assert str(kk.open_device("mine")) == "device None"
    assert str(kk.open_device("mine:7")) == "device 7"
    assert backend_names() == (*SHIPPED, "mine")


def test_a_registered_gpu_is_preferred_to_a_cpu(registry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DEVICE", raising=False)
    registry._registered.clear()
    kk.register_backend("first", backend_with([info_of("first", 1)]))
    kk.register_backend("second", backend_with([info_of("second", 2, is_gpu=True)]))
    assert [info.spec for info in kk.list_devices()] == ["second:2", "first:1"]
    assert str(kk.open_device()) == "device 2"


def test_a_dotted_name_is_imported_at_first_use(
    registry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "my_backend.py").write_text(
        "def list_devices(cache_dir=None): return []\ndef open_device(index=None, **folders): return 'opened'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kk.register_backend("mine", "my_backend")
    assert "my_backend" not in sys.modules
    assert str(kk.open_device("mine")) == "opened"
    monkeypatch.delitem(sys.modules, "my_backend")


@pytest.mark.parametrize("name", ["", "My", "my_gpu", "1st", "a b", "gpü", "opencl:0", None, b"mine"])
def test_register_refuses_names_that_are_no_word(registry: ModuleType, name: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"^name must be a word of lower-case letters and digits.*got"):
        kk.register_backend(name, backend_with([]))


def test_register_refuses_a_name_that_is_taken(registry: ModuleType) -> None:
    with pytest.raises(
        kk.ArgumentError, match=r"opencl is already registered from kernelkeep\.devices\.opencl; choose"
    ):
        kk.register_backend("opencl", "my_package.backend")
    kk.register_backend("opencl", "kernelkeep.devices.opencl")  # the same again changes nothing
    kk.register_backend("opencl", importlib.import_module("kernelkeep.devices.opencl"))
    assert backend_names() == SHIPPED


@pytest.mark.parametrize("module", ["", "my backend", ".relative", "a..b"])
def test_register_refuses_names_of_no_module(registry: ModuleType, module: str) -> None:
    with pytest.raises(kk.ArgumentError, match=r"^module must be a module or its dotted name"):
        kk.register_backend("mine", module)


@pytest.mark.parametrize("module", [None, 3, SimpleNamespace(list_devices=list), math])
def test_register_refuses_a_module_without_the_functions(registry: ModuleType, module: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"^module must have the functions.*lacks .*open_device"):
        kk.register_backend("mine", module)


@pytest.mark.parametrize(("module", "reason"), [("no_such_module", "No module named"), ("math", "lacks list_devices")])
def test_a_backend_that_cannot_be_loaded(registry: ModuleType, module: str, reason: str) -> None:
    kk.register_backend("mine", module)
    with pytest.raises(kk.DeviceError, match=f"the backend mine cannot be .*{reason}"):
        kk.open_device("mine")
    with pytest.warns(RuntimeWarning, match=f"the backend mine cannot be .*{reason}"):
        devices = kk.list_devices()
    assert not [info for info in devices if info.backend == "mine"]


def test_a_backend_that_fails_to_list_costs_a_warning(registry: ModuleType) -> None:
    def list_devices(cache_dir: Any = None) -> list[kk.DeviceInfo]:
        raise OSError("half installed")

    kk.register_backend("mine", SimpleNamespace(list_devices=list_devices, open_device=print))
    with pytest.warns(RuntimeWarning, match="the backend mine cannot list its devices.*half installed"):
        kk.list_devices()
    with pytest.warns(RuntimeWarning):
        here = registry.fingerprints_here()
    assert "mine" not in here, "what cannot be asked is not gone"


def test_an_entry_point_is_a_backend(registry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "installed_backend.py").write_text(
        "def list_devices(cache_dir=None): return []\ndef open_device(index=None, **folders): return 'installed'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    group = "kernelkeep.backends"
    asked = give_entry_points(registry, monkeypatch, EntryPoint("installed", "installed_backend", group))
    assert registry.parse_spec("opencl:0") == ("opencl", 0)
    assert not asked, "a name that is known asks nobody"
    assert str(kk.open_device("installed:0")) == "installed"
    kk.register_backend("installed", "installed_backend")
    kk.list_devices()
    assert asked == [group], "asked once"
    monkeypatch.delitem(sys.modules, "installed_backend")


def test_broken_entry_points_cost_a_warning(registry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    group = "kernelkeep.backends"
    points = [
        EntryPoint("gone", "no_such_module", group),
        EntryPoint("opencl", "other", group),
        EntryPoint("a b", "x", group),
    ]
    give_entry_points(registry, monkeypatch, *points)
    with pytest.warns(RuntimeWarning) as caught:
        kk.list_devices()
    said = [str(warning.message) for warning in caught]
    assert len(said) == 3
    assert any("opencl (other) is ignored: the name belongs to kernelkeep.devices.opencl" in line for line in said)
    assert any("'a b' (x) is ignored" in line for line in said)
    assert any("the backend gone cannot be loaded from no_such_module" in line for line in said)
    with pytest.raises(kk.DeviceError, match="the backend gone cannot be loaded"):
        kk.open_device("gone")


def test_metadata_that_cannot_be_read_costs_a_warning(registry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> None:
        raise ValueError("damaged")

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    monkeypatch.setattr(registry, "_entry_points_read", False)
    with pytest.warns(RuntimeWarning, match="cannot be read: damaged"):
        assert backend_names() == SHIPPED


def test_doctor_asks_the_backend(registry: ModuleType) -> None:
    missing = Check("a cable", False, "not plugged in", "plug it in")
    kk.register_backend("mine", backend_with([], needs=lambda: iter([Check("a card", True, "red"), missing])))
    (health,) = diagnose("mine")
    assert not health.usable
    assert [check.what for check in health.checks] == ["a card", "a cable"]
    kk.register_backend("plain", backend_with([], hint="buy one"))
    (health,) = diagnose("plain")
    assert [(check.what, check.ok, check.fix) for check in health.checks] == [("a device", False, "buy one")]


def test_doctor_reports_a_backend_that_cannot_be_loaded(registry: ModuleType) -> None:
    kk.register_backend("gone", "no_such_module")
    (health,) = diagnose("gone")
    assert not health.usable
    assert "No module named" in health.checks[0].found


def test_a_language_finds_its_backend(registry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DEVICE", raising=False)
    kk.register_backend("mine", backend_with([], language="hostasm"))
    assert str(open_device_for("hostasm")) == "device None"
    with pytest.raises(kk.DeviceError, match="no backend here takes hlsl"):
        open_device_for("hlsl")
