"""Signed integers in languages where their overflow is undefined: CUDA C and OpenCL C.

`+`, `-` and `*` of signed integers wrap here, so they are computed unsigned: `(int)((uint)a * b + c)`. Four kinds stay as they
are, because compilers make good use of what C promises: those whose operands cannot lead to an overflow; those directly in an
index, `x[row * n + column]`; those that set a variable which is used in indices only; and the counter of a loop
that counts up or down to a limit. An index that overflows is a mistake, which the reference device reports.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from ..tree import (
    Assign,
    Binary,
    BuiltinCall,
    Convert,
    Declare,
    Evaluate,
    Expression,
    For,
    Increment,
    Index,
    Literal,
    Module,
    Name,
    Node,
    Slice,
    Unary,
    Update,
    Variable,
    children,
)
from ..types import BOOL, F2, I4, I8, U4, U8, Scalar, Vector, wrapped
from .base import Writer
from .numbers import folded, literal
from .texts import LEVELS, UNARY, Text, stays_in_index

UNSIGNED = {I4: U4, I8: U8}
SIGNED = {U4: I4, U8: I8}
_INDEX = object()  # a use as an index


class WrappingWriter(Writer):
    """Writes arithmetic of signed integers that wraps."""

    casts: ClassVar[dict[Scalar, str]]  # the short names of types, in casts
    _index_variables: set[Variable] | None = None

    def sets_index(self, target: Expression) -> bool:
        """Whether a variable is used in indices only, so that what it is set to does not overflow."""
        if not isinstance(target, Name) or target.type not in UNSIGNED or target.variable.space != "local":
            return False
        if self._index_variables is None:
            self._index_variables = _index_variables(self.module)
        return target.variable in self._index_variables

    def index_value(self, value: Expression, need: int) -> str:
        """The value that such a variable is set to."""
        before, self.in_index = self.in_index, True
        text = self.x(value, need)
        self.in_index = before
        return text

    def assignment(self, e: Assign) -> Text:
        if self.sets_index(e.target):
            return f"{self.x(e.target)} = {self.index_value(e.value, 2)}", 2
        return super().assignment(e)

    def update_operand(self, e: Update) -> str:
        if e.operator in ("+", "-", "*") and self.sets_index(e.target):
            return self.index_value(e.value, 2)
        return super().update_operand(e)

    def may_wrap(self, e: Binary | Unary) -> bool:
        """Whether an operation is computed unsigned."""
        operators = ("+", "-", "*") if isinstance(e, Binary) else ("-",)
        if e.operator not in operators or e.type not in UNSIGNED or self.in_index:
            return False
        return id(e) not in self.effects.spilled and not self.ranges.is_exact(e)

    def is_infix(self, e: Expression) -> bool:
        return not isinstance(e, Binary) or not self.may_wrap(e)

    def unary(self, e: Unary) -> Text:
        if self.may_wrap(e):
            return self.wrapped(e)
        if isinstance(e.type, Vector):
            return self.vector_operation(e)
        return super().unary(e)

    def binary(self, e: Binary) -> Text:
        if isinstance(e.left.type, Vector):
            return self.vector_operation(e)
        if self.may_wrap(e):
            return self.wrapped(e)
        if e.operator in ("<<", ">>"):
            return self.infix(e.operator, e.left, self.shift_amount(e.right, e.type))
        if e.type is F2:
            text, _ = self.infix(e.operator, e.left, e.right)
            return self.round_to_half(text)
        return self.infix(e.operator, e.left, e.right)

    def infix(self, operator: str, left: Expression, right: Expression) -> Text:
        return super().infix(operator, _as_promoted(left), _as_promoted(right))

    def vector_operation(self, e: Binary | Unary) -> Text:
        """An operation that goes by element."""
        raise NotImplementedError

    def wrapped(self, e: Binary | Unary) -> Text:
        """Signed arithmetic, computed unsigned."""
        text, level, _ = self.unsigned(e)
        assert isinstance(e.type, Scalar)
        return f"({self.casts[e.type]}){text if level >= UNARY else f'({text})'}", UNARY

    def unsigned(self, e: Expression) -> tuple[str, int, bool]:
        """The same bits as an unsigned number; False: the text is signed, and becomes unsigned beside one that is not."""
        kind = UNSIGNED[e.type]  # type: ignore[index]
        if (value := folded(e)) is not None:
            return (*self.integer(wrapped(value, kind), kind), True)
        if isinstance(e, Convert) and e.operand.type is kind and id(e) not in self.effects.hoisted:
            text = self.x(e.operand, UNARY)
            return text, UNARY, True
        if isinstance(e, BuiltinCall) and e.builtin.rule == "position" and id(e) not in self.effects.hoisted:
            return self.unsigned_position(e)
        if isinstance(e, Unary) and self.may_wrap(e):
            text, level, is_unsigned = self.unsigned(e.operand)
            text = text if level >= UNARY and text[0] != "-" else f"({text})"
            return f"-{text if is_unsigned else f'({self.casts[kind]}){text}'}", UNARY, True
        if not isinstance(e, Binary) or not self.may_wrap(e):
            text, level = self.text(e)
            return text, level, False
        operator, right = e.operator, e.right
        if operator in ("+", "-") and isinstance(right, Literal) and int(right.value) < 0:
            operator, right = "+-"[operator == "+"], replace(right, value=-int(right.value))
        level = LEVELS[operator]
        first, first_level, first_unsigned = self.unsigned(e.left)
        if first_unsigned and (value := folded(right)) is not None:
            second, second_level, second_unsigned = *self.integer(value, e.type), False  # type: ignore[arg-type]
        else:
            second, second_level, second_unsigned = self.unsigned(right)
        if not first_unsigned and not second_unsigned:
            first = f"({self.casts[kind]}){first if first_level >= UNARY else f'({first})'}"
            first_level = UNARY
        first = first if first_level >= level else f"({first})"
        second = second if second_level > level else f"({second})"
        return f"{first} {operator} {second}", level, True

    def unsigned_position(self, e: BuiltinCall) -> tuple[str, int, bool]:
        """The position of a work-item, as `unsigned`."""
        return (*self.text(e), False)

    def plain_update(self, e: Update) -> bool:
        if isinstance(e.computed, Vector) or e.computed is F2:
            return False
        if e.operator not in ("+", "-", "*") or e.computed not in UNSIGNED:
            return True
        return self._counts(e.target) or self.sets_index(e.target)

    def plain_increment(self, e: Increment) -> bool:
        if isinstance(e.type, Vector) or e.type is F2 or e.type is BOOL:
            return False
        return e.type not in UNSIGNED or self.in_index or self._counts(e.target) or self.sets_index(e.target)

    def _counts(self, target: Expression) -> bool:
        return isinstance(target, Name) and target.variable is self.counter

    def increment(self, e: Increment) -> Text:
        if not e.is_postfix or self.plain_increment(e):
            return super().increment(e)
        # The old value is the new one, counted back.
        changed = self.x(self.incremented(e, e.target))
        back = "-" if e.operator == "++" else "+"
        one = literal(1, e.type)
        if isinstance(e.type, Scalar) and e.type.kind == "float":
            one = replace(one, value=1.0)
        return f"{changed}, {self.x(Binary(e.at, e.type, back, e.target, one))}", 1


def _index_variables(module: Module) -> set[Variable]:
    """Those whose values are never used but in indices, and to set others of the kind."""
    uses = _Uses()
    for function in (*module.functions, module.kernel):
        uses.of(function.body)
    bad, found = list(uses.outside), uses.outside
    while bad:
        for source in uses.sources.get(bad.pop(), ()):
            if source not in found:
                found.add(source)
                bad.append(source)
    return uses.named - found


class _Uses:
    def __init__(self) -> None:
        self.named: set[Variable] = set()
        self.outside: set[Variable] = set()  # used elsewhere than in an index
        self.sources: dict[Variable, set[Variable]] = {}  # what a variable's values are computed from

    def of(self, node: Node) -> None:
        """The uses in a statement, or in an expression that is no index."""
        if isinstance(node, Declare):
            self.named.add(node.variable)
            if node.value is not None:
                self.value(node.value, node.variable)
        elif isinstance(node, Evaluate):
            self.change(node.expression)
        elif isinstance(node, For):
            for child in children(node):
                if child is node.step:
                    self.change(node.step)
                else:
                    self.of(child)
        elif isinstance(node, Expression):
            self.value(node, None)
        else:
            for child in children(node):
                self.of(child)

    def change(self, e: Expression) -> None:
        """An expression whose own value is not used."""
        if isinstance(e, (Assign, Update, Increment)) and isinstance(e.target, Name):
            if isinstance(e, Update) and e.operator not in ("+", "-", "*"):
                self.outside.add(e.target.variable)
            if not isinstance(e, Increment):
                self.value(e.value, e.target.variable)
        else:
            self.value(e, None)

    def value(self, e: Expression, into: object) -> None:
        """`into`: an index, a variable that is set to the value, or None for any other use."""
        if type(e) is Literal:
            return
        if isinstance(e, Name):
            if into is None:
                self.outside.add(e.variable)
            elif into is not _INDEX:
                self.sources.setdefault(into, set()).add(e.variable)  # type: ignore[arg-type]
        elif into is not None and stays_in_index(e):
            for child in children(e):
                self.value(child, into)  # type: ignore[arg-type]
        elif isinstance(e, Index) and not isinstance(e.base.type, Vector):
            self.value(e.base, None)
            self.value(e.index, _INDEX)
        elif isinstance(e, Slice):
            self.value(e.base, None)
            self.value(e.offset, _INDEX)
        elif isinstance(e, BuiltinCall) and e.builtin.rule in ("load4", "store4"):
            array, at, *values = e.arguments
            self.value(array, None)
            self.value(at, _INDEX)
            for one in values:
                self.value(one, None)
        else:
            for child in children(e):
                self.value(child, None)  # type: ignore[arg-type]


def _as_promoted(e: Expression) -> Expression:
    """An operand without the conversion to int that C makes of small integers by itself."""
    if (
        isinstance(e, Convert)
        and e.type is I4
        and isinstance(e.operand.type, Scalar)
        and isinstance(e.operand, Name | Index)
    ):
        small = e.operand.type
        return e.operand if small.kind == "integer" and small.size < 4 else e
    return e
