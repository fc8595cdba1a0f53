"""The stored records of one tuned kernel on one device: what choices are based on, and where new results go."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..cache.program_cache import ProgramCache
from ..platforms import system
from ..storage.private import Trust
from .record import Choice, Record
from .records import FILE_NAME, Records

if TYPE_CHECKING:
    from .definition import Definition, Problem
    from .template import Launch


class KernelRecords:
    """Reads and writes a cache's tuning records for one definition and the cache's device."""

    def __init__(self, definition: Definition, cache: ProgramCache) -> None:
        self.definition = definition
        self.device = cache.device
        self.all = records_of(cache)
        self._fingerprint = cache.device.fingerprint.digest

    def on_this_device(self, problem: Problem | None = None) -> list[Record]:
        """The records of this device, or those of one problem."""
        return self.all.of_device(self.definition.name, self._fingerprint, problem, self.definition.dtype)

    def by_source(self, problem: Problem) -> dict[str, Record]:
        """The records of this device and one problem, by the digest of the source."""
        return self.all.known(self.definition.name, self._fingerprint, problem, self.definition.dtype)

    def on_similar_devices(self) -> list[Record]:
        """The records of other devices of the same architecture, the shipped ones among them."""
        family = self.device.family
        found = self.all.of_architecture(self.definition.name, family)
        shipped = [record for record in self.definition.shipped_records if record.architecture == family]
        return [*(record for record in found if record.device != self._fingerprint), *shipped]

    def record(
        self,
        problem: Problem,
        variant: Mapping[str, Any],
        launch: Launch,
        samples_ms: Sequence[float],
        failure: str = "",
        detail: str = "",
    ) -> Record:
        """A measurement on this device, or a failure, to be stored with `add`."""
        return self.definition.record(self.device, problem, variant, launch.source, samples_ms, failure, detail)

    def add(self, *records: Record) -> None:
        """Store records in one transaction."""
        self.all.add_all(records)

    def choices(self) -> list[Choice]:
        """The variants in use, for all problems."""
        found = self.all.choices(self.definition.name, self._fingerprint)
        return [choice for choice in found if choice.dtype == self.definition.dtype]

    def choice(self, problem: Problem) -> Choice | None:
        """The variant in use for a problem."""
        return self.all.choice(self.definition.name, self._fingerprint, problem, self.definition.dtype)

    def choose(self, problem: Problem, variant: Mapping[str, Any], reason: str, pinned: bool = False) -> None:
        """Store which variant is to run for a problem. Calls that have made their choice keep it."""
        self.all.choose(
            Choice(
                tuned=self.definition.name,
                device=self._fingerprint,
                problem=dict(problem),
                variant=dict(variant),
                dtype=self.definition.dtype,
                pinned=pinned,
                reason=reason,
            )
        )

    def unpin(self, problem: Problem) -> bool:
        """Remove a pin; whether there was one."""
        return self.all.unpin(self.definition.name, self._fingerprint, problem, self.definition.dtype)

    def forget_measurements(self, problem: Problem) -> None:
        """Remove what was measured of a problem; its choice stays."""
        self.all.forget(self.definition.name, self._fingerprint, problem, choices=False)


_opened: weakref.WeakKeyDictionary[ProgramCache, Records] = weakref.WeakKeyDictionary()
_creating = threading.Lock()


def creation_lock() -> threading.Lock:
    """Held where threads that come first together must share one object."""
    return _creating


def _replace_lock_in_child() -> None:
    global _creating
    _creating = threading.Lock()  # a thread that the forked child does not have may hold the other


system.on_fork(after_in_child=_replace_lock_in_child)


def records_of(cache: ProgramCache) -> Records:
    """The tuning records in a cache's folder; opened once for each cache."""
    with creation_lock():
        found = _opened.get(cache)
        if found is None:
            found = _opened[cache] = Records(cache.cache_dir / FILE_NAME, Trust(cache.trusted_owner))
            cache.add_tenant(found)
        return found
