"""How every command complains: one sentence on stderr. Needs neither typer nor rich."""

from __future__ import annotations

import sys

__all__ = ["complain"]


def complain(sentence: str) -> None:
    """Print a complaint as one line; a compiler's message has the offending line of source below it."""
    print(f"kernelkeep: {': '.join(line.strip() for line in sentence.splitlines() if line.strip())}", file=sys.stderr)
