"""How every command complains: one sentence on stderr. Needs neither typer nor rich."""

from __future__ import annotations

import sys

from ..escaping import escaped


def complain(sentence: str) -> None:
    """Print a complaint as one line, escaped; a compiler's message has the offending line of source below it."""
    lines = (escaped(line.strip()) for line in sentence.split("\n") if line.strip())
    print(f"kernelkeep: {': '.join(lines)}", file=sys.stderr)
