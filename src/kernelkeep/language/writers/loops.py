"""Loops, in the syntax that C, GLSL and WGSL share."""

from __future__ import annotations

from ..tree import (
    Assign,
    Binary,
    Comma,
    Continue,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    Increment,
    Literal,
    Name,
    Statement,
    Unary,
    Update,
    Variable,
    While,
    children,
)
from ..types import BOOL, I4
from .statements import StatementWriter


class LoopWriter(StatementWriter):
    """Writes loops. Statements that belong to a condition or a step are written where they are due."""

    def loop(self, s: For | While | DoWhile) -> None:
        if isinstance(s, For):
            self.for_loop(s)
        elif isinstance(s, While):
            self.while_loop(s)
        else:
            self.do_loop(s)

    forever = "while (true) {"

    def condition(self, e: Expression) -> str:
        """What a loop goes on for."""
        return self.x(e)

    def for_loop(self, s: For) -> None:
        start = self.for_start(s)
        if start is None:
            self.line("{")
            self.depth += 1
            for one in s.start:
                self.statement(one)
            start = ""
        if self.emits(s.step) and _continues(s.body):
            self.loop_with_late_step(s)
        else:
            if s.unroll:
                self.unroll(s.rounds)
            condition = "" if s.condition is None or self.emits(s.condition) else " " + self.condition(s.condition)
            step = "" if s.step is None or self.emits(s.step) else " " + self.step(s)
            self.line(f"for ({start};{condition};{step}) {{")
            if s.condition is not None and self.emits(s.condition):
                self.leave_unless(s.condition)
            self.know_counter(s)
            self.block(s.body)
            if s.step is not None and self.emits(s.step):
                self.indented(lambda: self.evaluate(s.step))  # type: ignore[arg-type]
            self.line("}")
        if start == "" and s.start:
            self.depth -= 1
            self.line("}")

    def know_counter(self, s: For) -> None:
        """Tell the values that the counter has in the body, where only the loop itself changes it."""
        counter = _counter(s)
        if counter is None or self.effects.assigned[counter] != 1 or counter.type is not I4:
            return
        start = next((one.value for one in s.start if isinstance(one, Declare) and one.variable is counter), None)
        assert isinstance(s.condition, Binary)
        amount = s.step.value if isinstance(s.step, Update) else None
        if start is None or (amount is not None and self.ranges.of(amount)[0] < 0):
            return
        first, limit, sign = self.ranges.of(start), self.ranges.of(s.condition.right), s.condition.operator
        if sign in ("<", "<="):
            last = limit[1] - (sign == "<")
            by = self.ranges.of(amount) if amount is not None else (1, 1)
            if by[0] == by[1] > 0 and first[0] == first[1] <= last:  # `t + 15` fits where `t` counts up from 0 by 16
                last -= (last - first[0]) % by[0]
            known = (first[0], last)
        else:
            known = (limit[0] + (sign == ">"), first[1])
        if known[0] <= known[1]:
            self.ranges.variables[counter] = known

    def for_start(self, s: For) -> str | None:
        """What begins a `for`, on its line. None where it must stand before the loop."""
        if not s.start:
            return ""
        if any(self.emits(one.value if isinstance(one, Declare) else one.expression) for one in s.start):
            return None
        if all(isinstance(one, Evaluate) for one in s.start):
            return ", ".join(self.change_in_step(one.expression) for one in s.start if isinstance(one, Evaluate))
        first = s.start[0]
        assert isinstance(first, Declare)
        if not all(isinstance(one, Declare) and one.variable.type is first.variable.type for one in s.start):
            return None
        texts = [self.declaration(one.variable, one.value) for one in s.start if isinstance(one, Declare)]
        kind = self.type_name(first.variable.type)
        if not all(text.startswith(f"{kind} ") for text in texts):
            return None
        return ", ".join([texts[0], *(text.removeprefix(f"{kind} ") for text in texts[1:])])

    def change_in_step(self, e: Expression) -> str:
        if isinstance(e, Comma):
            return f"{self.change_in_step(e.first)}, {self.change_in_step(e.last)}"
        return self.change(e) if isinstance(e, (Assign, Update, Increment)) else self.x(e)

    def step(self, s: For) -> str:
        assert s.step is not None
        before, self.counter = self.counter, _counter(s)
        text = self.change_in_step(s.step)
        self.counter = before
        return text

    def unroll(self, rounds: int) -> None:
        """What stands before a loop that is to be unrolled: wholly, or so many rounds at a time."""

    def loop_with_late_step(self, s: For | DoWhile) -> None:
        """A loop whose step needs statements that `continue` must not skip: they begin the next round."""
        variable = Variable(self.names.new("again"), BOOL, "local", s.at)
        self.variables[variable] = variable.name
        self.effects.assigned[variable] += 1
        again = Name(s.at, BOOL, variable)
        self.declare(variable, Literal(s.at, BOOL, False))
        self.line(self.forever)
        self.depth += 1

        def between() -> None:
            if isinstance(s, For):
                assert s.step is not None
                self.evaluate(s.step)
            else:
                negated = self.x(Unary(s.at, BOOL, "!", s.condition))
                self.line(f"{self.if_head(negated)} break; }}")

        self.branches(self.x(again), between, None)
        self.set(again, Literal(s.at, BOOL, True))
        self.depth -= 1
        if isinstance(s, For) and s.condition is not None:
            self.leave_unless(s.condition)
        self.block(s.body)
        self.line("}")

    def while_loop(self, s: While) -> None:
        if self.emits(s.condition):
            self.line(self.forever)
            self.leave_unless(s.condition)
        else:
            self.line(f"while ({self.condition(s.condition)}) {{")
        self.block(s.body)
        self.line("}")

    def do_loop(self, s: DoWhile) -> None:
        if not self.emits(s.condition):
            self.line("do {")
            self.block(s.body)
            self.line(f"}} while ({self.condition(s.condition)});")
        else:
            self.loop_that_breaks(s)

    def loop_that_breaks(self, s: DoWhile) -> None:
        """A `do … while` without end whose last statement leaves it."""
        if _continues(s.body):
            self.loop_with_late_step(s)
        else:
            self.line(self.forever)
            self.block(s.body)
            self.leave_unless(s.condition)
            self.line("}")


def _continues(statement: Statement) -> bool:
    """Whether a `continue` of the loop around a statement is in it."""
    if isinstance(statement, Continue):
        return True
    if isinstance(statement, (For, While, DoWhile)):
        return False
    return any(not isinstance(child, Expression) and _continues(child) for child in children(statement))  # type: ignore[arg-type]


def _counter(s: For) -> Variable | None:
    """The counter of a loop that counts up to a limit, or down to one: past it the loop is over before it could overflow."""
    step, condition = s.step, s.condition
    while isinstance(step, Comma):
        step = step.first
    if not isinstance(condition, Binary) or not isinstance(condition.left, Name):
        return None
    if isinstance(step, Increment):
        up = step.operator == "++"
    elif isinstance(step, Update) and step.operator in ("+", "-"):
        up = step.operator == "+"
    else:
        return None
    if not isinstance(step.target, Name) or step.target.variable is not condition.left.variable:
        return None
    return step.target.variable if condition.operator in (("<", "<=") if up else (">", ">=")) else None
