"""A lease: the right to use a loaded program, which is not evicted while the lease is held."""

from __future__ import annotations

import warnings
from typing import Any

from ..errors import DeviceError
from ..escaping import escaped
from ..words import ProgramOrigin
from .loaded_programs import LoadedProgram


class Lease:
    """The right to use a loaded program; while it is held, the program is not evicted.

    A context manager; or call `release()`. A lease that is forgotten is released when it is collected, with a
    `ResourceWarning`.
    """

    __slots__ = ("_loaded", "origin")

    def __init__(self, loaded: LoadedProgram, origin: ProgramOrigin) -> None:
        self._loaded: LoadedProgram | None = loaded
        self.origin = origin

    @property
    def loaded(self) -> LoadedProgram:
        """The program and what the cache knows of it."""
        loaded = self._loaded
        if loaded is None:
            raise DeviceError("this lease was released")
        return loaded

    @property
    def program(self) -> Any:
        """The loaded program."""
        loaded = self._loaded
        if loaded is None:
            raise DeviceError("this lease was released")
        return loaded.program

    def kernel(self, name: str | None = None) -> Any:
        """A kernel of the program by name; the only one if there is one and no name is given."""
        loaded = self._loaded
        if loaded is None:
            raise DeviceError("this lease was released")
        return loaded.program.kernel(name)

    def release(self) -> None:
        """Give the program back. Doing it twice is fine."""
        loaded = self._loaded
        if loaded is not None:
            self._loaded = None
            if loaded.on_release is not None:
                loaded.on_release(loaded)
            if loaded.owner.over:
                owner = loaded.owner
                del loaded  # its owner counts references and would take it for in use
                owner.shrink()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        loaded = getattr(self, "_loaded", None)
        if loaded is not None:
            # The collector may run anywhere, also while this thread holds one of the cache's locks, so take none here.
            # Dropping the reference releases the lease; the next `release()` does the rest.
            self._loaded = None
            name = escaped(getattr(loaded.program, "name", loaded.digest[:12]))
            del loaded
            warnings.warn(f"a lease on program {name} was never released", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        loaded = self._loaded
        return "<Lease, released>" if loaded is None else f"<Lease on {loaded.program!r} from {self.origin}>"
