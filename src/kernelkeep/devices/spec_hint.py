"""What somebody meant who asked for a device that there is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from ..errors import DeviceError


def did_you_mean(spec: object, names: Sequence[str], module_of: Callable[[str], Any]) -> str:
    """A question with the spec that was meant, or nothing: a backend's interface, such as vulkan, or a similar name."""
    word = spec.lower() if isinstance(spec, str) else ""
    for name in names:
        try:
            interfaces = getattr(module_of(name), "interfaces", ())
        except (DeviceError, KeyError):  # a backend that cannot be loaded, or a word such as gpu
            continue
        if word in interfaces:
            return f" (did you mean {name}:{word}?)"
    near = get_close_matches(word, names, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
