"""Addresses of stores: what they may say, and that nothing shows their secrets."""

from __future__ import annotations

import pickle

import pytest

import kernelkeep as kk
from kernelkeep.remote.address import open_store, parse_remotes, secrets_in, without_secrets
from kernelkeep.remote.failures import Failures


def test_a_remote_takes_its_address_first() -> None:
    remote = kk.Remote("redis://host/0", namespace="team", read_only=True)
    assert (remote.url, remote.namespace, remote.read_only) == ("redis://host/0", "team", True)
    assert pickle.loads(pickle.dumps(remote)) == remote


def test_options_may_stand_in_the_address() -> None:
    text = "redis://host/0?namespace=team&read_only=1&ttl_seconds=86400&timeout_seconds=0.2&db=3&allow_unsigned=yes"
    (remote,) = parse_remotes(text)
    assert remote.url == "redis://host/0?db=3", "what is not ours goes to the store"
    assert (remote.namespace, remote.read_only, remote.allow_unsigned) == ("team", True, True)
    assert (remote.ttl_seconds, remote.timeout_seconds) == (86400, 0.2)


def test_several_remotes_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_REMOTE", raising=False)
    assert parse_remotes(None) == ()
    given = ["redis://host/0", kk.Remote("s3://bucket/x", timeout_seconds=1.0)]
    first, second = parse_remotes(given, timeout_seconds=0.5)
    assert (first.timeout_seconds, second.timeout_seconds) == (0.5, 1.0), "an option of its own stays"
    monkeypatch.setenv("KERNELKEEP_REMOTE", "redis://a/0, file:///b")
    assert [remote.url for remote in parse_remotes(None)] == ["redis://a/0", "file:///b"]
    assert parse_remotes([]) == (), "an empty list is none, whatever the variable says"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "remote must be"),
        ([5], "remote must be"),
        ("host", "must begin with one of"),
        ("ftp://host/x", "must begin with one of"),
        ("redis:///0", "must name a host"),
        ("s3:///x", "must name a host or a bucket"),
        ("file://shared/x", "three slashes"),
        ("redis://h/0?namespace=a/b", "namespace"),
        ("redis://h/0?namespace=..", "namespace"),
        ("redis://h/0?ttl_seconds=0", "ttl_seconds"),
        ("redis://h/0?timeout_seconds=nan", "timeout_seconds"),
        ("redis://h/0?timeout_seconds=x", "no usable value"),
        ("redis://h/0?read_only=perhaps", "no usable value"),
        ("redis://[h/0", "not an address"),
        (kk.Remote(5), "remote must have an address"),  # type: ignore[arg-type]
        (kk.Remote("redis://h/0", namespace=5), "namespace"),  # type: ignore[arg-type]
        (kk.Remote("redis://h/0", timeout_seconds="1"), "timeout_seconds"),  # type: ignore[arg-type]
    ],
)
def test_wrong_addresses_are_refused(given: object, said: str) -> None:
    with pytest.raises(kk.ArgumentError, match=said):
        parse_remotes(given)


SECRET = "redis://someone:pa%40ssword@host:1/0?key=verysecret&sig=a1b2"


def test_nothing_shows_the_secrets() -> None:
    assert without_secrets(SECRET) == "redis://host:1/0"
    assert set(secrets_in(SECRET)) >= {"someone", "pa%40ssword", "pa@ssword", "verysecret", "a1b2"}
    remote = kk.Remote(SECRET, signing_key=b"shared secret")
    said = Failures(remote).describe(ValueError(f"cannot open {SECRET} for someone with pa@ssword,\nand verysecret"))
    for text in (
        repr(remote),
        str(remote),
        *remote.__rich_repr__(),
        remote.location,
        said,
        open_store(remote).location,
    ):
        for secret in ("someone", "ssword", "secret", "a1b2"):
            assert secret not in text


def test_what_helps_to_find_a_mistake_is_shown() -> None:
    remote = kk.Remote("s3://b/x?endpoint=http://minio:9000&region=eu-1&secret_access_key=abcdef")
    said = Failures(remote).describe(ValueError("http://minio:9000 in eu-1 refuses abcdef"))
    assert said == "http://minio:9000 in eu-1 refuses …"
    inside = kk.Remote("s3://b/x?endpoint=http://me:hidden@minio:9000")
    assert "hidden" not in Failures(inside).describe(ValueError("http://me:hidden@minio:9000 fails"))


def test_a_wrong_address_in_an_error_shows_no_secret() -> None:
    with pytest.raises(kk.ArgumentError) as caught:
        parse_remotes("ftp://someone:password@host/x?key=abcdef")
    assert "password" not in str(caught.value) and "abcdef" not in str(caught.value)
