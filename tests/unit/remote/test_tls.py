"""Somebody between this machine and the store: a certificate that nobody vouches for ends the connection."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.remote.address import open_store
from kernelkeep.testing.servers import RedisServer
from kernelkeep.testing.servers.server import free_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that its owner signed, and the key to it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
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
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def redis_port(certificate: tuple[Path, Path]) -> Iterator[int]:
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", str(certificate[0]), "--tls-key-file", str(certificate[1])]
    try:
        server = RedisServer(*options, "--tls-ca-cert-file", str(certificate[0]), "--tls-auth-clients", "no")
    except RuntimeError as error:  # built without TLS
        pytest.skip(f"redis-server has no TLS: {error}")
    with server:
        yield port


@pytest.fixture(scope="module")
def https_port(certificate: tuple[Path, Path]) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(b"planted")

        def log_message(self, *_: object) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_redis_with_an_unknown_certificate_is_not_used(redis_port: int, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(kk.RemoteError, match=r"(?i)certificate"):
        open_store(kk.Remote(f"rediss://127.0.0.1:{redis_port}/0", timeout_seconds=10)).get("name")
    vouched = kk.Remote(f"rediss://127.0.0.1:{redis_port}/0?ssl_ca_certs={certificate[0]}", timeout_seconds=10)
    assert open_store(vouched).get("name") is None


def test_https_with_an_unknown_certificate_is_not_used(https_port: int) -> None:
    with pytest.raises(kk.RemoteError):
        open_store(kk.Remote(f"https://127.0.0.1:{https_port}/x", timeout_seconds=10)).get("name")
    careless = kk.Remote(f"https://127.0.0.1:{https_port}/x?allow_invalid_certificates=true", timeout_seconds=10)
    assert open_store(careless).get("name") == b"planted", "the server works; it was the certificate"
