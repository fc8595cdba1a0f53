"""Finds the helpers that must not be macros in a body, because of how the body calls them.

A macro may write an argument out more than once, and some macros are blocks in braces. That is as good as a function where
the argument has no side effects and the call is a statement of its own. It is wrong in `kk_load4(x, 4 * k++)` and in
`if (c) kk_barrier(); else …`: there the helper becomes an expression that evaluates each argument once
(`Language.helper_functions`). All other bodies keep the macros, because their speed was measured with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .languages import Language
from .macro_use import CHANGING
from .tokens import CLOSING, Token, split_define, tokens_of

_IDS = ("kk_global_id", "kk_local_id", "kk_group_id", "kk_group_size", "kk_group_count", "kk_global_size")
_PURE = frozenset((*_IDS, "kk_int", "kk_uint", "kk_float", "kk_double", "min", "max", "abs"))
_BEFORE_STATEMENTS = frozenset((";", "{", "}", ")", ":", "else", "do"))
# The most frequent calls, which are safe.
_USUAL = re.compile(r"\bkk_\w+_(?:id|size|count)\s*\(\s*[012]\s*\)")
_COMMENT = re.compile(r"//(?:\\\n|[^\n])*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_LAST_WORD = re.compile(r"(?:\w+|\W)\Z")
_ENDS_HERE = re.compile(r"\s*;(?!\s*(?:else|while)\b)")


class _Use(NamedTuple):
    """A helper's name in a text, with the arguments of the call, or None where it is not called."""

    name: str
    arguments: tuple[str, ...] | None
    is_statement: bool  # a statement of its own that no `else` or `while` follows


@lru_cache(maxsize=128)
def not_as_macros(
    language: Language, texts: tuple[str, ...], defines: tuple[tuple[str, str], ...], changing: frozenset[str]
) -> frozenset[str]:
    """The helpers that the texts call in a way that the language's macros would get wrong.

    `changing` names the arrays that other work-items may write: two reads of them may differ.
    """
    blocks = language.block_helpers
    repeating = language.helper_functions.keys() - blocks
    everything = _USUAL.sub("", "\n".join((*texts, *(value for _, value in defines))))
    names = [name for name in repeating | blocks if name in everything]
    if not names:
        return frozenset()
    # Every hit of a portable kernel comes through here, so most of a text is skipped.
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
    for parameters, replacement in macros.replacements(wanted):
        for use in _uses(replacement, wanted):
            # Where a macro is used, and with which arguments, is not examined.
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
    """The arguments of a call whose opening parenthesis ends at `start`, and where the call ends."""
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
    """The arguments that a macro writes out more than once; for `kk_load4`, all but the array."""
    arguments = use.arguments or ()
    return tokens_of(" , ".join(arguments[1:] if use.name == "kk_load4" else arguments))


class _Macros:
    """The macros that some preprocessor lines define. A definition is parsed when it is needed."""

    def __init__(self, lines: list[str]) -> None:
        self._lines: dict[str, list[str]] = {}
        for line in lines:
            if match := re.match(r"[ \t]*#[ \t]*define[ \t]+(\w+)", line):
                self._lines.setdefault(match.group(1), []).append(line)

    def replacements(self, wanted: re.Pattern[str]) -> Iterator[tuple[frozenset[str], str]]:
        """The parameters and the replacement text of each macro that names a helper."""
        for lines in self._lines.values():
            for line in lines:
                if wanted.search(line) and (parts := split_define(line)) is not None:
                    yield frozenset(parts[2].parameters or ()), line[len(parts[0]) :]

    def only_computes(self, tokens: list[Token], changing: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
        """Whether the tokens can be evaluated twice: no side effects, and the same value each time."""
        for token, following in zip(tokens, [*tokens[1:], Token((), "end", "")], strict=True):
            name = token.text
            if name in CHANGING or name in changing or name == "{":
                return False
            if token.kind != "name":
                continue
            if name in self._lines and name not in seen:
                for line in self._lines[name]:
                    parts = split_define(line)
                    if parts is None or not self.only_computes(list(parts[2].replacement), changing, seen | {name}):
                        return False
            elif following.text == "(" and name not in _PURE and name not in self._lines:
                return False
        return True
