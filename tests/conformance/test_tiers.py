"""Every tier keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.cache.tiers.remote import RemoteTier
from kernelkeep.cache.tiers.tier import Tier
from kernelkeep.remote.address import Remote
from kernelkeep.remote.signing import keys_for
from kernelkeep.testing import FaultyTier, TierTests
from kernelkeep.testing.faulty_tier import DictTier
from kernelkeep.testing.servers import NginxServer, RedisServer, S3Server


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


class _RemoteTests(TierTests):
    """Over a store, with a shared secret. Two busy cores get more time than a lookup's 0.1 s."""

    url: str

    @pytest.fixture(autouse=True)
    def own_namespace(self, namespace: str) -> None:
        self.namespace = namespace

    def make_tier(self, folder: Path) -> Tier:
        url = self.url.format(folder=folder)
        remote = Remote(url, namespace=self.namespace, signing_key=b"a shared secret", timeout_seconds=30)
        return RemoteTier(remote, keys_for(remote), "f" * 64)


class TestRedis(_RemoteTests):
    @pytest.fixture(autouse=True)
    def server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url


class TestNginx(_RemoteTests):
    @pytest.fixture(autouse=True)
    def server(self, nginx_server: NginxServer) -> None:
        if not nginx_server.listing:
            pytest.skip("nginx lists nothing without its dav-ext module")
        self.url = nginx_server.url


class TestS3(_RemoteTests):
    @pytest.fixture(autouse=True)
    def server(self, s3_server: S3Server) -> None:
        self.url = s3_server.url


class TestFolder(_RemoteTests):
    url = "file://{folder}/shared"

    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("obstore", reason="obstore is not installed: pip install 'kernelkeep[remote]'")
