"""Bugs that the reference device finds in a state program, in the words of its body."""

from __future__ import annotations

import re

from ..errors import KernelFault
from .program import StateProgram


def in_words_of_body(fault: KernelFault, program: StateProgram) -> KernelFault:
    """The same fault with the names of the program and its state, in place of those of its kernel and its copies."""
    copies = {
        f"{key}_{kind}{role}": key for key in (*program.state, *program.tasks) for kind in "st" for role in range(3)
    }
    sentence, line_break, picture = str(fault).partition("\n")
    sentence = sentence.replace(f"kernel {fault.kernel},", f"state program {program.name},", 1)
    sentence = re.sub(r"\w+", lambda word: copies.get(word[0], word[0]), sentence)
    return KernelFault(
        f"{sentence}{line_break}{picture}",
        kind=fault.kind,
        kernel=program.name,
        line=fault.line,
        column=fault.column,
        item=fault.item,
        array=copies.get(fault.array, fault.array),
        index=fault.index,
    )
