"""How every command complains: one sentence on stderr. Needs neither typer nor rich."""

from __future__ import annotations

import sys

from ..escaping import escaped


def complain(sentence: str) -> None:
    """Print a complaint as one line, escaped; a compiler's message has the offending line of source below it, and a caret."""
    first, *below = [escaped(line.strip()) for line in sentence.split("\n") if line.strip() not in ("", "^")] or [""]
    for line in below:
        first += f" {line}" if line.startswith("(") else f": {line}"
    print(f"kernelkeep: {first}", file=sys.stderr)
