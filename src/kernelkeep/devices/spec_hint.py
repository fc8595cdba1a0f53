"""What somebody meant who asked for a device that there is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeviceError
from ..words import did_you_mean


def spec_hint(spec: object, names: Sequence[str], module_of: Callable[[str], Any]) -> str:
    """A question with the spec that was meant, or nothing: a backend's interface, such as vulkan, or a similar name."""
    word = spec.lower() if isinstance(spec, str) else ""
    for name in names:
        try:
            interfaces = getattr(module_of(name), "interfaces", ())
        except (DeviceError, KeyError):  # a backend that cannot be loaded, or a word such as gpu
            continue
        if word in interfaces:
            return f" (did you mean {name}:{word}?)"
    return did_you_mean(word, names)


def count_and_use(backend: str, count: int) -> str:
    """How many devices a backend has, and what to open instead of one that it does not have."""
    if count <= 1:
        return f"1 here: use {backend}:0" if count else "none here: `kernelkeep devices` lists all devices"
    return f"{count} here: use {backend}:0 … {backend}:{count - 1}"
