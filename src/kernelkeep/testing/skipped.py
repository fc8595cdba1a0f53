"""Which backends a test run went without, and why."""

from __future__ import annotations

from typing import NoReturn

import pytest

from .. import settings
from ..devices.base import Device
from ..devices.registry import open_device
from ..errors import DeviceError

__all__ = ["note_skipped", "open_or_skip", "skip_backend", "skipped_backends"]

_reasons: dict[str, str] = {}


def note_skipped(backend: str, reason: str) -> None:
    """Remember that a backend was skipped; the first reason stays."""
    _reasons.setdefault(backend, reason)


def skip_backend(backend: str, reason: str) -> NoReturn:
    """Skip the test for want of a backend, loudly; fail it where KERNELKEEP_REQUIRE names the backend."""
    if backend in settings.required_backends():
        pytest.fail(f"KERNELKEEP_REQUIRE names {backend}: {reason}", pytrace=False)
    note_skipped(backend, reason)
    pytest.skip(f"{backend}: {reason}")


def open_or_skip(backend: str, spec: str | None = None) -> Device:
    """The backend's device, or the test is skipped."""
    try:
        return open_device(spec or backend)
    except DeviceError as error:
        skip_backend(backend, str(error))


def skipped_backends() -> dict[str, str]:
    """Every backend skipped so far in this process, with its reason."""
    return dict(_reasons)
