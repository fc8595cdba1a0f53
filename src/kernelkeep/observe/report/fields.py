"""Fields of records that come from files: each is of the type that is asked for, or missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...html.numbers import finite

_LARGEST = 1e18
_LONGEST = 300


def text(record: Mapping[str, Any], name: str) -> str:
    """A text; empty where there is none."""
    found = record.get(name)
    return found[:_LONGEST] if isinstance(found, str) else ""


def number(record: Mapping[str, Any], name: str) -> float | None:
    """A number that is finite and not absurd; None where there is none."""
    return as_number(record.get(name))


def amount(record: Mapping[str, Any], name: str) -> float:
    """The same for what cannot be negative; 0 where there is none."""
    return max(number(record, name) or 0.0, 0.0)


def as_number(value: Any) -> float | None:
    """A value as a number."""
    found = finite(value)
    return found if found is not None and abs(found) < _LARGEST else None


def numbers_by_name(record: Mapping[str, Any], name: str, most: int = 60) -> dict[str, float]:
    """A mapping of names to numbers."""
    found = record.get(name)
    pairs = ((str(key)[:_LONGEST], as_number(value)) for key, value in _items(found))
    return dict([(key, value) for key, value in pairs if value is not None][:most])


def texts_by_name(record: Mapping[str, Any], name: str, most: int = 100) -> dict[str, str]:
    """A mapping of names to texts."""
    found = record.get(name)
    return dict(
        [(str(key)[:_LONGEST], value[:_LONGEST]) for key, value in _items(found) if isinstance(value, str)][:most]
    )


def rows(record: Mapping[str, Any], name: str, kinds: tuple[type, ...], most: int = 1000) -> list[list[Any]]:
    """A list of lists whose entries are of these types; others are left out. `float` takes every number."""
    found = record.get(name)
    made = []
    for row in found[:most] if isinstance(found, list) else []:
        if isinstance(row, list) and len(row) >= len(kinds):
            values = [_as(kind, value) for kind, value in zip(kinds, row, strict=False)]
            if None not in values:
                made.append(values)
    return made


def _as(kind: type, value: Any) -> Any:
    if kind is str:
        return value[:_LONGEST] if isinstance(value, str) else None
    if kind is bool:
        return value if isinstance(value, bool) else None
    found = as_number(value)
    return found if found is None or kind is float else int(found)


def _items(found: Any) -> list[tuple[Any, Any]]:
    return list(found.items()) if isinstance(found, dict) else []
