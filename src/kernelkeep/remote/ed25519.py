"""Ed25519 by libraries: cryptography makes keys, signs and verifies; libsodium, where it is installed, verifies twice as fast."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ..errors import Unsupported
from ..installation import install_command

_SODIUM = ("libsodium.so.23", "libsodium.so.26")  # their function for this is the same
SIGNATURE_BYTES = 64
PUBLIC_BYTES = 32


def load_ed25519() -> Any:
    """The module of the library cryptography; `Unsupported` names the extra."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Unsupported(
            "remote", f"Ed25519 keys need the library cryptography: {install_command('remote')}"
        ) from None
    return ed25519


def make_verifier(public: bytes) -> Callable[[bytes, bytes], bool]:
    """A function of a message and a signature: whether the private key of this public one signed the message."""
    if len(public) != PUBLIC_BYTES:
        raise ValueError("an Ed25519 public key has 32 bytes")
    function = find_libsodium()
    if function is None:
        return _with_cryptography(public)

    def verify(message: bytes, signature: bytes) -> bool:
        # The function is given no length of the signature and reads as much as it should have.
        return len(signature) == SIGNATURE_BYTES and function(signature, message, len(message), public) == 0

    return verify


def _with_cryptography(public: bytes) -> Callable[[bytes, bytes], bool]:
    loaded = load_ed25519().Ed25519PublicKey.from_public_bytes(public)
    from cryptography.exceptions import InvalidSignature

    def verify(message: bytes, signature: bytes) -> bool:
        try:
            loaded.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return verify


@functools.cache
def find_libsodium() -> Any | None:
    """libsodium's function, if the system has the library."""
    for name in _SODIUM:
        try:
            library = ctypes.CDLL(name)
            function = library.crypto_sign_verify_detached
            if library.sodium_init() < 0:
                continue
        except (OSError, AttributeError):
            continue
        function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulonglong, ctypes.c_char_p)
        function.restype = ctypes.c_int
        return function
    return None
