"""Which backends a test run went without, and why."""

from __future__ import annotations

__all__ = ["note_skipped", "skipped_backends"]

_reasons: dict[str, str] = {}


def note_skipped(backend: str, reason: str) -> None:
    """Remember that a backend was skipped; the first reason stays."""
    _reasons.setdefault(backend, reason)


def skipped_backends() -> dict[str, str]:
    """Every backend skipped so far in this process, with its reason."""
    return dict(_reasons)
