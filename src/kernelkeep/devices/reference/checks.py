"""What generated code calls when something may be wrong, and how a bug is reported.

Each access has a stamp that tells its work-item, its group and how many barriers the group had passed. Stamps only grow:

    … the launch before │ B │ group 0: 64 work-items, many │ group 1, before its barrier, many │ group 1, after it, many │ …

`many` stands for several work-items of a group, B + 0.5 for several groups, and B + 0.25 for an atomic exchange as the first
write. So B tells what happened in this launch, `group_start` what happened in this group, and `phase_start` what happened since
the last barrier. Two accesses of one element race when one of them writes, not both are atomic, and neither a barrier nor a
fence with an atomic is between them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from ...errors import KernelFault
from ...language.types import Scalar, limits
from ...words import FaultKind
from .arithmetic import UNSET

if TYPE_CHECKING:
    from .text import KernelText
    from .writing.code import CheckPoint

Place3 = tuple[int, int, int]
_DOES = {"wrote": "write", "read": "read", "changed": "atomic"}
_MOST_LINES = 4  # that are named as the other side of a race


class Label(str):
    """A text that kk_print was given."""


class WatchedArray:
    """The stamps of one array in one launch, and its elements."""

    __slots__ = (
        "atomics",
        "data",
        "has_swaps",
        "is_array",
        "is_shared",
        "length",
        "must_be_written",
        "reads",
        "sizes",
        "title",
        "writes",
    )

    def __init__(
        self,
        title: str,
        data: Any,
        length: int,
        writes: list[float],
        reads: list[float],
        atomics: list[float],
        must_be_written: str,
        is_shared: bool,
        is_array: bool,
        has_swaps: bool,
        sizes: tuple[int, ...] = (),
    ) -> None:
        self.title = title
        self.data = data
        self.length = length
        self.writes = writes
        self.reads = reads
        self.atomics = atomics
        self.must_be_written = must_be_written
        self.is_shared = is_shared
        self.is_array = is_array
        # A plain read before a compare-and-swap is a guess that the swap checks.
        self.has_swaps = has_swaps
        self.sizes = sizes  # of each dimension but the first

    def element(self, index: int | None) -> str:
        """An element as the user writes it."""
        if not self.is_array:
            return self.title
        written = ""
        if index is not None:
            for size in reversed(self.sizes):
                index, last = divmod(index, size)
                written = f"[{last}]{written}"
        return f"{self.title}[{index}]{written}"


class _EarlyRead(Struct, frozen=True, eq=False):
    point: int
    me: int
    array: WatchedArray
    index: int


class Checks:
    """The state of one launch as checks need it."""

    Label = Label

    def __init__(
        self, text: KernelText, points: Sequence[CheckPoint], group: Place3, base: int, output: Callable[[str], None]
    ) -> None:
        self._text = text
        self._points = points
        self._group_size = group
        self._items = group[0] * group[1] * group[2]
        self._base = base
        self._output = output
        self.arrays: dict[str, WatchedArray] = {}
        self.on_stop: Callable[[int, Place3, dict[str, Any]], None] | None = None
        self.group: Place3 = (0, 0, 0)
        self.group_start = self.phase_start = base + 1
        self.next_stamp = base + 1
        self._starts: list[int] = []  # of each phase of each group
        self._groups: list[Place3] = []
        self._fenced = False  # this group has executed a fence …
        self._released: set[int] = set()  # … and an atomic after it: the starts of such groups
        self._took_atomic = False
        self._acquired = False
        self._early_read: _EarlyRead | None = None  # of a shared element that nobody has written yet

    # --- the order of things

    def begin_group(self, group: Place3) -> int:
        """The first stamp of a group."""
        self.group = group
        self._fenced = self._took_atomic = self._acquired = False
        start = self.group_start = self.begin_phase()
        return start

    def begin_phase(self) -> int:
        """The first stamp after a barrier."""
        start = self.phase_start = self.next_stamp
        self.next_stamp = start + self._items + 1
        self._starts.append(start)
        self._groups.append(self.group)
        return start

    def end_phase(self) -> None:
        """All work-items came to a barrier, or to their end."""
        if (early := self._early_read) is not None:
            self._fault(early.point, early.me, "uninitialised", "")

    def fence(self) -> None:
        """kk_fence()."""
        self._fenced = True
        if self._took_atomic:
            self._acquired = True

    # --- reads and writes

    def check_read(self, point: int, array: WatchedArray, index: int, me: int) -> None:
        """Look again at a read."""
        wrote = array.writes[index]
        if array.must_be_written and (wrote <= self._base if array.must_be_written == "launch" else not wrote):
            if array.is_shared:
                # Another work-item may write it before the next barrier: then the bug is a race.
                self._early_read = self._early_read or _EarlyRead(point, me, array, index)
                return
            self._fault(point, me, "uninitialised", self._never_written(array, index), array=array.title, index=index)
        if self._conflicts(wrote, me):
            self._race(point, me, array, index, wrote, "reads", "wrote")
        if not array.has_swaps:
            self._check_other_atomic(point, array, index, me, "reads")

    def note_read(self, array: WatchedArray, index: int, me: int) -> None:
        """Note a read after others."""
        read = array.reads[index]
        if read == self._base + 0.5:
            return
        if read < self.group_start:
            array.reads[index] = self._base + 0.5
        else:
            array.reads[index] = me if read < self.phase_start else self.phase_start + self._items

    def check_write(self, point: int, array: WatchedArray, index: int, me: int, value: Any) -> None:
        """Look again at a write. Two work-items that write the same value do no harm."""
        wrote, read = array.writes[index], array.reads[index]
        if self._conflicts(wrote, me) and (value is UNSET or not _same(array.data, index, value)):
            self._race(point, me, array, index, wrote, "writes", "wrote")
        if self._conflicts(read, me):
            self._race(point, me, array, index, read, "writes", "read")
        self._check_other_atomic(point, array, index, me, "writes")

    def check_atomic(self, point: int, array: WatchedArray, index: int, me: int, reads: bool) -> None:
        """An atomic: it must not meet plain accesses of others."""
        self._took_atomic = True
        if self._fenced:
            self._released.add(self.group_start)
        wrote = array.writes[index]
        unset = wrote <= self._base if array.must_be_written == "launch" else not wrote
        if array.must_be_written and unset:
            if reads:
                self._fault(
                    point, me, "uninitialised", self._never_written(array, index), array=array.title, index=index
                )
            array.writes[index] = self._base + 0.25
        elif self._conflicts(wrote, me):
            self._race(point, me, array, index, wrote, "changes atomically", "wrote")
        if array.reads and not array.has_swaps and self._conflicts(array.reads[index], me):
            self._race(point, me, array, index, array.reads[index], "changes atomically", "read")
        if array.atomics:
            before = array.atomics[index]
            if before <= self._base:
                array.atomics[index] = me
            elif before != me and before != self._base + 0.5:
                if before < self.group_start:
                    array.atomics[index] = self._base + 0.5
                else:
                    array.atomics[index] = me if before < self.phase_start else self.phase_start + self._items

    def _check_other_atomic(self, point: int, array: WatchedArray, index: int, me: int, does: str) -> None:
        if array.atomics and self._conflicts(array.atomics[index], me):
            self._race(point, me, array, index, array.atomics[index], does, "changed")

    def _conflicts(self, stamp: float, me: int) -> bool:
        """Whether an access of this launch is not ordered with one of this work-item now."""
        base = self._base
        if stamp <= base or stamp == me or stamp == base + 0.25:
            return False
        if stamp == base + 0.5:
            return not self._acquired
        if stamp >= self.phase_start:
            return True
        return stamp < self.group_start and not self._is_ordered(stamp)

    def _is_ordered(self, stamp: float) -> bool:
        """Whether a fence and an atomic of another group, and then an atomic and a fence of this one, are between them."""
        if not self._acquired:
            return False
        group = self._groups[bisect_right(self._starts, stamp) - 1]
        first = self._starts[self._groups.index(group)]
        return first in self._released

    # --- reports

    def bounds(self, point: int, me: int, index: int, length: int) -> NoReturn:
        """An index is beyond the end."""
        found = self._points[point]
        kind, title = found.kind, found.array
        assert isinstance(kind, Scalar)
        least, most = limits(kind)
        if not least <= index <= most:
            self.overflow(point, me, index)
        has = f"{title} has {length:,} element{'' if length == 1 else 's'}"
        self._fault(point, me, "out of bounds", f"{title}[{index}] is out of bounds: {has}", array=title, index=index)

    def overflow(self, point: int, me: int, value: int) -> NoReturn:
        """An index was computed with too few bits."""
        found = self._points[point]
        kind = found.kind
        assert isinstance(kind, Scalar)
        what = f"the index of {found.array}" if found.array else "a value that becomes an index"
        sentence = f"{what} overflows: {value} does not fit into {kind}"
        self._fault(point, me, "overflow", sentence, array=found.array, index=value)

    def division(self, point: int, me: int) -> NoReturn:
        """An integer is divided by zero."""
        self._fault(point, me, "division by zero", "division by zero")

    def endless(self, point: int, me: int) -> NoReturn:
        """A loop has too many rounds."""
        sentence = "this loop does not end within device.max_loop_rounds rounds"
        self._fault(point, me, "endless loop", sentence)

    def misaligned(self, point: int, me: int, index: int) -> NoReturn:
        """kk_load4 and kk_store4 take multiples of 4."""
        title = self._points[point].array
        sentence = f"the index of kk_load4 and kk_store4 must be a multiple of 4, got {title}[{index}]"
        self._fault(point, me, "misaligned", sentence, array=title, index=index)

    def unset(self, point: int, me: int) -> NoReturn:
        """A variable was never assigned to."""
        title = self._points[point].array or "this value"
        self._fault(point, me, "uninitialised", f"{title} is read before anything is assigned to it", array=title)

    def barrier(self, point: int, me: int, sentence: str) -> NoReturn:
        """Not all work-items of a group came to a barrier."""
        self._fault(point, me, "barrier", sentence)

    def place_of(self, stamp: float) -> Place3:
        """The global position of a work-item."""
        at = bisect_right(self._starts, stamp) - 1
        group, number = self._groups[at], int(stamp) - self._starts[at]
        x, y, z = self._group_size
        local = number % x, number // x % y, number // (x * y)
        return (group[0] * x + local[0], group[1] * y + local[1], group[2] * z + local[2])

    def line_of(self, point: int) -> int:
        """The line of a check point as the user counts."""
        return self._points[point].at.line

    def show(self, point: int, me: int, values: tuple[Any, ...]) -> None:
        """kk_print()."""
        texts = " ".join(str(value) if isinstance(value, Label) else _printed(value) for value in values)
        self._output(f"{self._text.signature.name}, line {self.line_of(point)}, work-item {self._named(me)}: {texts}")

    def stop(self, point: int, me: int, variables: dict[str, Any]) -> None:
        """A breakpoint."""
        if self.on_stop is not None:
            self.on_stop(self._points[point].at.line, self.place_of(me), variables)

    def _never_written(self, array: WatchedArray, index: int) -> str:
        since = (
            "before"
            if array.is_shared
            else "in this launch"
            if array.must_be_written == "launch"
            else "since the array was made"
        )
        return f"{array.element(index)} is read, and nothing was written there {since}"

    def _race(
        self, point: int, me: int, array: WatchedArray, index: int, stamp: float, does: str, did: str
    ) -> NoReturn:
        who = f"work-item {self._named(me)} {does} {array.element(index)}"
        lines = self._lines_that(_DOES[did], array.title)
        where = f" in line {' or '.join(map(str, lines))}" if len(lines) <= _MOST_LINES else ""
        if stamp == self._base + 0.5:
            other = f"work-items of several groups {did} it{where}"
        elif (stamp - self._starts[bisect_right(self._starts, stamp) - 1]) == self._items:
            other = f"several work-items of its group {did} it{where} since the last barrier"
        else:
            nothing = "with no barrier between" if stamp >= self.phase_start else "in another group"
            other = f"work-item {self._named(stamp)} {did} it{where}, {nothing}"
        self._fault(point, me, "race", f"{who}, and {other}", array=array.title, index=index)

    def _lines_that(self, does: str, title: str) -> list[int]:
        """The lines that read, write or atomically change an array."""
        found = {one.at.line for one in self._points if one.array == title and one.does == does}
        return sorted(found)

    def _named(self, stamp: float) -> str:
        x, y, z = self.place_of(stamp)
        sizes = self._group_size
        return f"({x}, {y}, {z})" if sizes[2] > 1 or z else f"({x}, {y})" if sizes[1] > 1 or y else f"{x}"

    def _fault(
        self, point: int, me: int, kind: FaultKind, sentence: str, *, array: str = "", index: int | None = None
    ) -> NoReturn:
        early, self._early_read = self._early_read, None
        if early is not None and (kind, array) != ("race", early.array.title):
            sentence = self._never_written(early.array, early.index)  # it happened first, and this may follow from it
            point, me, kind, array, index = early.point, early.me, "uninitialised", early.array.title, early.index
        elif early is not None and index == early.index:
            what = f"reads {early.array.element(index)} before work-item {self._named(me)} writes it"
            sentence = f"work-item {self._named(early.me)} {what}, with no barrier between"
            point, me = early.point, early.me
        at, name = self._points[point].at, self._text.signature.name
        line, shown = at.line, self._text.shown(at.line)
        before = "".join("\t" if sign == "\t" else " " for sign in shown[: at.column - 1])
        picture = f"\n    {shown}\n    {before}^" if shown else ""
        macro = f" (in macro {at.macro})" if at.macro else ""
        message = f"kernel {name}, line {line}: {sentence}{macro}{picture}\n    in work-item {self._named(me)}"
        message += f" of group {self.group}"
        raise KernelFault(
            message,
            kind=kind,
            kernel=name,
            line=line,
            column=at.column,
            item=self.place_of(me),
            array=array,
            index=index,
        )


def _printed(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_printed, value))})"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _same(data: Any, index: int, value: Any) -> bool:
    """Whether an element has the value already, bit for bit as it would be stored."""
    old = data[index]
    data[index] = value
    same = bool(data[index] == old or (data[index] != data[index] and old != old))
    data[index] = old
    return same
