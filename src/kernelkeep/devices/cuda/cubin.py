"""What can be told from the bytes of a cubin."""

from __future__ import annotations

import struct

# 64-bit little-endian ELF for CUDA: magic, machine 190, and where its tables of segments and sections are.
_ELF = struct.Struct("<4sBB10x2xH4x8xQQ4x2xHHHH")


def is_whole_cubin(payload: bytes) -> bool:
    """Whether these bytes are an ELF file for CUDA that is not cut off."""
    if len(payload) < _ELF.size:
        return False
    magic, kind, order, machine, segments_at, sections_at, *sizes = _ELF.unpack_from(payload)
    segment_size, segments, section_size, sections = sizes
    end = max(segments_at + segment_size * segments, sections_at + section_size * sections)
    return bool((magic, kind, order, machine) == (b"\x7fELF", 2, 1, 190) and sections and end <= len(payload))


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
