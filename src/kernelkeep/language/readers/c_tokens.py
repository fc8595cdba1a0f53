"""Splits a C text into tokens that know their place."""

from __future__ import annotations

import re
from typing import Literal as OneOf

from msgspec import Struct

from ..tree import Place

Kind = OneOf["name", "number", "sign", "text", "end"]

_TOKEN = re.compile(
    r"""[ \t\r\f\v]*(?:
     (?P<name>[^\W\d]\w*)
    |(?P<number>0[xX][0-9a-fA-F.]*(?:[pP][+-]?)?\w*|\.?\d(?:[eE][+-]|[\w.])*)
    |(?P<newline>\n)
    |(?P<comment>//(?:\\[ \t]*\r?\n|[^\n])*|/\*.*?\*/)
    |(?P<sign><<=|>>=|\.\.\.|->|\+\+|--|&&|\|\||<<|>>|\#\#|[-+*/%&|^=!<>]=|[][(){};,.:?~+\-*/%&|^=!<>\#])
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<splice>\\[ \t]*\r?\n)
    |(?P<unknown>.)
    |\Z)""",
    re.VERBOSE | re.DOTALL,
)


class Token(Struct, frozen=True, eq=False, gc=False):
    """One token. `first`: it is the first one in its line. `hidden`: macros that are not expanded in it again."""

    kind: Kind
    text: str
    at: Place
    first: bool = False
    hidden: frozenset[str] = frozenset()

    @property
    def end(self) -> int:
        """The column behind it."""
        return self.at.column + len(self.text)


def tokens_of(text: str, first_line: int = 1) -> list[Token]:
    """The tokens of a text, without comments. An unknown sign is a token of kind "sign"; the parser reports it."""
    found: list[Token] = []
    add = found.append
    line, line_start, first = first_line, 0, True
    none: frozenset[str] = frozenset()
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            break
        if kind == "newline":
            line += 1
            line_start = match.end()
            first = True
        elif kind == "comment" or kind == "splice":
            written = match.group(kind)
            breaks = written.count("\n")
            if breaks:
                line += breaks
                line_start = match.end() - len(written) + written.rindex("\n") + 1
        else:
            start = match.start(kind)
            add(
                Token(
                    "sign" if kind == "unknown" else kind,  # type: ignore[arg-type]
                    text[start : match.end()],
                    Place(line, start - line_start + 1),
                    first,
                    none,
                )
            )
            first = False
    add(Token("end", "", Place(line, max(1, len(text) - line_start + 1)), True))
    return found
