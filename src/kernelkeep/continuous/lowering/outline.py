"""What the text of a form depends on."""

from __future__ import annotations

from ..program import StateProgram

# The lines that count are those of the user's body. All others have numbers from here on.
FIRST_GENERATED_LINE = 100_001
_PAIRS = ((0, 1), (1, 2), (2, 1))  # the first iteration, and then by turns


class Outline:
    """A program, a form, and what follows from both; `functions.py` and `kernel_text.py` write the text."""

    def __init__(self, program: StateProgram, kind: str, supervised: bool, condition: str | None) -> None:
        self.program = program
        self.kind = kind
        self.supervised = supervised
        self.condition = condition
        self.steers = program.steers or condition is not None
        self.queue = program.coupling == "queue"
        self.pairs = _PAIRS[:1] if kind in ("step", "link") else _PAIRS  # roles that an iteration reads and writes
