"""C's `%` in GLSL, where the remainder of negative numbers is undefined: on Mesa -7 % 3 is 0 and 7 % -3 is 7.

Division truncates towards zero in C and in GLSL's drivers, so the remainder is `a - a / b * b`. Where a constant is needed,
or may be (an array's size, a `case`, a macro of numbers), `a % b` becomes that expression. Everywhere else it becomes the call
`kk_remainder(a, b)`, which evaluates its operands once, and `a %= b` becomes `kk_set_remainder(a, b)`. Both forms are right for
unsigned operands.

The text is read as tokens, and C's precedence decides what an operand is. Macros are not expanded: `macro_use.py` raises an
error for those whose expansion would split an operand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ..errors import ArgumentError
from .macro_use import MacroUse, is_simple
from .tokens import CLOSING, Token, is_directive, split_define, tokens_of

FUNCTIONS = """\
int kk_remainder(int a, int b) { return a - a / b * b; }
uint kk_remainder(uint a, uint b) { return a % b; }
int kk_set_remainder(inout int a, int b) { a = a - a / b * b; return a; }
uint kk_set_remainder(inout uint a, uint b) { a = a % b; return a; }
"""
FUNCTIONS_64 = FUNCTIONS.replace("int ", "int64_t ")

_CONDITIONS = frozenset(("if", "for", "while", "switch"))
_KEYWORDS = _CONDITIONS | {"return", "else", "do", "case", "default", "break", "continue", "const"}
_PREFIXES = frozenset(("+", "-", "!", "~", "++", "--"))
_ENDS = frozenset(";{}")
_SPACE = re.compile(r"(?:\s|\\\n|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_LINE_BREAK = re.compile(r"\\?\n")

Macros = tuple[tuple[str, str], ...]


@lru_cache(maxsize=128)
def with_c_remainders(texts: tuple[str, ...], defines: Macros) -> tuple[tuple[str, ...], Macros, bool]:
    """The texts and the macros defined before them with C's meaning of every `%`, and whether they call `FUNCTIONS`.

    Raises `ArgumentError` where macros hide what an operand is.
    """
    split = [tokens_of(text) for text in texts]
    macros = MacroUse(split, dict(defines))
    writers = [_Writer(macros, tokens) for tokens in split]
    written = tuple(writer.text() for writer in writers)
    values = [_Writer(macros, tokens_of(value), name) for name, value in defines]
    replacements = tuple((name, value.text()) for (name, _), value in zip(defines, values, strict=True))
    macros.check_arguments()
    return written, replacements, any(writer.calls for writer in (*writers, *values))


class _Writer:
    """Writes tokens with every `%` replaced. `macro` is the macro that the tokens define, if they define one."""

    def __init__(self, macros: MacroUse, tokens: Sequence[Token], macro: str = "") -> None:
        self._macros = macros
        self._tokens = tokens
        self._macro = macro
        self._at = 0
        self.calls = False

    def text(self) -> str:
        return self._sequence(frozenset(), constant=False) + self._before(self._tokens[-1])

    def _before(self, token: Token) -> str:
        return "".join(self._directive(piece) if is_directive(piece) else piece for piece in token.before)

    def _directive(self, line: str) -> str:
        """A preprocessor line. Conditions keep their `%`: the preprocessor's is C's."""
        parts = split_define(line) if "%" in line else None
        if parts is None:
            return line
        head, name, macro = parts
        writer = _Writer(self._macros, macro.replacement, name)
        replacement = writer.text()
        self.calls |= writer.calls
        return head + replacement

    def _take(self) -> str:
        """The current token as it is; the next one becomes the current one."""
        token = self._tokens[self._at]
        self._at += 1
        return self._before(token) + token.text

    def _sequence(self, stops: frozenset[str], *, constant: bool) -> str:
        """Everything up to one of `stops`, which stays, or the end. `constant`: it must be a constant expression."""
        written: list[str] = []
        chain: tuple[int, int] | None = None  # where operands joined by * / % begin, in `written` and among the tokens
        operand = declaration = declared = label = fixed = condition = False
        questions = 0
        last = Token((), "end", "")  # the token before, at this depth
        while (token := self._tokens[self._at]).kind != "end":
            text = token.text
            if text in stops and not (text == ":" and questions):
                break
            questions += (text == "?") - (text == ":" and questions > 0)
            begin = (len(written), self._at)
            if text in ("(", "["):
                written.append(self._group(constant=constant or label or (text == "[" and declared)))
                if condition and text == "(":
                    condition, operand, chain = False, False, None
                else:
                    chain = chain or begin
                    operand = True
            elif text in ("%", "%="):
                if chain is None or not operand:
                    raise ArgumentError(f"there is nothing before {text}: a macro must not hide an operand of it")
                written[chain[0] :] = [
                    self._remainder(written[chain[0] :], chain[1], stops, constant=constant or label, fixed=fixed)
                ]
            elif token.kind == "name" and text in _KEYWORDS:
                written.append(self._take())
                chain, operand, condition = None, False, text in _CONDITIONS
                label |= text == "case"
                fixed |= text == "const"
            elif token.kind in ("name", "number", "text"):
                if operand and last.text != ".":  # a type, and what it declares
                    chain, declaration = None, True
                declared = declaration and (operand or last.text == ",")
                if chain is not None and last.text != ".":
                    self._macros.check_beside(text)
                chain = chain or begin
                written.append(self._take())
                operand = True
            elif text == "." or (operand and text in ("++", "--")):
                written.append(self._take())
            elif not operand and text in _PREFIXES:
                chain = chain or begin
                written.append(self._take())
            else:
                written.append(self._take())
                operand = declared = False
                if text not in ("*", "/"):
                    chain = None
                if text in _ENDS or text == ":":
                    label = False
                if text in _ENDS:
                    declaration = fixed = False
            last = token
        return "".join(written)

    def _group(self, *, constant: bool) -> str:
        """From an opening bracket to its closing one."""
        closing = CLOSING[self._tokens[self._at].text]
        text = self._take() + self._sequence(frozenset((closing,)), constant=constant)
        return text + (self._take() if self._tokens[self._at].text == closing else "")

    def _remainder(self, left: list[str], first: int, stops: frozenset[str], *, constant: bool, fixed: bool) -> str:
        """`left % …` or `left %= …`; the operator is the current token, and `first` the first one of `left`."""
        sign = self._at
        assigns = self._tokens[sign].text == "%="
        space = self._before(self._tokens[sign])
        self._at += 1
        if assigns:
            right = self._sequence(stops | {",", ";", ":", ")", "]", "}"}, constant=constant)
        else:
            right = self._operand(constant=constant)
        tokens = self._tokens
        operands = (tokens[first:sign], tokens[sign + 1 : self._at])
        if any(is_directive(piece) for token in tokens[first + 1 : self._at] for piece in token.before):
            raise ArgumentError("a preprocessor line stands between the operands of %: put it before the statement")
        for operand in operands[: 1 if assigns else 2]:
            self._macros.check_operand(operand, self._macro)
        before = self._before(tokens[first])
        text = "".join(left)[len(before) :]
        if assigns:
            self.calls = True
            return f"{before}kk_set_remainder({text}{space},{right})"
        simple = all(is_simple(operand) for operand in operands)
        if simple and (constant or fixed or self._macros.may_repeat(operands, self._macro)):
            a, b = _enclosed(text), _enclosed(right)
            lines = "".join(_LINE_BREAK.findall(text + space + right))  # the lines after it keep their numbers
            # A shift by 0 changes no integer, and is an error for floats, as their remainder is in C.
            return f"{before}(({a} - {a} / {b} * {b}) << 0{lines})"
        self.calls = True
        return f"{before}kk_remainder({text}{space},{right})"

    def _operand(self, *, constant: bool) -> str:
        """One operand: prefix operators, then a name, a number or a group, then calls, indices and postfix operators."""
        text = ""
        while self._tokens[self._at].text in _PREFIXES:
            text += self._take()
        token = self._tokens[self._at]
        if token.text == "(":
            text += self._group(constant=constant)
        elif token.kind in ("name", "number") and token.text not in _KEYWORDS:
            text += self._take()
        else:
            raise ArgumentError("there is nothing after %: a macro must not hide an operand of it")
        while (token := self._tokens[self._at]).text in ("(", "[", ".", "++", "--"):
            if token.text in ("(", "["):
                text += self._group(constant=constant)
            else:
                text += self._take() + (self._take() if token.text == "." else "")
        return text


def _enclosed(text: str) -> str:
    """An operand on one line, in parentheses unless it is a single word."""
    text = _SPACE.sub(" ", text).strip()
    return text if text.replace("_", "a").isalnum() else f"({text})"
