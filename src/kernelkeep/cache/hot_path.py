"""The hot path: a loaded program is found and leased, and the lease is released.

`PlainLease` and `PlainLookup` are the bases of `Lease` and `ProgramCache` in plain Python. Where the module in C was built
(`_leases.c`), its twins are used: they take a quarter of the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from .loaded_programs import LoadedProgram
from .native import NATIVE

if TYPE_CHECKING:
    from ..programs.portable import PortableKernel
    from ..programs.source import Source
    from ..words import ProgramOrigin
    from .lease import Lease

_FREE_THREADED = "free-threading" in sys.version


class PlainLease:
    """What a lease holds, and its release."""

    # No `__init__`, which would take a quarter of the time of a hit in memory.
    __slots__ = ("held", "origin")

    held: LoadedProgram | None
    origin: ProgramOrigin

    def release(self) -> None:
        """Give the program back. Doing it twice is fine."""
        loaded = self.held
        if loaded is not None:
            if _FREE_THREADED:
                # Two threads may release one lease at the same time, and its use must end once. With the interpreter's lock no
                # other thread runs between the two lines around this: nothing is called there.
                with loaded.release_lock:
                    if self.held is None:
                        return
                    self.held = None
            self.held = None
            on_release = loaded.on_release
            if on_release is not None:
                on_release(loaded)
            loaded.end()
            if loaded.owner.over:
                loaded.owner.shrink()

    def forgotten(self) -> None:
        """It is collected, and was not released."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        try:
            held = self.held
        except AttributeError:  # one that nobody filled
            return
        if held is not None:
            self.forgotten()


class PlainLookup:
    """Finds and leases loaded programs."""

    def bind_hot(self, hot: dict[Hashable, LoadedProgram], next_tick: Callable[[], int]) -> None:
        """Look up in this dictionary, and take ticks from this clock."""
        self._hot = hot
        self._tick = next_tick

    def get(self, source: Source | PortableKernel) -> Lease:
        """A lease on the loaded program. Compiles at most once per key, whoever asks, wherever.

        Raises `CompileError` with the compiler's log, to everyone who waited for it; nothing is cached then.
        """
        from .lease import lease_on

        try:
            loaded = self._hot.get(source)
        except TypeError:  # not hashable, so not a source: `identify` says so
            loaded = None
        if loaded is None or not loaded.hold():
            return self.get_slowly(source)
        loaded.tick = self._tick()
        return lease_on(loaded, "memory")

    def get_slowly(self, asked: Source | PortableKernel) -> Lease:
        """A lease on a program that the hot path does not find."""
        raise NotImplementedError


if TYPE_CHECKING or NATIVE is None:
    LeaseBase = PlainLease
    HotLookup = PlainLookup
else:
    LeaseBase = NATIVE.LeaseBase
    HotLookup = NATIVE.HotLookup
