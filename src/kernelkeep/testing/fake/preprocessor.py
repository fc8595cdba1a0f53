"""The C preprocessor, as far as kernels in tests need it: macros, conditions and line numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["CError", "Macro", "Token", "preprocess", "tokens_of"]

_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]+|//[^\n]*|/\*.*?\*/|\\\n)|(?P<line>\n)|(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eE][+-]|[\w.])*)
    |(?P<sign><<=|>>=|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)


class CError(Exception):
    """What cannot be translated, and its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Token(NamedTuple):
    kind: str
    text: str
    line: int


class Macro(NamedTuple):
    parameters: tuple[str, ...] | None
    meaning: tuple[Token, ...]


def tokens_of(text: str, line: int) -> list[Token]:
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind not in ("space", "line"):
            found.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
    return found


def preprocess(text: str, line: int, macros: dict[str, Macro]) -> list[Token]:
    found: list[Token] = []
    pending: list[Token] = []  # since the last directive: a macro's arguments may go over lines
    active: list[bool] = []

    def flush() -> None:
        found.extend(_expanded(pending, macros, frozenset()))
        pending.clear()

    for written in re.split(r"(?<!\\)\n", text):
        directive = re.match(r"[ \t]*#[ \t]*(\w*)[ \t]*(.*)", written, re.DOTALL)
        if directive is None:
            if all(active):
                pending += tokens_of(written, line)
        else:
            flush()
            word, rest = directive[1], directive[2]
            if word in ("ifdef", "ifndef", "if"):
                active.append(_condition(word, rest, macros, line))
            elif word == "else":
                active[-1] = not active[-1]
            elif word == "endif":
                active.pop()
            elif all(active) and word == "define":
                _define(rest, line, macros)
            elif all(active) and word == "undef":
                macros.pop(rest.strip(), None)
            elif all(active) and word == "line":
                line = int(rest.split()[0]) - 1
            elif word not in ("pragma", "extension", "define", "undef", "line"):
                raise CError(line, f"#{word} is not supported")
        line += 1 + written.count("\n")
    flush()
    return found


def _condition(word: str, rest: str, macros: Mapping[str, Macro], line: int) -> bool:
    if word != "if":
        return (rest.strip() in macros) == (word == "ifdef")
    rest = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", lambda m: str(int(m[1] in macros)), rest)
    text = " ".join(token.text for token in _expanded(tokens_of(rest, line), macros, frozenset()))
    return bool(eval(re.sub(r"\b[A-Za-z_]\w*", "0", text.replace("&&", " and ").replace("||", " or ")), {}))


def _define(rest: str, line: int, macros: dict[str, Macro]) -> None:
    match = re.match(r"(\w+)(?:\(([^)]*)\))?(.*)", rest, re.DOTALL)
    if match is None:
        raise CError(line, "#define needs a name")
    parameters = None if match[2] is None else tuple(name.strip() for name in match[2].split(",") if name.strip())
    macros[match[1]] = Macro(parameters, tuple(tokens_of(match[3], line)))


def _expanded(tokens: Sequence[Token], macros: Mapping[str, Macro], hidden: frozenset[str]) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        macro = macros.get(token.text) if token.kind == "name" and token.text not in hidden else None
        if macro is None:
            found.append(token)
            continue
        meaning = list(macro.meaning)
        if macro.parameters is not None:
            if at >= len(tokens) or tokens[at].text != "(":
                found.append(token)
                continue
            arguments, at = _arguments(tokens, at, token)
            given = {
                name: _expanded(argument, macros, hidden)
                for name, argument in zip(macro.parameters, arguments, strict=False)
            }
            meaning = [piece for part in macro.meaning for piece in given.get(part.text, [part])]
        meaning = [piece._replace(line=token.line) for piece in meaning]
        found += _expanded(meaning, macros, hidden | {token.text})
    return found


def _arguments(tokens: Sequence[Token], at: int, macro: Token) -> tuple[list[list[Token]], int]:
    arguments: list[list[Token]] = [[]]
    depth = 0
    while True:
        if at >= len(tokens):
            raise CError(macro.line, f"the arguments of {macro.text} do not end")
        text = tokens[at].text
        at += 1
        depth += (text in "([{") - (text in ")]}")
        if depth == 0:
            return arguments, at
        if text == "," and depth == 1:
            arguments.append([])
        elif depth > 1 or text != "(":
            arguments[-1].append(tokens[at - 1])
