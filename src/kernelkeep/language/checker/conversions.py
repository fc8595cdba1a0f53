"""From the type that an expression has to the one that is needed."""

from __future__ import annotations

from ..problems import Problems
from ..tree import (
    Binary,
    BuiltinCall,
    Comma,
    Convert,
    Expression,
    Literal,
    Place,
    Ternary,
    Unary,
)
from ..types import (
    ANY_FLOAT,
    BOOL,
    F4,
    INVALID,
    TEXT,
    Array,
    Buffer,
    Scalar,
    Type,
    Vector,
    converted,
    is_lossy,
    promoted,
)


def invalid(at: Place) -> Expression:
    """What stands for an expression whose mistake was reported."""
    return Literal(at, INVALID, 0)


def concrete(expression: Expression, target: Scalar) -> Expression:
    """An expression of type ANY_FLOAT, computed in a float type."""
    if expression.type is not ANY_FLOAT:
        return expression
    at = expression.at
    if isinstance(expression, Literal) and not isinstance(expression.value, str):
        return Literal(at, target, converted(expression.value, target))
    if isinstance(expression, Unary):
        return Unary(at, target, expression.operator, concrete(expression.operand, target))
    if isinstance(expression, Binary):
        return Binary(
            at, target, expression.operator, concrete(expression.left, target), concrete(expression.right, target)
        )
    if isinstance(expression, Ternary):
        then, otherwise = concrete(expression.then, target), concrete(expression.otherwise, target)
        return Ternary(at, target, expression.condition, then, otherwise)
    if isinstance(expression, Comma):
        return Comma(at, target, expression.first, concrete(expression.last, target))
    if isinstance(expression, BuiltinCall):
        arguments = tuple(concrete(argument, target) for argument in expression.arguments)
        return BuiltinCall(at, target, expression.builtin, arguments)
    assert isinstance(expression, Convert), expression
    return Convert(at, target, expression.operand, expression.is_written)


class Conversions:
    """Makes conversions explicit, and reports those that C does not have."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def settled(self, expression: Expression) -> Expression:
        """The expression with a type of its own: a float where nothing told how precise it must be."""
        return concrete(expression, F4) if expression.type is ANY_FLOAT else expression

    def value(self, expression: Expression) -> Expression:
        """An expression that has a value. Reports arrays and calls that return nothing."""
        kind = expression.type
        if isinstance(kind, (Array, Buffer)):
            from ..hints import too_few_indices

            sentence = f"this is an array ({kind}), and a value is needed: give an index"
            self._problems.error(expression.at, too_few_indices(expression) or sentence)
            return invalid(expression.at)
        if isinstance(kind, Scalar) and not kind.is_number and kind is not INVALID:
            what = "a text stands only in kk_print" if kind is TEXT else "this function returns nothing"
            self._problems.error(expression.at, what)
            return invalid(expression.at)
        return expression

    def condition(self, expression: Expression) -> Expression:
        """A condition: a bool, or a number that counts as true where it is not 0."""
        return expression if expression.type is BOOL else self.convert(expression, BOOL, "a condition")

    def promote(self, expression: Expression) -> Expression:
        """An operand after integer promotion."""
        kind = expression.type
        if isinstance(kind, Scalar) and kind.is_number and promoted(kind) is not kind:
            return self.convert(expression, promoted(kind))
        return expression

    def integer(self, expression: Expression, what: str) -> Expression:
        """An integer of at least 32 bits, such as an index."""
        kind = self.value(expression).type
        if kind is INVALID:
            return invalid(expression.at)
        if not isinstance(kind, Scalar) or kind.kind not in ("integer", "bool"):
            self._problems.error(expression.at, f"{what} must be an integer, got {kind}")
            return invalid(expression.at)
        return self.promote(expression)

    def convert(self, expression: Expression, target: Type, what: str = "", *, is_written: bool = False) -> Expression:
        """The expression as `target`. `what` names it in a message; a conversion that is not written may be reported as lossy."""
        source = expression.type
        if source is target:
            return expression
        if source is INVALID or target is INVALID:
            return invalid(expression.at)
        if isinstance(source, Scalar) and source.is_number:
            if isinstance(target, Scalar) and target.is_number:
                return self._scalar(expression, source, target, is_written)
            if isinstance(target, Vector):
                element = self._scalar(expression, source, target.element, is_written)
                return Convert(expression.at, target, element, is_written)
        if is_written and isinstance(source, Vector) and isinstance(target, Vector) and source.length == target.length:
            return Convert(expression.at, target, expression, True)
        if self.value(expression).type is not INVALID:
            needed = f"{what} must be {target}, got {source}" if what else f"{source} cannot become {target}"
            self._problems.error(expression.at, needed)
        return invalid(expression.at)

    def _scalar(self, expression: Expression, source: Scalar, target: Scalar, is_written: bool) -> Expression:
        if source is target:
            return expression
        at = expression.at
        if isinstance(expression, Literal) and not isinstance(expression.value, str):
            value = converted(expression.value, target)
            if not is_written and target.kind == "integer" and not _keeps(expression.value, target):
                self._problems.warn(
                    at, f"{expression.value} becomes {value} as {target}: write a cast if that is meant"
                )
            return Literal(at, target, value)
        if not is_written and is_lossy(source, target) and not _was_promoted(expression, target):
            self._problems.warn(at, f"{source} becomes {target} and may lose a part: write a cast if that is meant")
        if source is ANY_FLOAT:
            if target.kind == "float":
                return concrete(expression, target)
            expression = concrete(expression, F4)
        return Convert(at, target, expression, is_written)


def _keeps(value: bool | int | float, target: Scalar) -> bool:
    """Whether a constant stays what it is, or at least its bits do: -1 as unsigned, 0xFF as char are common, and meant."""
    if isinstance(value, float):
        return value == converted(value, target)
    bits = 8 * target.size
    return -(1 << (bits - 1)) <= value < 1 << bits


def _was_promoted(expression: Expression, target: Scalar) -> bool:
    """Whether an int was computed from smaller integers that fit the type: `c = c + 1` with a char is common, and meant."""
    if isinstance(expression, Convert) and not expression.is_written:
        source = expression.operand.type
        return isinstance(source, Scalar) and source.kind != "float" and source.size <= target.size
    if isinstance(expression, Literal) and isinstance(expression.value, int):
        return _keeps(expression.value, target)
    if isinstance(expression, Binary):
        left = _was_promoted(expression.left, target)
        return left and (expression.operator in ("<<", ">>") or _was_promoted(expression.right, target))
    return isinstance(expression, Unary) and _was_promoted(expression.operand, target)
