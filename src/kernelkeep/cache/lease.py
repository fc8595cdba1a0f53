"""A lease: the right to use a loaded program, which is not evicted while the lease is held."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from ..errors import DeviceError
from ..escaping import escaped
from .loaded_programs import LoadedProgram

if TYPE_CHECKING:
    from ..words import ProgramOrigin

_RELEASED = "this lease was released: use it inside its with block, or get another with cache.get(…)"
_FREE_THREADED = "free-threading" in sys.version


class Lease:
    """The right to use a loaded program; while it is held, the program is not evicted. `ProgramCache.get` makes it.

    A context manager; or call `release()`. A lease that is forgotten is released when it is collected, with a
    `ResourceWarning`.
    """

    # No `__init__`, which would take a quarter of the time of a hit in memory: see `lease_on`.
    __slots__ = ("held", "origin")

    held: LoadedProgram | None
    origin: ProgramOrigin

    @property
    def loaded(self) -> LoadedProgram:
        """The program and what the cache knows of it."""
        loaded = self.held
        if loaded is None:
            raise DeviceError(_RELEASED)
        return loaded

    @property
    def program(self) -> Any:
        """The loaded program."""
        loaded = self.held
        if loaded is None:
            raise DeviceError(_RELEASED)
        return loaded.program

    def kernel(self, name: str | None = None) -> Any:
        """A kernel of the program by name; the only one if there is one and no name is given."""
        loaded = self.held
        if loaded is None:
            raise DeviceError(_RELEASED)
        return loaded.program.kernel(name)

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

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        try:
            loaded = self.held
        except AttributeError:  # one that nobody filled
            return
        if loaded is not None:
            # The collector may run anywhere, also while this thread holds one of the cache's locks, so take none here.
            # The use ends; the next `release()` does the rest.
            self.held = None
            loaded.end()
            name = escaped(getattr(loaded.program, "name", loaded.digest[:12]))
            warnings.warn(f"a lease on program {name} was never released", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        loaded = self.held
        return "<Lease, released>" if loaded is None else f"<Lease on {loaded.program!r} from {self.origin}>"


def lease_on(loaded: LoadedProgram, origin: ProgramOrigin) -> Lease:
    """A lease for a use of the program that has begun already."""
    lease = Lease()
    lease.held = loaded
    lease.origin = origin
    return lease
