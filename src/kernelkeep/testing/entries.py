"""Entries made up for tests of tiers: no device needed, the same at every call."""

from __future__ import annotations

import hashlib
import random

from ..cache.entry import Entry, Facts
from ..cache.key import Key

__all__ = ["sample_entry"]


def sample_entry(number: int, *, name: str = "", size: int = 1000, compressible: bool = False) -> Entry:
    """The entry with this number: its own key and payload."""
    digest = hashlib.sha256(f"sample {number}".encode()).hexdigest()
    payload = (b"%d " % number) * size if compressible else random.Random(number).randbytes(size)
    name = name or f"program{number}"
    key = Key(digest, {"language": "sample", "source": f"sample {number}"})
    return Entry(
        Facts(
            name=name,
            language="sample",
            device="sample",
            key=key,
            created=1_700_000_000.0 + number,
            compile_seconds=0.5,
            version="0",
            kernels=(name,),
            payload_bytes=len(payload),
        ),
        payload[:size],
    )
