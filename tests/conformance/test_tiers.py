"""Every tier keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.cache.tiers.tier import Tier
from kernelkeep.testing import FaultyTier, TierTests
from kernelkeep.testing.faulty_tier import DictTier


class TestDisk(TierTests):
    def make_tier(self, folder: Path) -> Tier:
        return DiskTier(folder / "cache", "opencl_gpu_driver_compiler_0123456789ab", {"model": "GPU"}, 1 << 30)


class TestDict(TierTests):
    @pytest.fixture(autouse=True)
    def shared(self) -> None:
        self.entries: dict[str, bytes] = {}

    def make_tier(self, folder: Path) -> Tier:
        return DictTier(entries=self.entries)


class TestFaultyWithoutFaults(TestDict):
    def make_tier(self, folder: Path) -> Tier:
        return FaultyTier(super().make_tier(folder))


class TestFaultyOverDisk(TestDisk):
    def make_tier(self, folder: Path) -> Tier:
        return FaultyTier(super().make_tier(folder))
