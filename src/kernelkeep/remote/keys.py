"""The keys that sign and verify: a shared secret for HMAC-SHA256, or a pair for Ed25519.

Every key has an id, 16 bytes in hexadecimal, which tells nothing about a secret beyond a way to test a guess of it. That is
why a shared secret should be random.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import ArgumentError
from .ed25519 import load_ed25519, make_verifier

HMAC_SHA256 = 1
ED25519 = 2
SHORTEST_SECRET_BYTES = 12
PUBLIC_LINE = "kernelkeep-ed25519"


class Verifier(Protocol):
    """A key that verifies signatures."""

    @property
    def id(self) -> str: ...
    @property
    def algorithm(self) -> int: ...
    def verify(self, message: bytes, signature: bytes) -> bool: ...


class Signer(Verifier, Protocol):
    """A key that also signs."""

    def sign(self, message: bytes) -> bytes: ...


class SharedKey:
    """HMAC-SHA256 with a secret that all machines have. The secret itself is not kept, only what is derived from it."""

    __slots__ = ("_key", "id")
    algorithm = HMAC_SHA256

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SHORTEST_SECRET_BYTES:
            raise ArgumentError(
                f"signing_key must have at least {SHORTEST_SECRET_BYTES} bytes, got {len(secret)}; "
                "take 32 random ones: secrets.token_bytes(32)"
            )
        root = hmac.digest(b"kernelkeep shared key 1", secret, "sha256")  # HKDF's two steps (RFC 5869)
        self._key = hmac.digest(root, b"sign\x01", "sha256")
        self.id = hmac.digest(root, b"id\x01", "sha256")[:16].hex()

    def sign(self, message: bytes) -> bytes:
        """32 bytes, and zeros to fill 64."""
        return hmac.digest(self._key, message, "sha256") + bytes(32)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether this key signed the message, in a time that tells nothing about the signature."""
        return hmac.compare_digest(self.sign(message), signature)

    def __repr__(self) -> str:
        return f"<SharedKey {self.id}>"

    def __reduce__(self) -> Any:
        raise TypeError("keys are not pickled; pass the secret or the file on")


class PublicKey:
    """An Ed25519 public key: 32 bytes. It verifies and signs nothing."""

    __slots__ = ("_verify", "id", "raw")
    algorithm = ED25519

    def __init__(self, raw: bytes) -> None:
        if len(raw) != 32:
            raise ArgumentError(f"an Ed25519 public key must have 32 bytes, got {len(raw)}")
        self.raw = raw
        self.id = hashlib.sha256(b"kernelkeep ed25519 1\0" + raw).digest()[:16].hex()
        self._verify: Callable[[bytes, bytes], bool] | None = None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the private key of this one signed the message."""
        if self._verify is None:
            self._verify = make_verifier(self.raw)
        return self._verify(message, signature)

    def line(self, label: str = "") -> str:
        """The key as one line of text, to hand to others."""
        return f"{PUBLIC_LINE} {base64.b64encode(self.raw).decode()} {label}".rstrip()

    def __repr__(self) -> str:
        return f"<PublicKey {self.id}>"


class PrivateKey:
    """An Ed25519 private key and its public one."""

    __slots__ = ("_loaded", "public")
    algorithm = ED25519

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        self.public = PublicKey(loaded.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> PrivateKey:
        """A new random key."""
        return cls(load_ed25519().Ed25519PrivateKey.generate())

    @property
    def id(self) -> str:
        """The public key's id."""
        return self.public.id

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        signature: bytes = self._loaded.sign(message)
        return signature

    def verify(self, message: bytes, signature: bytes) -> bool:
        """As the public key does."""
        return self.public.verify(message, signature)

    def pem(self) -> bytes:
        """The text of a key file. It is secret."""
        from cryptography.hazmat.primitives import serialization

        text: bytes = self._loaded.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return text

    def __repr__(self) -> str:
        return f"<PrivateKey {self.id}>"

    def __reduce__(self) -> Any:
        raise TypeError("keys are not pickled; pass the file on")
