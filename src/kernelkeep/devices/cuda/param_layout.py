"""Where a kernel's arguments lie, read from its cubin when that is made: the driver need not be asked at the first launch.

Asking takes a call for each parameter. What was not read here, as from PTX, the driver is asked for (`program.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from ...programs.signature import Parameter

_HAS_SIZE = 4  # the format of an attribute that is followed by so many bytes; in the others two bytes are the value
_PARAMETER = 0x17  # EIATTR_KPARAM_INFO: which parameter, where it lies, and how large it is


def param_layout(cubin: bytes, symbol: str) -> list[tuple[int, int]] | None:
    """Offset and size of each parameter of a kernel; None where the cubin does not tell."""
    try:
        (table,) = struct.unpack_from("<Q", cubin, 0x28)
        size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        sections = [struct.unpack_from("<I20xQQ", cubin, table + size * i) for i in range(count)]
        wanted = b".nv.info." + symbol.encode() + b"\0"
        for name, at, length in sections:
            if cubin.startswith(wanted, sections[names][1] + name):
                return _read(cubin[at : at + length])
    except (struct.error, IndexError, OverflowError):
        pass
    return None


def _read(attributes: bytes) -> list[tuple[int, int]] | None:
    found: dict[int, tuple[int, int]] = {}
    at = 0
    while at < len(attributes):
        form, kind, length = struct.unpack_from("<BBH", attributes, at)
        at += 4
        if form != _HAS_SIZE:
            continue
        if kind == _PARAMETER:
            ordinal, offset, packed = struct.unpack_from("<4xHHI", attributes, at)
            found[ordinal] = offset, packed >> 18
        at += length
    return [found[i] for i in range(len(found))] if found.keys() == set(range(len(found))) else None


def placed(params: Sequence[Parameter], layout: Sequence[tuple[int, int]]) -> tuple[Parameter, ...] | None:
    """The parameters with their offsets and sizes; None where what is known of them does not fit that layout."""
    sizes = [8 if p.kind == "buffer" else p.nbytes for p in params]
    if len(sizes) != len(layout) or any(size not in (0, real) for size, (_, real) in zip(sizes, layout, strict=True)):
        return None
    return tuple(
        msgspec.structs.replace(p, nbytes=size, slot=offset) for p, (offset, size) in zip(params, layout, strict=True)
    )
