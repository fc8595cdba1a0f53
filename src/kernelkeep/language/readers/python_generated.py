"""Functions that a kernel gets because Python's operators mean something else than C's: `//`, `%` and `**`."""

from __future__ import annotations

from collections.abc import Callable

from ..builtins import BUILTINS
from ..tree import (
    Assign,
    Binary,
    Block,
    BuiltinCall,
    Call,
    Declare,
    Evaluate,
    Expression,
    Function,
    If,
    Literal,
    Logical,
    Name,
    Place,
    Return,
    Statement,
    Ternary,
    Variable,
)
from ..types import BOOL, Scalar


class Generated:
    """The functions of this kind that a module has so far. `add` takes a new one, and gives it its name."""

    def __init__(self, add: Callable[[str, Callable[[str], Function]], Function]) -> None:
        self._add = add
        self._found: dict[tuple[str, Scalar], Function] = {}

    def call(self, name: str, kind: Scalar, arguments: tuple[Expression, ...], at: Place) -> Expression:
        """A call of `floor_divide`, `floor_remainder` or `power_<n>` for a type."""
        function = self._found.get((name, kind))
        if function is None:
            function = self._found[name, kind] = self._add(name, lambda unique: _function(name, unique, kind, at))
        return Call(at, kind, function, arguments)


def _function(name: str, unique: str, kind: Scalar, at: Place) -> Function:
    build = _Builder(kind, at)
    if name.startswith("power_"):
        x = build.parameter("x")
        return Function(unique, (x,), kind, Block(at, build.power(x, int(name.removeprefix("power_")))), at)
    a, b = build.parameter("a"), build.parameter("b")
    make = build.divide if name == "floor_divide" else build.remainder
    make = make if kind.kind == "integer" else {build.divide: build.divide_floats}.get(make, build.remainder_floats)
    return Function(unique, (a, b), kind, Block(at, make(a, b)), at)


class _Builder:
    def __init__(self, kind: Scalar, at: Place) -> None:
        self._kind = kind
        self._at = at

    def parameter(self, name: str) -> Variable:
        return Variable(name, self._kind, "parameter", self._at, name)

    def divide(self, a: Variable, b: Variable) -> tuple[Statement, ...]:
        """C's quotient, which is one too large where the signs differ and something remains."""
        whole = self._local("quotient")
        rest = self._is("!=", self._two("%", self._get(a), self._get(b)), self._number(0))
        return (
            Declare(self._at, whole, self._two("/", self._get(a), self._get(b))),
            self._if(
                Logical(self._at, BOOL, "&&", rest, self._signs_differ(a, b)), self._change(whole, "-", self._number(1))
            ),
            Return(self._at, self._get(whole)),
        )

    def remainder(self, a: Variable, b: Variable) -> tuple[Statement, ...]:
        """C's remainder, which has the sign of `a`, and Python's has that of `b`."""
        rest = self._local("rest")
        return (
            Declare(self._at, rest, self._two("%", self._get(a), self._get(b))),
            self._if(self._is_off(rest, b), self._change(rest, "+", self._get(b))),
            Return(self._at, self._get(rest)),
        )

    def divide_floats(self, a: Variable, b: Variable) -> tuple[Statement, ...]:
        """As CPython does it: from the exact remainder, because a rounded quotient may be one too large."""
        rest, whole = self._local("rest"), self._local("quotient")
        near = self._call("floor", self._get(whole))
        return (
            Declare(self._at, rest, self._call("fmod", self._get(a), self._get(b))),
            Declare(self._at, whole, self._two("/", self._two("-", self._get(a), self._get(rest)), self._get(b))),
            self._if(self._is_off(rest, b), self._change(whole, "-", self._number(1))),
            Return(
                self._at,
                Ternary(
                    self._at,
                    self._kind,
                    self._is(">", self._two("-", self._get(whole), near), self._number(0.5)),
                    self._two("+", near, self._number(1)),
                    near,
                ),
            ),
        )

    def remainder_floats(self, a: Variable, b: Variable) -> tuple[Statement, ...]:
        rest = self._local("rest")
        return (
            Declare(self._at, rest, self._call("fmod", self._get(a), self._get(b))),
            self._if(self._is_off(rest, b), self._change(rest, "+", self._get(b))),
            Return(self._at, self._get(rest)),
        )

    def power(self, x: Variable, exponent: int) -> tuple[Statement, ...]:
        """A product, by squaring."""
        if exponent == 2:
            return (Return(self._at, self._two("*", self._get(x), self._get(x))),)
        found: Expression | None = None
        statements: list[Statement] = []
        square, size = x, 1
        while exponent:
            if exponent & 1:
                found = self._get(square) if found is None else self._two("*", found, self._get(square))
            exponent >>= 1
            if exponent:
                size *= 2
                after = self._local(f"x{size}")
                statements.append(Declare(self._at, after, self._two("*", self._get(square), self._get(square))))
                square = after
        return (*statements, Return(self._at, found or self._number(1)))

    # --- nodes

    def _local(self, name: str) -> Variable:
        return Variable(name, self._kind, "local", self._at, name)

    def _get(self, variable: Variable) -> Expression:
        return Name(self._at, self._kind, variable)

    def _number(self, value: float) -> Expression:
        return Literal(self._at, self._kind, float(value) if self._kind.kind == "float" else int(value))

    def _two(self, sign: str, left: Expression, right: Expression) -> Expression:
        return Binary(self._at, self._kind, sign, left, right)

    def _is(self, sign: str, left: Expression, right: Expression) -> Expression:
        return Binary(self._at, BOOL, sign, left, right)

    def _call(self, name: str, *arguments: Expression) -> Expression:
        return BuiltinCall(self._at, self._kind, BUILTINS[name].builtin, arguments)

    def _signs_differ(self, a: Variable, b: Variable) -> Expression:
        zero = self._number(0)
        return self._is("!=", self._is("<", self._get(a), zero), self._is("<", self._get(b), zero))

    def _is_off(self, rest: Variable, b: Variable) -> Expression:
        """Whether a remainder has not the sign that Python gives it."""
        is_some = self._is("!=", self._get(rest), self._number(0))
        return Logical(self._at, BOOL, "&&", is_some, self._signs_differ(rest, b))

    def _change(self, variable: Variable, sign: str, by: Expression) -> Statement:
        value = self._two(sign, self._get(variable), by)
        return Evaluate(self._at, Assign(self._at, self._kind, self._get(variable), value))

    def _if(self, condition: Expression, then: Statement) -> Statement:
        return If(self._at, condition, Block(self._at, (then,)))
