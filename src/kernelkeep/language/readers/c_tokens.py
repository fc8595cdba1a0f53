"""Splits a C text into tokens that know their place."""

from __future__ import annotations

import re
from typing import Literal as OneOf

from msgspec import Struct

from ..tree import Place

Kind = OneOf["name", "number", "sign", "text", "end"]

_NAME, _NUMBER, _BLANK = r"[^\W\d]\w*", r"\.?\d(?:[eE][+-]|[\w.])*", r"[ \t\r\f\v]+"
_SIGN = r"<<=?|>>=?|[-+*/%&|^=!<>]=|\+\+|--|&&|\|\||->|##|\.\.\.|."
# What few texts have, with what such a text contains. Compiling a pattern takes as long as reading with it.
_RARE = (
    (("//", "/*"), r"//(?:\\[ \t]*\r?\n|[^\n])*|/\*.*?\*/"),
    (("0x", "0X"), r"0[xX][\da-fA-F.]*(?:[pP][+-]?)?\w*"),
    (('"', "'"), r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""),
    (("\\",), r"\\[ \t]*\r?\n"),
)
# What a token is, by its first character. Those that are missing need a second look.
_KINDS: dict[str, Kind | OneOf["blank"]] = {}
_KINDS.update(dict.fromkeys("abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ", "name"))
_KINDS.update(dict.fromkeys("0123456789", "number"))
_KINDS.update(dict.fromkeys("()[]{};,=+-*<>&|!?:%^~#", "sign"))
_KINDS.update(dict.fromkeys(" \t\r\f\v", "blank"))


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
    row, line, column, first = 0, first_line, 1, True
    numbers = None  # lines count up
    if "#" in text and "line" in text:
        from ..lines import line_numbers

        numbers = line_numbers(text, first_line)
    kinds, none = _KINDS, frozenset[str]()
    for written in _pattern(text).findall(text):
        kind = kinds.get(written[0])
        if kind == "blank":
            column += len(written)
            continue
        if kind is None:
            kind = _rare_kind(written)
            if kind is None:
                breaks = written.count("\n")
                if breaks:
                    row += breaks
                    line = first_line + row if numbers is None else numbers[row]
                    column = len(written) - written.rindex("\n")
                    first |= written == "\n"
                else:
                    column += len(written)
                continue
        add(Token(kind, written, Place(line, column), first, none))
        column += len(written)
        first = False
    add(Token("end", "", Place(line, column), True))
    return found


def _pattern(text: str) -> re.Pattern[str]:
    """What splits this text into tokens, blanks, line ends and comments."""
    rare = [part for signs, part in _RARE if any(sign in text for sign in signs)]
    return re.compile("|".join((_NAME, _BLANK, *rare, _NUMBER, _SIGN)), re.DOTALL)


def _rare_kind(written: str) -> Kind | None:
    """What a token is that does not tell by its first character; None where it is none."""
    if written == "\n" or written[:2] in ("//", "/*") or (written[0] == "\\" and len(written) > 1):
        return None
    if written[0].isidentifier():
        return "name"
    if written[0] in "\"'" and len(written) > 1:
        return "text"
    return "number" if written.removeprefix(".")[:1].isdecimal() else "sign"
