"""Signatures: what comes from outside this machine is opened with a key that is trusted here, or not at all.

What is stored is an envelope around the bytes:

    offset  size
    0       4     magic "KKSG"
    4       1     version, 1
    5       1     algorithm: 1 HMAC-SHA256, 2 Ed25519
    6       2     zero
    8       16    id of the key: the first bytes of SHA-256 over the public key, or over what the shared key derives
    24      8     when it was signed, and
    32      8     until when it holds; seconds since 1970, 0 for ever      little-endian, as all numbers here
    40      64    the signature; HMAC's 32 bytes are followed by zeros
    104           the bytes themselves

The signature is over a domain, the kind ("program", "tuning", "checkpoint", "bundle"), the name, the header and SHA-256 of
the bytes. The name of a program is the fingerprint of its device and the digest of its key: an envelope that is copied to
another name, another device or another kind does not open there. No decoder sees a byte before the signature holds.
"""

from __future__ import annotations

from ..storage.files import Damaged


class Refused(Damaged):
    """What another machine stored is not trusted here. `kind`: unsigned, tampered, stranger, revoked, expired."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Keys:
    """The key that signs here, if any, and those that are trusted. `repr` shows ids only."""

    def seal(self, kind: str, name: str, data: bytes, ttl_seconds: float | None = None) -> bytes:
        """The bytes in a signed envelope; unchanged where there is no key and none is needed."""
        raise NotImplementedError

    def open(self, kind: str, name: str, data: bytes) -> bytes:
        """The bytes in an envelope whose signature holds; `Refused` says why not."""
        raise NotImplementedError
