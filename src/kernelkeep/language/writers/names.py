"""Names in the written text: the user's own, but for those that mean something else in the target."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Gives each name of a module one that is free in the target."""

    def __init__(self, reserved: frozenset[str], taken: Iterable[str]) -> None:
        self._reserved = reserved
        self._taken = set(taken)
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def free(self, name: str) -> str:
        """`name`, or where the target reserves it, `name_`."""
        found = self._known.get(name)
        if found is None:
            found = name
            if name in self._reserved or _is_ours(name):
                found = self._unused("_".join(filter(None, name.split("_"))) + "_")
                if found.startswith(("kk_", "gl_")):
                    found = self._unused("own_" + found)
            self._known[name] = found
        return found

    def other(self, name: str) -> str:
        """A name like `name` that is used for nothing else."""
        return self._unused(f"{name}_2")

    def new(self, stem: str) -> str:
        """A name for something that the user did not name: `old_1`, `old_2`."""
        while True:
            count = self._counts[stem] = self._counts.get(stem, 0) + 1
            found = f"{stem}_{count}"
            if found not in self._taken and found not in self._reserved:
                self._taken.add(found)
                return found

    def _unused(self, name: str) -> str:
        while name in self._taken or name in self._reserved:
            stem, _, count = name.rpartition("_")
            name = f"{stem}_{int(count) + 1}" if count.isdigit() else f"{name}2" if name.endswith("_") else f"{name}_2"
        self._taken.add(name)
        return name


def _is_ours(name: str) -> bool:
    """Whether a name is of a form that writers or targets keep for themselves."""
    return name.startswith(("kk_", "gl_")) or "__" in name or (name[0] == "_" and name[1:2].isupper())
