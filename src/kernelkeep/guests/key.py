"""The identity of what a guest compiled: SHA-256 over labelled, length-prefixed fields, kept in a readable form beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ..cache.key import Key

_SCHEMA = 1
_LONGEST_SHOWN = 200


def guest_key(guest: str, fields: Mapping[str, str]) -> Key:
    """The key of these fields. All of each value takes part; what is kept to be read is short."""
    parts = [b"kernelkeep guest key %d\0" % _SCHEMA]
    for label, value in (("guest", guest), *fields.items()):
        name, content = label.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass")
        parts.append(b"%d:%b%d:%b" % (len(name), name, len(content), content))
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    return Key(digest, {"guest": guest, **{label: _shown(value) for label, value in fields.items()}})


def _shown(value: str) -> str:
    if len(value) <= _LONGEST_SHOWN:
        return value
    return f"{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:16]} ({len(value)} characters)"
