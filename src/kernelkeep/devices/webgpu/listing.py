"""Lists the adapters of wgpu and opens one, with the folder of the driver's own cache set before (`devices/driver_cache.py`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...errors import ArgumentError, DeviceError
from ...platforms import system
from ..base import DeviceInfo
from ..driver_cache import (
    driver_cache_of,
    family_of,
    must_be_set_first,
    note_started,
    remember,
    set_default_folder,
    set_folder,
)
from ..fingerprint import Fingerprint, cpu_identity
from .adapters import BACKENDS, Adapter, Instance
from .native import version

if TYPE_CHECKING:
    from .device import WebGPUDevice

_BACKEND = "webgpu"


def describe(index: int, adapter: Adapter) -> DeviceInfo:
    """An adapter as a device."""
    from .context import limits_of

    # wgpu tells the size of the largest buffer only. A CPU and an Apple GPU have the host's memory.
    memory = int(limits_of(adapter).maxBufferSize)
    if not adapter.is_gpu or adapter.backend == "metal":
        memory = system.memory_bytes() or memory
    return DeviceInfo(
        spec=f"{_BACKEND}:{index}",
        backend=_BACKEND,
        name=adapter.name,
        vendor=adapter.vendor,
        driver=f"{adapter.driver or 'driver of the system'} ({adapter.backend})",
        is_gpu=adapter.is_gpu,
        index=index,
        memory_bytes=memory,
    )


def fingerprint_of(info: DeviceInfo, adapter: Adapter) -> Fingerprint:
    """Entries are checked texts, and checks depend on the version of wgpu-native."""
    return Fingerprint(
        backend=_BACKEND,
        vendor=info.vendor,
        model=info.name,
        driver=info.driver,
        compiler=f"wgpu-native {version()}",
        architecture="" if info.is_gpu else cpu_identity(),
    )


def _adapters() -> tuple[Instance, list[Adapter]]:
    instance = Instance()
    found = instance.adapters()
    if not found:
        instance.close([])
        instance = Instance("opengl")
        found = instance.adapters()
    if not found:
        instance.close([])
        raise DeviceError(
            "wgpu finds no Vulkan, Metal or Direct3D 12 here; on Debian: apt-get install mesa-vulkan-drivers"
        )
    return instance, found


def _probe() -> list[tuple[DeviceInfo, Fingerprint, str]]:
    instance, adapters = _adapters()
    try:
        for adapter in adapters:
            note_started(adapter.vendor, probing=True)
        infos = [(describe(index, adapter), adapter) for index, adapter in enumerate(adapters)]
        return [(info, fingerprint_of(info, adapter), adapter.backend) for info, adapter in infos]
    finally:
        instance.close(adapters)


def folders_by_family() -> dict[str, str]:
    """The GPU folder's name for each family of drivers, by its first device."""
    try:
        found = _probe()
    except DeviceError:
        return {}
    return {family_of(info.vendor): fingerprint.folder for info, fingerprint, _ in reversed(found)}


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every adapter for Vulkan, Metal or Direct3D 12; those for OpenGL where there is no other."""
    if must_be_set_first():
        set_default_folder(_BACKEND, cache_dir, folders_by_family)
    return [info for info, _, _ in _probe()]


def find_index(word: str) -> int:
    """The index of the first adapter of an interface, for specs like "webgpu:metal"."""
    if word not in BACKENDS:
        raise ArgumentError(f"{_BACKEND}:{word} is not a device: use {_BACKEND}:0 or one of {', '.join(BACKENDS)}")
    for info, _, backend in _probe():
        if backend == word:
            return info.index
    raise DeviceError(f"wgpu has no adapter for {word} here")


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> WebGPUDevice:
    """Open an adapter by index, by default the first GPU, else the first.

    The driver keeps its own compiled shaders in `driver_cache_dir`, by default in the GPU's folder under `cache_dir`.
    """
    from .context import Context
    from .device import WebGPUDevice

    version()  # `DeviceError` where there is no library, before any folder is made
    if driver_cache_dir is not None:
        set_folder(driver_cache_dir)
    else:
        set_default_folder(_BACKEND, cache_dir, folders_by_family)
    instance, adapters = _adapters()
    try:
        index = index or 0
        if index >= len(adapters):
            raise DeviceError(f"there is no device {_BACKEND}:{index}; adapters that wgpu has here: {len(adapters)}")
        adapter = adapters[index]
        note_started(adapter.vendor, probing=False)
        info = describe(index, adapter)
        device = WebGPUDevice(Context(adapter, info.spec), info, fingerprint_of(info, adapter))
    finally:
        instance.close(adapters)
    device.driver_cache_dir = driver_cache_of(info.vendor)
    if driver_cache_dir is None:
        _remember_if_changed(device)
    return device


def _remember_if_changed(device: WebGPUDevice) -> None:
    """After a driver update the folder has another name: store it for the next run."""
    used = device.driver_cache_dir
    name = device.fingerprint.folder
    if (
        used is not None
        and used.parent.name != name
        and used.parent.name.startswith(_BACKEND)
        and used.name == "driver"
    ):
        remember(_BACKEND, used.parent.parent, {family_of(device.info.vendor): name})
