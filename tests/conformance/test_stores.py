"""Every store keeps the contract, on the real server; for s3:// that is moto's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelkeep.errors import RemoteError
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.store import Store
from kernelkeep.testing import StoreTests
from kernelkeep.testing.servers import NginxServer, RedisServer, S3Server

PATIENT_SECONDS = 30.0  # two busy cores


class TestRedis(StoreTests):
    @pytest.fixture(autouse=True)
    def server(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote(self.url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))

    def test_what_is_past_its_time_is_gone(self, store: Store) -> None:
        store.put("short", b"x", ttl_seconds=0.05)
        store.put("long", b"x", ttl_seconds=1000)
        assert store.create("made", b"x", ttl_seconds=0.05)
        found = store.get_versioned("long")
        assert found is not None and store.replace("long", b"y", found.version, ttl_seconds=0.05)
        time.sleep(0.2)
        assert store.get_many(["short", "long", "made"]) == {}
        assert store.create("made", b"y")


class TestRedisSocket(StoreTests):
    @pytest.fixture(autouse=True)
    def server(self, redis_server: RedisServer) -> None:
        self.url = f"unix://{redis_server.socket_path}?db=1"

    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote(self.url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))


class TestNginx(StoreTests):
    @pytest.fixture(autouse=True)
    def server(self, nginx_server: NginxServer) -> None:
        self.url, self.lists = f"{nginx_server.url}/some%20where/deep", nginx_server.listing

    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote(self.url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))


class TestS3(StoreTests):
    @pytest.fixture(autouse=True)
    def server(self, s3_server: S3Server) -> None:
        self.url = s3_server.url

    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote(self.url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))


class TestFolder(StoreTests):
    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote((folder / "shared folder").as_uri(), namespace=namespace))


def test_namespaces_are_kept_apart(redis_server: RedisServer, tmp_path: Path, namespace: str) -> None:
    for url in (redis_server.url, tmp_path.as_uri()):
        mine = open_store(Remote(url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))
        other = open_store(Remote(url, namespace=f"{namespace}-2", timeout_seconds=PATIENT_SECONDS))
        mine.put("a", b"mine")
        assert other.get("a") is None and list(other.list("")) == []


def test_a_server_that_cannot_list_says_what_to_do(nginx_server: NginxServer) -> None:
    with NginxServer(listing=False) as server:
        store = open_store(Remote(server.url, timeout_seconds=PATIENT_SECONDS))
        store.put("a", b"x")
        with pytest.raises(RemoteError, match="PROPFIND"):
            list(store.list(""))
