"""What EGL devices there are, what each is, and opening one with its driver's cache in place (`driver_cache.py`)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ..base import DeviceInfo
from ..fingerprint import Fingerprint, cpu_identity
from .context import Context, count_devices
from .driver_cache import family_of, must_be_placed_first, place, place_by_default, remember
from .libgl import Constants as C

if TYPE_CHECKING:
    from .device import OpenGLDevice

__all__ = ["describe", "fingerprint_of", "folders_by_family", "list_devices", "memory_of", "open_device"]


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
        compiler=f"glsl {glsl}" if info.is_gpu else f"glsl {glsl} rw",  # what is compiled never says `readonly` there
        architecture="" if info.is_gpu else cpu_identity(),
    )


def memory_of(gl: Any) -> tuple[int, int | None]:
    """Total and free bytes, from the driver where it says, else the host's total."""
    total = gl.integer(C.GPU_MEMORY_INFO_TOTAL_NVX)
    free = gl.integer(C.GPU_MEMORY_INFO_FREE_NVX)
    if gl.glGetError() or total <= 0:
        while gl.glGetError():
            pass
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    return total * 1024, free * 1024


def _look_round() -> list[tuple[DeviceInfo, Fingerprint]]:
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
        found = _look_round()
    except DeviceError:
        return {}
    return {family_of(info.vendor): fingerprint.folder for info, fingerprint in reversed(found)}


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every EGL device that can do OpenGL 4.3. Where looking already fixes it, the driver's cache is placed first."""
    if must_be_placed_first():
        place_by_default(cache_dir, folders_by_family)
    return [info for info, _ in _look_round()]


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
        place(driver_cache_dir)
    else:
        place_by_default(cache_dir, folders_by_family)
    if index is None:
        index = 0
        if count_devices() > 1:
            index = min((info for info, _ in _look_round()), key=lambda info: (not info.is_gpu, info.index)).index
    device = OpenGLDevice(index)
    if driver_cache_dir is None:
        _remember_if_changed(device)
    return device


def _remember_if_changed(device: OpenGLDevice) -> None:
    """After a driver update the folder has another name: know it next time."""
    used = device.driver_cache_dir
    if used is not None and used.parent.name != device.fingerprint.folder and used.name == "driver":
        remember(used.parent.parent, {family_of(device.info.vendor): device.fingerprint.folder})
