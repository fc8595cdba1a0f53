"""What every part of a writer needs: lines, names, numbers, and the text of an expression with the parentheses it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...errors import Unsupported
from ..tree import (
    CHAINED,
    Binary,
    Convert,
    Declare,
    Expression,
    Field,
    Increment,
    Literal,
    Module,
    Name,
    Swizzle,
    Ternary,
    Unary,
    Variable,
    long_chain,
)
from ..types import BOOL, F8, I8, U8, Scalar, StructType, Type, Vector
from .effects import Effects
from .names import Names
from .numbers import INTEGERS, float_digits, folded
from .ranges import Ranges

# How tightly an expression binds. What binds less tightly than its place needs gets parentheses.
(
    COMMA,
    ASSIGNMENT,
    TERNARY,
    OR,
    AND,
    BIT_OR,
    BIT_XOR,
    BIT_AND,
    EQUALITY,
    RELATION,
    SHIFT,
    SUM,
    PRODUCT,
    UNARY,
    PRIMARY,
) = range(1, 16)
LEVELS = {
    "*": PRODUCT, "/": PRODUCT, "%": PRODUCT, "+": SUM, "-": SUM, "<<": SHIFT, ">>": SHIFT, "<": RELATION, ">": RELATION,
    "<=": RELATION, ">=": RELATION, "==": EQUALITY, "!=": EQUALITY, "&": BIT_AND, "^": BIT_XOR, "|": BIT_OR, "&&": AND, "||": OR,
}  # fmt: skip
Text = tuple[str, int]  # an expression, and how tightly it binds
_FOLDED = frozenset((Binary, Ternary, Unary, Convert))


class TextWriter:
    """Keeps the lines that are written, and writes expressions by a table of methods."""

    table: dict[type, Callable[[Any], Text]]  # what writes a node, by its type
    title: ClassVar[str]
    types: ClassVar[Mapping[Scalar, str]]
    is_ordered: ClassVar[bool] = False  # the target evaluates operands from left to right
    float_suffix: ClassVar[str] = ""
    double_suffix: ClassVar[str] = ""
    true, false = "true", "false"

    module: Module
    effects: Effects
    ranges: Ranges
    names: Names
    calls: Mapping[str, str]

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: list[int] = []  # of each line: the line of the user's text
        self.depth = 0
        self.place = 0
        self.helpers: dict[str, str] = {}
        self.arrays: dict[Variable, Variable] = {}  # for each array that this function was given: the caller's
        self.variables: dict[Variable, str] = {}
        self.alive: list[Expression] = []  # nodes that `effects` knows by their id
        # By id of an operand in one: its text. The second is for indices, where the text may be another.
        self.long_chains: tuple[dict[int, Text | None], dict[int, Text | None]] = ({}, {})
        self.in_index = False  # directly in an index, where `+`, `-` and `*` do not overflow

    def line(self, text: str) -> None:
        """One more line."""
        self.lines.append("    " * self.depth + text)
        self.places.append(self.place)

    def helper(self, name: str, text: str) -> str:
        """Have a helper function in the text, once. Returns its name."""
        self.helpers.setdefault(name, text)
        return name

    def unsupported(self, needed: str, e: Expression | Declare | None, what: str) -> Unsupported:
        """The error for what the target lacks. `what` is a sentence."""
        line, column = (self.place, 0) if e is None else (e.at.line, e.at.column)
        where = f", line {line}" if line else ""
        return Unsupported(needed, f"kernel {self.module.kernel.name}{where}: {what}", line, column)

    def x(self, e: Expression, need: int = ASSIGNMENT) -> str:
        """The text of an expression, in parentheses where it binds less tightly than `need`."""
        text, level = self.text(e)
        return text if level >= need else f"({text})"

    def text(self, e: Expression) -> Text:
        """The text of an expression, and how tightly it binds."""
        effects = self.effects
        if id(e) in effects.spilled:
            e = self.with_kept_operands(e)
        if id(e) in effects.hoisted:
            return self.text(self.hoist(e))  # what is left may have operands to keep, too
        kind = type(e)
        if kind is Literal or kind is Name:
            return self.table[kind](e)
        if kind in _FOLDED and (value := folded(e)) is not None:
            return self.number(value, e.type)
        if kind in CHAINED and id(e) not in effects.emits:
            chains = self.long_chains[self.in_index]
            if (known := chains.get(id(e))) is not None:
                return known
            for one in long_chain(e, chains):
                chains[id(one)] = self.text(one) if self.is_infix(one) else None
                self.alive.append(one)
        if self.in_index and not stays_in_index(e):
            self.in_index = False
            found = self.table[kind](e)
            self.in_index = True
            return found
        return self.table[kind](e)

    def is_infix(self, e: Expression) -> bool:
        """Whether the text of an operation has the texts of its operands in it."""
        return True

    def simple(self, e: Expression) -> bool:
        """Whether writing an expression twice does no harm."""
        return isinstance(e, (Literal, Name)) or (isinstance(e, (Swizzle, Field)) and self.simple(e.base))

    def number(self, value: bool | int | float | str, kind: Type) -> Text:
        """A constant of a type."""
        if kind is BOOL:
            return (self.true if value else self.false), PRIMARY
        assert isinstance(kind, Scalar) and not isinstance(value, str)
        if kind.kind == "float":
            value = float(value)
            if not math.isfinite(value):
                return self.not_finite(value, kind)
            text = float_digits(value, kind) + (self.double_suffix if kind is F8 else self.float_suffix)
            return text, UNARY if text[0] == "-" else PRIMARY
        return self.integer(int(value), kind)

    def integer(self, value: int, kind: Scalar) -> Text:
        """An integer constant."""
        raise NotImplementedError

    def not_finite(self, value: float, kind: Scalar) -> Text:
        """Infinity or NaN."""
        raise NotImplementedError

    def variable(self, variable: Variable) -> str:
        """The name of a variable in the text."""
        found = self.variables.get(variable)
        if found is None:
            found = self.variables[variable] = self.names.free(variable.name)
        return found

    def type_name(self, kind: Type) -> str:
        """A type, in the target language."""
        if isinstance(kind, Scalar) and kind in self.types:
            return self.types[kind]
        if isinstance(kind, Vector):
            return self.vector_name(kind)
        if isinstance(kind, StructType):
            return self.names.tag(kind.name)
        raise self.unsupported(*self.lacking(kind))

    def lacking(self, kind: Type) -> tuple[str, Expression | Declare | None, str]:
        """What `unsupported` is told where the target lacks a type."""
        from ..requirements import first_use  # only where something is refused

        needed = "float64" if kind is F8 else "int64" if kind in (I8, U8) else str(kind)
        return needed, first_use(self.module, kind), f"{self.title} has no type {kind}"

    def vector_name(self, kind: Vector) -> str:
        return kind.title

    def keep(self, e: Expression, stem: str = "kept") -> Name:
        """The value of an expression in a new constant, declared before the statement."""
        raise NotImplementedError

    def with_kept_operands(self, e: Expression) -> Expression:
        """The same expression, with the operands in constants that must be evaluated first."""
        raise NotImplementedError

    def fixed_target(self, target: Expression, *, always: bool = False) -> Expression:
        """The target, with the indices in constants whose evaluation changes something; with `always`, all of them."""
        raise NotImplementedError

    def hoist(self, e: Expression) -> Expression:
        """Write an expression as statements. Returns its value."""
        raise NotImplementedError


def converted(e: Expression, target: Type) -> Expression:
    """`e` as another type."""
    return e if e.type is target else Convert(e.at, target, e)


def stays_in_index(e: Expression) -> bool:
    """Whether the operands of an expression that is an index are directly in that index, too."""
    if isinstance(e, Binary):
        return e.operator in ("+", "-", "*")
    if isinstance(e, Convert):
        return e.type in INTEGERS and e.operand.type in INTEGERS  # what is cut to 8 or 16 bits may be a hash
    return isinstance(e, (Name, Literal, Unary, Increment))
