"""Constant expressions in WGSL: they are computed when the text is compiled, and those that overflow are refused.

In C they wrap, or are infinite. The writer computes those that consist of numbers. In all others one operand is the result of
a function of its own, which WGSL never takes for a constant.
"""

from __future__ import annotations

import math

from ..checker.constants import constant_value
from ..tree import (
    Binary,
    BuiltinCall,
    Comma,
    Construct,
    Convert,
    Expression,
    Field,
    Index,
    Literal,
    Logical,
    Name,
    Swizzle,
    Ternary,
    Unary,
    children,
    walk,
)
from ..types import I4, Array
from .bindings import BindingWriter
from .small_values import as_word
from .texts import ASSIGNMENT, LEVELS, Text, converted

_ARITHMETIC = frozenset(("+", "-", "*", "/", "%", "<<", ">>"))
# Constant where all of their parts are. No call is: it has an argument that is not.
_OF_PARTS = frozenset((Unary, Logical, Ternary, Convert, Construct, Field, Index, Swizzle))


class WgslConstants(BindingWriter):
    """Writes operations so that WGSL computes none of them early."""

    def at_run_time(self, e: Expression) -> str:
        """The text of an expression that WGSL does not take for a constant."""
        kind = self.type_name(e.type)
        return f"{self.returning(f'kk_runtime_{as_word(kind)}', kind, 'x', x=kind)}({self.x(e)})"

    def infix(self, operator: str, left: Expression, right: Expression) -> Text:
        level = LEVELS[operator]
        if operator not in _ARITHMETIC or not is_constant(right):
            return super().infix(operator, left, right)
        if operator in ("/", "%"):
            if constant_value(right) == 0 or is_constant(left):
                return f"{self.x(left, level)} {operator} {self.at_run_time(right)}", level
        elif is_constant(left):
            return f"{self.at_run_time(left)} {operator} {self.x(right, level + 1)}", level
        return super().infix(operator, left, right)

    def arguments(self, given: tuple[Expression, ...]) -> str:
        """The arguments of a function of WGSL."""
        if not all(map(is_constant, given)):
            return self.list_of(given)
        return ", ".join([self.at_run_time(given[0]), *(self.x(one, ASSIGNMENT) for one in given[1:])])

    def element_index(self, e: Index) -> str:
        index = self.shifted(e)
        if is_constant(index):
            value = constant_value(index)
            array = self.array(e.base.variable).type if isinstance(e.base, Name) else e.base.type
            # A helper function may be given an array that is too short for what it does with others.
            if value is None or (isinstance(array, Array) and value >= array.length):
                return self.at_run_time(converted(index, I4))
        return self.index_text(index)


def is_constant(e: Expression) -> bool:
    """Whether WGSL may take the text of an expression for a constant."""
    if isinstance(e, Name):
        return e.variable.space == "constant"
    kind = type(e)
    if kind is Literal:
        return True
    if kind in _OF_PARTS:
        return all(map(is_constant, children(e)))  # type: ignore[arg-type]
    if isinstance(e, Binary):
        if e.operator in _ARITHMETIC:
            return constant_value(e) is not None  # else an operand is no constant
        return is_constant(e.right) and is_constant(e.left)
    if isinstance(e, Comma):
        return is_constant(e.last)
    return isinstance(e, BuiltinCall) and e.builtin.name == "kk_group_size"  # a number


def is_finite(value: Expression) -> bool:
    """Whether all numbers in the value of a constant are."""
    numbers = (node.value for node in walk(value) if isinstance(node, Literal))
    return all(not isinstance(one, float) or math.isfinite(one) for one in numbers)
