"""The keys that sign and verify: a shared secret for HMAC-SHA256, or a pair for Ed25519; and the files they are kept in.

Files, as `signing_key=` takes them:

    an Ed25519 private key    PEM (PKCS 8, without a password), as `kernelkeep keys new` and `openssl genpkey` write it
    an Ed25519 public key     PEM, or one line: kernelkeep-ed25519 <32 bytes in base64> <label>

A file that another user could have written is refused, and so is a private key that another user can read.

Every key has an id, 16 bytes in hexadecimal, which tells nothing about a secret beyond a way to test a guess of it. That is
why a shared secret should be random.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import Any, Protocol

from ..errors import ArgumentError, Unsupported
from ..escaping import escaped
from ..storage.files import Damaged, open_regular
from ..storage.private import default_trust

HMAC_SHA256 = 1
ED25519 = 2
SHORTEST_SECRET_BYTES = 12
_LINE = "kernelkeep-ed25519"
_LARGEST_FILE_BYTES = 16384
_LONGEST_LABEL = 100


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

    __slots__ = ("_loaded", "id", "raw")
    algorithm = ED25519

    def __init__(self, raw: bytes) -> None:
        if len(raw) != 32:
            raise ArgumentError(f"an Ed25519 public key must have 32 bytes, got {len(raw)}")
        self.raw = raw
        self.id = hashlib.sha256(b"kernelkeep ed25519 1\0" + raw).digest()[:16].hex()
        self._loaded: Any = None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the private key of this one signed the message."""
        if self._loaded is None:
            self._loaded = _ed25519().Ed25519PublicKey.from_public_bytes(self.raw)
        from cryptography.exceptions import InvalidSignature

        try:
            self._loaded.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def line(self, label: str = "") -> str:
        """The key as one line of text, to hand to others."""
        return f"{_LINE} {base64.b64encode(self.raw).decode()} {label}".rstrip()

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
        return cls(_ed25519().Ed25519PrivateKey.generate())

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


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Unsupported(
            "remote", "Ed25519 keys need the library cryptography: pip install 'kernelkeep[remote]'"
        ) from None
    return ed25519


def parse_public(text: str) -> tuple[PublicKey, str]:
    """The key and the label in a public key's line or PEM; `Damaged` says what is wrong."""
    text = text.strip()
    if text.startswith("-----BEGIN PUBLIC KEY-----"):
        return _public_from_pem(text.encode("ascii", "replace")), ""
    if "PRIVATE KEY" in text:
        raise Damaged(
            "it is a private key, which is not handed to others; take the line that `kernelkeep keys list` shows"
        )
    words = text.split(maxsplit=2)
    if len(words) < 2 or words[0] != _LINE or "\n" in text:
        raise Damaged(f"a public key must be one line that begins with {_LINE}")
    try:
        raw = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise Damaged(f"what follows {_LINE} must be 32 bytes in base64")
    return PublicKey(raw), (escaped(words[2])[:_LONGEST_LABEL] if len(words) > 2 else "")


def parse_private(text: bytes) -> PrivateKey:
    """The key in a PEM file; `Damaged` says what is wrong, without showing any of it."""
    ed25519 = _ed25519()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        loaded = load_pem_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Damaged("it must be an Ed25519 private key in PEM, without a password") from None
    if not isinstance(loaded, ed25519.Ed25519PrivateKey):
        raise Damaged("it is a private key of another kind; only Ed25519 is used here")
    return PrivateKey(loaded)


def _public_from_pem(text: bytes) -> PublicKey:
    ed25519 = _ed25519()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        loaded = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        raise Damaged("it must be an Ed25519 public key") from None
    if not isinstance(loaded, ed25519.Ed25519PublicKey):
        raise Damaged("it is a public key of another kind; only Ed25519 is used here")
    return PublicKey(loaded.public_bytes_raw())


def read_key(path: str | os.PathLike[str]) -> PrivateKey | PublicKey:
    """The key in a file; `Damaged` or `OSError` says why it is not used. Links are followed, each step is checked."""
    real = Path(os.path.realpath(path))
    trust = default_trust()
    trust.check_folder(real.parent)
    with open_regular(real, follow_links=False, trust=trust) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        text = file.read(_LARGEST_FILE_BYTES + 1)
    if len(text) > _LARGEST_FILE_BYTES:
        raise Damaged("it is too large for a key")
    if b"PRIVATE KEY-----" not in text:
        return parse_public(text.decode("utf-8", "replace"))[0]
    if mode & 0o077:
        raise Damaged(f"others may read this private key (its mode is {mode:04o}); run chmod 600 on it")
    return parse_private(text)


def key_given(signing_key: object) -> SharedKey | PrivateKey | PublicKey:
    """The key that `signing_key=` means: bytes are a shared secret, a path is a key file. No error shows what was given."""
    if isinstance(signing_key, bytes | bytearray | memoryview):
        return SharedKey(bytes(signing_key))
    if not isinstance(signing_key, str | os.PathLike):
        raise ArgumentError(
            f"signing_key must be bytes, which are a shared secret, or the path of a key file, got a {type(signing_key).__name__}"
        )
    try:
        path = Path(signing_key).expanduser()
        if not path.exists():
            raise FileNotFoundError
    except (OSError, ValueError, RuntimeError):
        # A text may be a secret that was meant as bytes, so it is not repeated.
        raise ArgumentError(
            "signing_key must be bytes, which are a shared secret, or the path of a key file; there is no such file"
        ) from None
    try:
        return read_key(path)
    except (Damaged, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(f"signing_key names {path}, which cannot be used: {reason}") from None
