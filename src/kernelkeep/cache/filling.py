"""GPU folders that are filled here for other machines, or with what comes from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..storage.private import Trust, default_trust, make_private_folder
from .gpu_folder import GpuFolder


def folder_to_fill(root: Path, name: str, fingerprint: dict[str, Any], trust: Trust | None = None) -> GpuFolder:
    """The folder of a GPU that need not be in this machine, created if missing. Raises `OSError`, often `NotPrivate`."""
    trust = trust or default_trust()
    make_private_folder(root, trust)
    folder = GpuFolder(root / name, trust)
    make_private_folder(folder.path, trust)
    folder.check_private()
    folder.prepare({"fingerprint": fingerprint}, used_here=False)
    return folder
