"""Lists EGL devices and opens one, with the folder of the driver's own cache set before (`devices/driver_cache.py`)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ...platforms import system
from ..base import DeviceInfo
from ..driver_cache import family_of, must_be_set_first, remember, set_default_folder, set_folder
from ..fingerprint import Fingerprint, cpu_identity
from .context import Context, count_devices
from .libgl import Constants as C

if TYPE_CHECKING:
    from .device import OpenGLDevice

_BACKEND = "opengl"


def describe(index: int, context: Context) -> DeviceInfo:
    with context.current() as gl:
        vendor, renderer, version = (
            (gl.glGetString(name) or b"").decode("utf-8", "replace") for name in (C.VENDOR, C.RENDERER, C.VERSION)
        )
        memory = memory_of(gl)[0]
    software = context.is_software or bool(re.search(r"llvmpipe|softpipe|swrast|swr", renderer, re.IGNORECASE))
    return DeviceInfo(
        spec=f"opengl:{index}",
        backend="opengl",
        name=renderer,
        vendor=vendor,
        driver=version,
        is_gpu=not software,
        index=index,
        memory_bytes=memory,
    )


def fingerprint_of(info: DeviceInfo, context: Context) -> Fingerprint:
    with context.current() as gl:
        glsl = (gl.glGetString(C.SHADING_LANGUAGE_VERSION) or b"").decode("utf-8", "replace")
    return Fingerprint(
        backend="opengl",
        vendor=info.vendor,
        model=info.name,
        driver=info.driver,
        compiler=f"glsl {glsl}" if info.is_gpu else f"glsl {glsl} rw",  # there `readonly` is removed before compiling
        architecture="" if info.is_gpu else cpu_identity(),
    )


def memory_of(gl: Any) -> tuple[int, int | None]:
    """Total and free bytes, from the driver if it tells, else the host's total."""
    total = gl.integer(C.GPU_MEMORY_INFO_TOTAL_NVX)
    free = gl.integer(C.GPU_MEMORY_INFO_FREE_NVX)
    if gl.glGetError() or total <= 0:
        while gl.glGetError():
            pass
        return system.memory_bytes(), None
    return total * 1024, free * 1024


def _probe_devices() -> list[tuple[DeviceInfo, Fingerprint]]:
    """Every EGL device that can do OpenGL 4.3; `DeviceError` says why there is none."""
    found = []
    reasons = []
    for index in range(count_devices()):
        try:
            context = Context(index, probing=True)
        except DeviceError as error:
            reasons.append(str(error))
            continue
        try:
            info = describe(index, context)
            found.append((info, fingerprint_of(info, context)))
        finally:
            context.close()
    if not found:
        raise DeviceError("; ".join(reasons))
    return found


def folders_by_family() -> dict[str, str]:
    """The GPU folder's name for each family of drivers, by its first device."""
    try:
        found = _probe_devices()
    except DeviceError:
        return {}
    return {family_of(info.vendor): fingerprint.folder for info, fingerprint in reversed(found)}


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every EGL device with OpenGL 4.3. If listing fixes the folder of the driver's cache, the folder is set first."""
    if must_be_set_first():
        set_default_folder(_BACKEND, cache_dir, folders_by_family)
    return [info for info, _ in _probe_devices()]


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> OpenGLDevice:
    """Open a device by index, by default the first GPU, else the first.

    The driver keeps its own compiled shaders in `driver_cache_dir`, by default in the GPU's folder under `cache_dir`.
    """
    from .device import OpenGLDevice  # which describes itself with this module

    if driver_cache_dir is not None:
        set_folder(driver_cache_dir)
    else:
        set_default_folder(_BACKEND, cache_dir, folders_by_family)
    if index is None:
        index = 0
        if count_devices() > 1:
            index = min((info for info, _ in _probe_devices()), key=lambda info: (not info.is_gpu, info.index)).index
    device = OpenGLDevice(index)
    if driver_cache_dir is None:
        _remember_if_changed(device)
    return device


def _remember_if_changed(device: OpenGLDevice) -> None:
    """After a driver update the folder has another name: store it for the next run."""
    used = device.driver_cache_dir
    if used is not None and used.parent.name != device.fingerprint.folder and used.name == "driver":
        remember(_BACKEND, used.parent.parent, {family_of(device.info.vendor): device.fingerprint.folder})
