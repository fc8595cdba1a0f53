"""A chain whose only tier is a disk tier, as a `ProgramCache` has it, for tests without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..cache.chain import TierChain
from ..cache.entry import Entry
from ..cache.entry_files import Stored
from ..cache.gpu_folder import GpuFolder
from ..cache.tiers.disk import DiskTier, Pruned
from ..storage.private import Trust

__all__ = ["DiskChain"]


class DiskChain(TierChain):
    """The chain, with the calls of its disk tier that tests need."""

    def __init__(
        self, root: Path, folder: str, fingerprint: dict[str, Any], max_bytes: int, trust: Trust | None = None
    ) -> None:
        self.disk = DiskTier(root, folder, fingerprint, max_bytes, trust)
        self.root = root
        self.max_bytes = max_bytes
        self.count = self.disk.count
        self.find_name = self.disk.find_name
        super().__init__([self.disk])

    @property
    def folder(self) -> GpuFolder:
        """The GPU's folder."""
        return self.disk.folder

    def get(self, digest: str, name: str) -> Entry | None:
        """A verified entry."""
        found = self.find(digest, name)
        return None if found is None else found[0]

    def scan(self) -> Iterator[Stored]:
        """Every entry, verified."""
        return self.disk.folder.scan() if self.disk.usable else iter(())

    def prune(
        self,
        max_age_days: float | None = None,
        max_bytes: int | None = None,
        gone: Callable[[GpuFolder], bool] | None = None,
    ) -> Pruned:
        """Prune the whole cache folder."""
        return self.maintain(self.disk, lambda: self.disk.prune(max_age_days, max_bytes, gone), Pruned())

    def recount(self) -> tuple[int, int]:
        """The entries and bytes that are really there; they are written into the manifest too."""
        uses = self.disk.folder.recount()
        return len(uses), sum(use.nbytes for use in uses)
