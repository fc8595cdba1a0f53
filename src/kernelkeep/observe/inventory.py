"""Which devices a person means by a spec such as "opencl" or "cuda:0", and which folders of a cache are theirs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import settings
from ..cache.tiers.disk import gpu_folders
from ..devices.registry import KINDS, backend_module, backend_names, list_devices, open_device, parse_spec
from ..devices.spec_hint import count_and_use
from ..errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from ..devices.base import Device, DeviceInfo

_FEWEST_LETTERS = 6  # of a folder's name or its digits


def backends_of(spec: str | None) -> tuple[str, ...]:
    """The backends a spec names: all of them for None, "gpu" and "cpu"."""
    if spec is None or spec in KINDS:
        return backend_names()
    return (parse_spec(spec)[0],)


def find_devices(spec: str | None = None, *, cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """The devices a spec names, the best first: every one for None, all of a backend for "opencl", one for "opencl:0", all
    GPUs for "gpu".

    None finds what there is, perhaps nothing. A spec that finds nothing is a `DeviceError` that says why.
    """
    if spec is None:
        return list_devices(cache_dir=cache_dir)
    if spec in KINDS:
        of_kind = [
            info
            for info in list_devices(cache_dir=cache_dir)
            if info.is_gpu == (spec == "gpu") and not info.is_interpreter
        ]
        if not of_kind:
            raise DeviceError(
                f"there is no {spec.upper()} here that can be used: `kernelkeep doctor` says what is missing"
            )
        return of_kind
    (backend,) = backends_of(spec)
    of_backend = sorted(backend_module(backend).list_devices(cache_dir), key=lambda info: (not info.is_gpu, info.index))
    found = [info for info in of_backend if spec in (info.backend, info.spec)]
    if not found:
        here = count_and_use(backend, len(of_backend))
        raise DeviceError(f"there is no device {spec}; {backend} has {here}")
    return found


def open_device_for(
    language: str, spec: str | None = None, *, cache_dir: str | os.PathLike[str] | None = None
) -> Device:
    """Open the device that `spec` or $KERNELKEEP_DEVICE names, else one of the preferred backend that takes the language."""
    named = spec or settings.device_spec()
    if named is not None:
        return open_device(named, cache_dir=cache_dir)
    refusals: list[DeviceError] = []
    for backend in backend_names():
        try:
            if getattr(backend_module(backend), "language", None) == language:
                return open_device(backend, cache_dir=cache_dir)
        except DeviceError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]
    raise DeviceError(f"no backend here takes {language}")


def target_of(spec: str, cache_dir: str | os.PathLike[str] | None = None) -> str:
    """The target of `compile_ahead` that a device here is one of, such as cuda:sm_90."""
    with open_device(spec, cache_dir=cache_dir) as device:
        if not device.architecture_fingerprints:
            raise DeviceError(f"{device.spec} does not run programs that were compiled ahead")
        return f"{device.backend}:{device.architecture_fingerprints[0].architecture}"


def folders_of(
    spec: str | None, *, cache_dir: str | os.PathLike[str] | None = None, with_architectures: bool = False
) -> frozenset[str] | None:
    """The names of the folders in a cache folder that a spec names; None, all, for None. No device need be here for it.

    "opencl" names every folder of that backend; a folder's name, an unmistakable beginning of it, or its last 12 digits name that
    one. "opencl:0" names the folder of a device that is here, which is opened for that; `with_architectures` also those of
    programs that were compiled ahead and that it can load.
    """
    if spec is None:
        return None
    kept = [folder.path.name for folder in gpu_folders(settings.cache_dir(cache_dir))]
    if spec in kept:
        return frozenset([spec])
    of_backend = [name for name in kept if name.startswith(f"{spec}_")]
    if len(of_backend) == 1 or (of_backend and spec in backend_names()):
        return frozenset(of_backend)
    alike = [name for name in kept if name.startswith(spec) or name.rpartition("_")[2].startswith(spec)]
    if len(spec) >= _FEWEST_LETTERS and len(alike) == 1:
        return frozenset(alike)
    if "_" in spec or (alike and len(spec) >= _FEWEST_LETTERS):
        found = f"{len(alike)} folders begin with it" if alike else "no folder has that name"
        raise ArgumentError(f"{spec!r} does not name a folder in {settings.cache_dir(cache_dir)}: {found}")
    if spec in backend_names():
        return frozenset()
    try:
        return device_folders(spec, cache_dir=cache_dir, with_architectures=with_architectures)
    except DeviceError as error:
        backend = spec.partition(":")[0]
        of_backend = [name for name in kept if name.startswith(f"{backend}_")]
        if not of_backend:
            raise
        raise DeviceError(
            f"{error}; {backend} without a number names what was kept for it, or name a folder, such as {of_backend[0]}"
        ) from None


def device_folders(
    spec: str, *, cache_dir: str | os.PathLike[str] | None = None, with_architectures: bool = False
) -> frozenset[str]:
    """The names of the folders of devices that are here, which are opened for that; a folder's whole name is taken as it is.

    `with_architectures`: also those of programs that were compiled ahead and that they can load.
    """
    if "_" in spec:
        return frozenset([spec])
    found: set[str] = set()
    for info in find_devices(spec, cache_dir=cache_dir):
        with open_device(info.spec, cache_dir=cache_dir) as device:
            found.add(device.fingerprint.folder)
            if with_architectures:
                found.update(one.folder for one in device.architecture_fingerprints)
    return frozenset(found)
