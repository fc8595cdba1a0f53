"""Whether each backend has what it needs, and how to get what is missing: the work behind `kernelkeep doctor`.

The checks stop at the first thing that is missing, because what comes after depends on it. A backend is usable when one
of its devices really compiled and ran a small kernel and the result was right.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..devices.base import DeviceInfo
from ..devices.registry import backend_module, open_device
from ..devices.requirements import Check, first_line
from ..samples.basic import SAXPY
from .inventory import backends_of, find_devices
from .sample_runs import run_sample

__all__ = ["BackendHealth", "Check", "diagnose"]


@dataclass(frozen=True)
class BackendHealth:
    """A backend's checks, in the order in which they build on each other."""

    backend: str
    usable: bool
    devices: tuple[DeviceInfo, ...]
    checks: tuple[Check, ...]
    compiles_only: bool = False  # ahead of time, which works; it has no devices

    @property
    def interprets(self) -> bool:
        """Whether its devices only interpret kernels, far slower than a driver."""
        return bool(self.devices) and all(info.is_interpreter for info in self.devices)


def diagnose(spec: str | None = None, *, cache_dir: str | os.PathLike[str] | None = None) -> list[BackendHealth]:
    """Look at every backend, or at the one (or the one device) that `spec` names. Raises for a malformed spec only."""
    return [_examine(backend, spec, cache_dir) for backend in backends_of(spec)]


def _examine(backend: str, spec: str | None, cache_dir: str | os.PathLike[str] | None) -> BackendHealth:
    checks: list[Check] = []
    fix = ""
    try:  # whatever a broken module or driver raises is a finding here, not a crash
        module: Any = backend_module(backend)
        hint = getattr(module, "hint", "")
        fix = hint() if callable(hint) else hint
        for check in module.needs() if hasattr(module, "needs") else ():
            checks.append(check)
            if not check.ok:
                return BackendHealth(backend, False, (), tuple(checks))
        if getattr(module, "compiles_only", False):
            return BackendHealth(backend, False, (), tuple(checks), compiles_only=True)
        devices = tuple(find_devices(spec or backend))
        checks.append(Check("a device", True, ", ".join(info.name for info in devices)))
        checks.extend(module.device_needs(devices) if hasattr(module, "device_needs") else ())
    except Exception as error:
        checks.append(Check("a device", False, first_line(error), fix))
        return BackendHealth(backend, False, (), tuple(checks))
    runs = [_runs(info, cache_dir) for info in devices]
    return BackendHealth(backend, any(check.ok for check in runs), devices, (*checks, *runs))


def _runs(info: DeviceInfo, cache_dir: str | os.PathLike[str] | None) -> Check:
    what = f"{info.spec} runs a kernel"
    try:
        with open_device(info.spec, cache_dir=cache_dir) as device:
            run = run_sample(device, SAXPY, launches=0)
    except Exception as error:
        return Check(what, False, first_line(error))
    return Check(what, run.ok, run.problem or "compiled, ran and gave the right result")
