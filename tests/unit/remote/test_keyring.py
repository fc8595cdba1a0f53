"""The keyring: what is trusted, what is revoked, and that a damaged one trusts nobody."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.remote.key_files import shared_line
from kernelkeep.remote.keys import PrivateKey
from kernelkeep.remote.signing import Keys, Refused, make_keys
from kernelkeep.remote.trusted_keys import TrustedKeys

DATA = b"some bytes"
two_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kk.Keyring:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    return kk.Keyring()


def sealed_by(key: PrivateKey) -> bytes:
    return Keys(TrustedKeys(key)).seal("program", "n", DATA)


def opened(sealed: bytes) -> bytes | str:
    """What a program that starts now makes of it: the bytes, or the kind of the refusal."""
    try:
        return make_keys(allow_unsigned=True).open("program", "n", sealed)
    except Refused as error:
        return error.kind


def test_an_absent_keyring_is_empty_and_is_not_made(keyring: kk.Keyring) -> None:
    assert keyring.keys() == ()
    assert not keyring.folder.exists()


def test_new(keyring: kk.Keyring) -> None:
    key = keyring.new("build server")
    assert key.signs and key.own and key.is_trusted and key.label == "build server"
    assert key.line is not None and key.line.startswith("kernelkeep-ed25519 ") and key.line.endswith(" build server")
    assert keyring.keys() == (key,)
    keys = make_keys()
    assert keys.open("program", "n", keys.seal("program", "n", DATA)) == DATA
    with pytest.raises(kk.ArgumentError, match=rf"the key {key.id} signs here already; `kernelkeep keys rotate`"):
        keyring.new()


def test_files_are_private_under_any_umask(keyring: kk.Keyring) -> None:
    before = os.umask(0)
    try:
        keyring.new()
        keyring.trust(PrivateKey.generate().public.line("them"))
    finally:
        os.umask(before)
    paths = [keyring.folder, *keyring.folder.rglob("*")]
    assert len(paths) == 7
    for path in paths:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_trust_takes_a_line_or_a_file(keyring: kk.Keyring, tmp_path: Path) -> None:
    one, two = PrivateKey.generate(), PrivateKey.generate()
    (tmp_path / "two.pub").write_text(two.public.line("second"))
    assert opened(sealed_by(one)) == opened(sealed_by(two)) == "stranger"
    assert keyring.trust(one.public.line("first")).label == "first"
    assert keyring.trust(tmp_path / "two.pub", "renamed").label == "renamed"
    assert opened(sealed_by(one)) == opened(sealed_by(two)) == DATA
    assert not make_keys().can_seal


def test_trust_until(keyring: kk.Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    key = PrivateKey.generate()
    keyring.trust(key.public.line(), until=time.time() + 1000)
    sealed = sealed_by(key)
    assert opened(sealed) == DATA
    later = time.time() + 1001
    monkeypatch.setattr(time, "time", lambda: later)
    assert opened(sealed) == "expired"
    assert keyring.keys()[0].is_expired
    with pytest.raises(kk.ArgumentError, match="until must be a time in the future"):
        keyring.trust(key.public.line(), until=later - 1)


def test_revoke_wins_over_trust_always(keyring: kk.Keyring) -> None:
    key = PrivateKey.generate()
    keyring.trust(key.public.line())
    assert keyring.revoke(key.id[:6]).revoked
    assert opened(sealed_by(key)) == "revoked"
    with pytest.raises(kk.ArgumentError, match="was revoked and cannot be trusted again"):
        keyring.trust(key.public.line())
    # Nor does a file that somebody copies back, or damages.
    (keyring.folder / "revoked" / key.id).write_bytes(b"\0garbage")
    assert opened(sealed_by(key)) == "revoked"


def test_a_key_that_was_never_trusted_can_be_revoked(keyring: kk.Keyring) -> None:
    key = PrivateKey.generate()
    assert keyring.revoke(key.id).revoked
    assert opened(sealed_by(key)) == "revoked"
    for wrong in ("abc", "x" * 32, "0123456", ""):
        with pytest.raises(kk.ArgumentError):
            keyring.revoke(wrong)


def test_a_revoked_key_signs_nothing_and_its_secret_is_removed(keyring: kk.Keyring) -> None:
    key = keyring.new()
    keyring.revoke(key.id)
    assert not list((keyring.folder / "own").iterdir())
    assert not make_keys(allow_unsigned=True).open("program", "n", b"") and keyring.load().signer is None
    with pytest.raises(kk.ArgumentError, match="signing_key must be given"):
        make_keys()
    assert keyring.new().id != key.id


def test_rotate(keyring: kk.Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    first = keyring.new("server")
    sealed = make_keys().seal("program", "n", DATA)
    new, old = keyring.rotate(keep_days=2)
    assert new.signs and new.label == "server" and new.id != first.id
    assert old.id == first.id and not old.signs and not old.own and old.is_trusted
    assert opened(sealed) == DATA
    assert new.id in repr(make_keys())
    later = time.time() + 2 * 86400 + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert opened(sealed) == "expired"


def test_rotate_needs_a_key(keyring: kk.Keyring) -> None:
    with pytest.raises(kk.ArgumentError, match="no key signs here"):
        keyring.rotate()
    keyring.new()
    with pytest.raises(kk.ArgumentError, match="keep_days must be 0 or more, got -1"):
        keyring.rotate(keep_days=-1)


def test_a_shared_secret_in_the_keyring(keyring: kk.Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = keyring.new("all of us", shared=True)
    assert key.algorithm == "hmac-sha256" and key.line is None and key.signs
    sealed = make_keys().seal("program", "n", DATA)
    secret = keyring.folder / "own" / f"{key.id}.key"
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "another machine"))
    assert kk.Keyring().trust(secret).signs
    assert opened(sealed) == DATA
    new, old = kk.Keyring().rotate()
    assert new.algorithm == "hmac-sha256" and old.is_trusted and opened(sealed) == DATA
    secret.chmod(0o644)
    with pytest.raises(kk.ArgumentError, match="others may read this secret key"):
        kk.Keyring().trust(secret)
    with pytest.raises(kk.ArgumentError, match="others may read this secret key"):
        kk.Keyring().trust(shared_line(b"in the history of a shell"))


def test_a_private_key_cannot_be_trusted_by_mistake(keyring: kk.Keyring, tmp_path: Path) -> None:
    pem = PrivateKey.generate().pem()
    (tmp_path / "key").write_bytes(pem)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(kk.ArgumentError, match="it is a private key, which stays where it was made"):
        keyring.trust(tmp_path / "key")


# --- damage


def test_a_damaged_file_is_refused_and_the_others_stay_usable(keyring: kk.Keyring) -> None:
    one, two = PrivateKey.generate(), PrivateKey.generate()
    keyring.trust(one.public.line())
    keyring.trust(two.public.line())
    file = keyring.folder / "trusted" / f"{one.id}.json"
    whole = file.read_bytes()
    other = (keyring.folder / "trusted" / f"{two.id}.json").read_bytes()
    for damaged in (
        b"",
        whole[:-1],
        b"\xff" * 40,
        b"[" * 10000,
        other,
        whole.replace(b"kernelkeep-ed25519", b"x"),
        b"{}",
        b"x" * 20000,
    ):
        file.write_bytes(damaged)
        with pytest.warns(kk.CacheWarning, match=f"{one.id}.json is not used"):
            assert opened(sealed_by(one)) == "stranger"
        with pytest.warns(kk.CacheWarning):
            assert opened(sealed_by(two)) == DATA
        assert len(keyring.load().problems) == 1


def test_files_of_other_names_are_mentioned(keyring: kk.Keyring) -> None:
    keyring.new()
    (keyring.folder / "revoked").mkdir(mode=0o700)
    (keyring.folder / "revoked" / "ABCDEF").write_bytes(b"")
    assert any("its name is not that of a key" in problem for problem in keyring.load().problems)


def test_a_damaged_signing_key_signs_nothing(keyring: kk.Keyring) -> None:
    key = keyring.new()
    sealed = make_keys().seal("program", "n", DATA)
    file = keyring.folder / "own" / f"{key.id}.key"
    good = file.read_bytes()
    other = PrivateKey.generate().pem()
    for damaged in (b"", good[:40], other):
        file.write_bytes(damaged)
        keys = make_keys()
        assert keys.open("program", "n", sealed) == DATA
        with pytest.raises(kk.RemoteError, match="cannot sign"):
            keys.seal("program", "n", DATA)
    file.write_bytes(good)
    file.chmod(0o644)
    with pytest.raises(kk.RemoteError, match="others may read this secret key"):
        make_keys().seal("program", "n", DATA)
    (keyring.folder / "signs").write_bytes(b"nonsense")
    with pytest.warns(kk.CacheWarning, match="nothing is signed"):
        assert not make_keys().can_seal


def closed_to(folder: Path) -> None:
    folder.chmod(0o777)


def a_file_instead(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.write_bytes(b"")


def a_link_that_leads_nowhere(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize("damage", [closed_to, a_file_instead, a_link_that_leads_nowhere])
@pytest.mark.parametrize("part", ["", "revoked", "trusted"])
def test_a_keyring_that_cannot_be_read_trusts_nobody(keyring: kk.Keyring, part: str, damage: object) -> None:
    """It is never taken for an empty one: then a revoked key would be trusted again, or unsigned bytes allowed."""
    keyring.new()
    keyring.revoke(PrivateKey.generate().id)
    keys = make_keys()
    sealed = keys.seal("program", "n", DATA)
    damage(keyring.folder / part)  # type: ignore[operator]
    with pytest.raises(kk.RemoteError, match="cannot be used"):
        keyring.load()
    with pytest.warns(kk.CacheWarning, match="nothing that others signed is used"):
        later = make_keys()
    with pytest.raises(Refused) as caught:
        later.open("program", "n", sealed)
    assert caught.value.kind == "stranger"
    with pytest.raises(kk.RemoteError, match="cannot be used"):
        later.seal("program", "n", DATA)
    with pytest.warns(kk.CacheWarning), pytest.raises(Refused):  # nor does a secret that was given help
        make_keys(b"a secret that all machines share").open("program", "n", sealed)


@two_users
def test_a_keyring_of_another_user_is_not_used(keyring: kk.Keyring) -> None:
    key = keyring.new()
    os.chown(keyring.folder / "trusted" / f"{key.id}.json", 12345, 12345)
    assert any("belongs to" in problem for problem in keyring.load().problems)
    os.chown(keyring.folder, 12345, 12345)
    with pytest.raises(kk.RemoteError, match="belongs to"):
        keyring.load()


@two_users
def test_a_keyring_that_cannot_be_seen_is_not_taken_for_an_empty_one(reachable_path: Path) -> None:
    keyring = kk.Keyring(reachable_path / "closed" / "keys")
    keyring.new()
    os.seteuid(12345)
    try:
        with pytest.raises(kk.RemoteError, match="cannot be used: Permission denied"):
            keyring.load()
    finally:
        os.seteuid(0)
    assert len(keyring.keys()) == 1


def test_users_without_a_home_have_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_KEYS_DIR", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    assert kk.Keyring().keys() == ()
    with pytest.raises(kk.RemoteError, match="cannot be written"):
        kk.Keyring().new()
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", "~nobody-like-this/keys")
    with pytest.raises(kk.ArgumentError, match="the folder of the keys must be a path"):
        kk.Keyring()


def test_a_running_process_notices_a_revocation(keyring: kk.Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    key = PrivateKey.generate()
    keyring.trust(key.public.line())
    sealed, keys = sealed_by(key), make_keys()
    assert keys.open("program", "n", sealed) == DATA
    keyring.revoke(key.id)
    later = time.monotonic() + 1.01
    monkeypatch.setattr(time, "monotonic", lambda: later)
    with pytest.raises(Refused) as caught:
        keys.open("program", "n", sealed)
    assert caught.value.kind == "revoked"


def test_a_running_process_notices_a_rotation_and_a_new_friend(
    keyring: kk.Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring.new()
    keys, friend = make_keys(), PrivateKey.generate()
    new, _ = keyring.rotate()
    keyring.trust(friend.public.line())
    later = time.monotonic() + 1.01
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert new.id in repr(keys)
    assert keys.open("program", "n", sealed_by(friend)) == DATA
