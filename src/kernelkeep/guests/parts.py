"""What a process has of a guest's cache for itself. A forked child opens its own."""

from __future__ import annotations

from pathlib import Path

from .. import settings
from ..cache.chain import TierChain
from ..cache.tiers.disk import DiskTier
from ..devices.fingerprint import Fingerprint
from ..storage.private import Trust
from .counts import GuestCounts
from .turns import Turns


class Parts:
    """The tiers, the turns to compile, and the counts."""

    __slots__ = ("asked", "chain", "counts", "disk", "turns")

    def __init__(self, disk: DiskTier, chain: TierChain, guest: str, wait_seconds: float) -> None:
        self.disk = disk
        self.chain = chain
        self.turns = Turns(wait_seconds)
        self.asked: dict[str, float] = {}  # when each turn began
        self.counts = GuestCounts(guest, disk, chain)


def open_parts(fingerprint: Fingerprint, root: Path, max_disk_bytes: int, wait_seconds: float) -> Parts:
    """Open the folder, and the shared stores that KERNELKEEP_REMOTE names."""
    trust = Trust(settings.trusted_owner())
    facts = fingerprint.facts
    disk = DiskTier(root, fingerprint.folder, facts, max_disk_bytes, trust)
    far = []
    if settings.remotes():
        from ..cache.folder_description import FolderDescription
        from ..cache.remote_tiers import open_remote_tiers, resolve_remotes

        described = FolderDescription(fingerprint.folder, facts)
        far = open_remote_tiers(resolve_remotes(None, trust=trust), described)
    seconds = max((tier.remote.timeout_seconds for tier in far), default=settings.REMOTE_TIMEOUT_SECONDS)
    return Parts(disk, TierChain([disk, *far], seconds), fingerprint.model, wait_seconds)
