"""Why a lookup hits or misses, field by field, against the nearest entry."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..programs.portable import PortableKernel
from ..programs.source import Source
from .entry import Facts
from .key import Key
from .report import Difference, Explanation

if TYPE_CHECKING:
    from .program_cache import ProgramCache


def explain(cache: ProgramCache, source: Source | PortableKernel) -> Explanation:
    """Whether `cache` would find `source`, and if not, in which fields the nearest entry differs."""
    source, _ = cache.identify(source)
    key = cache.key(source)
    note = ""
    if not cache.device.capabilities.program_binaries:
        note = "This driver gives no program binaries, so nothing is kept on disk."
    origin = None
    if key.digest in cache.loaded:
        origin = "memory"
    elif (found := cache.chain.locate(key.digest, source.name, lambda: cache.places_ahead(source))) is not None:
        origin = found.origin
        if found.place is not None:
            by = f" by {found.facts.compiler}" if found.facts.compiler else ""
            note = (
                f"It was compiled ahead{by}, for the architecture: {found.place.folder}, key {found.place.digest[:16]}."
            )
    if origin:
        return Explanation(source.name, origin, key.digest, key.fields, note=note)
    nearest: Facts | None = None
    fewest: tuple[Difference, ...] = ()
    for facts in _relatives(cache, source.name):
        differences = _differences(facts.key, key)
        if nearest is None or len(differences) < len(fewest):
            nearest, fewest = facts, differences
    near = None if nearest is None else described(nearest)
    return Explanation(source.name, None, key.digest, key.fields, near, fewest, note)


def _relatives(cache: ProgramCache, name: str) -> Iterable[Facts]:
    """Entries saved under the same name, for this device first, then for the others."""
    for folder in cache.disk.folders():
        for digest in folder.find_name(name):
            entry = None
            with contextlib.suppress(Exception):
                entry = folder.read_entry(digest, name)
            if entry is not None:
                yield entry.facts


def compare_entries(asked: Facts, others: Iterable[Facts]) -> Explanation:
    """In which fields an entry differs from the nearest of the others; `LookupError` where there is no other."""
    differences = {facts.key.digest: (_differences(facts.key, asked.key), facts) for facts in others}
    differences.pop(asked.key.digest, None)
    if not differences:
        raise LookupError(asked.name)
    fewest, nearest = min(differences.values(), key=lambda found: len(found[0]))
    return Explanation(
        asked.name, None, asked.key.digest, asked.key.fields, described(nearest), fewest, "Both are kept."
    )


def described(facts: Facts) -> str:
    """An entry in a sentence."""
    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.created))
    return f"{facts.name} {facts.key.digest[:16]} of {saved}"


def _differences(stored: Key, asked: Key) -> tuple[Difference, ...]:
    labels = dict.fromkeys([*asked.fields, *stored.fields])
    pairs = ((label, stored.fields.get(label), asked.fields.get(label)) for label in labels)
    return tuple(Difference(label, then, now) for label, then, now in pairs if then != now)
