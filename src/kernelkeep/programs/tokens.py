"""Splits a body into tokens, and finds the macros it defines.

Enough of C to find the operands of an operator, and no more: macros are not expanded and conditions are not evaluated.
Joining the tokens gives the text again, character for character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

CLOSING = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""(?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|/\*.*?\*/|(?!//)[^\n])*)
    |(?P<space>\n|[^\S\n]+|\\\n|//(?:\\\n|[^\n])*|/\*.*?\*/)
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<sign><<=|>>=|\+\+|--|&&|\|\||<<|>>|->|\#\#|[-+*/%&|^=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_DEFINE = re.compile(r"([ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?)(.*)", re.DOTALL)


class Token(NamedTuple):
    """One token, and the pieces before it: white space, comments and preprocessor lines."""

    before: tuple[str, ...]
    kind: str  # "name" | "number" | "text" | "sign" | "end"
    text: str

    def __str__(self) -> str:
        return "".join((*self.before, self.text))


class Macro(NamedTuple):
    """One definition of a macro. `parameters` is None for a macro without parentheses."""

    parameters: tuple[str, ...] | None
    replacement: tuple[Token, ...]


class Call(NamedTuple):
    """A name followed by parentheses, and the tokens of each argument."""

    name: str
    arguments: tuple[tuple[Token, ...], ...]
    first: int  # index of the name
    last: int  # index of the closing parenthesis


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text. The last one is the end of the text."""
    found: list[Token] = []
    before: list[str] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind in ("space", "directive"):
            before.append(match.group())
        else:
            found.append(Token(tuple(before), kind, match.group()))
            before = []
    return [*found, Token(tuple(before), "end", "")]


def is_directive(piece: str) -> bool:
    """Whether a piece before a token is a preprocessor line."""
    return piece.lstrip().startswith("#")


def split_define(directive: str) -> tuple[str, str, Macro] | None:
    """The head, the macro's name and the definition of a `#define`; None for any other line."""
    match = _DEFINE.match(directive)
    if match is None:
        return None
    head, name, listed, replacement = match.groups()
    parameters = None if listed is None else tuple(part.strip() for part in listed.split(","))
    return head, name, Macro(parameters, tuple(tokens_of(replacement)))


def macros_of(texts: Iterable[Sequence[Token]], defines: Mapping[str, str]) -> dict[str, list[Macro]]:
    """Every definition of every macro, also those inside conditions."""
    found = {name: [Macro(None, tuple(tokens_of(replacement)))] for name, replacement in defines.items()}
    for tokens in texts:
        for piece in (piece for token in tokens for piece in token.before if is_directive(piece)):
            if (parts := split_define(piece)) is not None:
                found.setdefault(parts[1], []).append(parts[2])
    return found


def calls_in(tokens: Sequence[Token], wanted: Callable[[str], bool]) -> Iterator[Call]:
    """Every call of a function or macro for whose name `wanted` returns True, nested ones too."""
    for first, (token, following) in enumerate(pairwise(tokens)):
        if token.kind != "name" or following.text != "(" or not wanted(token.text):
            continue
        arguments: list[tuple[Token, ...]] = []
        depth, begin, at = 0, first + 2, first + 1
        while at < len(tokens) and tokens[at].kind != "end":
            text = tokens[at].text
            depth += (text in CLOSING) - (text in CLOSING.values())
            if depth == 0 or (depth == 1 and text == ","):
                arguments.append(tuple(tokens[begin:at]))
                begin = at + 1
            if depth == 0:
                break
            at += 1
        yield Call(token.text, tuple(arguments), first, at)
