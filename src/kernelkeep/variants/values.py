"""The values of problems and variants: plain Python numbers and strings, and one text for the same values.

256 and 256.0 are different values, and so are 1 and True, because a source written with them differs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..errors import ArgumentError

Value = int | float | str | bool
# Checked when a row or a line is decoded, because anybody may have written it.
Values = dict[str, Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float | str | bool]


def plain_number(value: Any) -> Any:
    """A NumPy scalar as Python's own number; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def in_words(values: Mapping[str, Any]) -> str:
    """A problem or variant for people: "m=256 n=256"."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def canonical(values: Mapping[str, Any], what: str = "problem") -> str:
    """The one JSON text for a problem or variant that can be stored: two are the same when their texts are."""
    return json.dumps(plain_values(values, what), sort_keys=True, separators=(",", ":"))


def plain_values(values: Mapping[str, Any], what: str) -> Values:
    """A problem or variant with Python's own numbers and strings; an `ArgumentError` where it cannot be stored."""
    if not isinstance(values, Mapping):
        raise ArgumentError(f"a {what} must be a dict of names and values, got {values!r}")
    return {
        as_text(name, f"a name in a {what}"): _storable(value, f"{name!r} of the {what}")
        for name, value in values.items()
    }


def _storable(given: Any, what: str) -> Value:
    value = plain_number(given)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return as_text(value, what)
    raise ArgumentError(f"{what} must be a string, a finite number or a bool, got {value!r}")


def as_text(value: Any, what: str) -> str:
    """A string that can be stored as UTF-8, or an `ArgumentError`."""
    if not isinstance(value, str):
        raise ArgumentError(f"{what} must be a string, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{what} cannot be written as UTF-8: {value!r}") from None
    return str.__str__(value)  # an enumeration's value, not its name
