"""The values that an integer expression can have, where its form alone tells."""

from __future__ import annotations

from ..tree import Binary, BuiltinCall, Convert, Expression, Literal, Logical, Name, Ternary, Unary, Variable
from ..types import Scalar, limits

Range = tuple[int, int]
_DEEPEST = 12  # operators in operators; what is deeper may have any value


class Ranges:
    """Finds the least and the greatest value of expressions. `group` is the kernel's group size."""

    def __init__(self, group: tuple[int, int, int]) -> None:
        self._group = group
        self.variables: dict[Variable, Range] = {}  # what was found out about them
        self._depth = 0

    def of(self, e: Expression) -> Range:
        """The least and the greatest value of an integer or bool expression."""
        kind = e.type
        assert isinstance(kind, Scalar)
        whole = (0, 1) if kind.kind == "bool" else limits(kind)
        low, high = self._inner(e, whole)
        return (low, high) if whole[0] <= low and high <= whole[1] else whole

    def is_exact(self, e: Binary | Unary) -> bool:
        """Whether `+`, `-` or `*` cannot leave the range of its type."""
        assert isinstance(e.type, Scalar)
        least, most = limits(e.type)
        low, high = self._result(e)
        return least <= low and high <= most

    def _inner(self, e: Expression, whole: Range) -> Range:
        if isinstance(e, Literal):
            return (int(e.value), int(e.value))
        if isinstance(e, Name):
            value = e.variable.value
            return self.variables.get(e.variable, whole) if value is None else (int(value.value), int(value.value))
        if isinstance(e, Convert):
            source = e.operand.type
            return self.of(e.operand) if isinstance(source, Scalar) and source.kind != "float" else whole
        if isinstance(e, BuiltinCall):
            return self._builtin(e, whole)
        if isinstance(e, Ternary):
            one, other = self.of(e.then), self.of(e.otherwise)
            return (min(one[0], other[0]), max(one[1], other[1]))
        if isinstance(e, Logical):
            return (0, 1)
        if isinstance(e, (Binary, Unary)) and isinstance(e.type, Scalar) and e.type.kind == "integer":
            return self._result(e)
        return whole

    def _builtin(self, e: BuiltinCall, whole: Range) -> Range:
        name = e.builtin.name
        if name in ("kk_local_id", "kk_group_size"):
            least = min(self._group) if name == "kk_group_size" else 0
            most = max(self._group)
            if isinstance(e.arguments[0], Literal):
                least = most = self._group[int(e.arguments[0].value)]
            return (0, most - 1) if name == "kk_local_id" else (least, most)
        if e.builtin.rule == "position":
            return (0, whole[1])
        if name in ("popcount", "clz"):
            return (0, 64)
        return whole

    def _result(self, e: Binary | Unary) -> Range:
        assert isinstance(e.type, Scalar)
        whole = limits(e.type)
        if isinstance(e, Unary):
            low, high = self.of(e.operand)
            return (-high, -low) if e.operator == "-" else whole
        if self._depth > _DEEPEST:
            return whole
        self._depth += 1
        left, right = self.of(e.left), self.of(e.right)
        self._depth -= 1
        match e.operator:
            case "+":
                return (left[0] + right[0], left[1] + right[1])
            case "-":
                return (left[0] - right[1], left[1] - right[0])
            case "*":
                corners = [a * b for a in left for b in right]
                return (min(corners), max(corners))
            case "&" if left[0] >= 0 or right[0] >= 0:
                return (0, min(high for low, high in (left, right) if low >= 0))
            case "%" if right[0] > 0:
                most = right[1] - 1
                return (max(left[0], -most) if left[0] < 0 else 0, min(max(left[1], 0), most))
            case "/" if right[0] > 0:
                return (_quotient(left[0], right), _quotient(left[1], (right[1], right[0])))
            case ">>" if left[0] >= 0:
                return (0, left[1])
            case "|" | "^" if left[0] >= 0 and right[0] >= 0:
                return (0, (1 << max(left[1].bit_length(), right[1].bit_length())) - 1)
        return whole


def _quotient(value: int, divisors: Range) -> int:
    """Divided by the first where that is below zero, else by the second; towards zero."""
    return -(-value // divisors[0]) if value < 0 else value // divisors[1]
