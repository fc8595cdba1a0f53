"""Long chains of operators, such as a sum of 300 terms: as a tree they are deeper than Python's calls may be."""

from __future__ import annotations

from collections.abc import Container

from ..tree import Binary, Expression, Logical

CHAINED = frozenset((Binary, Logical))
_LINKS = 40


def long_chain(e: Expression, known: Container[int]) -> list[Expression]:
    """Every 40th left operand of a chain, the innermost first, up to one whose id is known.

    Who handles them in this order and remembers what was found never goes deeper than 40.
    """
    found = []
    links = 0
    while type(e) in CHAINED and id(e) not in known:
        e = e.left  # type: ignore[attr-defined]
        links += 1
        if links % _LINKS == 0:
            found.append(e)
    return found[::-1]
