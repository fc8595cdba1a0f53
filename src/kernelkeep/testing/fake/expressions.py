"""C expressions as Python text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...programs.signature import CTYPES
from .preprocessor import CError, Token

__all__ = ["Expressions"]

_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_TYPE_WORDS = {word for spelled in CTYPES for word in spelled.split()} | {"bool", "void", "const", "ulong_t"}
_CASTS = {"kk_int": "i4", "kk_uint": "u4", "kk_float": "f4", "kk_double": "f8"}
_IDS = ("kk_global_id", "kk_local_id", "kk_group_id", "kk_group_size", "kk_group_count", "kk_global_size")


class _Value(NamedTuple):
    """An expression as Python text, and what else it could be: an array's element, a variable, an assignment."""

    text: str
    element: tuple[str, str] | None = None
    variable: str = ""
    statements: tuple[str, ...] = ()


class Expressions:
    """Reads expressions from tokens. `arrays` and `types` are the dtypes of the arrays and variables known so far, `called` the
    functions."""

    def __init__(self, tokens: Sequence[Token], params: Mapping[str, str], called: set[str] | None = None) -> None:
        self._rest = [*tokens, Token("end", "", tokens[-1].line if tokens else 1)]
        self.at = 0
        self.arrays = {name: dtype[:-2] for name, dtype in params.items() if dtype.endswith("[]")}
        self.types = {name: dtype for name, dtype in params.items() if not dtype.endswith("[]")}
        self.called = set(called or ())

    # tokens

    @property
    def next(self) -> Token:
        return self._rest[self.at]

    def take(self, text: str | None = None) -> Token:
        token = self.next
        if text is not None and token.text != text:
            raise CError(token.line, f"expected {text!r} and found {token.text or 'the end'!r}")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.next.text == text and self.next.kind != "end":
            self.at += 1
            return True
        return False

    def read_type(self) -> str | None:
        """A type, if one stands here: its dtype, "" for void."""
        start = self.at
        words = []
        while self.next.text in _TYPE_WORDS:
            words.append(self.take().text)
        words = [word for word in words if word != "const"]
        spelled = " ".join(words)
        if spelled in ("bool", "void"):
            return "bool" if spelled == "bool" else ""
        if spelled == "ulong_t":
            return "u8"
        if spelled not in CTYPES:
            self.at = start
            return None
        return CTYPES[spelled]

    # expressions

    def expression(self, *, assign: bool = False) -> _Value:
        value = self._conditional()
        sign = self.next.text
        if sign in ("++", "--"):
            self.take()
            return self._assignment(value, f"{sign[0]}=", "1", assign)
        if sign in _ASSIGNMENTS:
            self.take()
            return self._assignment(value, sign, self.expression().text, assign)
        return value if assign or not value.statements else self._no_nesting()

    def _assignment(self, target: _Value, sign: str, value: str, allowed: bool) -> _Value:
        if not allowed:
            self._no_nesting()
        if sign != "=":
            value = _operation(sign[:-1], target.text, value)
        if target.element is not None:
            array, index = target.element
            place, dtype = f"v_{array}[{index}]", self.arrays[array]
        elif target.variable:
            place, dtype = f"v_{target.variable}", self.types.get(target.variable, "f4")
        else:
            raise CError(self.next.line, f"{target.text} cannot be assigned to")
        return _Value(target.text, statements=(f"{place} = to_{dtype}({value})",))

    def _no_nesting(self) -> _Value:
        raise CError(self.next.line, "an assignment inside an expression is not supported")

    def _conditional(self) -> _Value:
        value = self._binary(0)
        if not self.accept("?"):
            return value
        one = self.expression().text
        self.take(":")
        other = self._conditional().text
        return _Value(f"({one} if {value.text} else {other})")

    def _binary(self, level: int) -> _Value:
        if level == len(_LEVELS):
            return self._unary()
        value = self._binary(level + 1)
        while self.next.text in _LEVELS[level] and self.next.kind == "sign":
            sign = self.take().text
            value = _Value(_operation(sign, value.text, self._binary(level + 1).text))
        return value

    def _unary(self) -> _Value:
        token = self.next
        if token.text in ("++", "--"):
            self.take()
            return self._assignment(self._unary(), f"{token.text[0]}=", "1", True)
        if token.kind == "sign" and token.text in "-+!~":
            self.take()
            return _Value(
                {"!": "(not {})", "-": "(-{})", "+": "{}", "~": "(~{})"}[token.text].format(self._unary().text)
            )
        if token.text == "(":
            start = self.at
            self.take()
            dtype = self.read_type()
            if dtype is not None and self.accept(")"):
                return _Value(f"to_{dtype}({self._unary().text})")
            self.at = start
        return self._postfix()

    def _postfix(self) -> _Value:
        token = self.take()
        if token.text == "(":
            value = self.expression(assign=True)
            self.take(")")
            return value._replace(text=f"({value.text})")
        if token.kind == "number":
            return _Value(_number(token))
        if token.kind != "name":
            raise CError(token.line, f"expected an expression and found {token.text or 'the end'!r}")
        name = token.text
        if name in _TYPE_WORDS:
            self.at -= 1
            return self._call(f"to_{self.read_type()}")
        if self.next.text == "(":
            return self._named_call(token)
        if name in ("true", "false"):
            return _Value(name.capitalize())
        if self.next.text == "[":
            if name not in self.arrays:
                raise CError(token.line, f"{name} is not defined")
            indices = []
            while self.accept("["):
                indices.append(self.expression().text)
                self.take("]")
            index = ", ".join(indices)
            text = f"v_{name}[{index}]"
            return _Value(text if self.arrays[name][0] == "f" else f"int({text})", element=(name, index))
        if name not in self.types and name not in self.arrays:
            raise CError(token.line, f"{name} is not defined")
        return _Value(f"v_{name}", variable=name)

    def _named_call(self, token: Token) -> _Value:
        name = token.text
        if name in _CASTS:
            return self._call(f"to_{_CASTS[name]}")
        if name in _IDS:
            return self._call(f"item.{name[3:]}")
        if name in self.called:
            return self._call(f"v_{name}")
        if name == "kk_fence":
            return self._call("fence")
        if name.startswith("kk_atomic_"):
            self.take("(")
            target = self.expression()
            if target.element is None:
                raise CError(token.line, f"{name} needs an element of an array")
            values = []
            while self.accept(","):
                values.append(self.expression().text)
            self.take(")")
            array, index = target.element
            return _Value(f"atomic({name[10:]!r}, {self.arrays[array]!r}, v_{array}, ({index},), {', '.join(values)})")
        plain = name[:-1] if name.endswith("f") and name not in ("f", "erf") else name
        if plain not in ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "floor", "fabs", "abs", "min", "max", "fmin", "fmax",
                         "fma", "rsqrt"):  # fmt: skip
            raise CError(token.line, f"{name} is not defined")
        return self._call(f"math_{plain}")

    def _call(self, function: str) -> _Value:
        self.take("(")
        arguments = []
        while not self.accept(")"):
            arguments.append(self.expression().text)
            self.accept(",")
        return _Value(f"{function}({', '.join(arguments)})")


def _operation(sign: str, left: str, right: str) -> str:
    if sign in "/%":
        return f"{'divide' if sign == '/' else 'remainder'}({left}, {right})"
    return f"({left} {({'&&': 'and', '||': 'or'}).get(sign, sign)} {right})"


def _number(token: Token) -> str:
    text = token.text.lower()
    if text.startswith("0x"):
        return str(int(text.rstrip("ul"), 16))
    if re.fullmatch(r"\d+[ul]*", text):
        return str(int(text.rstrip("ul")))
    try:
        value = float(text.rstrip("fl"))
    except ValueError:
        raise CError(token.line, f"{token.text} is not a number") from None
    return f"to_f4({value!r})" if text.endswith("f") else repr(value)
