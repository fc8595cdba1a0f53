"""Source code with the numbers of its lines."""

from __future__ import annotations

import textwrap

from .markup import Markup, element, escape

_LONGEST = 100_000  # characters


def code(text: str, first_line: int = 1, *, label: str = "source") -> Markup:
    """A text with line numbers beside it, which are not copied with it. Blank lines around it are left out."""
    lines = text.expandtabs(4).split("\n")
    while len(lines) > 1 and not lines[0].strip():
        lines, first_line = lines[1:], first_line + 1
    shown = textwrap.dedent("\n".join(lines)).rstrip()
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}…"
    numbers = "\n".join(str(first_line + i) for i in range(shown.count("\n") + 1))
    return element(
        "div",
        element("pre", numbers, class_="kk-numbers", aria_hidden="true"),
        element("pre", escape(shown, _LONGEST + 1)),
        class_="kk-source",
        role="region",
        aria_label=label,
        tabindex=0,
    )
