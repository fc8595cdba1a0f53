"""Assignments, `++` and `--`, and what may be assigned to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problems import Problems
from ..tree import Assign, Expression, Field, Increment, Index, Name, Place, Slice, Swizzle, Update, Variable
from ..types import ANY_FLOAT, F4, INVALID, Array, Buffer, Scalar, Vector
from .conversions import Conversions, invalid
from .scopes import Scopes

if TYPE_CHECKING:
    from .expressions import Expressions

_SHIFTS = frozenset(("<<", ">>"))
_TRACKED = ("local", "scalar")  # variables of which the checker knows all values


class Assignments:
    """Makes typed assignments."""

    def __init__(self, expressions: Expressions, problems: Problems, scopes: Scopes, conversions: Conversions) -> None:
        self._expressions = expressions
        self._problems = problems
        self._scopes = scopes
        self._conversions = conversions

    def _error(self, at: Place, sentence: str) -> Expression:
        self._problems.error(at, sentence)
        return invalid(at)

    def assign(self, sign: str, target: Expression, value: Expression, at: Place) -> Expression:
        """`=`, `+=` and so on."""
        kind = target.type
        if isinstance(target, Slice) and isinstance(target.offset, Name) and value.type is not INVALID:
            return self._expressions.pointers.assign(sign, target, value, at)
        views = self._expressions.views
        if views is not None and value.type is not INVALID and views.is_made(target):
            self._expressions.nested_changes += 1
            if sign != "=":
                value = self._expressions.binary(sign[:-1], target, value, at)
            return views.store(target, value, at)
        if not self._check_target(target, at) or value.type is INVALID:
            return invalid(at)
        self._expressions.nested_changes += 1
        root = root_of(target)
        if root is not None and root.space in _TRACKED:
            self._scopes.function.values.setdefault(root, []).append(value)
        if sign == "=":
            return Assign(at, kind, target, self._conversions.convert(value, kind, "the assigned value"))
        sign = sign[:-1]
        if sign in _SHIFTS:
            computed = self._expressions.shift(sign, target, value, at).type
            if computed is INVALID:
                return invalid(at)
            return Update(at, kind, sign, target, self._conversions.integer(value, ""), computed)
        computed = self._expressions.common(sign, target, value, at)
        if computed is INVALID:
            return invalid(at)
        computed = F4 if computed is ANY_FLOAT else computed
        if isinstance(computed, Vector) and not isinstance(kind, Vector):
            return self._error(at, f"{kind} cannot become {computed}")
        if (
            isinstance(kind, Scalar)
            and isinstance(computed, Scalar)
            and (kind.kind, computed.kind) == ("integer", "float")
        ):
            self._problems.warn(at, f"{computed} becomes {kind} and may lose a part: write a cast if that is meant")
        return Update(at, kind, sign, target, self._conversions.convert(value, computed), computed)

    def increment(self, sign: str, target: Expression, at: Place, *, is_postfix: bool) -> Expression:
        """`++` and `--`."""
        if isinstance(target, Slice) and isinstance(target.offset, Name):
            return Slice(at, target.type, target.base, self.increment(sign, target.offset, at, is_postfix=is_postfix))
        if not self._check_target(target, at):
            return invalid(at)
        if not isinstance(target.type, Scalar):
            return self._error(at, f"{sign} cannot be applied to {target.type}")
        self._expressions.nested_changes += 1
        return Increment(at, target.type, sign, is_postfix, target)  # type: ignore[arg-type]

    def _check_target(self, target: Expression, at: Place) -> bool:
        """Whether something can be assigned to; reports why not."""
        if target.type is INVALID:
            return False
        if isinstance(target.type, (Array, Buffer)):
            from ..hints import too_few_indices

            self._problems.error(at, too_few_indices(target) or "an array cannot be assigned: assign its elements")
            return False
        root = root_of(target)
        if root is None:
            self._problems.error(at, "this cannot be assigned to: it is a value, not a variable or an element")
            return False
        if isinstance(target, Swizzle) and len(set(target.elements)) < len(target.elements):
            self._problems.error(target.at, f"an element is assigned twice in .{target.elements}")
            return False
        return self.check_writable(root, at)

    def check_writable(self, variable: Variable, at: Place) -> bool:
        """Whether a variable, or what is in it, may change; reports why not."""
        if isinstance(variable.type, Buffer) and variable.type.access == "r":
            why = (
                'its access is "r": declare it "rw", in Python kk.InOut'
                if variable.space == "buffer"
                else "it is const"
            )
            self._problems.error(at, f"{variable.written} must not be written: {why}")
            return False
        if variable.is_const or variable.space == "constant":
            self._problems.error(at, f"{variable.written} must not be changed: it is const")
            return False
        if variable.space in ("scalar", "parameter") and not isinstance(variable.type, Buffer):
            self._scopes.function.changed.add(variable)
        return True


def root_of(expression: Expression) -> Variable | None:
    """The variable that an element or field belongs to; None where the expression is only a value."""
    while not isinstance(expression, Name):
        if not isinstance(expression, (Index, Field, Swizzle)):
            return None
        expression = expression.base
    return expression.variable
