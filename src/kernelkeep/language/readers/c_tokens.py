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


# --- what can be seen in the tokens of a text before it is read

_BRACES = frozenset("{}")
_CHANGES = frozenset(("=", "+=", "-=", "++", "--"))
_BEFORE_BRACKETS = frozenset(("for", "while", "if", "switch", "do", "else", "return", "case"))


def last_function(tokens: list[Token]) -> int:
    """Where the body of the last helper function begins, or 0: that is `type name(…) {` outside all braces."""
    found = depth = 0
    for at, token in enumerate(tokens):
        if token.text not in _BRACES:
            continue
        if token.text == "{":
            if depth == 0 and at and tokens[at - 1].text == ")" and _is_head(tokens, at - 1):
                found = at
            depth += 1
        else:
            depth -= 1
    return found


def _is_head(tokens: list[Token], close: int) -> bool:
    """Whether the parenthesis at `close` ends the head of a function."""
    depth, at = 0, close
    while at >= 0:
        depth += (tokens[at].text == ")") - (tokens[at].text == "(")
        if depth == 0:
            break
        at -= 1
    if at < 2:
        return False
    name, before = tokens[at - 1], tokens[at - 2]
    return name.kind == before.kind == "name" and not {name.text, before.text} & _BEFORE_BRACKETS


def changed_names(tokens: list[Token]) -> set[str]:
    """Names that are changed as they stand, without an index."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text in _CHANGES:
            before = tokens[at - 2].text
            is_step = token.text in ("++", "--")
            if before not in (".", "->") and (is_step or before != "*"):
                found.add(tokens[at - 1].text)
            if is_step:
                found.add(tokens[at + 1].text)
    return found
