"""What translated kernels call (`c_subset.py`), and the loop over work-items that runs them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["HELPERS", "Launch", "run_items"]

Shape = tuple[int, int, int]


class Launch(NamedTuple):
    """The shape of a launch."""

    grid: Shape
    group: Shape


class Item:
    """One work-item: its place, and the memory of its group."""

    def __init__(
        self, launch: Launch, group_id: Shape, local_id: Shape, shared: dict[str, np.ndarray[Any, Any]]
    ) -> None:
        self._launch = launch
        self._group_id = group_id
        self._local_id = local_id
        self._shared = shared

    def global_id(self, d: int) -> int:
        return self._group_id[d] * self._launch.group[d] + self._local_id[d]

    def local_id(self, d: int) -> int:
        return self._local_id[d]

    def group_id(self, d: int) -> int:
        return self._group_id[d]

    def group_size(self, d: int) -> int:
        return self._launch.group[d]

    def group_count(self, d: int) -> int:
        return self._launch.grid[d]

    def global_size(self, d: int) -> int:
        return self._launch.grid[d] * self._launch.group[d]

    def shared(self, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if name not in self._shared:
            self._shared[name] = np.zeros(shape, dtype)
        return self._shared[name]


def run_items(function: Callable[..., Any], launch: Launch, values: Sequence[Any]) -> None:
    """Call `function(item, …)` for each work-item; at a barrier all items of the group wait for each other.

    The first item of a group comes last, so that what it does for the whole group behind a barrier finds the others done.
    """
    values = [int(value) if isinstance(value, np.integer) else value for value in values]
    with np.errstate(all="ignore"):
        for group_id in itertools.product(*(range(size) for size in reversed(launch.grid))):
            shared: dict[str, np.ndarray[Any, Any]] = {}
            waiting: list[Generator[None]] = []
            for local_id in itertools.product(*(range(size - 1, -1, -1) for size in reversed(launch.group))):
                item = Item(launch, _turned(group_id), _turned(local_id), shared)
                result = function(item, *values)
                if isinstance(result, Generator):
                    waiting.append(result)
            while waiting:
                waiting = [each for each in waiting if next(each, "done") != "done"]


def _turned(place: tuple[int, ...]) -> Shape:
    z, y, x = place
    return x, y, z


def _integer(dtype: str) -> Callable[[Any], int]:
    size = 8 * int(dtype[1])
    mask, half = (1 << size) - 1, 1 << (size - 1)
    if dtype[0] == "u":
        return lambda value: int(value) & mask
    return lambda value: ((int(value) + half) & mask) - half


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a / b if b else np.divide(np.float64(a), b)


def _remainder(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def _atomic(
    what: str, dtype: str, array: np.ndarray[Any, Any], index: tuple[int, ...], value: Any, new: Any = None
) -> Any:
    before = array[index] if dtype[0] == "f" else int(array[index])
    operations: dict[str, Callable[[], Any]] = {
        "add": lambda: before + value,
        "sub": lambda: before - value,
        "min": lambda: min(before, value),
        "max": lambda: max(before, value),
        "and": lambda: before & value,
        "or": lambda: before | value,
        "xor": lambda: before ^ value,
        "exchange": lambda: value,
        "cas": lambda: new if before == HELPERS[f"to_{dtype}"](value) else before,
    }
    array[index] = HELPERS[f"to_{dtype}"](operations[what]())
    return before


def _float(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of floats; float32 where no argument is wider."""

    def call(*values: Any) -> Any:
        wide = any(isinstance(value, np.float64) for value in values)
        return (np.float64 if wide else np.float32)(function(*(np.float64(value) for value in values)))

    return call


HELPERS: dict[str, Any] = {
    "np": np,
    "to_f2": np.float16,
    "to_f4": np.float32,
    "to_f8": np.float64,
    "to_bool": bool,
    **{f"to_{dtype}": _integer(dtype) for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")},
    "divide": _divide,
    "remainder": _remainder,
    "atomic": _atomic,
    "fence": lambda: None,
    **{f"math_{name}": _float(getattr(np, name)) for name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "floor")},
    "math_pow": _float(np.power),
    "math_fabs": _float(np.abs),
    "math_fmin": _float(np.fmin),
    "math_fmax": _float(np.fmax),
    "math_fma": _float(lambda a, b, c: a * b + c),
    "math_rsqrt": _float(lambda x: 1 / math.sqrt(x)),
    "math_abs": abs,
    "math_min": min,
    "math_max": max,
}
