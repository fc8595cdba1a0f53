"""What evaluating an expression does, as masks of variables."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Facts(Struct, frozen=True, gc=False):
    """What an expression does."""

    reads: int
    calls: int  # written by calls, which are complete when their value is there
    direct: int  # written by `=`, `+=` and `++`, which C may put off
    emits: bool  # statements are written before the expression


NOTHING = Facts(0, 0, 0, False)


def union(parts: Iterable[Facts]) -> Facts:
    """What all of them do."""
    reads = calls = direct = 0
    emits = False
    for part in parts:
        reads |= part.reads
        calls |= part.calls
        direct |= part.direct
        emits = emits or part.emits
    return Facts(reads, calls, direct, emits)
