"""Every store keeps the contract, on the real server; for s3:// that is moto's."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import ipaddress
import os
import threading
import time
from pathlib import Path

import pytest

from kernelkeep.errors import RemoteError
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.store import Store
from kernelkeep.remote.store_process import ProcessStore
from kernelkeep.testing import StoreTests
from kernelkeep.testing.servers import NginxServer, RedisServer, S3Server, free_port

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'kernelkeep[remote]'")
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
    many = 150  # moto takes several milliseconds for each

    @pytest.fixture(autouse=True)
    def server(self, s3_server: S3Server) -> None:
        self.url = s3_server.url

    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote(self.url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))


class TestFolder(StoreTests):
    def make_store(self, folder: Path, namespace: str) -> Store:
        return open_store(Remote((folder / "shared folder").as_uri(), namespace=namespace))


def test_a_folder_asked_by_a_process(tmp_path: Path) -> None:
    """As a forked process has it: every call, and the process is started again when it has ended."""
    store = ProcessStore(Remote(tmp_path.as_uri(), namespace="", timeout_seconds=PATIENT_SECONDS), conditional=True)
    store.put("a/b", b"x" * 100_000)
    assert store.get("a/b") == b"x" * 100_000 and store.get("a/c") is None
    version = store.create("a/c", b"1")
    assert version and store.create("a/c", b"2") is None
    assert store.get_versioned("a/c") == (b"1", version) and store.get_versioned("none") is None
    assert store.replace("a/c", b"22", version) and store.replace("a/c", b"333", version) is None
    assert store.get_many(["a/b", "a/c", "a/d"]) == {"a/b": b"x" * 100_000, "a/c": b"22"}
    assert sorted(store.list("a/")) == ["a/b", "a/c"]
    store.abort()
    with contextlib.suppress(RemoteError):  # the call that found it ended, if it was not seen before
        store.delete("a/b")
    store.delete("a/b")
    assert list(store.list("")) == ["a/c"]
    with pytest.raises(RemoteError, match="far too many"):
        store.get("a/" + "far too many letters" * 50)
    store.close()
    assert store.get("a/c") == b"22"
    store.close()


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


def test_redis_over_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    certificate, key = _self_signed(tmp_path)
    port = free_port()
    tls = {"tls-port": port, "tls-cert-file": certificate, "tls-key-file": key, "tls-auth-clients": "no"}
    with RedisServer(*(word for name, value in tls.items() for word in (f"--{name}", str(value)))):
        trusting = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"
        store = open_store(Remote(trusting, timeout_seconds=PATIENT_SECONDS))
        store.put("a", b"x")
        assert store.get("a") == b"x"
        with pytest.raises(RemoteError, match="CERTIFICATE_VERIFY_FAILED"):
            open_store(Remote(f"rediss://127.0.0.1:{port}/0", timeout_seconds=PATIENT_SECONDS)).get("a")


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(text)
    return folder / "cert.pem", folder / "key.pem"


def test_user_and_password_of_an_http_address_are_sent_and_never_shown(nginx_server: NginxServer) -> None:
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_error(403, "no")

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}/x"
        for url in (f"http://someone:hidden%20word@{host}", f"http://{host}?bearer_token=hiddentoken"):
            with pytest.raises(RemoteError, match="403") as caught:
                open_store(Remote(url, timeout_seconds=PATIENT_SECONDS)).get("a")
            assert "hidden" not in str(caught.value) and "someone" not in str(caught.value)
        server.shutdown()
    assert seen == ["Basic " + base64.b64encode(b"someone:hidden word").decode(), "Bearer hiddentoken"]


@pytest.mark.parametrize("kind", ["redis", "folder"])
def test_a_forked_child_never_hangs(kind: str, redis_server: RedisServer, tmp_path: Path, namespace: str) -> None:
    url = redis_server.url if kind == "redis" else tmp_path.as_uri()
    store = open_store(Remote(url, namespace=namespace, timeout_seconds=PATIENT_SECONDS))
    store.put("a", b"x")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if store.get("a") == b"x" else 1
        except RemoteError as error:
            code = 2 if "forked" in str(error) else 3
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if kind == "redis" else 2)
    assert store.get("a") == b"x"
