"""A bound launch on OpenCL: a kernel object of its own, whose arguments stay set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..arguments import LocalMemory
from ..prepared import Prepared

if TYPE_CHECKING:
    from .program import OpenCLKernel

__all__ = ["OpenCLPrepared", "set_argument"]


def set_argument(cl: Any, kernel: Any, index: int, value: Any) -> None:
    """Set one checked argument of any kind."""
    if isinstance(value, LocalMemory):
        kernel.set_arg(index, cl.LocalMemory(value.nbytes))
    elif isinstance(value, bytes | np.generic):
        kernel._set_arg_buf(index, value)
    else:
        kernel.set_arg(index, value)


class OpenCLPrepared(Prepared):
    """A kernel object with its arguments, and the shape it is launched in."""

    kernel: OpenCLKernel

    def __init__(
        self, kernel: OpenCLKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, queue: Any
    ) -> None:
        super().__init__(kernel, args)
        device = self._device = kernel._device
        self.cl_kernel = kernel._new_kernel()
        self.items, self.group = shape
        self.cl_queue = queue
        self._error = device.cl.Error
        self._natives: list[Any] = [None] * len(values)  # the kernel object does not keep its arguments alive
        for index, value in enumerate(values):
            self._put(index, value)
        # All that a call needs, taken in one step: what another thread closes meanwhile lives until the call is made.
        self.bound: tuple[Callable[..., Any], Any, list[Any]]
        self._arm()

    def __call__(self) -> None:
        enqueue, kernel, _natives = self.bound
        try:
            # The device's own queue is asked for each time: a timer puts another in its place.
            enqueue(self.cl_queue or self._device.cl_queue, kernel, self.items, self.group)
        except self._error as error:
            raise self._device._translated(error, f"launching {self.kernel.name}") from None

    def _in_order(self) -> Callable[[], None]:
        return self if self.cl_queue is None else self._launch_in_order

    def _launch_in_order(self) -> None:
        self.launch_on(self._device.cl_queue)

    def launch_on(self, queue: Any) -> None:
        """Launch on a queue of pyopencl's."""
        enqueue, kernel, _natives = self.bound
        try:
            enqueue(queue, kernel, self.items, self.group)
        except self._error as error:
            raise self._device._translated(error, f"launching {self.kernel.name}") from None

    def _put(self, index: int, native: Any) -> None:
        try:
            set_argument(self._device.cl, self.cl_kernel, index, native)
        except self._error as error:
            raise self._device._translated(error, f"argument {index} of {self.kernel.name}") from None
        self._natives[index] = native

    def _arm(self) -> None:
        self.bound = (self._device.cl.enqueue_nd_range_kernel, self.cl_kernel, self._natives)

    def _disarm(self, refuse: Callable[..., NoReturn]) -> None:
        self.bound = (refuse, None, [])
        self._natives = self._still_open(self._natives)
        if self.kernel.program.closed:
            self.cl_kernel = None  # it keeps the whole program alive
