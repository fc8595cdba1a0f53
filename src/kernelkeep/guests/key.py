"""The identity of what a guest compiled: SHA-256 over labelled, length-prefixed fields, kept in a readable form beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ..cache.key import Key

_LONGEST_SHOWN = 200


def guest_key(guest: str, fields: Mapping[str, str]) -> Key:
    """The key of these fields. All of each value takes part; what is kept to be read is short."""
    text = f"kernelkeep guest key 2\0{len(guest)}:{guest}"
    shown = {"guest": guest, **fields}
    for label, value in fields.items():
        text += f"{len(label)}:{label}{len(value)}:{value}"
        if len(value) > _LONGEST_SHOWN:
            shown[label] = _shortened(value)
    return Key(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), shown)


def _shortened(value: str) -> str:
    return f"{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:16]} ({len(value)} characters)"
