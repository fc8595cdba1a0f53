"""An array that an earlier job of a pipeline makes: no values, but a shape, for the functions of later jobs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class Intermediate:
    """What `grid=` and `outputs=` functions of a job see where an earlier job makes the array: its shape and dtype.

    The values are on the device while the batch is under way, and nowhere else.
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its elements have."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<array of {self.shape} {self.dtype.name} on the device>"
