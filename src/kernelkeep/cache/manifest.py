"""The manifest of a GPU's folder: what the folder belongs to, how much is in it, and which machines used it.

It may be deleted or damaged at any time: what it holds is counted again from the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..platforms import system
from ..storage.private import Trust
from ..storage.shared_counts import SharedCounts

REFRESH_SECONDS = 12 * 3600.0  # a last use that is younger is not written again


class Manifest:
    """`manifest.json` in `folder`. `count` counts the entries and bytes that are really there."""

    def __init__(self, folder: Path, trust: Trust, count: Callable[[], tuple[int, int]]) -> None:
        self._count = count
        self._facts: dict[str, Any] = {}
        self._used_here = True
        self._counts = SharedCounts(
            folder / "manifest.json", folder / "locks" / "folder.lock", trust, complete=self._complete
        )

    def read(self) -> dict[str, Any]:
        """Its fields; none where it is missing or damaged."""
        return _without_bad_numbers(self._counts.read())

    def is_ours(self) -> bool:
        """Whether a kernelkeep wrote it."""
        found = self.read()
        return isinstance(found.get("schema"), int) and isinstance(found.get("fingerprint"), dict)

    def note_use(self, facts: dict[str, Any], *, used_here: bool = True) -> bool:
        """Write down that this machine uses the folder, with what it belongs to. False if that was done a short time ago.

        Not `used_here`: the folder is filled here for other machines.
        """
        self._facts, self._used_here = facts, used_here
        found = self.read()
        used, now = found.get("last_used"), time.time()
        recent = isinstance(used, int | float) and -REFRESH_SECONDS < now - used < REFRESH_SECONDS
        if recent and found.get("schema") == 1 and {"entries", "bytes"} <= found.keys():
            return False
        self._counts.change(self._with_use)
        return True

    def _with_use(self, fields: dict[str, Any]) -> None:
        now = time.time()
        machines = fields.get("machines")
        fields.update(self._facts)
        if self._used_here:
            fields["machines"] = {**(machines if isinstance(machines, dict) else {}), _machine(): now}
        fields["last_used"] = now

    def _complete(self, found: dict[str, Any]) -> dict[str, Any]:
        """Add what is missing in a new, deleted or damaged manifest."""
        found = {"schema": 1, "created": time.time()} | _without_bad_numbers(found)
        if not isinstance(found.get("fingerprint"), dict):
            found.update(self._facts)
        if not {"entries", "bytes"} <= found.keys():
            found["entries"], found["bytes"] = self._count()
        return found

    @property
    def used_here(self) -> bool:
        """Whether this machine is among those that used the folder."""
        machines = self.read().get("machines")
        return isinstance(machines, dict) and _machine() in machines

    def count(self) -> tuple[int, int]:
        """Entries and their bytes as written down; looks at no entry."""
        found = self.read()
        return max(0, int(found.get("entries", 0))), max(0, int(found.get("bytes", 0)))

    def add(self, *, entries: int, size: int) -> None:
        """Add to the counts."""
        self._counts.add({"entries": entries, "bytes": size})

    def recount(self, count: Callable[[], tuple[int, int]]) -> None:
        """Write down what `count` finds. While another process has the manifest's lock nothing is done."""

        def counted() -> dict[str, float]:
            entries, size = count()
            return {"entries": entries, "bytes": size}

        with contextlib.suppress(OSError):
            self._counts.recount(counted)

    def remove(self) -> None:
        """Remove the file, and counts that wait beside it."""
        self._counts.remove()


def _without_bad_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    for name in ("entries", "bytes", "last_used"):
        value = fields.get(name)
        if not (isinstance(value, int | float) and abs(value) < 1e18):
            fields.pop(name, None)
    return fields


def _machine() -> str:
    """A name for this machine: a shared home folder holds the caches of several."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="ascii").strip()
            if text:
                return text[:32]
    return system.host_name()
