"""Loaded programs, kept while they are used and as long as there is room.

The hot path takes no lock. Whether a program is in use is what the interpreter's own reference counts say: a lease
holds its slot, and so does a thread that has just looked it up and is about to make a lease. Evicting first takes the
slot out of every table, so that nobody new can find it, and then looks whether anyone still holds it; if so, it is put
back. One counter is both the clock of the LRU order and the count of hits; `next` on it is a single step that no other
thread can come between.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from ..errors import DeviceError
from ..escaping import escaped

__all__ = ["Lease", "MemoryTier", "Slot"]

_ALIASES = 8  # how many different `Source` objects of one program are remembered for the hot path


def _count_of_idle() -> int:
    """What `sys.getrefcount` says of an object that only the asking frame holds; it differs between Pythons."""
    held = {"": object()}
    slot = held.pop("", None)
    return sys.getrefcount(slot)


_IDLE_COUNT = _count_of_idle()


class _Program(Protocol):
    """What this tier needs to know of a program."""

    nbytes: int

    def kernel(self, name: str | None = None) -> Any: ...
    def close(self) -> None: ...


class Slot:
    """A loaded program and its place in the tier."""

    __slots__ = ("__weakref__", "aliases", "digest", "extra", "nbytes", "on_release", "program", "tick", "tier")

    def __init__(self, tier: MemoryTier, digest: str, program: Any, extra: Any = None) -> None:
        self.tier = tier
        self.digest = digest
        self.program = program
        self.nbytes = int(program.nbytes)
        self.tick: float = 0
        self.aliases: list[Hashable] = []
        self.on_release: Callable[[Slot], None] | None = None
        self.extra = extra


class Lease:
    """The right to use a loaded program; while it is held, the program is not evicted.

    A context manager; or call `release()`. A lease that is forgotten is released when it is collected, with a
    `ResourceWarning`.
    """

    __slots__ = ("_slot", "origin")

    def __init__(self, slot: Slot, origin: str) -> None:
        self._slot: Slot | None = slot
        self.origin = origin

    @property
    def program(self) -> Any:
        """The loaded program."""
        slot = self._slot
        if slot is None:
            raise DeviceError("this lease was released")
        return slot.program

    def kernel(self, name: str | None = None) -> Any:
        """A kernel of the program by name; the only one if there is one and no name is given."""
        slot = self._slot
        if slot is None:
            raise DeviceError("this lease was released")
        return slot.program.kernel(name)

    def release(self) -> None:
        """Give the program back. Doing it twice is fine."""
        slot = self._slot
        if slot is not None:
            self._slot = None
            if slot.on_release is not None:
                slot.on_release(slot)
            if slot.tier.over:
                tier = slot.tier
                del slot  # or the tier would see it in use
                tier.shrink()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        slot = getattr(self, "_slot", None)
        if slot is not None:
            # The collector may run anywhere, also inside the cache's own locks, so nothing is done here that takes one:
            # letting the slot go is all there is to releasing it. What else a release does, the next one does.
            self._slot = None
            name = escaped(getattr(slot.program, "name", slot.digest[:12]))
            del slot
            warnings.warn(f"a lease on program {name} was never released", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        slot = self._slot
        return "<Lease, released>" if slot is None else f"<Lease on {slot.program!r} from {self.origin}>"


class MemoryTier:
    """Programs by digest, bounded by number and bytes; least recently used idle ones go first.

    Programs in use are never evicted: a tier full of them grows past its bounds (`over` is then true) and shrinks as
    leases are released.
    """

    def __init__(self, max_programs: int, max_bytes: int | None) -> None:
        self.max_programs = max_programs
        self.max_bytes = max_bytes
        self.over = False
        self.evictions = 0
        self.hot: dict[Hashable, Slot] = {}
        self.next_tick = itertools.count(1).__next__
        self._slots: dict[str, Slot] = {}
        self._bytes = 0
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        with self._lock:
            slots = list(self._slots.values())
        return iter(slots)

    @property
    def nbytes(self) -> int:
        """Bytes of all resident programs."""
        return self._bytes

    @property
    def hits(self) -> int:
        """How many leases were given from memory."""
        ticks: Any = self.next_tick.__self__  # type: ignore[attr-defined]
        return int(repr(ticks)[len("count(") : -1]) - 1  # the only way to look at a counter without counting

    def find(self, digest: str, alias: Hashable) -> Slot | None:
        """The slot of a digest; `alias` finds it on the hot path from now on."""
        with self._lock:
            slot = self._slots.get(digest)
            if slot is not None and alias not in self.hot:
                self._remember(slot, alias)
            return slot

    def add(self, slot: Slot, alias: Hashable) -> Slot:
        """Make a loaded program resident, and make room for it. If another thread was first, its slot is the one to use."""
        with self._lock:
            resident = self._slots.get(slot.digest)
            if resident is None:
                self._slots[slot.digest] = resident = slot
                self._bytes += slot.nbytes
                slot.tick = self.hits + 0.5  # after the last use, before the next
            if alias not in self.hot:
                self._remember(resident, alias)
            fits = self._fits(self.max_programs, self.max_bytes)
        if resident is not slot:
            slot.program.close()
        if not fits:
            self.shrink()
        return resident

    def forget(self, slot: Slot) -> None:
        """Take a program out that is of no use, without closing it: somebody may hold it."""
        with self._lock:
            if self._slots.get(slot.digest) is slot:
                del self._slots[slot.digest]
                self._bytes -= slot.nbytes
                for alias in slot.aliases:
                    self.hot.pop(alias, None)

    def grew(self, slot: Slot) -> None:
        """The program's size changed."""
        with self._lock:
            if self._slots.get(slot.digest) is slot:
                self._bytes += int(slot.program.nbytes) - slot.nbytes
                slot.nbytes = int(slot.program.nbytes)

    def shrink(self) -> None:
        """Evict idle programs until the bounds hold, or only programs in use are left."""
        self._evict(self.max_programs, self.max_bytes)

    def trim(self, target_bytes: int) -> int:
        """Evict idle programs until at most `target_bytes` are resident; how many bytes went."""
        before = self._bytes
        self._evict(None, target_bytes)
        return before - self._bytes

    def clear(self) -> None:
        """Forget and close every program, leased or not: the cache is closing."""
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
            self.hot.clear()
            self._bytes = 0
            self.over = False
        for slot in slots:
            slot.program.close()

    def lose(self) -> None:
        """A forked child: the programs are the parent's. Takes no lock, which a thread that is not here may hold."""
        self.hot.clear()
        self.over = False
        for slot in list(self._slots.values()):
            slot.on_release = None

    def _evict(self, most_programs: int | None, most_bytes: int | None) -> None:
        closing = []
        with self._lock:
            if self._fits(most_programs, most_bytes):
                self.over = False
                return
            # `digests`, not slots: a list of slots would hold them all.
            ticks = [(digest, slot.tick) for digest, slot in self._slots.items()]
            for digest, _ in sorted(ticks, key=lambda pair: pair[1]):  # equal ticks: the one added first
                if self._fits(most_programs, most_bytes):
                    break
                program = self._take(digest)
                if program is not None:
                    closing.append(program)
            self.evictions += len(closing)
            self.over = not self._fits(self.max_programs, self.max_bytes)
        for program in closing:
            program.close()

    def _take(self, digest: str) -> _Program | None:
        """Take an idle slot out, for good; None, and everything as it was, if someone holds it."""
        slot = self._slots.pop(digest, None)
        if slot is None:
            return None
        for alias in slot.aliases:
            self.hot.pop(alias, None)
        # Now only this frame should hold it.
        if sys.getrefcount(slot) > _IDLE_COUNT:
            self._slots[digest] = slot
            for alias in slot.aliases:
                self.hot[alias] = slot
            return None
        self._bytes -= slot.nbytes
        program: _Program = slot.program
        return program

    def _fits(self, most_programs: int | None, most_bytes: int | None) -> bool:
        too_many = most_programs is not None and len(self._slots) > most_programs
        too_large = most_bytes is not None and self._bytes > most_bytes
        return not too_many and not too_large

    def _remember(self, slot: Slot, alias: Hashable) -> None:
        if len(slot.aliases) >= _ALIASES:
            self.hot.pop(slot.aliases.pop(0), None)
        slot.aliases.append(alias)
        self.hot[alias] = slot
