"""Expressions whose result depends on an order of evaluation that C leaves open, such as `x[i] = i++`."""

from __future__ import annotations

from ..problems import Problems
from ..tree import Assign, Comma, Expression, Increment, Logical, Name, Ternary, Update, Variable, children

_Uses = tuple[set[Variable], set[Variable]]  # variables that are read, and that are changed


def check_order(expression: Expression, problems: Problems) -> None:
    """Warn where a variable is changed and used in one expression, and C does not say which comes first."""
    _uses(expression, problems)


def _uses(expression: Expression, problems: Problems) -> _Uses:
    if isinstance(expression, Name):
        return {expression.variable}, set()
    parts = [_uses(child, problems) for child in children(expression) if isinstance(child, Expression)]
    reads: set[Variable] = set().union(*(part[0] for part in parts))
    changes: set[Variable] = set().union(*(part[1] for part in parts))
    target = expression.target if isinstance(expression, (Assign, Update, Increment)) else None
    if isinstance(target, Name):
        # `i = i + 1` reads i before it is assigned; only a second change has no order.
        if target.variable in changes:
            _warn(expression, target.variable, problems)
        return reads - {target.variable} if isinstance(expression, Assign) else reads, changes | {target.variable}
    if not isinstance(expression, (Logical, Ternary, Comma)):
        for at, (_, changed) in enumerate(parts):
            for other, (read, also_changed) in enumerate(parts):
                for variable in changed & (read | also_changed) if other != at else ():
                    _warn(expression, variable, problems)
                    return reads, changes - {variable}
    return reads, changes


def _warn(expression: Expression, variable: Variable, problems: Problems) -> None:
    name = variable.written
    problems.warn(expression.at, f"{name} is changed and used in one expression, and C leaves open which comes first")
