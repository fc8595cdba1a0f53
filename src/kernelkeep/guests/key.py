"""The identity of what a guest compiled: SHA-256 over labelled, length-prefixed fields, kept in a readable form beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ..cache.key import Key

_LONGEST_SHOWN = 200


def guest_key(guest: str, fields: Mapping[str, str]) -> Key:
    """The key of these fields. All of each value takes part; what is kept to be read is short."""
    shown = {"guest": guest, **fields}
    for label, value in fields.items():
        if len(value) > _LONGEST_SHOWN:
            shown[label] = _shortened(value)
    return Key(_hash(guest, fields).hexdigest(), shown)


class KeyStart:
    """Digests of keys that have all fields but the last in common, which are hashed once."""

    def __init__(self, guest: str, fields: Mapping[str, str]) -> None:
        self._copy = _hash(guest, fields).copy

    def digest(self, label: str, value: str) -> str:
        """The digest of the key that has this field behind the others."""
        whole = self._copy()
        whole.update(f"{len(label)}:{label}{len(value)}:{value}".encode("utf-8", "surrogatepass"))
        digest: str = whole.hexdigest()
        return digest


def _hash(guest: str, fields: Mapping[str, str]) -> Any:
    text = f"kernelkeep guest key 2\0{len(guest)}:{guest}"
    for label, value in fields.items():
        text += f"{len(label)}:{label}{len(value)}:{value}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass"))


def _shortened(value: str) -> str:
    return f"{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:16]} ({len(value)} characters)"
