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

    def __init__(self, nbytes: int) -> None:
        self.bytes = bytearray(nbytes)
        self.is_fresh = True
        self._itemsize = 0
        self._writes: list[float] = []
        self._reads: list[float] = []
        self._atomics: list[float] = []

    def elements(self, dtype: str) -> Any:
        """The memory as numbers of a type."""
        size = np.dtype(dtype).itemsize
        if dtype == "f2":
            return Halves(memoryview(self.bytes)[: len(self.bytes) // size * size])
        return memoryview(self.bytes)[: len(self.bytes) // size * size].cast(FORMATS[dtype])

    def set_all(self) -> None:
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
