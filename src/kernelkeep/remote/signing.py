"""Signatures: what comes from outside this machine is opened with a key that is trusted here, or not at all.

What is stored is an envelope around the bytes:

    offset  size
    0       4     magic "KKSG"
    4       1     version, 1
    5       1     algorithm: 1 HMAC-SHA256, 2 Ed25519
    6       2     zero
    8       16    id of the key
    24      8     when it was signed, and
    32      8     until when it holds; seconds since 1970, 0 for ever      little-endian, as all numbers here
    40      64    the signature; HMAC's 32 bytes are followed by zeros
    104           the bytes themselves

The signature is over a domain, the kind ("program", "tuning", "checkpoint", "bundle"), the namespace, the name, the first 40
bytes and SHA-256 of the contents. The name of a program is the fingerprint of its device and the digest of its key: an envelope
that is copied to another name, another device, another namespace or another kind does not open there. No decoder sees a
byte before the signature holds.

What a signature does not prove: that the contents are the newest under their name. Who can write to the store can bring
back an older envelope of the same name while it holds; `ttl_seconds` limits for how long.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..errors import ArgumentError, RemoteError
from ..storage.files import LARGEST_FILE, Damaged, open_regular
from .address import Remote
from .key_files import key_given
from .keyring import Keyring
from .keyring_files import Trusted
from .keys import PublicKey
from .trusted_keys import TrustedKeys

_HEADER = struct.Struct("<4sBBH16sQQ")
_MAGIC = b"KKSG"
HEAD_BYTES = _HEADER.size + 64
_DOMAIN = b"kernelkeep envelope 1\0"
_FOR_EVER = 0
_READ_BYTES = 1 << 20
# Clocks of machines differ. What was signed later than this by the clock here is not opened: one of the two clocks is
# wrong, and a clock that was set back would bring back what has expired.
CLOCK_TOLERANCE_SECONDS = 3600.0


class Refused(Damaged):
    """What another machine stored is not trusted here.

    `kind`: "unsigned", "tampered" (also: copied from another name), "stranger", "revoked", or "expired" (also: not yet valid).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return (Refused, (self.kind, str(self)))


KINDS_OF_REFUSAL = ("unsigned", "tampered", "stranger", "revoked", "expired")


class Keys:
    """Signs with the key that signs here, if any, and opens what trusted keys signed. Safe under threads."""

    def __init__(
        self,
        trusted: TrustedKeys,
        *,
        allow_unsigned: bool = False,
        namespace: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._trusted = trusted
        self.allow_unsigned = allow_unsigned
        self._namespace = namespace
        self._clock = clock or time.time

    @property
    def can_seal(self) -> bool:
        """Whether `seal` works: there is a key that signs, or nothing needs to be signed."""
        return self._trusted.now().signer is not None or self.allow_unsigned

    # --- whole bytes

    def seal(self, kind: str, name: str, data: bytes, ttl_seconds: float | None = None) -> bytes:
        """The bytes in a signed envelope; unchanged where there is no key and none is needed. `RemoteError` without a key."""
        return self.head(kind, name, hashlib.sha256(data).digest(), ttl_seconds) + data

    def open(self, kind: str, name: str, data: bytes) -> bytes:
        """The bytes in an envelope whose signature holds; `Refused` says why not."""
        if len(data) > LARGEST_FILE + HEAD_BYTES:
            raise Refused("tampered", f"it is far too large, {len(data):,} bytes")
        if data[:4] != _MAGIC:
            self._check_unsigned()
            return data
        contents = memoryview(data)[HEAD_BYTES:]
        self.check(kind, name, data[:HEAD_BYTES], lambda: hashlib.sha256(contents).digest())
        return bytes(contents)

    # --- files, which may be larger than memory

    def seal_file(
        self, kind: str, name: str, path: str | os.PathLike[str], ttl_seconds: float | None = None, *, start: int = 0
    ) -> bytes:
        """The `HEAD_BYTES` bytes that go before a file's contents, which begin at `start`; none where nothing is signed.

        Who writes the head into the file itself leaves room for it, and says `start=HEAD_BYTES`.
        """
        with open_regular(path) as file:
            file.seek(start)
            return self.head(kind, name, _digest_of_rest(file), ttl_seconds)

    def open_file(self, kind: str, name: str, file: str | os.PathLike[str] | BinaryIO) -> int:
        """Where the contents begin in a file whose signature holds: after the head, or at 0 in an unsigned one.

        `Refused` says why it is not opened. Reads the whole file. Nobody else may be able to change it afterwards: it should
        be in a private folder. An open file is read from its beginning, and is at its contents then.
        """
        if isinstance(file, str | os.PathLike):
            with open_regular(Path(file)) as opened:
                return self.open_file(kind, name, opened)
        file.seek(0)
        head = file.read(HEAD_BYTES)
        if head[:4] != _MAGIC:
            self._check_unsigned()
            file.seek(0)
            return 0
        self.check(kind, name, head, lambda: _digest_of_rest(file))
        file.seek(HEAD_BYTES)
        return HEAD_BYTES

    # --- what both are made of

    def head(self, kind: str, name: str, sha256: bytes, ttl_seconds: float | None = None) -> bytes:
        """The head of an envelope around contents with this SHA-256; empty where there is no key and none is needed."""
        state = self._trusted.now()
        if state.signer is None:
            if self.allow_unsigned and not state.problem:
                return b""
            raise RemoteError(
                state.problem or "no key signs here: make one with `kernelkeep keys new`, or pass signing_key="
            )
        now = self._clock()
        until = _FOR_EVER if ttl_seconds is None else max(1, math.ceil(now + ttl_seconds))
        key_id = bytes.fromhex(state.signer.id)
        header = _HEADER.pack(_MAGIC, 1, state.signer.algorithm, 0, key_id, max(0, int(now)), until)
        return header + state.signer.sign(self._message(kind, name, header, sha256))

    def check(self, kind: str, name: str, head: bytes, sha256: Callable[[], bytes]) -> None:
        """`Refused` unless a trusted key signed this head for contents with that SHA-256, and it still holds.

        `sha256` is called only if the head names a trusted key, so a stranger cannot have gigabytes hashed.
        """
        if head[:4] != _MAGIC:
            raise Refused("unsigned", "nobody signed it")
        if len(head) < HEAD_BYTES:
            raise Refused("tampered", f"it is cut off after {len(head)} bytes")
        header = head[: _HEADER.size]
        _, version, algorithm, zero, key_bytes, signed, until = _HEADER.unpack(header)
        if version != 1 or zero:
            raise Refused("tampered", f"its envelope has version {version}, and this version of kernelkeep reads 1")
        trusted = self._key(key_bytes.hex())
        message = self._message(kind, name, header, sha256())
        if trusted.key.algorithm != algorithm or not trusted.key.verify(message, head[_HEADER.size : HEAD_BYTES]):
            raise Refused("tampered", "its signature does not hold: it was changed, or copied from another name")
        now = self._clock()
        if signed > now + CLOCK_TOLERANCE_SECONDS:
            raise Refused(
                "expired", f"it was signed {signed - now:,.0f} s later than the clock here: one clock is wrong"
            )
        if until != _FOR_EVER and now >= until:
            raise Refused("expired", f"its signature held until {_date(until)}")

    def _key(self, key_id: str) -> Trusted:
        state = self._trusted.now()
        if key_id in state.revoked:
            raise Refused("revoked", f"it names the key {key_id}, which was revoked")
        trusted = state.trusted.get(key_id)
        if trusted is None:
            if state.problem:
                raise Refused("stranger", f"no key is trusted at the moment: {state.problem}")
            raise Refused("stranger", f"it names the key {key_id}, which is not trusted here")
        if trusted.until is not None and self._clock() >= trusted.until:
            raise Refused("expired", f"it names the key {key_id}, which was trusted until {_date(trusted.until)}")
        return trusted

    def _check_unsigned(self) -> None:
        if not self.allow_unsigned:
            raise Refused("unsigned", "nobody signed it")

    def _message(self, kind: str, name: str, header: bytes, sha256: bytes) -> bytes:
        parts = [_DOMAIN]
        for text in (kind, self._namespace, name):
            encoded = text.encode()
            parts += (len(encoded).to_bytes(4, "little"), encoded)
        return b"".join((*parts, header, sha256))

    def __repr__(self) -> str:
        state = self._trusted.now()
        signs = f"signs with {state.signer.id}" if state.signer is not None else "signs nothing"
        return f"<Keys: {signs}, {len(state.trusted)} trusted{', unsigned too' if self.allow_unsigned else ''}>"


def make_keys(signing_key: object = None, *, allow_unsigned: bool = False, namespace: str = "") -> Keys:
    """The key that `signing_key=` gives, with those of `kernelkeep keys`.

    `ArgumentError` where there are none at all and unsigned bytes are not allowed.
    """
    given = None if signing_key is None else key_given(signing_key)
    signer = None if isinstance(given, PublicKey) else given
    trusted = () if given is None else (Trusted(given),)
    all_keys = TrustedKeys(signer, trusted, keyring=Keyring())
    if all_keys.now().is_empty and not allow_unsigned:
        raise ArgumentError(
            "signing_key must be given where others can write: make a key with `kernelkeep keys new`, pass the bytes of a shared "
            "secret, or say allow_unsigned=True if everyone who can write there may run programs here"
        )
    return Keys(all_keys, allow_unsigned=allow_unsigned, namespace=namespace)


def keys_for(remote: Remote) -> Keys:
    """The keys for a shared store: those of its options, and those of `kernelkeep keys`."""
    try:
        return make_keys(remote.signing_key, allow_unsigned=remote.allow_unsigned, namespace=remote.namespace)
    except ArgumentError as error:
        raise ArgumentError(f"remote {remote.location}: {error}") from None


def _digest_of_rest(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()  # `hashlib.file_digest` takes a BytesIO from its beginning, wherever it is
    while part := file.read(_READ_BYTES):
        digest.update(part)
    return digest.digest()


def _date(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "a time that makes no sense"
