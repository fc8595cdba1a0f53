"""The files that keys are kept in, as `signing_key=` and `kernelkeep keys trust` take them.

    an Ed25519 private key    PEM (PKCS 8, without a password), as `kernelkeep keys new` and `openssl genpkey` write it
    an Ed25519 public key     PEM, or one line: kernelkeep-ed25519 <32 bytes in base64> <label>
    a shared secret           one line: kernelkeep-shared <12 bytes or more in base64>

A file that another user could have written is refused, and so is a secret that another user can read.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
import stat
from pathlib import Path

from ..errors import ArgumentError
from ..escaping import escaped
from ..platforms import system
from ..storage.files import Damaged, Untrusted, open_regular
from ..storage.private import Trust, default_trust
from .ed25519 import load_ed25519
from .keys import PUBLIC_LINE, SHORTEST_SECRET_BYTES, PrivateKey, PublicKey, SharedKey

SHARED_LINE = "kernelkeep-shared"
_SHARED = SHARED_LINE.encode()
_LARGEST_FILE_BYTES = 16384
LONGEST_LABEL = 100
_MOST_LINKS = 40  # as many as Linux follows


def parse_public(text: str) -> tuple[PublicKey, str]:
    """The key and the label in a public key's line or PEM; `Damaged` says what is wrong."""
    text = text.strip()
    if text.startswith("-----BEGIN PUBLIC KEY-----"):
        return _public_from_pem(text.encode("ascii", "replace")), ""
    if is_secret(text.encode("utf-8", "replace")):
        raise Damaged(
            "it is a secret key, which is not handed to others; take the line that `kernelkeep keys list` shows"
        )
    words = text.split(maxsplit=2)
    if len(words) < 2 or words[0] != PUBLIC_LINE or "\n" in text:
        raise Damaged(f"a public key must be one line that begins with {PUBLIC_LINE}")
    try:
        raw = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 32:
        raise Damaged(f"what follows {PUBLIC_LINE} must be 32 bytes in base64")
    return PublicKey(raw), (escaped(words[2])[:LONGEST_LABEL] if len(words) > 2 else "")


def parse_private(text: bytes) -> PrivateKey:
    """The key in a PEM file; `Damaged` says what is wrong, without showing any of it."""
    ed25519 = load_ed25519()
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
    ed25519 = load_ed25519()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        loaded = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        raise Damaged("it must be an Ed25519 public key") from None
    if not isinstance(loaded, ed25519.Ed25519PublicKey):
        raise Damaged("it is a public key of another kind; only Ed25519 is used here")
    return PublicKey(loaded.public_bytes_raw())


def parse_shared(text: str) -> SharedKey:
    """The shared secret in a line; `Damaged` says what is wrong, without showing any of it."""
    words = text.split(maxsplit=2)
    try:
        secret = base64.b64decode(words[1], validate=True)
        return SharedKey(secret)
    except (binascii.Error, ValueError, IndexError):
        pass
    raise Damaged(f"what follows {SHARED_LINE} must be {SHORTEST_SECRET_BYTES} bytes or more in base64")


def shared_line(secret: bytes) -> str:
    """The text of a file with a shared secret. It is secret."""
    return f"{SHARED_LINE} {base64.b64encode(secret).decode()}\n"


def read_key(path: str | os.PathLike[str]) -> SharedKey | PrivateKey | PublicKey:
    """The key in a file; `Damaged` or `OSError` says why it is not used. Links are followed, and each step is checked."""
    text, mode = read_key_file(path)
    if not is_secret(text):
        return parse_public(text.decode("utf-8", "replace"))[0]
    check_mode(mode)
    return parse_secret(text)


def parse_secret(text: bytes) -> SharedKey | PrivateKey:
    """The key in a file's text that `is_secret`; `Damaged` says what is wrong, without showing any of it."""
    return parse_shared(text.decode("utf-8", "replace")) if text.startswith(_SHARED) else parse_private(text)


def is_secret(text: bytes) -> bool:
    """Whether the text of a key file is that of a private key or a shared secret."""
    return text.startswith(_SHARED) or b"PRIVATE KEY-----" in text


def check_mode(mode: int) -> None:
    """`Damaged` where a file with this mode can be read by others."""
    if mode & system.OPEN_TO_OTHERS:
        raise Damaged(f"others may read this secret key (its mode is {stat.S_IMODE(mode):04o}); run chmod 600 on it")


def read_key_file(path: str | os.PathLike[str]) -> tuple[bytes, int]:
    """The text and the mode of a file that no other user can have written; `Damaged` or `OSError` says why it is not read."""
    trust = default_trust()
    with open_regular(_follow(Path(path), trust), follow_links=False, trust=trust) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        text = file.read(_LARGEST_FILE_BYTES + 1)
    if len(text) > _LARGEST_FILE_BYTES:
        raise Damaged("it is too large for a key")
    return text, mode


def _follow(path: Path, trust: Trust) -> Path:
    """Where a path leads. Every folder and link on the way must be one that no other user can have made or changed."""
    for _ in range(_MOST_LINKS):
        path = Path.cwd() / path
        trust.check_folder(path.parent)
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode):
            return path
        if objection := trust.objection(found):
            raise Untrusted(f"{path} {objection}")
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


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
        path.lstat()
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
