"""The result of a tuning, for people and for programs."""

from __future__ import annotations

from collections import Counter
from os import PathLike
from typing import Any

import msgspec

from .space import Variant
from .trial import FAILURES


class Attempt(msgspec.Struct, frozen=True):
    """One variant: its time, or why it failed. `at_seconds` counts from the start of the tuning."""

    variant: Variant
    milliseconds: float | None
    at_seconds: float
    failure: str = ""
    detail: str = ""
    spread: float = 0.0
    remembered: bool = False  # from an earlier tuning


class TuneReport(msgspec.Struct, frozen=True):
    """The result of `tuned.tune(…)`. `best` is None where every variant failed."""

    name: str
    device: str
    problem: dict[str, Any]
    best: Variant | None
    best_ms: float | None
    default: Variant
    default_ms: float | None
    attempts: tuple[Attempt, ...]
    size: int | None  # of the space for this problem
    seconds: float
    reason: str

    @property
    def complete(self) -> bool:
        """Whether every variant was tried."""
        return self.size is not None and len(self.attempts) >= self.size

    @property
    def measured(self) -> int:
        """How many variants were measured now."""
        return sum(1 for a in self.attempts if a.milliseconds is not None and not a.remembered)

    @property
    def remembered(self) -> int:
        """How many were known already."""
        return sum(1 for a in self.attempts if a.remembered)

    @property
    def failures(self) -> dict[str, int]:
        """How many failed, by class of failure."""
        return dict(Counter(attempt.failure for attempt in self.attempts if attempt.failure))

    @property
    def seconds_to_best(self) -> float | None:
        """When the winner was first measured."""
        return next(
            (a.at_seconds for a in self.attempts if a.variant == self.best and a.milliseconds is not None), None
        )

    def save_picture(self, path: str | PathLike[str]) -> None:
        """The landscape and the progress over time, as PNG, SVG or PDF by the name's ending (needs matplotlib)."""
        from ..pictures.tuning import save_tuning_picture

        save_tuning_picture(self, path)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import tuning_html

        return tuning_html(self)

    def __repr__(self) -> str:
        best = "every variant failed" if self.best_ms is None else f"{self.best} takes {self.best_ms:.4g} ms"
        return f"<TuneReport of {self.name} on {self.device}: {best}, {len(self.attempts)} variants tried>"

    def __str__(self) -> str:
        problem = " ".join(f"{name}={value}" for name, value in self.problem.items())
        of_all = "" if self.size is None else f" of {self.size}"
        lines = [
            f"{self.name}  {problem}  on {self.device}",
            f"  tried     {len(self.attempts)}{of_all} variants in {self.seconds:.1f} s ({self.remembered} known before)",
        ]
        if self.best is not None and self.best_ms is not None:
            lines.append(f"  best      {self.best}  {self.best_ms:.4g} ms")
            lines.append(f"            {self.reason}")
        else:
            lines.append(f"  best      none: {'every variant failed' if self.attempts else 'the time was too short'}")
        if self.default_ms is not None and self.best_ms:
            lines.append(
                f"  default   {self.default}  {self.default_ms:.4g} ms ({self.default_ms / self.best_ms:.2f}×)"
            )
        for failure, count in sorted(self.failures.items()):
            example = next(a for a in self.attempts if a.failure == failure)
            such = f"{count} {failure}, e.g." if count > 1 else f"1 {failure}:"
            lines.append(
                f"  failed    {such} {example.variant} {FAILURES.get(failure, failure)}: {example.detail}".rstrip(": ")
            )
        return "\n".join(lines)
