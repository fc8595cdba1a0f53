"""Expressions in the syntax that C, GLSL and WGSL share. What differs is a method that a target overrides."""

from __future__ import annotations

import math

from msgspec.structs import replace

from ..builtins import BUILTINS, SYSTEM
from ..tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Comma,
    Construct,
    Convert,
    Expression,
    Field,
    Function,
    Increment,
    Index,
    Literal,
    Logical,
    Name,
    Slice,
    Swizzle,
    Ternary,
    Unary,
    Update,
)
from ..types import (
    BOOL,
    F2,
    F4,
    U4,
    U8,
    Scalar,
    StructType,
    Vector,
    rounded,
)
from .assignments import AssignmentWriter
from .texts import (
    AND,
    ASSIGNMENT,
    BIT_AND,
    COMMA,
    EQUALITY,
    LEVELS,
    OR,
    PRIMARY,
    PRODUCT,
    RELATION,
    SHIFT,
    SUM,
    TERNARY,
    UNARY,
    Text,
    converted,
)

FLOAT_NAMES = {
    "abs": "fabs",
    "min": "fmin",
    "max": "fmax",
}  # C's names of what other languages call the same for all types
MATH_CONSTANTS = {"degrees": 180.0 / math.pi, "radians": math.pi / 180.0}


class ExpressionWriter(AssignmentWriter):
    """Writes expressions, and the statements that must stand before them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {
            Literal: self.literal, Name: self.name, Unary: self.unary, Binary: self.binary, Logical: self.logical,
            Ternary: self.ternary, Comma: self.comma, Assign: self.assignment, Update: self.update,
            Increment: self.increment, Convert: self.convert, Call: self.call, BuiltinCall: self.builtin,
            Construct: self.construct, Index: self.index, Slice: self.slice, Field: self.field, Swizzle: self.swizzle,
        }  # fmt: skip

    def literal(self, e: Literal) -> Text:
        return self.number(e.value, e.type)

    def name(self, e: Name) -> Text:
        return self.variable(self.arrays.get(e.variable, e.variable)), PRIMARY

    def unary(self, e: Unary) -> Text:
        if e.operator == "!" and (number := self.tested_number(e.operand)) is not None:
            return self.infix("==", number, _zero(number))
        operand = self.x(e.operand, UNARY)
        # `- -x` is not `--x`.
        return (f"{e.operator}({operand})" if operand[0] == e.operator else f"{e.operator}{operand}"), UNARY

    def tested_number(self, e: Expression) -> Expression | None:
        """The number that a condition compares with 0."""
        if (
            not isinstance(e, Convert)
            or e.type is not BOOL
            or id(e) in self.effects.hoisted
            or id(e) in self.effects.spilled
        ):
            return None
        return e.operand if isinstance(e.operand.type, Scalar) and e.operand.type is not BOOL else None

    def binary(self, e: Binary) -> Text:
        return self.infix(e.operator, e.left, e.right)

    def infix(self, operator: str, left: Expression, right: Expression) -> Text:
        """`left operator right`, with the parentheses that are needed, and those that a reader needs."""
        level = LEVELS[operator]
        first = self.x(left, self.needed(operator, left, level))
        second = self.x(right, self.needed(operator, right, level + 1))
        return f"{first} {operator} {second}", level

    def needed(self, operator: str, operand: Expression, level: int) -> int:
        own = LEVELS[operator]
        if own in (SUM, PRODUCT):
            return level
        if own <= BIT_AND or own == SHIFT:  # WGSL, and readers, want `(a & b) | c`, `(a + b) << c`
            if isinstance(operand, (Binary, Logical)) and operand.operator == operator and own != SHIFT:
                return own  # of these the grouping does not matter
            is_test = isinstance(operand, Binary) and LEVELS[operand.operator] in (EQUALITY, RELATION)
            is_test = is_test or (isinstance(operand, Convert) and operand.type is BOOL)  # `n != 0`
            return RELATION - 1 if is_test and own <= AND else UNARY
        return SHIFT  # comparisons

    def logical(self, e: Logical) -> Text:
        return self.infix(e.operator, e.left, e.right)

    def ternary(self, e: Ternary) -> Text:
        condition, then = self.x(e.condition, OR), self.x(e.then, TERNARY)
        return f"{condition} ? {then} : {self.x(e.otherwise, TERNARY)}", TERNARY

    def comma(self, e: Comma) -> Text:
        return f"{self.x(e.first, COMMA)}, {self.x(e.last, ASSIGNMENT)}", COMMA

    def convert(self, e: Convert) -> Text:
        source, target = e.operand.type, e.type
        if source is target:
            return self.x(e.operand, UNARY), UNARY
        if isinstance(target, Vector):
            return self.splat(e.operand, target) if isinstance(source, Scalar) else self.vector_cast(e.operand, target)
        assert isinstance(source, Scalar) and isinstance(target, Scalar)
        if target.kind == "bool":
            return self.infix("!=", e.operand, _zero(e.operand))
        if target.kind == "integer" and source.kind == "float":
            return self.float_to_integer(self.x(e.operand), source, target)
        if target is F2:
            return self.round_to_half(self.x(e.operand if source is F4 else converted(e.operand, F4)))
        return self.cast(e.operand, target)

    def round_to_half(self, text: str) -> Text:
        """A float, rounded to the precision of a half: that is what halves are kept in."""
        raise NotImplementedError

    def cast(self, operand: Expression, target: Scalar) -> Text:
        """A number as another type."""
        return f"{self.type_name(target)}({self.x(operand)})", PRIMARY

    def float_to_integer(self, text: str, source: Scalar, target: Scalar) -> Text:
        """Truncation, to the nearest integer of the type; 0 for NaN."""
        raise NotImplementedError

    def splat(self, operand: Expression, target: Vector) -> Text:
        return f"{self.type_name(target)}({self.x(operand)})", PRIMARY

    def vector_cast(self, operand: Expression, target: Vector) -> Text:
        raise NotImplementedError

    def construct(self, e: Construct) -> Text:
        return f"{self.type_name(e.type)}({self.list_of(e.arguments)})", PRIMARY

    def list_of(self, expressions: tuple[Expression, ...]) -> str:
        return ", ".join([self.x(one, ASSIGNMENT) for one in expressions])

    def index(self, e: Index) -> Text:
        base = self.x(e.base, PRIMARY)
        return f"{base}[{self.index_text(e.index)}]", PRIMARY

    def slice(self, e: Slice) -> Text:
        """An array from an element on, as an argument."""
        return f"&{self.x(e.base, PRIMARY)}[{self.index_text(e.offset)}]", UNARY

    def index_text(self, index: Expression) -> str:
        before, self.in_index = self.in_index, True
        text = self.x(index)
        self.in_index = before
        return text

    def field(self, e: Field) -> Text:
        base = self.x(e.base, PRIMARY)
        assert isinstance(e.base.type, StructType)
        return f"{base}.{self.field_name(e.base.type, e.name)}", PRIMARY

    def field_name(self, struct: StructType, name: str) -> str:
        return self.names.free(name)

    def swizzle(self, e: Swizzle) -> Text:
        return f"{self.x(e.base, PRIMARY)}.{e.elements}", PRIMARY

    def call(self, e: Call) -> Text:
        """A call of a helper function."""
        name, arguments = self.specialised(e.function, e.arguments)
        return f"{name}({self.list_of(arguments)})", PRIMARY

    def specialised(self, function: Function, arguments: tuple[Expression, ...]) -> tuple[str, tuple[Expression, ...]]:
        """The name of a helper function for these arguments, and those that it takes."""
        raise NotImplementedError

    def builtin(self, e: BuiltinCall) -> Text:
        name, rule = e.builtin.name, e.builtin.rule
        if name in self.calls:
            return self.calls[name].format(*(self.x(one, 2) for one in e.arguments)), PRIMARY
        if (other := self.rewritten(e)) is not None:
            return self.table[type(other)](other)
        if rule == "position":
            return self.position(name, e.arguments[0])
        if rule == "atomic":
            return self.atomic(e)
        if rule in ("load4", "store4"):
            return self.four(e)
        return self.system_call(e) if name in SYSTEM else self.function_call(e)

    def position(self, name: str, dimension: Expression) -> Text:
        """Where the work-item is."""
        raise NotImplementedError

    def atomic(self, e: BuiltinCall) -> Text:
        raise NotImplementedError

    def four(self, e: BuiltinCall) -> Text:
        """kk_load4 and kk_store4."""
        raise NotImplementedError

    def system_call(self, e: BuiltinCall) -> Text:
        """What only generated kernels call."""
        raise self.unsupported(e.builtin.name, e, f"{self.title} has no {e.builtin.name}")

    def function_call(self, e: BuiltinCall) -> Text:
        """Any other built-in."""
        raise NotImplementedError

    def rewritten(self, e: BuiltinCall) -> Expression | None:
        """A built-in that is plain arithmetic, as that."""
        name, given = e.builtin.name, e.arguments
        if name in MATH_CONSTANTS:
            element = e.type.element if isinstance(e.type, Vector) else e.type
            assert isinstance(element, Scalar)
            factor = Literal(e.at, element, rounded(MATH_CONSTANTS[name], element))
            return Binary(e.at, e.type, "*", given[0], converted(factor, e.type))
        if name == "mad":
            return Binary(e.at, e.type, "+", Binary(e.at, e.type, "*", given[0], given[1]), given[2])
        if name == "abs" and e.type in (U4, U8):
            return given[0]
        if name in FLOAT_NAMES and isinstance(e.type, Scalar) and e.type.kind == "float":
            return replace(e, builtin=BUILTINS[FLOAT_NAMES[name]].builtin)
        return None


def _zero(number: Expression) -> Literal:
    """What a number is compared with, in its own type."""
    assert isinstance(number.type, Scalar)
    return Literal(number.at, number.type, 0.0 if number.type.kind == "float" else 0)
