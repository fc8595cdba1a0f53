"""What can be told from the bytes of a cubin."""

from __future__ import annotations

import struct

# 64-bit little-endian ELF for CUDA: how it starts, its machine, and where its tables of segments and sections are.
_ELF = struct.Struct("<6s12xH4x8xQQ4x2xHHHH")
_START = b"\x7fELF\2\1"
_CUDA = 190


def is_whole_cubin(payload: bytes) -> bool:
    """Whether these bytes are an ELF file for CUDA that is not cut off."""
    if len(payload) < _ELF.size:
        return False
    start, machine, segments_at, sections_at, segment_size, segments, section_size, sections = _ELF.unpack_from(payload)
    ends = segments_at + segment_size * segments, sections_at + section_size * sections
    return bool(start == _START and machine == _CUDA and sections and max(ends) <= len(payload))


def machine_codes(cubin: bytes) -> list[bytes]:
    """The sections with the machine code of kernels, of a whole 64-bit ELF file."""
    try:
        (table,) = struct.unpack_from("<Q", cubin, 0x28)
        size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", cubin, table + size * i) for i in range(count)]
        names_at = sections[names][4]
        found = []
        for name, _, _, _, at, length in sections:
            if cubin.startswith(b".text.", names_at + name):
                found.append(cubin[at : at + length])
        return found
    except (struct.error, IndexError, OverflowError):
        return []
