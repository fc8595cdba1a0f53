"""Whether the place that a guest has for a cache is the one that we know.

These places are not documented as stable, so a version number says little. What is used of the guest is looked at first:
that the names are there, that a class asks for no method that ours lacks, and that functions take what they are given. A place
that is missing or different is refused in one sentence. A version that nobody tried, with the right place, is used and logged.
"""

from __future__ import annotations

import contextlib
import warnings
from importlib import import_module
from inspect import signature
from typing import Any

from ..cache.log import log
from ..errors import CacheWarning, KernelKeepError, Unsupported
from .catalogue import Guest, find_guest


class Hook:
    """What is used of one guest: each call adds what is missing, and `check` refuses if anything is."""

    def __init__(self, name: str) -> None:
        self._guest: Guest = find_guest(name)
        self._missing: list[str] = []
        self._warned = False
        self.version = str(getattr(import_module(self._guest.package), self._guest.version_name, "unknown"))

    def find(self, module: str, name: str) -> Any:
        """Something in a module of the guest; None where it is missing."""
        try:
            found = getattr(import_module(module), name, None)
        except ImportError:
            found = None
        if found is None:
            self._missing.append(f"it has no {module}.{name}")
        return found

    def find_class(self, module: str, name: str, methods: dict[str, tuple[str, ...]]) -> Any:
        """A class to derive from, whose `methods` take these parameters; `object` where it is missing.

        It may be abstract in these methods only: ours has no others.
        """
        found = self.find(module, name)
        if found is None:
            return object
        for method in sorted(set(getattr(found, "__abstractmethods__", ())) - set(methods)):
            self._missing.append(f"{name} wants a method {method}")
        for method, parameters in methods.items():
            self.takes(getattr(found, method, None), f"{name}.{method}", ("self", *parameters))
        return found

    def takes(self, function: Any, label: str, parameters: tuple[str, ...], *, first: bool = True) -> None:
        """A function takes exactly these parameters; more are fine where they have defaults. Not `first`: in any place."""
        if function is object:  # its class is missing, and noted
            return
        if not callable(function):
            self._missing.append(f"it has no {label}")
            return
        try:
            known = signature(function).parameters
        except (TypeError, ValueError):  # one in C does not say
            return
        names = list(known)
        needed = {name for name, one in known.items() if one.default is one.empty and one.kind not in (2, 4)}
        right = names[: len(parameters)] == list(parameters) if first else set(parameters) <= set(names)
        if not right or (first and needed - set(parameters)):
            self._missing.append(f"{label} takes ({', '.join(names)})")

    def has(self, thing: Any, *names: str) -> None:
        """Something of the guest has these attributes."""
        label = getattr(thing, "__name__", type(thing).__name__)
        self._missing += [f"it has no {label}.{name}" for name in names if not hasattr(thing, name)]

    @property
    def refusal(self) -> Unsupported | None:
        """Why the place cannot be used."""
        if not self._missing:
            return None
        name, tried = self._guest.name, ", ".join(self._guest.tried)
        return Unsupported(
            f"{name}'s programs in this cache",
            f"{name} {self.version} cannot use this cache ({'; '.join(self._missing)}); {name} {tried} can",
        )

    def go_on_without(self, problem: KernelKeepError) -> None:
        """Warn once. The environment turned the guest on: an error would end a program that works without us."""
        if not self._warned:
            self._warned = True
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(f"{problem}; {self._guest.name} uses a cache of its own", CacheWarning, stacklevel=2)

    def check(self) -> None:
        """`Unsupported` where the place is missing or different. One line in the log where it is right and was never tried."""
        refusal = self.refusal
        if refusal is not None:
            raise refusal
        if not any(self.version == one or self.version.startswith(f"{one}.") for one in self._guest.tried):
            tried = ", ".join(self._guest.tried)
            log(
                self._guest.name,
                "version %s was not tried with this cache, and has the same place as %s",
                self.version,
                tried,
            )
