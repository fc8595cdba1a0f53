"""Several files as the bytes of one entry."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..storage.files import Damaged

_COUNT = struct.Struct("<I")
_SIZES = struct.Struct("<II")  # of a name and of its file


def pack(files: Mapping[str, bytes]) -> bytes:
    """The files as one run of bytes."""
    parts = [_COUNT.pack(len(files))]
    for name, content in files.items():
        encoded = name.encode()
        parts += [_SIZES.pack(len(encoded), len(content)), encoded, content]
    return b"".join(parts)


def unpack(data: bytes) -> dict[str, memoryview]:
    """The files again; `Damaged` where the bytes are no such files, or a name is a path."""
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        view = memoryview(data)  # files are written, not kept: no copy of each is needed
        files = {}
        for _ in range(count):
            name_size, size = _SIZES.unpack_from(data, at)
            at += _SIZES.size
            name = data[at : at + name_size].decode()
            at += name_size
            if not name or name in (".", "..") or any(one in name for one in "/\\\0"):
                raise Damaged(f"{name!r} is no name of a file")
            if at + size > len(data):
                raise Damaged("its files are cut off")
            files[name] = view[at : at + size]
            at += size
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"its files cannot be read: {error}") from None
    if at != len(data):
        raise Damaged("there is more behind its files")
    return files
