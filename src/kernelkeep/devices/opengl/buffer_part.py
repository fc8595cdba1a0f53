"""A part of a buffer: what a view of an array is bound as."""

from __future__ import annotations

from typing import Any, Self


class BufferPart(tuple[int, int, int]):
    """The name of a buffer, an offset and a number of bytes. It keeps the buffer alive."""

    whole: int

    @classmethod
    def of(cls, whole: int, offset: int, nbytes: int) -> Self:
        """A part of a buffer, in whole words as the buffer is: kernels read bytes out of them."""
        part = cls((int(whole), offset, -(-nbytes // 4) * 4))
        part.whole = whole
        return part


def name_and_offset(handle: Any) -> tuple[int, int]:
    """Where memory begins: the name of a buffer and the bytes before it."""
    return (handle.whole, handle[1]) if handle.__class__ is BufferPart else (handle, 0)
