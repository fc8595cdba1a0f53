"""What a form of a state program is made from: what its text depends on."""

from __future__ import annotations

from ..program import StateProgram

__all__ = ["Outline"]

_PAIRS = ((0, 1), (1, 2), (2, 1))  # the first iteration, and then by turns


class Outline:
    """A program, the form it is to take, and what follows from both. `functions.py` and `kernel_text.py` write it down."""

    def __init__(self, program: StateProgram, kind: str, supervised: bool, condition: str | None) -> None:
        self.program = program
        self.kind = kind
        self.supervised = supervised
        self.condition = condition
        self.steers = program.steers or condition is not None
        self.queue = program.coupling == "queue"
        self.pairs = _PAIRS[:1] if kind == "step" else _PAIRS  # roles that an iteration reads and writes
