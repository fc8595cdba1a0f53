"""No secret is shown: planted ones are searched for in everything that is printed, logged, warned about or raised."""

from __future__ import annotations

import http.server
import logging
import pprint
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from rich.pretty import pretty_repr

import kernelkeep as kk
from kernelkeep.remote.address import open_store, parse_remotes
from kernelkeep.remote.key_files import shared_line
from kernelkeep.remote.keys import PrivateKey
from kernelkeep.remote.signing import keys_for, make_keys
from kernelkeep.testing.servers import RedisServer

SECRET = "planted-secret"
KEY = b"planted-secret signing key"


def shown_forms(value: object) -> str:
    """A value in all the ways in which programs print one."""
    console = Console(width=1000)
    with console.capture() as captured:
        console.print(value)
        console.print_json(data=[str(value)])
    forms = [repr(value), str(value), f"{value}", pprint.pformat([value]), pretty_repr({"x": value}), captured.get()]
    return "\n".join(forms)


def raised(call: Callable[[], object]) -> str:
    """The traceback of what a call raises, which is always a `RemoteError`; empty where it raises nothing."""
    try:
        call()
    except kk.RemoteError as error:
        return "".join(traceback.format_exception(error)) + repr(error.args)
    return ""


class Reflecting(http.server.BaseHTTPRequestHandler):
    """Fails, and answers with what it was sent, as debugging servers do."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = f"{self.path} {self.headers} {self.rfile.read(length)!r}".encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_DELETE = do_PROPFIND = do_MKCOL = do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture(scope="module")
def reflecting() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reflecting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def locked_redis() -> Iterator[RedisServer]:
    with RedisServer("--requirepass", "another password") as server:
        yield server


def test_a_remote_shows_no_secret() -> None:
    remote = kk.Remote(f"redis://user:{SECRET}@host/0?x={SECRET}", signing_key=KEY)
    for value in (remote, [remote], {"remote": remote}, keys_for(remote)):
        assert SECRET not in shown_forms(value)
    with pytest.raises(TypeError):
        vars(remote)

    class Holder(msgspec.Struct):
        remote: kk.Remote

    assert SECRET not in repr(Holder(remote))


@pytest.mark.parametrize(
    "address",
    [
        f"redis://u:{SECRET}@host:port/0",
        f"redis://u:pl#{SECRET}@host/0",
        f"redis://u:1#{SECRET}@host/0",
        f"redis://u:pl/{SECRET}@host/0",
        f"redis://u:1/{SECRET}@host/0",
        f"redis://u:1?{SECRET}@host/0",
        f"u:{SECRET}@host",
        f"{SECRET}@host",
        f"other://u:{SECRET}@host",
        f"redis://[{SECRET}",
        f"redis://u:{SECRET}@host/0?timeout_seconds={SECRET}",
        f"redis://u:{SECRET}@host/0?namespace=..",
        f"redis://u:{SECRET}@",
    ],
)
def test_an_address_that_is_wrong_shows_no_secret(address: str) -> None:
    """Also where the password has characters that should have been escaped, or the beginning was forgotten."""
    try:
        found = parse_remotes(address)
    except kk.ArgumentError as error:
        said = "".join(traceback.format_exception(error))
        found = ()
    else:
        said = "".join(shown_forms(remote) + remote.location for remote in found)
    assert SECRET not in said
    assert "u:1" not in said and "u:pl" not in said


def failing_addresses(port: int, redis_port: int) -> list[str]:
    s3 = (
        f"&access_key_id={SECRET}-id&secret_access_key={SECRET}&session_token={SECRET}&allow_http=true&region=eu-west-1"
    )
    azure = f"account_name=account&allow_http=true&sas_key=sv%3D2020%26sig%3D{SECRET}"
    return [
        f"redis://user:{SECRET}@127.0.0.1:1/0",
        f"redis://user:{SECRET}@127.0.0.1:{redis_port}/0",
        f"redis://user:{SECRET}@127.0.0.1:{port}/0",
        f"redis://user:{SECRET}@127.0.0.1:1/0?an_option={SECRET}",
        f"rediss://user:{SECRET}@127.0.0.1:{redis_port}/0",
        f"http://user:{SECRET}@127.0.0.1:1/x",
        f"http://user:{SECRET}@127.0.0.1:{port}/x",
        f"s3://bucket/x?endpoint=http://127.0.0.1:1{s3}",
        f"s3://bucket/x?endpoint=http://127.0.0.1:{port}{s3}",
        f"s3://bucket/x?an_option={SECRET}",
        f"az://container/x?endpoint=http://127.0.0.1:{port}/account&{azure}",
        f"az://container/x?account_name=account&account_key={SECRET}!",
        f"gs://bucket/x?service_account_key={SECRET}",
    ]


def test_stores_that_fail_show_no_secret(
    reflecting: int, locked_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens there, the password is wrong, it is another kind of server, or it sends back what it was sent."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    failures = 0
    with caplog.at_level(logging.DEBUG):
        for address in failing_addresses(reflecting, locked_redis.port):
            store = open_store(kk.Remote(address, timeout_seconds=0.5))
            assert SECRET not in shown_forms(store) + store.location
            calls: tuple[Callable[[], object], ...] = (
                lambda store=store: store.get("name"),  # type: ignore[misc]
                lambda store=store: store.put("name", b"data"),  # type: ignore[misc]
                lambda store=store: list(store.list("")),  # type: ignore[misc]
                lambda store=store: store.get_many(["a", "b"]),  # type: ignore[misc]
            )
            said = "".join(raised(call) for call in calls)
            failures += said.count("kernelkeep.errors.RemoteError: ")
            assert SECRET not in said, address
            store.close()
    assert failures >= 45
    assert SECRET not in caplog.text


def test_keys_from_the_environment_do_not_come_back_from_a_server(
    reflecting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"sv=2020&sig={SECRET}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"{SECRET}-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    for address in (
        f"az://container/x?endpoint=http://127.0.0.1:{reflecting}/account&account_name=account&allow_http=true",
        f"s3://bucket/x?endpoint=http://127.0.0.1:{reflecting}&allow_http=true&region=eu-west-1",
    ):
        store = open_store(kk.Remote(address, timeout_seconds=2))
        for call in (store.get, lambda name, store=store: store.put(name, b"")):
            with pytest.raises(kk.RemoteError) as caught:
                call("name")
            assert "500" in str(caught.value)
            assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_keys_show_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    keyring = kk.Keyring()
    key = keyring.new("mine")
    pem = (keyring.folder / "own" / f"{key.id}.key").read_text().splitlines()[1]
    contents = keyring.load()
    said = "".join(map(shown_forms, (keyring, key, contents, contents.signer, make_keys(), make_keys(KEY))))
    assert key.id in said
    assert pem not in said and SECRET not in said
    # Whatever is wrong with a key file, the complaint shows none of it.
    file = tmp_path / "file"
    for text in (
        pem,
        f"-----BEGIN PRIVATE KEY-----\n{pem}x",
        shared_line(b"planted")[:25],
        PrivateKey.generate().pem().decode()[:90],
    ):
        file.write_text(text)
        file.chmod(0o600)
        with pytest.raises(kk.ArgumentError) as caught:
            make_keys(file)
        said = "".join(traceback.format_exception(caught.value))
        assert text not in said and text.splitlines()[-1] not in said


def test_a_secret_given_as_a_text_is_not_repeated() -> None:
    with pytest.raises(kk.ArgumentError) as caught:
        keys_for(kk.Remote("redis://host/0", signing_key=SECRET))
    assert SECRET not in str(caught.value)
