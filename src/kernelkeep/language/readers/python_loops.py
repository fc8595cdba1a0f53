"""`for i in range(…)`.

As in Python, the bounds are computed once, the loop does not see what its body assigns to the variable, and after the loop the
variable has its last value. A loop whose variable nobody else uses becomes a plain `for`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..tree import (
    Binary,
    BuiltinCall,
    Convert,
    Declare,
    Evaluate,
    Expression,
    For,
    Literal,
    Name,
    Place,
    Statement,
    Ternary,
    Unary,
)
from ..types import BOOL, I4, INVALID, Scalar, Type, common_scalar
from .python_function import FunctionReader
from .python_names import fits

if TYPE_CHECKING:
    from .python_statements import StatementReader

_RANGE = "a for runs over range(…) or kk.unroll(range(…)) in a kernel: index arrays with its variable"


class Loops:
    """Reads loops over a range."""

    def __init__(self, function: FunctionReader, statements: StatementReader) -> None:
        self._function = function
        self._statements = statements
        self._read = function.expressions
        self._checker = function.checker

    def read(self, node: ast.For, into: list[Statement]) -> None:
        """One loop."""
        if node.orelse:
            self._read.error(node.orelse[0], "there is no else behind a loop in a kernel: use a variable")
        if not isinstance(node.target, ast.Name):
            self._read.error(node.target, "a for has one variable in a kernel, as in for i in range(n)")
            return
        found = self._range(node.iter)
        if found is None:
            self._function.failed.add(node.target.id)
            return
        arguments, unroll, rounds = found
        at, name = self._read.at(node), node.target.id
        bounds = self._bounds(arguments)
        if bounds is None:
            self._function.failed.add(name)
            return
        kind, first, last, step = bounds
        is_own = name in self._function.scope.of_loops
        changed = self._function.scope.stored_in[id(node)] | (set() if is_own else {name})
        start: list[Declare | Evaluate] = []
        counter = self._function.hidden(name if is_own else f"{name}_at", kind, self._read.at(node.target), first)
        start.append(counter)
        last = self._kept(last, f"{name}_end", changed, start)
        step = self._kept(step, f"{name}_step", changed, start)
        here = Name(at, kind, counter.variable)
        if self._read.operators.is_nonnegative(first) and self._read.operators.is_nonnegative(step):
            self._read.operators.nonnegative.add(counter.variable)
        condition = self._condition(here, last, step, at)
        before: list[Statement] = []
        if is_own:
            self._function.variables[name] = counter.variable
        else:
            self._copy(name, here, before, into)
        body = self._statements.body(node.body, at, before)
        if is_own:
            del self._function.variables[name]
            self._function.used.discard(counter.variable.name)  # the next loop may have it
        into.append(For(at, tuple(start), condition, self._advance(here, step, at), body, unroll, rounds))

    def _copy(self, name: str, counter: Name, before: list[Statement], into: list[Statement]) -> None:
        """The variable of the text takes its value from the counter, at the beginning of each round."""
        known = self._function.variables.get(name)
        if known is None:
            self._function.declare(name, counter.type, counter.at)
            known = self._function.variables[name]
        value = self._read.given(counter, known.type, name)
        target = Name(counter.at, known.type, known)
        if value.type is not INVALID:
            change = self._checker.expressions.assignments.assign("=", target, value, counter.at)
            before.append(Evaluate(counter.at, self._checker.expressions.full(change)))

    def _range(self, node: ast.expr) -> tuple[list[ast.expr], bool, int] | None:
        """The arguments of range, and whether the loop is unrolled, by how many rounds."""
        unroll, rounds = False, 0
        if self._names(node, "kernelkeep.unroll") and isinstance(node, ast.Call):
            unroll = True
            if not 1 <= len(node.args) <= 2 or node.keywords:
                self._read.error(node, "write kk.unroll(range(4)), or kk.unroll(range(n), 4) for four rounds at a time")
                return None
            if len(node.args) == 2:
                size = self._read.value(node.args[1])
                rounds = max(0, self._checker.declarations.integer_constant(size, "the number of rounds"))
            node = node.args[0]
        if not self._names(node, "builtins.range") or not isinstance(node, ast.Call):
            self._read.error(node, _RANGE)
            return None
        if node.keywords or not 1 <= len(node.args) <= 3:
            self._read.error(node, f"range takes 1 to 3 integers, got {len(node.args) + len(node.keywords)}")
            return None
        return node.args, unroll, rounds

    def _names(self, node: ast.expr, path: str) -> bool:
        found = self._read.meaning(node.func) if isinstance(node, ast.Call) else None
        return found is not None and found.text == path

    def _bounds(self, nodes: list[ast.expr]) -> tuple[Scalar, Expression, Expression, Expression] | None:
        """The type of the variable, its first value, its end and its step."""
        found = [
            self._checker.conversions.integer(self._read.value(one), "range takes integers: each") for one in nodes
        ]
        if any(one.type is INVALID for one in found):
            return None
        at = found[0].at
        values: list[Expression] = [Literal(at, I4, 0), found[0], Literal(at, I4, 1)]
        values[: len(found)] = found if len(found) > 1 else values[:1]
        kinds = [one.type for one in values if not isinstance(one, Literal)]
        kind: Type = kinds[0] if kinds else max((one.type for one in values), key=lambda one: one.size)  # type: ignore[attr-defined]
        assert isinstance(kind, Scalar)
        for other in kinds[1:]:
            assert isinstance(other, Scalar)
            kind = common_scalar(kind, other)
        for value in values:
            if isinstance(value, Literal) and not fits(value.value, kind):
                what = "a step below 0 needs signed integers" if value is values[2] else f"{value.value} is no {kind}"
                self._checker.problems.error(value.at, f"{what}: convert the others, as in kk.i4(n)")
                return None
        if isinstance(values[2], Literal) and values[2].value == 0:
            self._checker.problems.error(values[2].at, "the step of range must not be 0")
            return None
        first, last, step = (self._checker.conversions.convert(value, kind, is_written=True) for value in values)
        return kind, first, last, step

    def _kept(self, value: Expression, name: str, changed: set[str], start: list[Declare | Evaluate]) -> Expression:
        """A bound that stays as it is while the loop runs: in a variable of its own, where the body may change it."""
        value = self._checker.expressions.full(value)
        if self._is_stable(value, changed):
            return value
        declared = self._function.hidden(name, value.type, value.at, value)
        start.append(declared)
        return Name(value.at, value.type, declared.variable)

    def _is_stable(self, e: Expression, changed: set[str]) -> bool:
        if isinstance(e, Name):
            return e.variable.written not in changed and e.variable.space != "shared"
        if isinstance(e, Binary):
            return self._is_stable(e.left, changed) and self._is_stable(e.right, changed)
        if isinstance(e, Unary | Convert):
            return self._is_stable(e.operand, changed)
        is_position = isinstance(e, BuiltinCall) and e.builtin.rule == "position"
        return isinstance(e, Literal) or is_position

    def _condition(self, counter: Name, last: Expression, step: Expression, at: Place) -> Expression:
        up = Binary(at, BOOL, "<", counter, last)
        if self._read.operators.is_nonnegative(step):
            return up
        down = Binary(at, BOOL, ">", counter, last)
        if isinstance(step, Literal):
            return down
        return Ternary(at, BOOL, Binary(at, BOOL, ">", step, Literal(at, step.type, 0)), up, down)

    def _advance(self, counter: Name, step: Expression, at: Place) -> Expression:
        make = self._checker.expressions.assignments
        if isinstance(step, Literal) and step.value == 1:
            found = make.increment("++", counter, at, is_postfix=True)
        elif isinstance(step, Literal) and not isinstance(step.value, str) and step.value < 0:
            found = make.assign("-=", counter, Literal(step.at, step.type, -step.value), at)
        else:
            found = make.assign("+=", counter, step, at)
        return self._checker.expressions.full(found)
