"""Arrays of other libraries (PyTorch, CuPy, JAX …): taking theirs in, giving ours out, and keeping work on both in order.

`Guests` is for a device whose memory no other library can use. A device that can share memory sets `guests` to an object
that overrides these methods (`cuda/guests.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .array import Array
    from .base import Device
    from .synchronization import Fence, Queue

_NUMPY = (np.ndarray, np.generic)  # made once: a union made at each call doubles the time


def is_guest(value: Any) -> bool:
    """Whether a value is another library's array, which may lie in device memory."""
    if isinstance(value, _NUMPY):
        return False
    kind = type(value)
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__"):
        return True
    return "__cuda_array_interface__" in getattr(value, "__dict__", ())


class Guests:
    """How a device shares memory with other libraries: here, not at all."""

    supported = False

    def adopt(self, device: Device, value: Any) -> Array | None:
        """Another library's array as an array that shares its memory; None for anything not in this device's memory."""
        return None

    def cuda_array_interface(self, array: Array) -> dict[str, Any]:
        """`array.__cuda_array_interface__`."""
        raise AttributeError(f"arrays on {array.device.spec} have no __cuda_array_interface__")

    def dlpack_capsule(self, array: Array, stream: Any) -> Any:
        """`array.__dlpack__(stream=…)`."""
        raise BufferError(f"memory of {array.device.spec} cannot be shared through DLPack: use .numpy()")

    def dlpack_device(self, array: Array) -> tuple[int, int]:
        """`array.__dlpack_device__()`."""
        raise BufferError(f"memory of {array.device.spec} cannot be shared through DLPack: use .numpy()")

    def wait_for_guests(self, device: Device, arrays: Sequence[Array], queue: Queue | None = None) -> Any:
        """Have work from now on wait for what other libraries do with these arrays at the moment.

        Returns what `guests_wait` takes once the work is enqueued.
        """
        return None

    def guests_wait(self, device: Device, waited_for: Any, queue: Queue | None = None) -> None:
        """Have other libraries wait for all work so far."""

    def fences(self, device: Device, arrays: Sequence[Array]) -> list[Fence]:
        """Fences after what other libraries do with these arrays at the moment."""
        return []

    @contextlib.contextmanager
    def ordered(self, device: Device, arrays: Sequence[Array], queue: Queue | None = None) -> Iterator[None]:
        """Enqueue the block's work on `arrays` after other libraries' work on them, and before what they do next."""
        shared = [array for array in arrays if array.peers is not None]
        waited_for = self.wait_for_guests(device, shared, queue) if shared else None
        yield
        if shared:
            self.guests_wait(device, waited_for, queue)
