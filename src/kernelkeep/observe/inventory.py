"""Which devices a person means by a spec such as "opencl" or "cuda:0", and which folders of a cache are theirs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import settings
from ..devices.registry import KINDS, backend_module, backend_names, list_devices, open_device, parse_spec
from ..errors import DeviceError

if TYPE_CHECKING:
    from ..devices.base import Device, DeviceInfo


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
        raise DeviceError(f"there is no device {spec}; {backend} has {len(of_backend)} here")
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
    """The names of the cache folders of the devices a spec names, which are opened for that; None, all, for None.

    `with_architectures`: also those of programs that were compiled ahead and that they can load.
    """
    if spec is None:
        return None
    found: set[str] = set()
    for info in find_devices(spec, cache_dir=cache_dir):
        with open_device(info.spec, cache_dir=cache_dir) as device:
            found.add(device.fingerprint.folder)
            if with_architectures:
                found.update(one.folder for one in device.architecture_fingerprints)
    return frozenset(found)
