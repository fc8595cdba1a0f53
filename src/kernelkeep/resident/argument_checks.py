"""Arguments, checked before they are used: those of a task, as `_ring.c` checks them too, timeouts and paths."""

from __future__ import annotations

import operator
import struct
from numbers import Real
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .protocol import CODE_BYTES

_FLOATS = "efd"
_RANGES = {
    code: (-(1 << 8 * CODE_BYTES[code] - 1), (1 << 8 * CODE_BYTES[code] - 1) - 1)
    if code.islower()
    else (0, (1 << 8 * CODE_BYTES[code]) - 1)
    for code in "bBhHiIqQ"
}


_LONG_SECONDS = 1e9


def check_folder(path: Path, what: str) -> None:
    """Raise unless the folder of a file exists: one that was made for a misspelled path would hide the mistake."""
    if not path.parent.is_dir():
        raise ArgumentError(f"the {what} {path} cannot be written: there is no folder {path.parent}")


def timeout_seconds(given: Any) -> float | None:
    """A timeout that can be reckoned with: None waits as long as it takes, and so does one of decades."""
    if given is None:
        return None
    if not isinstance(given, Real) or given != given:
        raise ArgumentError(f"timeout must be a number of seconds or None, got {given!r}")
    found: float = min(given, _LONG_SECONDS)  # type: ignore[assignment]
    return None if found == _LONG_SECONDS else max(0.0, float(found))


def checked(number: int | str, code: str, value: Any) -> Any:
    """An argument as `struct` packs it; OverflowError or TypeError, naming the argument, where it does not fit."""
    if code == "?":
        return bool(value)
    if code in _FLOATS:
        try:
            packed = struct.pack("<" + code, float(value) if isinstance(value, int) else value)
        except struct.error:
            raise TypeError(f"argument {number} must be a number, got {value!r}") from None
        except OverflowError:
            raise OverflowError(f"argument {number} is too large for type {code!r}, got {value!r}") from None
        return struct.unpack("<" + code, packed)[0]
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"argument {number} must be an integer, got {value!r}") from None
    least, most = _RANGES[code]
    if not least <= whole <= most:
        raise OverflowError(f"argument {number} must be {least} to {most}, got {whole}")
    return whole
