"""From an entry of a tier to a program on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..activity.spans import span
from ..errors import BinaryRejected, OutOfMemory
from .chain import TierChain
from .chain_member import LookupTime
from .entry import Entry, decode
from .key import digest_once, key_of
from .loaded_programs import LoadedProgram, LoadedPrograms
from .log import log
from .saver import Saver, SaveState
from .tiers.tier import Place
from .timings import Timings

if TYPE_CHECKING:
    from ..devices.base import Device, Program
    from ..programs.source import Source
    from ..words import ProgramOrigin


class TierLoader:
    """Loads programs from the tiers of one cache, and keeps what was loaded among its programs."""

    def __init__(
        self,
        device: Device,
        chain: TierChain,
        loaded: LoadedPrograms,
        saver: Saver,
        timings: Timings,
    ) -> None:
        self._device, self._chain, self._loaded = device, chain, loaded
        self._saver, self._timings = saver, timings

    def load(
        self,
        digest: str,
        name: str,
        alias: Hashable,
        source: Source | None = None,
        *,
        only_named: bool = False,
        place: Place | None = None,
        tiers: int | None = None,
        within: LookupTime | None = None,
    ) -> tuple[LoadedProgram, ProgramOrigin] | None:
        """Load a program from the first tier that has it, or of the first `tiers`, and where that was; None where none has it.

        With `source`, what was compiled ahead for the device's architecture is found too, and with `place` what is there. With
        `only_named`, an entry that was saved under another name is a `LookupError`.
        """
        if place is None:
            near = self._load_near(digest, name, alias)
            if near is not None:
                return near
        seconds = 0.0

        def load(entry: Entry) -> Program:
            nonlocal seconds
            if only_named and entry.facts.name != name:
                raise LookupError(digest)
            # What was compiled ahead was never on this device: let the driver refuse all of it now, not at the first launch.
            eager = entry.facts.key.digest != digest or place is not None
            start = time.perf_counter()
            with span("cache.load", program=entry.facts.name, device=self._device.spec, bytes=len(entry.payload)):
                program: Program = self.with_relief(self._device.load, entry.payload, eager=eager)
            seconds = time.perf_counter() - start
            self._timings.add_load(seconds, entry.facts.compile_seconds)
            return program

        places: Callable[[], Sequence[Place]] = tuple
        if source is not None:
            places = partial(places_ahead, self._device, source)
        elif place is not None:
            places = partial(list, (place,))
        hit = self._chain.load(digest, name, load, places, within, tiers)
        if hit is None:
            return None
        facts = hit.facts
        if hit.place is not None and source is not None:  # if it is ever saved again, then as a program of this device
            own = self._device.fingerprint
            facts = msgspec.structs.replace(facts, key=key_of(source, own.digest, own.folder), device=own.folder)
        log(facts.name, "loaded from %s in %.2f ms", hit.origin, seconds * 1e3)
        return self.add(hit.value, SaveState(facts, saved=True, place=hit.place), digest, alias), hit.origin

    def _load_near(self, digest: str, name: str, alias: Hashable) -> tuple[LoadedProgram, ProgramOrigin] | None:
        """The usual hit, in the nearest tier and under its own name; None for everything else, which `load` does."""
        entry = self._chain.find_near(digest, name, decode)
        if entry is None:
            return None
        facts, payload = entry.facts, entry.payload
        if facts.name != name:
            return None
        start = time.perf_counter()
        try:
            with span("cache.load", program=name, device=self._device.spec, bytes=len(payload)):
                program: Program = self.with_relief(self._device.load, payload, eager=False)
        except BinaryRejected as error:
            self._chain.reject_near(digest, name, str(error))
            return None
        seconds = time.perf_counter() - start
        self._chain.count_hit()
        self._timings.add_load(seconds, facts.compile_seconds)
        origin = self._chain.nearest_origin
        log(name, "loaded from %s in %.2f ms", origin, seconds * 1e3)
        return self.add(program, SaveState(facts, saved=True), digest, alias), origin

    def add(self, program: Program, state: SaveState, digest: str, alias: Hashable) -> LoadedProgram:
        """Keep a program that was loaded or compiled. It is in use until `end()`."""
        loaded = LoadedProgram(self._loaded, digest, program, state)
        self._saver.watch(loaded)
        return self._loaded.add(loaded, alias)

    def with_relief(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Do it; if the device has no memory for it, evict every idle program and try once more."""
        try:
            return work(*args, **options)
        except OutOfMemory:
            if not self._loaded.evict_idle():
                raise
            return work(*args, **options)


def places_ahead(device: Device, source: Source) -> list[Place]:
    """Where a source may be found that was compiled ahead for a device's architecture, the preferred place first."""
    return [
        Place(digest_once(source, found.digest), found.digest, found.folder, found.facts)
        for found in device.architecture_fingerprints
    ]
