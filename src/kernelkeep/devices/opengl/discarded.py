"""Collected buffers and objects, which are deleted later: the garbage collector may run inside any GL call."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

_MOST_OBJECTS = 64  # that wait until a thread takes the context for something else
_T = TypeVar("_T")


class Discarded:
    """Names of buffers, and calls that delete other objects. Any thread may add to them at any moment."""

    def __init__(self) -> None:
        self.buffers: deque[int] = deque()
        self.objects: deque[Callable[[Any], None]] = deque()

    @property
    def urgent(self) -> bool:
        """Whether the next step is to delete them."""
        return bool(self.buffers) or len(self.objects) > _MOST_OBJECTS

    def delete(self, gl: Any) -> bool:
        """Delete all of them; whether buffers were among them, whose names OpenGL reuses."""
        dead = _drain(self.buffers)
        if dead:
            gl.glDeleteBuffers(len(dead), (ctypes.c_uint * len(dead))(*dead))
        for delete in _drain(self.objects):
            delete(gl)
        return bool(dead)


def _drain(dead: deque[_T]) -> list[_T]:
    """Take everything out, one by one: other threads append meanwhile."""
    found = []
    while dead:
        found.append(dead.popleft())
    return found
