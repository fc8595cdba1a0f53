"""Checks of what a backend needs."""

from __future__ import annotations

from kernelkeep.devices.requirements import check
from kernelkeep.errors import DeviceError


def test_how_to_get_it_is_said_once() -> None:
    def look() -> str:
        raise DeviceError("X needs y, which cannot be loaded; install it with: pip install y")

    found = check("y", look, "pip install y")
    assert found.found == "X needs y, which cannot be loaded" and found.fix == "pip install y"
