"""Reports for people: what preloading did, and why a lookup hits or misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..escaping import escaped

_LINES = "\n\t"  # a compiler's message has several lines


@dataclass(frozen=True)
class PreloadFailure:
    """A program that could not be preloaded, and why."""

    name: str
    error: Exception

    def __str__(self) -> str:
        return f"{escaped(self.name)}: {escaped(self.error, keep=_LINES)}"


@dataclass(frozen=True)
class PreloadReport:
    """How many programs were loaded from where, which failed and why, and how long it took."""

    memory: int  # loaded already
    disk: int  # loaded from disk
    remote: int  # loaded from a shared store
    compiled: int  # compiled now
    failed: tuple[PreloadFailure, ...]  # which, and why
    seconds: float  # for all of them

    @property
    def loaded(self) -> int:
        """How many programs are ready now."""
        return self.memory + self.disk + self.remote + self.compiled

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for is ready."""
        return not self.failed

    def __str__(self) -> str:
        parts = [f"{self.disk} from disk", f"{self.compiled} compiled"]
        if self.memory:
            parts.append(f"{self.memory} already in memory")
        if self.remote:
            parts.append(f"{self.remote} remote")
        noun = "program" if self.loaded == 1 else "programs"
        text = f"{self.loaded} {noun} ready in {self.seconds * 1e3:.0f} ms: {', '.join(parts)}"
        return "\n".join([text, *(f"failed: {failure}" for failure in self.failed)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import preload_html

        return preload_html(self)


@dataclass(frozen=True)
class Difference:
    """A field of the key that differs; None where one side lacks it."""

    field: str
    stored: str | None
    asked: str | None


@dataclass(frozen=True)
class Explanation:
    """Why a lookup hits or misses; `str()` is the text for people."""

    name: str
    found: str | None  # "memory", "disk", "remote" or None
    digest: str
    fields: dict[str, str]
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        name = escaped(self.name)
        if self.found:
            where = {"memory": "in memory", "remote": "in a shared store"}.get(self.found, f"on {self.found}")
            lines = [f"{name} is found {where}, key {self.digest[:16]}"]
        elif self.nearest is None:
            lines = [f"{name} is not found, and no other version of it is known; key {self.digest[:16]}"]
        else:
            lines = [
                f"{name} is not found, key {self.digest[:16]}; the nearest entry is {escaped(self.nearest)}, which differs in:"
            ]
            for difference in self.differences:
                # Of the text only a digest is kept.
                text = "the text differs: " if difference.field == "source" else ""
                sides = f"{_side(difference.stored)} there, {_side(difference.asked)} here"
                lines.append(f"  {escaped(difference.field)}: {text}{sides}")
        if self.note:
            lines.append(self.note)
        lines.append("its key is made of:")
        lines += [
            f"  {'=' if self.found else ' '} {escaped(label)}: {escaped(value)}" for label, value in self.fields.items()
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Explanation: {str(self).splitlines()[0]}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import explanation_html

        return explanation_html(self)


def _side(value: str | None) -> str:
    return "absent" if value is None else "defined without a value" if value == "" else escaped(value)
