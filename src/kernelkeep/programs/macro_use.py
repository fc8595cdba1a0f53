"""Checks that `%` can be rewritten without expanding macros.

C replaces a macro by its definition before it parses operators. A rewriter that sees only the macro's name is right where the
definition is one operand, such as a number or an expression in parentheses. Elsewhere it would be wrong: that is an
`ArgumentError` that says where parentheses are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ..errors import ArgumentError
from .tokens import CLOSING, Call, Token, calls_in, macros_of

CHANGING = frozenset(("++", "--", "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))


def is_simple(tokens: Sequence[Token]) -> bool:
    """Whether tokens have only variables, numbers and operators: no call, no array element, no assignment."""
    return not any(token.text == "[" for token in tokens) and _has_no_effect(tokens)


def _has_no_effect(tokens: Sequence[Token]) -> bool:
    if any(token.text in CHANGING or token.text == "{" for token in tokens):
        return False
    return not any(one.kind == "name" and other.text == "(" for one, other in pairwise(tokens))


class MacroUse:
    """The macros of some texts, and every use of them in the texts and in other macros."""

    def __init__(self, texts: Sequence[Sequence[Token]], defines: Mapping[str, str]) -> None:
        self._macros = macros_of(texts, defines)
        functions = {name for name, each in self._macros.items() if any(macro.parameters is not None for macro in each)}
        # Every call of a macro, with the name of the macro whose definition contains the call.
        self._calls: list[tuple[Call, str]] = [
            (call, "") for tokens in texts for call in calls_in(tokens, functions.__contains__)
        ]
        for name, each in self._macros.items():
            for macro in each:
                self._calls += [(call, name) for call in calls_in(macro.replacement, functions.__contains__)]
        self._bare: dict[str, set[str]] = {}  # parameters that are an operand of % without parentheses

    def _parameters(self, macro: str) -> set[str]:
        return {name for each in self._macros.get(macro, ()) for name in each.parameters or ()}

    # --- operands

    def check_operand(self, tokens: Sequence[Token], within: str) -> None:
        """Raise `ArgumentError` for an operand that is a different one once its macros are expanded."""
        parameters = self._parameters(within)
        for name in _outermost_names(tokens):
            if name in parameters:
                self._bare.setdefault(within, set()).add(name)
            elif self._is_compound_macro(name):
                raise ArgumentError(
                    f"macro {name} is an operand of % and needs parentheses around its whole definition"
                )

    def check_beside(self, name: str) -> None:
        """Raise for a macro with a `%` outside parentheses after an operator of the same precedence: `x * M`, M is `a % b`."""
        if self._has_open_remainder(name, frozenset()):
            raise ArgumentError(f"macro {name} has a % in it and needs parentheses around its whole definition")

    def check_arguments(self) -> None:
        """Raise for arguments of several operands whose parameter is an operand of `%` without parentheses."""
        for call, within in self._calls:
            for macro in self._macros[call.name]:
                for parameter, argument in zip(macro.parameters or (), call.arguments, strict=False):
                    if parameter in self._bare.get(call.name, ()) and (
                        self._is_compound(argument, frozenset())
                        or self._parameters(within) & set(_outermost_names(argument))
                    ):
                        raise ArgumentError(
                            f"parameter {parameter} of macro {call.name} is an operand of % and needs parentheses: "
                            f"({parameter})"
                        )

    # --- what may be evaluated twice

    def may_repeat(self, operands: Iterable[Sequence[Token]], within: str) -> bool:
        """Whether operands may have to be constants and can be evaluated twice: numbers, or a macro's parameters."""
        parameters = self._parameters(within)
        for operand in operands:
            for token in operand:
                if token.kind == "name" and token.text not in parameters and not self._is_constant(token.text):
                    return False
        return not parameters or self._has_simple_arguments(within, frozenset())

    def _has_simple_arguments(self, macro: str, seen: frozenset[str]) -> bool:
        """Whether no argument in any call of a macro has side effects."""
        if macro in seen:
            return True
        for call, within in self._calls:
            if call.name != macro:
                continue
            if not all(_has_no_effect(argument) for argument in call.arguments):
                return False
            if within and not self._has_simple_arguments(within, seen | {macro}):
                return False
        return True

    def _is_constant(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        if name in seen or name not in self._macros:
            return False
        return all(
            macro.parameters is None
            and is_simple(macro.replacement)
            and all(self._is_constant(token.text, seen | {name}) for token in macro.replacement if token.kind == "name")
            for macro in self._macros[name]
        )

    # --- what a definition is

    def _is_compound_macro(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        return name not in seen and any(
            self._is_compound(macro.replacement, seen | {name}) for macro in self._macros.get(name, ())
        )

    def _is_compound(self, tokens: Sequence[Token], seen: frozenset[str]) -> bool:
        """Whether tokens are more than one operand, so that an operator beside them could bind to a part of them."""
        operand = False
        for token in _outermost(tokens):
            if token.kind != "sign" or token.text in CLOSING.values():
                operand = True
            elif operand and token.text not in ("++", "--", ".", *CLOSING):
                return True
        return any(self._is_compound_macro(name, seen) for name in _outermost_names(tokens))

    def _has_open_remainder(self, name: str, seen: frozenset[str]) -> bool:
        if name in seen:
            return False
        return any(
            any(token.text == "%" for token in _outermost(macro.replacement))
            or any(self._has_open_remainder(other, seen | {name}) for other in _outermost_names(macro.replacement))
            for macro in self._macros.get(name, ())
        )


def _outermost(tokens: Sequence[Token]) -> list[Token]:
    """The tokens outside all brackets, and the outermost brackets."""
    found, depth = [], 0
    for token in tokens:
        depth -= token.text in CLOSING.values()
        if depth <= 0 and token.kind != "end":
            found.append(token)
        depth += token.text in CLOSING
    return found


def _outermost_names(tokens: Sequence[Token]) -> list[str]:
    outermost = _outermost(tokens)
    return [
        token.text
        for before, token in zip([None, *outermost], outermost, strict=False)
        if token.kind == "name" and (before is None or before.text != ".")
    ]
