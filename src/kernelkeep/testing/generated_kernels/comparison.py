"""Compares what two devices computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .body import GeneratedKernel

Arrays = Sequence[np.ndarray[Any, np.dtype[Any]]]
_ROUNDING = 2.0**-22  # what one operation may add to the error, relative to its result: 2 units in the last place
_FLOATS = 5  # which argument is `floats`


def differences(program: GeneratedKernel, expected: Arrays, found: Arrays) -> list[str]:
    """What differs, one line for each array: integers and exact floats must be equal, others within their bounds."""
    lines = []
    for at, (parameter, wanted, got) in enumerate(zip(program.kernel.params, expected, found, strict=False)):
        different = _different_floats(wanted, got) if at == _FLOATS else _different(wanted, got)
        if different.any():
            where = int(np.flatnonzero(different)[0])
            count = int(np.count_nonzero(different))
            lines.append(
                f"{parameter.name}[{where}]: expected {wanted[where]}, got {got[where]}; {count} elements differ"
            )
    return lines


def _different(wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    different: np.ndarray[Any, Any] = wanted != got
    return different if wanted.dtype.kind != "f" else different & ~(np.isnan(wanted) & np.isnan(got))


def _different_floats(wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    one, other = wanted.reshape(-1, 6).astype("f8"), got.reshape(-1, 6).astype("f8")
    with np.errstate(invalid="ignore"):
        different = _different(one, other)
        near = np.abs(one[:, 2:4] - other[:, 2:4]) <= one[:, 4:6] * _ROUNDING
        sizes = np.abs(one[:, 4:6] - other[:, 4:6]) <= one[:, 4:6] * 1e-5
    different[:, 2:4] = ~near
    different[:, 4:6] = ~sizes
    return different.ravel()
