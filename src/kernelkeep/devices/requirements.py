"""Checks of what a backend needs: each backend's `requirements.py` makes them, `kernelkeep doctor` prints them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `found` says what was seen, `fix` how to get what is missing."""

    what: str
    ok: bool
    found: str
    fix: str = ""


def check(what: str, look: Callable[[], str], fix: str) -> Check:
    """Call `look` for what is there; whatever it raises says why it is missing."""
    try:
        return Check(what, True, look())
    except Exception as error:  # a half-installed library raises anything: ImportError, OSError, RuntimeError, …
        return Check(what, False, first_line(error).removesuffix(f"; install it with: {fix}"), fix)


def check_package(module: str, package: str, fix: str) -> Check:
    """Whether a Python package can be imported, and its version."""

    def look() -> str:
        loaded = importlib.import_module(module)
        return f"version {getattr(loaded, '__version__', None) or getattr(loaded, 'VERSION_TEXT', 'unknown')}"

    return check(f"the Python package {package}", look, fix)


def first_line(error: Exception) -> str:
    """The first line of an error: a compiler's or driver's message may have many."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
