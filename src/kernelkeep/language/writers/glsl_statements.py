"""Statements in GLSL. Most of what is special here avoids a mistake of NVIDIA's compiler."""

from __future__ import annotations

from collections.abc import Iterator

from ..tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Case,
    Comma,
    Construct,
    DoWhile,
    Expression,
    If,
    Increment,
    Literal,
    Logical,
    Name,
    Switch,
    Ternary,
    Unary,
    Update,
    Variable,
    has_effect,
    walk,
)
from ..types import I4, U4, Array, Scalar
from .glsl_arrays import GlslArrays
from .texts import LEVELS, PRIMARY, Text

_MOST_ELEMENTS = 64  # of an array that is set element by element


class GlslStatements(GlslArrays):
    """Writes statements."""

    def declared(self, variable: Variable) -> str:
        """The type and the name of a variable."""
        raise NotImplementedError

    def needs_statement(self, e: Expression) -> bool:
        # With a comma in a branch of `?:` NVIDIA's compiler may take the first value. What does several things is taken apart.
        return isinstance(e, (Assign, Comma, Increment, Update)) or super().needs_statement(e)

    def evaluate(self, e: Expression) -> None:
        if isinstance(e, Comma) and not has_effect(e.first):
            self.evaluate(e.last)
        else:
            super().evaluate(e)

    def hoist(self, e: Expression) -> Expression:
        return e.last if isinstance(e, Comma) and not has_effect(e.first) else super().hoist(e)

    def unary(self, e: Unary) -> Text:
        if e.operator == "!" and _compares_floats(
            e.operand
        ):  # NVIDIA's compiler makes `x >= y` of `!(x < y)`, NaN or not
            return f"{self.x(e.operand, PRIMARY)} == false", LEVELS["=="]
        return super().unary(e)

    def condition(self, e: Expression) -> str:
        # NVIDIA's compiler leaves a loop with `x >= y` where it goes on for `x < y`, NaN or not; so with an empty branch.
        return f"({self.x(e)}) == true" if _compares_floats(e) else super().condition(e)

    def decision(self, s: If) -> str:
        return super().decision(s) if s.then.statements else self.condition(s.condition)

    def do_loop(self, s: DoWhile) -> None:
        # NVIDIA's compiler evaluates `&&` of a `do … while` before the first round.
        special = _compares_floats(s.condition) or any(isinstance(one, (Logical, Ternary)) for one in walk(s.condition))
        if self.emits(s.condition) or not special:
            super().do_loop(s)
        else:
            self.loop_that_breaks(s)

    def declare(self, variable: Variable, value: Expression | None) -> None:
        if variable.space == "shared":
            return
        if isinstance(variable.type, Array) and isinstance(value, Construct) and _is_mixed(value):
            # With int[4](0, x, y, z) NVIDIA's compiler may stop at "lvalue in array access too complex".
            self.line(f"{self.declared(variable)};")
            self._set_elements(self.variable(variable), value)
        else:
            super().declare(variable, value)

    def _set_elements(self, place: str, value: Construct) -> None:
        if id(value) in self.effects.spilled:
            kept = self.with_kept_operands(value)
            assert isinstance(kept, Construct)
            value = kept
        for at, one in enumerate(value.arguments):
            if isinstance(one, Construct) and isinstance(one.type, Array):
                self._set_elements(f"{place}[{at}]", one)
            else:
                self.line(f"{place}[{at}] = {self.x(one, 2)};")

    def switch(self, s: Switch) -> None:
        if s.value.type in (I4, U4):
            return super().switch(s)
        # GLSL switches on 32 bits only, so the cases are numbered.
        value = self.x(self.keep(s.value))
        numbers: dict[int, int] = {}
        for case in s.cases:
            for one in case.values:
                numbers[one] = len(numbers)
        chosen = "".join(f"{value} == {self.number(one, s.value.type)[0]} ? {at} : " for one, at in numbers.items())
        self.line(f"switch ({chosen}-1) {{")
        for case in s.cases:
            values = tuple(numbers[one] for one in case.values)
            self.case(Case(case.at, values, case.is_default, case.body, case.falls_through), Literal(s.at, I4, 0))
        self.line("}")


def _is_mixed(value: Construct) -> bool:
    """Whether an array has elements that are computed, and few enough for a line each."""
    elements = list(_elements(value))
    computed = any(isinstance(node, (Name, Call, BuiltinCall)) for one in elements for node in walk(one))
    return computed and len(elements) <= _MOST_ELEMENTS


def _elements(value: Construct) -> Iterator[Expression]:
    for one in value.arguments:
        if isinstance(one, Construct) and isinstance(one.type, Array):
            yield from _elements(one)
        else:
            yield one


def _compares_floats(e: Expression) -> bool:
    if not isinstance(e, Binary) or e.operator not in ("<", "<=", ">", ">="):
        return False
    return isinstance(e.left.type, Scalar) and e.left.type.kind == "float"
