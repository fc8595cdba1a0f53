"""Which devices a person means by a spec such as "opencl" or "cuda:0"."""

from __future__ import annotations

import re

from ..devices.base import DeviceInfo
from ..devices.registry import BACKENDS, backend_module, list_devices
from ..errors import ArgumentError, DeviceError

__all__ = ["backends_of", "find_devices"]

_SPEC = re.compile(rf"({'|'.join(BACKENDS)})(:\d+)?\Z")


def backends_of(spec: str | None) -> tuple[str, ...]:
    """The backends a spec names: all of them for None."""
    if spec is None:
        return BACKENDS
    match = _SPEC.match(spec)
    if match is None:
        names = ", ".join(BACKENDS)
        raise ArgumentError(f"{spec!r} is not a device: write {names}, or one with an index, like opencl:1")
    return (match.group(1),)


def find_devices(spec: str | None = None) -> list[DeviceInfo]:
    """The devices a spec names, the best first: every one for None, all of a backend for "opencl", one for "opencl:0".

    None finds what there is, perhaps nothing. A spec that finds nothing is a `DeviceError` that says why.
    """
    if spec is None:
        return list_devices()
    (backend,) = backends_of(spec)
    of_backend = sorted(backend_module(backend).list_devices(), key=lambda info: (not info.is_gpu, info.index))
    found = [info for info in of_backend if spec in (info.backend, info.spec)]
    if not found:
        raise DeviceError(f"there is no device {spec}; {backend} has {len(of_backend)} here")
    return found
