"""A lease: the right to use a loaded program, which is not evicted while the lease is held."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ..errors import DeviceError
from ..escaping import escaped
from .hot_path import LeaseBase
from .loaded_programs import LoadedProgram, LoadedPrograms
from .native import NATIVE

if TYPE_CHECKING:
    from ..words import ProgramOrigin

_RELEASED = "this lease was released: use it inside its with block, or get another with cache.get(…)"


class Lease(LeaseBase):
    """The right to use a loaded program; while it is held, the program is not evicted. `ProgramCache.get` makes it.

    A context manager; or call `release()`. A lease that is forgotten is released when it is collected, with a
    `ResourceWarning`.
    """

    __slots__ = ()

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

    def __enter__(self) -> Lease:
        return self

    def forgotten(self) -> None:
        """It is collected, and was not released."""
        # The collector may run anywhere, also while this thread holds one of the cache's locks, so take none here.
        # The use ends; the next `release()` does the rest.
        loaded, self.held = self.held, None
        if loaded is not None:
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


if NATIVE is not None:
    NATIVE.use_classes(Lease, LoadedProgram, LoadedPrograms)
