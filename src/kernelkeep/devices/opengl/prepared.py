"""A bound launch on OpenGL: an entry for the next batch, made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..prepared import Prepared

if TYPE_CHECKING:
    from .program import OpenGLKernel

__all__ = ["OpenGLPrepared"]


class OpenGLPrepared(Prepared):
    """What a launch adds to its batch: the kernel, its values sorted as GL takes them, the grid."""

    kernel: OpenGLKernel

    def __init__(self, kernel: OpenGLKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any) -> None:
        super().__init__(kernel, args)
        self._device = kernel._device
        self._lock = self._device.context.lock
        self._values = list(values)
        self._shape = shape
        self._stop: Callable[..., NoReturn] | None = None
        self._arm()

    def __call__(self) -> None:
        if self._stop is not None:
            self._stop()
        device = self._device
        with self._lock:
            waiting = device._waiting
            waiting.append(self.entry)
            if len(waiting) >= device._batch:
                device.submit()

    def _put(self, index: int, native: Any) -> None:
        self._values[index] = native
        self.entry = (self.kernel, self.kernel.sort_values(self._values), self._shape)

    def _arm(self) -> None:
        self.entry = (self.kernel, self.kernel.sort_values(self._values), self._shape)
        self._stop = None

    def _disarm(self, refuse: Callable[..., NoReturn]) -> None:
        self._stop = refuse
