"""Finding and opening devices: the only place that knows which backends exist."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Protocol, cast

from .. import settings
from ..errors import ArgumentError, DeviceError
from . import forks

if TYPE_CHECKING:
    from .base import Device, DeviceInfo
    from .fingerprint import Fingerprint

__all__ = ["BACKENDS", "backend_module", "fingerprints_here", "list_devices", "open_device", "parse_spec"]

BACKENDS = ("cuda", "opencl", "opengl")
_Folder = str | os.PathLike[str] | None
_SPEC = re.compile(r"(cuda|opencl|opengl)(?::(\d+))?\Z")


class _Backend(Protocol):
    """What a backend's module offers the registry."""

    def list_devices(self, cache_dir: _Folder = None) -> list[DeviceInfo]:
        """The devices here. `DeviceError` says in one sentence why there are none."""
        ...

    def open_device(self, index: int | None = None, *, driver_cache_dir: _Folder, cache_dir: _Folder) -> Device:
        """Open a device by index, or the best one of this backend."""
        ...


def backend_module(name: str) -> _Backend:
    """The module of a backend; its GPU library is only imported inside its functions."""
    return cast(_Backend, importlib.import_module(f".{name}", __package__))


def list_devices(*, cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every usable device, the best first: CUDA, OpenCL GPU, OpenGL GPU, OpenCL CPU, OpenGL CPU.

    A backend that is not installed or has no device contributes nothing; `kernelkeep doctor` says why. `cache_dir` is the
    cache folder to be used later: NVIDIA's OpenGL driver must know it before it is asked anything. `DeviceError` in a process
    that was forked from one that had loaded a driver.
    """
    found = [info for name in BACKENDS for info in _list_backend(name, cache_dir)]
    return sorted(found, key=lambda info: (not info.is_gpu, BACKENDS.index(info.backend), info.index))


def open_device(
    spec: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    driver_cache_dir: str | os.PathLike[str] | None = None,
) -> Device:
    """Open "cuda", "cuda:0", "opencl:1", "opengl", …; without a spec $KERNELKEEP_DEVICE, else the best one here.

    An OpenGL driver keeps its own compiled shaders, by default in the GPU's folder of the cache. `cache_dir` names another
    cache folder, `driver_cache_dir` the very folder for the shaders. It can be chosen until the process's first OpenGL
    device; the other backends have no use for it.
    """
    folders = {"cache_dir": cache_dir, "driver_cache_dir": driver_cache_dir}
    spec = settings.device_spec() if spec is None else spec
    if spec is None:
        return _open_best(folders)
    backend, index = parse_spec(spec)
    forks.check_driver(backend)
    return backend_module(backend).open_device(index, **folders)


def parse_spec(spec: str) -> tuple[str, int | None]:
    """The backend and index of "cuda" or "opencl:1"."""
    match = _SPEC.match(spec) if isinstance(spec, str) else None
    if match is None:
        raise ArgumentError(
            f"{spec!r} is not a device: write {', '.join(BACKENDS)}, or one with an index, like opencl:1"
        )
    backend, index = match.groups()
    return backend, None if index is None else int(index)


def fingerprints_here(cache_dir: str | os.PathLike[str] | None = None) -> dict[str, list[Fingerprint]]:
    """The fingerprints of the devices here by backend; a backend that cannot be asked is left out.

    `DeviceError` where a device cannot be opened: it is here all the same.
    """
    found: dict[str, list[Fingerprint]] = {}
    for name in BACKENDS:
        module = backend_module(name)
        try:
            forks.check_driver(name)
            devices = module.list_devices(cache_dir)
        except DeviceError:
            continue
        found[name] = []
        for info in devices:
            try:
                with module.open_device(info.index, cache_dir=cache_dir, driver_cache_dir=None) as device:
                    found[name].append(device.fingerprint)
            except DeviceError as error:
                raise DeviceError(f"{info.spec} cannot be opened, so what is here cannot be told: {error}") from None
    return found


def _list_backend(name: str, cache_dir: _Folder = None) -> list[DeviceInfo]:
    forks.check_driver(name)  # or the best device would quietly be another one than in the parent
    try:
        return backend_module(name).list_devices(cache_dir)
    except DeviceError:
        return []


def _open_best(folders: dict[str, _Folder]) -> Device:
    failures: list[str] = []
    later: list[DeviceInfo] = []
    for name in BACKENDS:
        # BACKENDS is in order of preference, so the first GPU that opens is the best: look no further.
        devices = _list_backend(name, folders["cache_dir"])
        later.extend(info for info in devices if not info.is_gpu)
        for info in (info for info in devices if info.is_gpu):
            try:
                return backend_module(info.backend).open_device(info.index, **folders)
            except DeviceError as error:
                failures.append(f"{info.spec}: {error}")
    for info in later:
        try:
            return backend_module(info.backend).open_device(info.index, **folders)
        except DeviceError as error:
            failures.append(f"{info.spec}: {error}")
    reasons = "; ".join(failures) or "none was found; `kernelkeep doctor` says what is missing"
    raise DeviceError(f"no usable device ({reasons})")
