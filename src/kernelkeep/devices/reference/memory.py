"""Device memory of the reference device: bytes, and the stamps of who wrote and read each element (`checks.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

# How a memoryview names the types.
FORMATS: dict[str, Any] = {
    "b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f4": "f", "f8": "d",
}  # fmt: skip


class Halves:
    """Bytes as numbers of 16 bits: a memoryview has no such format."""

    itemsize = 2

    def __init__(self, given: Any) -> None:
        self._numbers = np.frombuffer(given, "f2")
        self._numbers.flags.writeable = True

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> float:
        return float(self._numbers[index])

    def __setitem__(self, index: int, value: float) -> None:
        self._numbers[index] = value


class Memory:
    """Bytes that are freed when nobody holds them. `is_fresh`: some of them may never have been written."""

    offset = 0

    def __init__(self, nbytes: int) -> None:
        self.bytes = bytearray(nbytes)
        self.is_fresh = True
        self._itemsize = 0
        self._writes: list[float] = []
        self._reads: list[float] = []
        self._atomics: list[float] = []

    def elements(self: Memory | MemoryPart, dtype: str) -> Any:
        """The memory as numbers of a type."""
        size = np.dtype(dtype).itemsize
        if dtype == "f2":
            return Halves(memoryview(self.bytes)[: len(self.bytes) // size * size])
        return memoryview(self.bytes)[: len(self.bytes) // size * size].cast(FORMATS[dtype])

    @property
    def itemsize(self) -> int:
        """The size of the elements that stamps are of; 0 if there are none yet."""
        return self._itemsize

    def set_all(self, itemsize: int = 0) -> None:
        """All of it was written by the host."""
        self.is_fresh = False
        self._writes = []

    def copy_stamps(self, origin: Memory) -> None:
        """All of it was copied: what was never written there was not written here."""
        self.is_fresh = origin.is_fresh
        self._itemsize = origin._itemsize
        self._writes = list(origin._writes)
        self._reads, self._atomics = [], []

    def writes(self, itemsize: int) -> list[float]:
        """The stamp of the last write of each element; 0 where there was none."""
        self._use(itemsize)
        if not self._writes:
            self._writes = [0 if self.is_fresh else 1] * (len(self.bytes) // itemsize)
        return self._writes

    def reads(self, itemsize: int) -> list[float]:
        """The stamp of the last read of each element."""
        self._use(itemsize)
        if not self._reads:
            self._reads = [0] * (len(self.bytes) // itemsize)
        return self._reads

    def atomics(self, itemsize: int) -> list[float]:
        """The stamp of the last atomic of each element."""
        self._use(itemsize)
        if not self._atomics:
            self._atomics = [0] * (len(self.bytes) // itemsize)
        return self._atomics

    def _use(self, itemsize: int) -> None:
        """Forget stamps of elements of another size: the memory was another array before."""
        if itemsize != self._itemsize:
            self._itemsize = itemsize
            if self._writes:
                self.is_fresh = False
            self._writes, self._reads, self._atomics = [], [], []


class MemoryPart:
    """A part of a memory: what a view of an array is. It has the stamps of the whole."""

    def __init__(self, whole: Memory, offset: int, nbytes: int) -> None:
        self.whole = whole
        self.bytes = memoryview(whole.bytes)[offset : offset + nbytes]
        self.offset = offset

    elements = Memory.elements

    @property
    def is_fresh(self) -> bool:
        """Whether some bytes of the whole may never have been written."""
        return self.whole.is_fresh

    def set_all(self, itemsize: int) -> None:
        """All of it was written by the host, in elements of a size."""
        if self.whole.is_fresh:
            stamps = self.writes(itemsize)
            for index in range(len(stamps)):
                stamps[index] = stamps[index] or 1

    def writes(self, itemsize: int) -> Any:
        """The stamp of the last write of each element."""
        return self._shifted(self.whole.writes, itemsize)

    def reads(self, itemsize: int) -> Any:
        """The stamp of the last read of each element."""
        return self._shifted(self.whole.reads, itemsize)

    def atomics(self, itemsize: int) -> Any:
        """The stamp of the last atomic of each element."""
        return self._shifted(self.whole.atomics, itemsize)

    def _shifted(self, stamps: Any, itemsize: int) -> Any:
        count = len(self.bytes) // itemsize
        if self.offset % itemsize:  # structs that begin inside an element of the whole have no stamps there
            return [1.0] * count
        return Shifted(stamps(itemsize), self.offset // itemsize, count)


class Shifted:
    """A part of a list, written through."""

    def __init__(self, whole: list[float], start: int, count: int) -> None:
        self._whole, self._start, self._count = whole, start, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> float:
        return self._whole[self._start + index]

    def __setitem__(self, index: int, stamp: float) -> None:
        self._whole[self._start + index] = stamp


def whole_of(memory: Memory | MemoryPart) -> Memory:
    """The memory that something is a part of, or itself."""
    return memory.whole if isinstance(memory, MemoryPart) else memory


def copy_stamps(target: Memory | MemoryPart, origin: Memory | MemoryPart, nbytes: int) -> None:
    """Bytes were copied: what was never written in the origin was not written in the target."""
    if isinstance(target, Memory) and isinstance(origin, Memory):
        target.copy_stamps(origin)
        return
    whole = whole_of(target)
    if not origin.is_fresh and not whole.is_fresh:
        return
    itemsize = whole_of(origin).itemsize or whole.itemsize or 4  # kernels tell, and most use numbers of four bytes
    if any(place % itemsize for place in (nbytes, target.offset, origin.offset)):
        itemsize = 1
    read = origin.writes(itemsize)
    known = [1 if read[index] else 0 for index in range(nbytes // itemsize)]
    written = target.writes(itemsize)
    for index, stamp in enumerate(known):
        written[index] = stamp
    whole.is_fresh = whole.is_fresh or 0 in known
