"""Arrays of other libraries in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..devices.array import Array
from ..devices.base import Device, Fence
from ..devices.guests import is_guest


def ordered_batch(batch: Mapping[str, Any], device: Device) -> tuple[Mapping[str, Any], list[Fence]]:
    """A batch with other libraries' arrays as arrays of the device, and fences after what they do with them now.

    Called in the caller's thread: each thread of a library may use another stream.
    """
    adopted = dict(batch)
    shared: list[Array] = []
    for name, value in batch.items():
        if not isinstance(value, Array) and is_guest(value):
            value = device.guests.adopt(device, value)
            if value is None:
                continue  # in host memory
            adopted[name] = value
        if isinstance(value, Array) and value.peers is not None and value.device is device:
            shared.append(value)
    return adopted, device.guests.fences(device, shared) if shared else []
