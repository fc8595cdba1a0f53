"""Child processes: they find this package, and end with their parent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .platforms import system

ORPHANED = 74  # the exit code of a child without a parent
_PACKAGE_PARENT = Path(__file__).resolve().parents[1]


def python_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for a Python process, with a PYTHONPATH on which it finds this very package."""
    paths = (str(_PACKAGE_PARENT), variables.get("PYTHONPATH", ""))
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def end_with(parent: int) -> None:
    """End when the parent dies, however it dies: at once on Linux, where the kernel sees to that."""
    system.die_with(parent, ORPHANED)
