"""Envelopes: what a trusted key signed under this name is opened; everything else is refused, and says why."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.entry import decode, encode
from kernelkeep.remote import ed25519
from kernelkeep.remote.keyring import Keyring
from kernelkeep.remote.keyring_files import Trusted
from kernelkeep.remote.keys import PrivateKey, SharedKey, Signer
from kernelkeep.remote.signing import (
    CLOCK_TOLERANCE_SECONDS,
    HEAD_BYTES,
    KINDS_OF_REFUSAL,
    Keys,
    Refused,
    keys_for,
    make_keys,
)
from kernelkeep.remote.trusted_keys import TrustedKeys
from kernelkeep.storage.files import Damaged
from kernelkeep.testing.entries import sample_entry

SECRET = b"a secret that all machines share"
ENTRY = sample_entry(1, size=400)
DATA = encode(ENTRY)
FINGERPRINT = hashlib.sha256(b"this GPU").hexdigest()
NAME = f"{FINGERPRINT}/{ENTRY.facts.key.digest}"
NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["hmac", "ed25519", "ed25519 with libsodium"])
def signer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Signer:
    if request.param == "ed25519":
        monkeypatch.setattr(ed25519, "find_libsodium", lambda: None)
    elif request.param != "hmac" and ed25519.find_libsodium() is None:
        pytest.skip("libsodium is not installed")
    return SharedKey(SECRET) if request.param == "hmac" else PrivateKey.generate()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(signer: Signer, clock: Clock) -> Keys:
    return Keys(TrustedKeys(signer), namespace="team", clock=clock)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    assert caught.value.kind in KINDS_OF_REFUSAL
    return caught.value.kind


def test_what_was_sealed_opens_unchanged(keys: Keys) -> None:
    for data in (b"", b"x", DATA, os.urandom(100_000)):
        sealed = keys.seal("program", NAME, data)
        assert len(sealed) == HEAD_BYTES + len(data)
        assert keys.open("program", NAME, sealed) == data


def test_no_flipped_byte_is_accepted(keys: Keys) -> None:
    sealed = keys.seal("program", NAME, DATA, ttl_seconds=1000)
    kinds = set()
    for place in range(len(sealed)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(sealed)
            changed[place] ^= flip
            kinds.add(refusal(lambda changed=bytes(changed): keys.open("program", NAME, changed)))  # type: ignore[misc]
    assert {"unsigned", "tampered", "stranger"} >= kinds


def test_no_truncated_envelope_is_accepted(keys: Keys) -> None:
    sealed = keys.seal("program", NAME, DATA)
    for length in range(len(sealed)):
        assert refusal(lambda cut=sealed[:length]: keys.open("program", NAME, cut)) in ("unsigned", "tampered")  # type: ignore[misc]


def test_no_appended_byte_is_accepted(keys: Keys) -> None:
    sealed = keys.seal("program", NAME, DATA)
    assert refusal(lambda: keys.open("program", NAME, sealed + b"\0")) == "tampered"
    assert refusal(lambda: keys.open("program", NAME, sealed + sealed)) == "tampered"


def test_an_envelope_does_not_open_elsewhere(keys: Keys, signer: Signer, clock: Clock) -> None:
    """Under another key, on another device, as another kind, in another namespace."""
    sealed = keys.seal("program", NAME, DATA)
    other_digest = f"{FINGERPRINT}/{hashlib.sha256(b'another program').hexdigest()}"
    other_device = f"{hashlib.sha256(b'another GPU').hexdigest()}/{ENTRY.facts.key.digest}"
    for kind, name in (("program", other_digest), ("program", other_device), ("tuning", NAME), ("program", "")):
        assert refusal(lambda kind=kind, name=name: keys.open(kind, name, sealed)) == "tampered"  # type: ignore[misc]
    elsewhere = Keys(TrustedKeys(signer), namespace="other", clock=clock)
    assert refusal(lambda: elsewhere.open("program", NAME, sealed)) == "tampered"


def test_the_parts_of_a_name_cannot_be_shifted(signer: Signer) -> None:
    """Kind, namespace and name are signed with their lengths: "ab" + "c" is not "a" + "bc"."""
    one, two, none = (Keys(TrustedKeys(signer), namespace=name) for name in ("ab", "a", ""))
    assert refusal(lambda: none.open("a", "bc", none.seal("ab", "c", DATA))) == "tampered"
    assert refusal(lambda: two.open("kind", "bc", one.seal("kind", "c", DATA))) == "tampered"


def test_a_head_with_other_fields_is_refused_even_if_it_is_signed(signer: Signer, clock: Clock) -> None:
    """What a later version may mean by them is not known here."""
    keys = Keys(TrustedKeys(signer), clock=clock)
    key_id = bytes.fromhex(signer.id)
    texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"kind", b"", b"name"))
    good = (1, signer.algorithm, 0)
    for fields in (good, (0, *good[1:]), (2, *good[1:]), (1, 3 - signer.algorithm, 0), (1, 9, 0), (*good[:2], 1)):
        header = struct.pack("<4sBBH16sQQ", b"KKSG", *fields, key_id, int(NOW), 0)
        message = b"kernelkeep envelope 1\0" + texts + header + hashlib.sha256(DATA).digest()
        sealed = header + signer.sign(message) + DATA
        if fields == good:
            assert keys.open("kind", "name", sealed) == DATA, "this is what is signed"
        else:
            assert refusal(lambda sealed=sealed: keys.open("kind", "name", sealed)) == "tampered"  # type: ignore[misc]


def test_expired(keys: Keys, clock: Clock) -> None:
    sealed = keys.seal("program", NAME, DATA, ttl_seconds=60)
    clock.now = NOW + 59
    assert keys.open("program", NAME, sealed) == DATA
    clock.now = NOW + 60
    assert refusal(lambda: keys.open("program", NAME, sealed)) == "expired"
    clock.now = NOW + 0.6
    short = keys.seal("program", NAME, DATA, ttl_seconds=0.1)
    assert keys.open("program", NAME, short) == DATA, "times are whole seconds, rounded up"
    forever = keys.seal("program", NAME, DATA)
    clock.now = NOW + 1e9
    assert keys.open("program", NAME, forever) == DATA


def test_a_clock_that_was_set_back(keys: Keys, clock: Clock) -> None:
    """A clock may be an hour behind the signer's. One that is further behind opens nothing, so nothing expired comes back."""
    sealed = keys.seal("program", NAME, DATA, ttl_seconds=60)
    clock.now = NOW - CLOCK_TOLERANCE_SECONDS
    assert keys.open("program", NAME, sealed) == DATA
    clock.now = NOW - CLOCK_TOLERANCE_SECONDS - 1
    assert refusal(lambda: keys.open("program", NAME, sealed)) == "expired"
    clock.now = 0.0  # a machine without a battery, before it has asked for the time
    assert refusal(lambda: keys.open("program", NAME, sealed)) == "expired"
    assert keys.open("program", NAME, keys.seal("program", NAME, DATA)) == DATA


def test_signatures_of_other_lengths_do_not_hold(signer: Signer) -> None:
    for signature in (b"", b"x" * 63, signer.sign(b"message") + b"\0", bytes(64)):
        assert not signer.verify(b"message", signature)


def test_a_key_that_nobody_trusts(keys: Keys, clock: Clock) -> None:
    for stranger in (PrivateKey.generate(), SharedKey(b"the secret of somebody else")):
        sealed = Keys(TrustedKeys(stranger), namespace="team", clock=clock).seal("program", NAME, DATA)
        assert refusal(lambda sealed=sealed: keys.open("program", NAME, sealed)) == "stranger"  # type: ignore[misc]


def test_the_id_of_a_trusted_key_does_not_help_a_stranger(keys: Keys, signer: Signer, clock: Clock) -> None:
    stranger = PrivateKey.generate() if isinstance(signer, PrivateKey) else SharedKey(b"the secret of somebody else")
    sealed = Keys(TrustedKeys(stranger), namespace="team", clock=clock).seal("program", NAME, DATA)
    forged = sealed[:8] + bytes.fromhex(signer.id) + sealed[24:]
    assert refusal(lambda: keys.open("program", NAME, forged)) == "tampered"


def test_algorithms_are_not_confused(clock: Clock) -> None:
    """The public key of Ed25519 is known to everybody. It must not work as the secret of HMAC."""
    private = PrivateKey.generate()
    victim = Keys(TrustedKeys(trusted=[Trusted(private.public)]), clock=clock)
    forger = Keys(TrustedKeys(SharedKey(private.public.raw)), clock=clock)
    sealed = forger.seal("program", NAME, DATA)
    assert refusal(lambda: victim.open("program", NAME, sealed)) == "stranger"
    forged = sealed[:8] + bytes.fromhex(private.id) + sealed[24:]
    assert refusal(lambda: victim.open("program", NAME, forged)) == "tampered"
    forged = forged[:5] + b"\x02" + forged[6:]
    assert refusal(lambda: victim.open("program", NAME, forged)) == "tampered"


def test_revoked(signer: Signer, clock: Clock) -> None:
    sealed = Keys(TrustedKeys(signer), clock=clock).seal("program", NAME, DATA)
    with pytest.warns(kk.CacheWarning, match="was revoked and signs nothing"):
        victim = Keys(TrustedKeys(signer, [Trusted(signer)], [signer.id]), clock=clock)
    assert refusal(lambda: victim.open("program", NAME, sealed)) == "revoked"
    assert not victim.can_seal
    assert TrustedKeys(trusted=[Trusted(signer)], revoked=[signer.id]).now().is_empty
    with pytest.raises(kk.RemoteError, match="no key signs here"):
        victim.seal("program", NAME, DATA)


def test_a_trust_that_ends(signer: Signer, clock: Clock) -> None:
    sealed = Keys(TrustedKeys(signer), clock=clock).seal("program", NAME, DATA)
    victim = Keys(TrustedKeys(trusted=[Trusted(signer, until=NOW + 10)]), clock=clock)
    assert victim.open("program", NAME, sealed) == DATA
    clock.now = NOW + 10
    assert refusal(lambda: victim.open("program", NAME, sealed)) == "expired"


def test_unsigned_is_refused_unless_it_is_allowed(signer: Signer) -> None:
    assert refusal(lambda: Keys(TrustedKeys(signer)).open("program", NAME, DATA)) == "unsigned"
    assert refusal(lambda: Keys(TrustedKeys()).open("program", NAME, b"")) == "unsigned"
    assert Keys(TrustedKeys(signer), allow_unsigned=True).open("program", NAME, DATA) == DATA


def test_allowing_unsigned_does_not_allow_a_broken_signature(signer: Signer) -> None:
    keys = Keys(TrustedKeys(signer), allow_unsigned=True)
    sealed = keys.seal("program", NAME, DATA)
    assert keys.open("program", NAME, sealed) == DATA
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        if place < 4:  # it no longer looks like an envelope, and no entry either
            with pytest.raises(Damaged):
                decode(keys.open("program", NAME, changed), ENTRY.facts.key.digest)
        else:
            assert refusal(lambda changed=changed: keys.open("program", NAME, changed)) in ("tampered", "stranger")  # type: ignore[misc]


def test_nothing_is_signed_where_unsigned_is_allowed_and_no_key_is_here() -> None:
    keys = make_keys(allow_unsigned=True)
    assert keys.seal("program", NAME, DATA) == DATA
    assert keys.can_seal


def test_a_public_key_verifies_and_signs_nothing(clock: Clock, tmp_path: Path) -> None:
    private = PrivateKey.generate()
    file = tmp_path / "them.pub"
    file.write_text(private.public.line("them"))
    keys = make_keys(file)
    assert not keys.can_seal
    assert keys.open("program", NAME, Keys(TrustedKeys(private)).seal("program", NAME, DATA)) == DATA
    with pytest.raises(kk.RemoteError, match="no key signs here"):
        keys.seal("program", NAME, DATA)


# --- files


def test_files(keys: Keys, tmp_path: Path) -> None:
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    plain.write_bytes(DATA * 1000)
    head = keys.seal_file("bundle", "b", plain)
    assert len(head) == HEAD_BYTES
    sealed.write_bytes(head + plain.read_bytes())
    assert keys.open_file("bundle", "b", sealed) == HEAD_BYTES
    assert keys.open("bundle", "b", sealed.read_bytes()) == plain.read_bytes()
    file = io.BytesIO(sealed.read_bytes())
    assert keys.open_file("bundle", "b", file) == HEAD_BYTES
    assert file.read() == plain.read_bytes()
    for place in (0, 5, 10, 30, 60, HEAD_BYTES, len(sealed.read_bytes()) - 1):
        changed = bytearray(sealed.read_bytes())
        changed[place] ^= 1
        (tmp_path / "changed").write_bytes(changed)
        refusal(lambda: keys.open_file("bundle", "b", tmp_path / "changed"))
    assert refusal(lambda: keys.open_file("bundle", "b", plain)) == "unsigned"
    assert refusal(lambda: keys.open_file("bundle", "another", sealed)) == "tampered"
    sealed.write_bytes(head[:50])
    assert refusal(lambda: keys.open_file("bundle", "b", sealed)) == "tampered"


def test_the_head_of_a_file_may_be_written_into_it_afterwards(keys: Keys, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    file.write_bytes(bytes(HEAD_BYTES) + DATA)
    head = keys.seal_file("bundle", "b", file, start=HEAD_BYTES)
    with file.open("r+b") as opened:
        opened.write(head)
    assert keys.open("bundle", "b", file.read_bytes()) == DATA


def test_an_unsigned_file_begins_at_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    file.write_bytes(DATA)
    keys = make_keys(allow_unsigned=True)
    assert keys.seal_file("bundle", "b", file) == b""
    assert keys.open_file("bundle", "b", file) == 0


def test_a_stranger_cannot_have_a_large_file_hashed(keys: Keys) -> None:
    sealed = Keys(TrustedKeys(PrivateKey.generate())).seal("bundle", "b", DATA)

    def fail() -> bytes:
        raise AssertionError("the contents were hashed")

    assert refusal(lambda: keys.check("bundle", "b", sealed[:HEAD_BYTES], fail)) == "stranger"


# --- which keys


def test_a_store_needs_keys_or_permission(tmp_path: Path) -> None:
    remote = kk.Remote(url="redis://user:pass-word@host/0")
    with pytest.raises(kk.ArgumentError, match="remote redis://host/0: signing_key must be given") as caught:
        keys_for(remote)
    assert "pass-word" not in str(caught.value)
    assert keys_for(kk.Remote(url="redis://host", allow_unsigned=True)).open("program", NAME, DATA) == DATA
    assert keys_for(kk.Remote(url="redis://host", signing_key=SECRET)).can_seal


def test_the_namespace_of_a_store_is_bound() -> None:
    ours, theirs = (keys_for(kk.Remote(url="redis://h", namespace=name, signing_key=SECRET)) for name in ("a", "b"))
    sealed = ours.seal("program", NAME, DATA)
    assert ours.open("program", NAME, sealed) == DATA
    assert refusal(lambda: theirs.open("program", NAME, sealed)) == "tampered"


def test_the_keyring_is_used_beside_the_key_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    own = Keyring().new("mine")
    from_keyring = make_keys()
    with_secret = make_keys(SECRET)
    assert with_secret.open("program", NAME, from_keyring.seal("program", NAME, DATA)) == DATA
    assert refusal(lambda: from_keyring.open("program", NAME, with_secret.seal("program", NAME, DATA))) == "stranger"
    Keyring().revoke(SharedKey(SECRET).id)
    with pytest.warns(kk.CacheWarning, match="was revoked and signs nothing"):
        assert not make_keys(SECRET).can_seal
    assert own.id in repr(from_keyring)


@pytest.mark.parametrize("secret", [b"", b"short", b"eleven byte"])
def test_short_secrets_are_refused(secret: bytes) -> None:
    with pytest.raises(kk.ArgumentError, match="signing_key must have at least 12 bytes, got"):
        make_keys(secret)


def test_errors_cross_processes() -> None:
    error = pickle.loads(pickle.dumps(Refused("expired", "it is old")))
    assert (error.kind, str(error)) == ("expired", "it is old")
