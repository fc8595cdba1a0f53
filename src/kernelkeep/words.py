"""The fixed words of calls and reports, as types: a type checker finds `strategy="bufered"` before anything runs.

What can be extended is a plain str: languages, backends, names of kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Access = Literal["r", "w", "rw"]
StrategyName = Literal["auto", "redispatch", "mega", "checkpointed", "supervised", "buffered"]
Coupling = Literal["independent", "neighbours", "queue"]
TemplateEngine = Literal["jinja", "defines"]
ProgramOrigin = Literal["memory", "disk", "remote", "compiled"]
StopReason = Literal["done", "body", "until", "empty", "interrupted"]
SelectionBasis = Literal["pinned", "deterministic", "exact", "nearest", "architecture", "model", "default", "untried"]
FaultKind = Literal[
    "",
    "out of bounds",
    "uninitialised",
    "race",
    "barrier",
    "overflow",
    "division by zero",
    "endless loop",
    "misaligned",
]


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """A question with the known word that is most like the given one, such as " (did you mean buffered?)", or nothing."""
    from difflib import get_close_matches  # only where there is a mistake

    words = {word.lower(): word for word in known}
    near = get_close_matches(str(given).lower(), words, n=1)
    return f" (did you mean {words[near[0]]}?)" if near else ""
