"""What to import while a driver starts.

A driver takes a tenth of a second and more to start, and needs no Python for it. What a program imports meanwhile costs it no
time. `kernelkeep/__init__.py` names the modules that nearly every program with a device uses; who opens a device in another
way imports them when they are first used.
"""

from __future__ import annotations

import contextlib
import importlib

wanted: tuple[str, ...] = ()


def import_wanted() -> None:
    """Import the modules. One that cannot be imported says so where it is used."""
    for name in wanted:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
