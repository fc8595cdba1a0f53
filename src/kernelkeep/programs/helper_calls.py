"""How a body calls the helpers that are macros, which decides the form it is given.

A macro writes its arguments out as often as it needs them, and some are blocks in braces. That is as good as a function where
an argument only computes, and where the call is a statement of its own. `not_as_macros` finds the helpers of a body of which
that is not so: `kk_load4(x, 4 * k++)`, `if (c) kk_barrier(); else …`. Those get a form that evaluates each argument
once and is one expression. All others keep the macros, whose text, and so whose measured speed, stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .languages import Language
from .macro_use import CHANGING
from .tokens import CLOSING, Token, split_define, tokens_of

__all__ = ["not_as_macros"]

_IDS = ("kk_global_id", "kk_local_id", "kk_group_id", "kk_group_size", "kk_group_count", "kk_global_size")
_PURE = frozenset((*_IDS, "kk_int", "kk_uint", "kk_float", "kk_double", "min", "max", "abs"))
_BEFORE_STATEMENTS = frozenset((";", "{", "}", ")", ":", "else", "do"))
# The usual calls, which need no second look.
_USUAL = re.compile(r"\bkk_\w+_(?:id|size|count)\s*\(\s*[012]\s*\)")
_COMMENT = re.compile(r"//(?:\\\n|[^\n])*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_LAST_WORD = re.compile(r"(?:\w+|\W)\Z")
_ENDS_HERE = re.compile(r"\s*;(?!\s*(?:else|while)\b)")


class _Use(NamedTuple):
    """A helper in a text: the arguments of a call, or None where it is only named."""

    name: str
    arguments: tuple[str, ...] | None
    is_statement: bool  # alone, and no `else` or `while` belongs to it


@lru_cache(maxsize=128)
def not_as_macros(
    language: Language, texts: tuple[str, ...], defines: tuple[tuple[str, str], ...], changing: frozenset[str]
) -> frozenset[str]:
    """The helpers that the texts call in a way that a macro would get wrong in a language.

    `changing` names the arrays that others may write meanwhile: read twice, they may differ.
    """
    blocks = language.block_helpers
    repeating = language.helper_functions.keys() - blocks
    everything = _USUAL.sub("", "\n".join((*texts, *(value for _, value in defines))))
    names = [name for name in repeating | blocks if name in everything]
    if not names:
        return frozenset()
    # Most of a text is not looked at: this is on the way to every hit.
    wanted = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b")
    plain = [_COMMENT.sub(" ", text) for text in texts]
    lines = [line for text in plain for line in _DIRECTIVE.findall(text)]
    macros = _Macros([*lines, *(f"#define {name} {value}" for name, value in defines)])
    found = set()
    for text in plain:
        for use in _uses(_DIRECTIVE.sub("", text), wanted):
            misplaced = use.arguments is None or (use.name in blocks and not use.is_statement)
            if misplaced or (use.name in repeating and not macros.only_computes(_repeated(use), changing)):
                found.add(use.name)
    for parameters, meaning in macros.meanings(wanted):
        for use in _uses(meaning, wanted):
            # Where a macro is used, and with which arguments, is not looked at.
            if (
                use.arguments is None
                or use.name in blocks
                or not macros.only_computes(_repeated(use), changing | parameters)
            ):
                found.add(use.name)
    return frozenset(found)


def _uses(text: str, wanted: re.Pattern[str]) -> Iterator[_Use]:
    for match in wanted.finditer(text):
        opening = re.compile(r"\s*\(").match(text, match.end())
        if opening is None:
            yield _Use(match.group(), None, False)
            continue
        arguments, end = _arguments(text, opening.end())
        before = _LAST_WORD.search(text[: match.start()].rstrip()[-8:])
        alone = before is None or before.group() in _BEFORE_STATEMENTS
        yield _Use(match.group(), arguments, alone and _ENDS_HERE.match(text, end) is not None)


def _arguments(text: str, start: int) -> tuple[tuple[str, ...], int]:
    """The arguments of a call, from behind its opening parenthesis on, and where the call ends."""
    depth, begin, found = 1, start, []
    for bracket in re.compile(r"[][(){},]").finditer(text, start):
        sign = bracket.group()
        depth += (sign in CLOSING) - (sign in CLOSING.values())
        if depth == 0 or (depth == 1 and sign == ","):
            found.append(text[begin : bracket.start()])
            begin = bracket.end()
        if depth == 0:
            break
    return tuple(found), begin


def _repeated(use: _Use) -> list[Token]:
    """The arguments that a macro writes out more than once: of `kk_load4`, not the name of the array."""
    arguments = use.arguments or ()
    return tokens_of(" , ".join(arguments[1:] if use.name == "kk_load4" else arguments))


class _Macros:
    """The macros that some preprocessor lines define, read when somebody asks."""

    def __init__(self, lines: list[str]) -> None:
        self._lines: dict[str, list[str]] = {}
        for line in lines:
            if match := re.match(r"[ \t]*#[ \t]*define[ \t]+(\w+)", line):
                self._lines.setdefault(match.group(1), []).append(line)

    def meanings(self, wanted: re.Pattern[str]) -> Iterator[tuple[frozenset[str], str]]:
        """The parameters and meanings of macros that name a helper."""
        for lines in self._lines.values():
            for line in lines:
                if wanted.search(line) and (parts := split_define(line)) is not None:
                    yield frozenset(parts[2].parameters or ()), line[len(parts[0]) :]

    def only_computes(self, tokens: list[Token], changing: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
        """Whether evaluating tokens twice gives the same twice, and changes nothing."""
        for token, following in zip(tokens, [*tokens[1:], Token((), "end", "")], strict=True):
            name = token.text
            if name in CHANGING or name in changing or name == "{":
                return False
            if token.kind != "name":
                continue
            if name in self._lines and name not in seen:
                for line in self._lines[name]:
                    parts = split_define(line)
                    if parts is None or not self.only_computes(list(parts[2].meaning), changing, seen | {name}):
                        return False
            elif following.text == "(" and name not in _PURE and name not in self._lines:
                return False
        return True
