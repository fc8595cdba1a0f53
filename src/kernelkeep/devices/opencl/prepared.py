"""A prepared launch on OpenCL: a kernel object of its own, whose arguments stay set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import LocalMemory
from ..prepared import LaunchOptions, Prepared
from .synchronization import queue_of

if TYPE_CHECKING:
    from .program import OpenCLKernel


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
        self, kernel: OpenCLKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        super().__init__(kernel, args, values, shape, options)  # `values` also keeps alive what the kernel object has
        device = self._device = kernel.device
        self.cl_kernel = kernel.new_native()
        self.items, self.group = shape[:2]
        self.cl_queue = None if options.queue is None else queue_of(options.queue, device)
        self._error = device.cl.Error
        for index, value in enumerate(values):
            self.bind(index, value)
        # A call reads all it needs in one step, so that it stays alive if another thread closes it meanwhile.
        self.bound: tuple[Callable[..., Any], Any, list[Any]]
        self.arm()

    def __call__(self) -> None:
        enqueue, kernel, _values = self.bound
        try:
            # The device's own queue is read at each call: a timer replaces it.
            enqueue(self.cl_queue or self._device.cl_queue, kernel, self.items, self.group)
        except self._error as error:
            raise self._device.translated(error, f"launching {self.kernel.name}") from None

    def on_device_queue(self) -> Callable[[], None]:
        return self if self.cl_queue is None else lambda: self.launch_on(self._device.cl_queue)

    def launch_on(self, queue: Any) -> Any:
        """Launch on a queue of pyopencl's; returns its event."""
        enqueue, kernel, _values = self.bound
        try:
            return enqueue(queue, kernel, self.items, self.group)
        except self._error as error:
            raise self._device.translated(error, f"launching {self.kernel.name}") from None

    def bind(self, index: int, value: Any) -> None:
        try:
            set_argument(self._device.cl, self.cl_kernel, index, value)
        except self._error as error:
            raise self._device.translated(error, f"argument {index} of {self.kernel.name}") from None
        self.values[index] = value

    def arm(self) -> None:
        self.bound = (self._device.cl.enqueue_nd_range_kernel, self.cl_kernel, self.values)

    def disarm(self) -> None:
        self.bound = (self.refuse, None, [])
        super().disarm()
        if self.kernel.program.closed:
            self.cl_kernel = None  # it keeps the whole program alive
