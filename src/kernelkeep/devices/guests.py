"""Arrays of other libraries, as far as every backend knows them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["is_guest"]


def is_guest(value: Any) -> bool:
    """Whether a value is another library's array, which may lie in device memory."""
    if isinstance(value, np.ndarray):
        return False
    kind = type(value)
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__"):
        return True
    return "__cuda_array_interface__" in getattr(value, "__dict__", ())
