"""The name of the program that runs."""

from __future__ import annotations

import os
import sys


def program_name() -> str:
    """The script, without its arguments: they may hold secrets."""
    path = (getattr(sys, "argv", None) or [""])[0]
    if path.endswith(("__main__.py", "__init__.py")):  # python -m package
        path = os.path.dirname(path)  # noqa: PTH120
    return os.path.basename(path)[:80] or "interactive"  # noqa: PTH119
