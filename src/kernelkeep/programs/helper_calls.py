"""How a body calls the helpers that are macros, which decides the form it is given.

A macro writes its arguments out as often as it needs them, and some are blocks in braces. That is as good as a function where
an argument only computes, and where the call is a statement of its own. `not_as_macros` finds the helpers of a body of which
that is not so: `kk_load4(x, 4 * k++)`, `if (c) kk_barrier(); else …`. Those get a form that evaluates each argument
once and is one expression. All others keep the macros, whose text, and so whose measured speed, stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from .macro_use import CHANGING
from .tokens import Call, Macro, Token, calls_in, macros_of, tokens_of

__all__ = ["not_as_macros"]

_IDS = ("kk_global_id", "kk_local_id", "kk_group_id", "kk_group_size", "kk_group_count", "kk_global_size")
# Per language: helpers that write an argument out more than once, and helpers that are blocks.
_REPEATING = {"cuda": frozenset(_IDS), "opencl": frozenset[str](), "glsl": frozenset(("kk_load4", "kk_global_size"))}
_BLOCKS = {"cuda": frozenset[str](), "opencl": frozenset[str](), "glsl": frozenset(("kk_store4", "kk_barrier"))}
_PURE = frozenset((*_IDS, "kk_int", "kk_uint", "kk_float", "kk_double", "min", "max", "abs"))
_BEFORE_STATEMENTS = frozenset((";", "{", "}", ")", ":", "else", "do"))
# The usual calls, which need no second look.
_USUAL = re.compile(r"\bkk_\w+_(?:id|size|count)\s*\(\s*[012]\s*\)")


@lru_cache(maxsize=128)
def not_as_macros(
    language: str, texts: tuple[str, ...], defines: tuple[tuple[str, str], ...], changing: frozenset[str]
) -> frozenset[str]:
    """The helpers that the texts call in a way that a macro would get wrong in a language.

    `changing` names the arrays that others may write meanwhile: read twice, they may differ.
    """
    repeating, blocks = _REPEATING[language], _BLOCKS[language]
    wanted = repeating | blocks
    everything = "\n".join((*texts, *(value for _, value in defines)))
    if not any(name in _USUAL.sub("", everything) for name in wanted):
        return frozenset()
    split = [tokens_of(text) for text in texts]
    macros = macros_of(split, dict(defines))
    found = set()
    for tokens in split:
        for call in calls_in(tokens, wanted.__contains__):
            if call.name in blocks and not _is_statement(tokens, call.first, call.last):
                found.add(call.name)
            if call.name in repeating and not _only_computes(_repeated(call), macros, changing):
                found.add(call.name)
        found |= _not_called(tokens, wanted)
    for name, each in macros.items():
        for macro in each:
            used = frozenset((*(macro.parameters or ()), *changing))
            for call in calls_in(macro.meaning, wanted.__contains__):
                # Where a macro is used, and with which arguments, is not looked at.
                if call.name in blocks or not _only_computes(_repeated(call), macros, used | {name}):
                    found.add(call.name)
            found |= _not_called(macro.meaning, wanted)
    return frozenset(found)


def _repeated(call: Call) -> tuple[Token, ...]:
    """The arguments that a macro writes out more than once: of `kk_load4`, not the name of the array."""
    arguments = call.arguments[1:] if call.name == "kk_load4" else call.arguments
    return tuple(token for argument in arguments for token in argument)


def _not_called(tokens: Sequence[Token], wanted: frozenset[str]) -> set[str]:
    """Helpers that are named without being called: a macro gives them another name."""
    pairs = zip(tokens, [*tokens[1:], Token((), "end", "")], strict=True)
    return {token.text for token, following in pairs if token.text in wanted and following.text != "("}


def _is_statement(tokens: Sequence[Token], first: int, last: int) -> bool:
    """Whether a call is a statement of its own, and no `else` or `while` belongs to it."""
    before = tokens[first - 1].text if first else ";"
    after = [token.text for token in tokens[last + 1 : last + 3]]
    return before in _BEFORE_STATEMENTS and after[:1] == [";"] and after[1:] not in (["else"], ["while"])


def _only_computes(
    tokens: Sequence[Token],
    macros: dict[str, list[Macro]],
    changing: frozenset[str],
    seen: frozenset[str] = frozenset(),
) -> bool:
    """Whether evaluating tokens twice gives the same twice, and changes nothing."""
    for token, following in zip(tokens, [*tokens[1:], Token((), "end", "")], strict=True):
        name = token.text
        if name in CHANGING or name in changing or token.text == "{":
            return False
        if token.kind == "name" and name in macros and name not in seen:
            if not all(_only_computes(macro.meaning, macros, changing, seen | {name}) for macro in macros[name]):
                return False
        elif token.kind == "name" and following.text == "(" and name not in _PURE and name not in macros:
            return False
    return True
