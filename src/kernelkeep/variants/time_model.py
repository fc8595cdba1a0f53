"""What estimates how long a variant takes on a problem that nobody has measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..devices.base import Device


class TimeModel(Protocol):
    """Knows, for a kernel's variants, about how long they take."""

    def milliseconds(self, device: Device, problem: Mapping[str, Any], variant: Mapping[str, Any]) -> float | None:
        """How long a variant takes on a problem; None where the model does not know the variant."""

    def best(self, device: Device, problem: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The variant with the shortest time; None where the device supports none that the model knows."""
