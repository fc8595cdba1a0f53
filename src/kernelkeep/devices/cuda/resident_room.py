"""Whether resident grids fit on a GPU together. A cooperative launch that does not fit would wait for the others to end.

Reckoned with numbers of blocks alone, so it is cautious. A grid's blocks are taken to be spread evenly over its processors, and
grids of few processors to have the same ones. On a processor that others use there is room for the share of blocks that is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...errors import ArgumentError


class Share(NamedTuple):
    """What a grid takes."""

    blocks: int
    each: int  # how many such blocks fit on one processor
    processors: int  # that it may use


class Room:
    """The shares of the resident grids of one GPU in this process, in the order of their first launches."""

    def __init__(self) -> None:
        self._shares: dict[object, Share] = {}

    def is_free_for(self, holder: object) -> bool:
        """Whether nobody came before."""
        return next(iter(self._shares), holder) is holder

    def take(self, holder: object, share: Share, device: str) -> None:
        """Before a launch; `ArgumentError` if the grid does not fit beside those that came before it."""
        before = []
        for other, held in list(self._shares.items()):
            if other is holder:
                break
            before.append(held)
        room = count_room(share.each, share.processors, before)
        if before and share.blocks > room:
            others = "another resident grid" if len(before) == 1 else f"{len(before)} other resident grids"
            raise ArgumentError(
                f"blocks must be at most {room} beside {others} with {sum(one.blocks for one in before)} blocks on {device}, got "
                f"{share.blocks} on {share.processors} processors: give each grid fewer with blocks= or sms=, or close one"
            )
        self._shares[holder] = share

    def give_back(self, holder: object) -> None:
        """The grid is not launched again."""
        self._shares.pop(holder, None)


def count_room(each: int, processors: int, held: Iterable[Share]) -> int:
    """How many blocks surely fit on these processors, `each` on an empty one, beside what is held."""
    from fractions import Fraction  # only beside other grids, and start-up counts

    used, touched = Fraction(0), 0
    for one in held:
        used += Fraction(-(-one.blocks // one.processors), one.each)
        touched += min(one.blocks, one.processors)
    touched = min(touched, processors)
    return (processors - touched) * each + touched * max(0, int((1 - used) * each))
