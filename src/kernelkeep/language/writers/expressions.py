"""Expressions in the syntax that C, GLSL and WGSL share. What differs is a method that a target overrides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from ...errors import Unsupported
from ..builtins import BUILTINS, SYSTEM
from ..tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Comma,
    Construct,
    Convert,
    Declare,
    Expression,
    Field,
    Function,
    Increment,
    Index,
    Literal,
    Logical,
    Module,
    Name,
    Slice,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
    walk,
)
from ..types import (
    BOOL,
    F2,
    F4,
    F8,
    I8,
    U4,
    U8,
    Scalar,
    StructType,
    Type,
    Vector,
    promoted,
    rounded,
)
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

FLOAT_NAMES = {
    "abs": "fabs",
    "min": "fmin",
    "max": "fmax",
}  # C's names of what other languages call the same for all types
MATH_CONSTANTS = {"degrees": 180.0 / math.pi, "radians": math.pi / 180.0}


class ExpressionWriter:
    """Writes expressions, and the statements that must stand before them."""

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
        self.in_index = False  # directly in an index, where `+`, `-` and `*` do not overflow
        self.table: dict[type, Callable[[Any], Text]] = {
            Literal: self.literal, Name: self.name, Unary: self.unary, Binary: self.binary, Logical: self.logical,
            Ternary: self.ternary, Comma: self.comma, Assign: self.assignment, Update: self.update,
            Increment: self.increment, Convert: self.convert, Call: self.call, BuiltinCall: self.builtin,
            Construct: self.construct, Index: self.index, Slice: self.slice, Field: self.field, Swizzle: self.swizzle,
        }  # fmt: skip

    # --- the text

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

    # --- expressions

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
        if self.in_index and not stays_in_index(e):
            self.in_index = False
            found = self.table[kind](e)
            self.in_index = True
            return found
        return self.table[kind](e)

    def simple(self, e: Expression) -> bool:
        """Whether writing an expression twice does no harm."""
        return isinstance(e, (Literal, Name)) or (isinstance(e, (Swizzle, Field)) and self.simple(e.base))

    def literal(self, e: Literal) -> Text:
        return self.number(e.value, e.type)

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

    def name(self, e: Name) -> Text:
        return self.variable(self.arrays.get(e.variable, e.variable)), PRIMARY

    def unary(self, e: Unary) -> Text:
        operand = self.x(e.operand, UNARY)
        # `- -x` is not `--x`.
        return (f"{e.operator}({operand})" if operand[0] == e.operator else f"{e.operator}{operand}"), UNARY

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

    def assignment(self, e: Assign) -> Text:
        if self.plain_store(e.target):
            return f"{self.x(e.target, UNARY)} = {self.x(e.value, ASSIGNMENT)}", ASSIGNMENT
        return self.stored(e.target, e.value)

    def plain_store(self, target: Expression) -> bool:
        """Whether `target = value` is how the target language stores there."""
        return True

    def stored(self, target: Expression, value: Expression) -> Text:
        """What stores where `=` does not."""
        raise NotImplementedError

    def update(self, e: Update) -> Text:
        if e.target.type is e.computed and self.plain_store(e.target) and self.plain_update(e):
            return f"{self.x(e.target, UNARY)} {e.operator}= {self.update_operand(e)}", ASSIGNMENT
        return self.table[Assign](self.expanded(e))

    def plain_update(self, e: Update) -> bool:
        """Whether `target op= value` of the target language means the same."""
        return True

    def update_operand(self, e: Update) -> str:
        return self.x(self.shift_amount(e.value, e.computed) if e.operator in ("<<", ">>") else e.value, ASSIGNMENT)

    def shift_amount(self, amount: Expression, kind: Type) -> Expression:
        """The right operand of a shift, within the width of the left one."""
        element = kind.element if isinstance(kind, Vector) else kind
        assert isinstance(element, Scalar)
        bits = 8 * element.size
        if isinstance(amount, Literal):
            return amount if 0 <= int(amount.value) < bits else replace(amount, value=int(amount.value) & (bits - 1))
        if isinstance(amount.type, Vector) or not self.masks_shifts:
            return amount
        low, high = self.ranges.of(amount)
        if low >= 0 and high < bits:
            return amount
        return Binary(amount.at, amount.type, "&", amount, Literal(amount.at, amount.type, bits - 1))

    masks_shifts = True  # the target language leaves shifts beyond the width open

    def expanded(self, e: Update) -> Assign:
        """`target = (type)((computed)target op value)`."""
        target = self.fixed_target(e.target)
        return Assign(e.at, e.type, target, self.combined(e, target))

    def combined(self, e: Update, old: Expression) -> Expression:
        computed: Expression = Binary(e.at, e.computed, e.operator, converted(old, e.computed), e.value)
        return converted(computed, e.target.type)

    def increment(self, e: Increment) -> Text:
        if self.plain_increment(e):
            text = self.x(e.target, UNARY)
            return (f"{text}{e.operator}", PRIMARY) if e.is_postfix else (f"{e.operator}{text}", UNARY)
        return self.table[Assign](self.incremented(e, self.fixed_target(e.target)))

    def plain_increment(self, e: Increment) -> bool:
        """Whether `x++` of the target language means the same."""
        return self.plain_store(e.target)

    def incremented(self, e: Increment, target: Expression, old: Expression | None = None) -> Assign:
        kind = e.target.type
        computed = promoted(kind) if isinstance(kind, Scalar) else kind
        element = computed.element if isinstance(computed, Vector) else computed
        one: Expression = Literal(e.at, element, 1.0 if element.kind == "float" else 1)  # type: ignore[attr-defined]
        changed = Binary(e.at, computed, e.operator[0], converted(old or target, computed), converted(one, computed))
        return Assign(e.at, kind, target, converted(changed, kind))

    def convert(self, e: Convert) -> Text:
        source, target = e.operand.type, e.type
        if source is target:
            return self.x(e.operand, UNARY), UNARY
        if isinstance(target, Vector):
            return self.splat(e.operand, target) if isinstance(source, Scalar) else self.vector_cast(e.operand, target)
        assert isinstance(source, Scalar) and isinstance(target, Scalar)
        if target.kind == "bool":
            zero = Literal(e.at, source, 0.0 if source.kind == "float" else 0)
            return self.infix("!=", e.operand, zero)
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

    def type_name(self, kind: Type) -> str:
        """A type, in the target language."""
        if isinstance(kind, Scalar) and kind in self.types:
            return self.types[kind]
        if isinstance(kind, Vector):
            return self.vector_name(kind)
        if isinstance(kind, StructType):
            return self.names.free(kind.name)
        raise self.unsupported(*self.lacking(kind))

    def lacking(self, kind: Type) -> tuple[str, Expression | Declare | None, str]:
        """What `unsupported` is told where the target lacks a type."""
        needed = "float64" if kind is F8 else "int64" if kind in (I8, U8) else str(kind)
        return needed, _first_use(self.module, kind), f"{self.title} has no type {kind}"

    def vector_name(self, kind: Vector) -> str:
        return kind.title

    # --- statements before an expression (`ordering.py`)

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


def _first_use(module: Module, kind: Type) -> Expression | Declare | None:
    """The first place in a text where something has this type."""
    uses = [
        node
        for function in (*module.functions, module.kernel)
        for node in walk(function.body)
        if (isinstance(node, Declare) and node.variable.type is kind)
        or (isinstance(node, Expression) and node.type is kind)
    ]
    return min((one for one in uses if one.at.line), key=lambda one: (one.at.line, one.at.column), default=None)


def converted(e: Expression, target: Type) -> Expression:
    """`e` as another type."""
    return e if e.type is target else Convert(e.at, target, e)


def stays_in_index(e: Expression) -> bool:
    """Whether the operands of an expression that is an index are directly in that index, too."""
    if isinstance(e, Binary):
        return e.operator in ("+", "-", "*")
    return isinstance(e, (Name, Literal, Unary, Increment)) or (isinstance(e, Convert) and e.operand.type in INTEGERS)


_FOLDED = frozenset((Binary, Ternary, Unary, Convert))
