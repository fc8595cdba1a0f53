"""The stream of a kernel that never exits."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from ...errors import Unsupported
from ..synchronization import Queue
from .green import GreenContext
from .synchronization import CudaQueue

if TYPE_CHECKING:
    from .device import CudaDevice
    from .program import CudaKernel

_POLL_SECONDS = 20e-6
_EAGER_SECONDS = 200e-6  # so long it looks without pauses: where no task takes long, a grid ends sooner


class ResidentQueue(CudaQueue):
    """A stream that `device.synchronize()`, unloading and closing do not wait for.

    With `sms` its kernels run in a green context, on that many multiprocessors (rounded up by the driver); `self.sms` is how
    many there are. The stream has the highest priority: launched again, the kernel's blocks come before those that wait.

    Give it nothing but the kernel. An event behind the kernel could stop other streams too, because the GPU has fewer
    hardware queues than a process may have streams: so `idle` and `wait` ask for the stream's state and record none.
    """

    def __init__(self, device: CudaDevice, sms: int | None = None) -> None:
        Queue.__init__(self, device)  # not CudaQueue's: it adds the stream to `device.streams`
        self._closed = True  # nothing to destroy yet
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
            raise Unsupported(
                "resident kernels", "CUDA_LAUNCH_BLOCKING has a launch wait for the kernel, which never exits: unset it"
            )
        driver = device.driver
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._green = None if sms is None else GreenContext(device, sms)
        with device.current:
            _least, greatest = device.call(driver.cuCtxGetStreamPriorityRange)
            if self._green is None:
                self.cu_stream = device.call(driver.cuStreamCreateWithPriority, flags, greatest)
            else:
                self.cu_stream = self._green.create_stream(flags, greatest)
        self._closed = False
        self.sms = device.count_sms() if self._green is None else self._green.sms

    def count_groups(self, kernel: CudaKernel, items: int, shared_bytes: int = 0) -> int:
        """How many groups of a kernel run here at the same time."""
        return kernel.count_groups_each(items, shared_bytes) * self.sms

    @property
    def idle(self) -> bool:
        """Whether the kernel has ended; raises `DeviceError` if it failed. Never waits."""
        device = self.device
        device.check_not_lost()
        if self._closed:
            return True
        (status,) = device.driver.cuStreamQuery(self.cu_stream)
        if status == device.driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if status != device.success:
            raise device.translated(status, "the resident kernel")
        return True

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the kernel has ended; False if the timeout passed first."""
        began = time.monotonic()
        while not self.idle:
            waited = time.monotonic() - began
            if waited >= timeout_seconds:
                return False
            if waited > _EAGER_SECONDS:
                time.sleep(_POLL_SECONDS)
        return True

    def close(self) -> None:
        """Destroy the stream and its green context, once no grid runs on the GPU. The kernel has ended."""
        self._discard()
        if not self.device.closed:
            with self.device.current:
                self.device.discarded.clear()

    def _discard(self) -> None:
        if self._closed or self.device.lost:
            return
        self._closed = True
        self.device.discarded.add(_destroy, self.device, self.cu_stream, self._green)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half made, or the interpreter is half gone
            self._discard()


def _destroy(device: CudaDevice, stream: Any, green: GreenContext | None) -> None:
    device.driver.cuStreamDestroy(stream)
    if green is not None:
        green.destroy()
