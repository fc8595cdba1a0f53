"""A compiled program as bytes: the driver's binary and the signatures of its kernels.

Drivers' binaries lack signatures (PoCL has no argument info for a loaded program, a cubin has sizes but no types). They are
stored beside the binary, so that a program loaded in another process checks arguments too.
"""

from __future__ import annotations

import msgspec

from ..errors import BinaryRejected
from ..programs.signature import KernelSignature

_MAGIC = b"KKI1"
_BYTES = (bytes, bytearray, memoryview)


class Binary(msgspec.Struct, frozen=True, gc=False):
    """`payload` is what the driver made; `form` says what that is, in the backend's own words ("cubin", "poclbin")."""

    backend: str
    form: str
    kernels: tuple[KernelSignature, ...]
    payload: bytes
    name: str = ""
    numbers: dict[str, int] = {}  # what else the backend must remember, such as OpenGL's binary format
    recipe: tuple[str, str] | None = None  # text and options, if a riper binary needs another build

    def encode(self) -> bytes:
        """The whole as bytes."""
        name = self.name.encode("utf-8", "replace").decode()  # it may come from an undecodable file name
        return _MAGIC + _encoder.encode(self if name == self.name else msgspec.structs.replace(self, name=name))

    @classmethod
    def decode(cls, data: bytes, backend: str) -> Binary:
        """Read a binary made for `backend`; anything else is `BinaryRejected`."""
        if not isinstance(data, _BYTES) or bytes(data[:4]) != _MAGIC:
            raise BinaryRejected("these bytes are not a program binary")
        try:
            binary = _decoder.decode(memoryview(data)[4:])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BinaryRejected(f"this program binary is damaged: {error}") from None
        if binary.backend != backend:
            raise BinaryRejected(f"this program binary is for {binary.backend}, not for {backend}")
        return binary


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Binary)
