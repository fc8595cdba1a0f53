"""What OpenGL needs: the EGL library, and a driver behind it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from ..requirements import Check, check

hint = "apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"


def needs() -> Iterator[Check]:
    yield check("the EGL library", _load, hint)


def _load() -> str:
    library = "libEGL.so.1"
    ctypes.CDLL(library)
    return library
