"""Statements in WGSL, which has no `do`, no fall-through, no `?:`, and no assignments inside of expressions."""

from __future__ import annotations

from ..tree import (
    Assign,
    Block,
    Break,
    BuiltinCall,
    Call,
    Case,
    Comma,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    Increment,
    Switch,
    Ternary,
    Unary,
    Update,
    Variable,
    walk,
)
from ..types import BOOL, I4, U4, Array, StructType, Type
from .texts import PRIMARY, Text
from .wgsl_numbers import WgslNumbers


class WgslStatements(WgslNumbers):
    """Writes statements, and what must be one."""

    is_ordered = True
    forever = "loop {"

    def declare(self, variable: Variable, value: Expression | None) -> None:
        if variable.space == "shared":
            return
        if value is None:
            self.line(f"var {self.variable(variable)}: {self.type_name(variable.type)};")
            return
        text = self.x(value)
        changes = variable in self.effects.assigned or isinstance(variable.type, Array)
        self.line(f"{'var' if changes else 'let'} {self.variable(variable)} = {text};")

    def evaluate(self, e: Expression) -> None:
        if isinstance(e, (Assign, Update, Increment, Comma, Ternary, Call, BuiltinCall)):
            if isinstance(e, BuiltinCall) and e.builtin.is_pure:
                self.line(f"_ = {self.x(e)};")
            else:
                super().evaluate(e)
        else:
            self.line(f"_ = {self.x(e)};")

    def plain_increment(self, e: Increment) -> bool:
        return super().plain_increment(e) and e.type in (I4, U4)

    def for_loop(self, s: For) -> None:
        simple_start = len(s.start) <= 1 and not any(self.emits(_value(one)) for one in s.start)
        if not simple_start:
            self.line("{")
            self.depth += 1
        if not simple_start:
            for one in s.start:
                self.statement(one)
        start = ""
        if simple_start and s.start:
            lines, _ = self.section(lambda: self.statement(s.start[0]))
            start = lines[0].strip().rstrip(";")
        step = [] if s.step is None else self.section(lambda: self.evaluate(s.step))[0]  # type: ignore[arg-type]
        condition = "" if s.condition is None or self.emits(s.condition) else f" {self.x(s.condition)}"
        if len(step) <= 1:
            text = f" {step[0].strip().rstrip(';')}" if step else ""
            self.line(f"for ({start};{condition};{text}) {{")
            if s.condition is not None and not condition:
                self.leave_unless(s.condition)
            self.know_counter(s)
            self.block(s.body)
        else:
            if start:
                self.line("{")
                self.depth += 1
                self.line(f"{start};")
            self.line("loop {")
            if s.condition is not None:
                self.leave_unless(s.condition)
            self.block(s.body)
            self.depth += 1
            self.line("continuing {")
            for text in step:
                self.line(f"    {text}")
            self.line("}")
            self.depth -= 1
            if start:
                self.line("}")
                self.depth -= 1
        self.line("}")
        if not simple_start:
            self.depth -= 1
            self.line("}")

    def do_loop(self, s: DoWhile) -> None:
        self.line("loop {")
        self.block(s.body)
        self.depth += 1
        self.line("continuing {")
        self.depth += 1
        self.line(f"break if {self.x(Unary(s.at, BOOL, '!', s.condition))};")
        self.depth -= 1
        self.line("}")
        self.depth -= 1
        self.line("}")

    def switch(self, s: Switch) -> None:
        self.line(f"switch ({self.x(s.value)}) {{")
        for at, case in enumerate(s.cases):
            last = at
            while s.cases[last].falls_through:
                last += 1
            self._case(case, s.cases[at : last + 1], s.value.type)
        if not any(case.is_default for case in s.cases):
            self.line("    default: {}")
        self.line("}")

    def _case(self, case: Case, bodies: tuple[Case, ...], kind: Type) -> None:
        """A case, and those that it falls through to: WGSL has no fall-through, so these are written again."""
        labels = [self.number(one, kind)[0] for one in case.values] + (["default"] if case.is_default else [])
        self.place = case.at.line or self.place
        self.depth += 1
        self.line("default: {" if labels == ["default"] else f"case {', '.join(labels)}: {{")
        for one in bodies:
            statements = one.body.statements
            if statements and isinstance(statements[-1], Break):
                statements = statements[:-1]
            body = Block(one.body.at, statements)
            if len(bodies) > 1 and any(isinstance(inner, Declare) for inner in statements):
                self.depth += 1
                self.statement(body)
                self.depth -= 1
            else:
                self.block(body)
        self.line("}")
        self.depth -= 1

    def needs_statement(self, e: Expression) -> bool:
        if isinstance(e, (Assign, Update, Increment, Comma)):
            return True
        if isinstance(e, Ternary):
            # `select` evaluates its condition last.
            return isinstance(e.type, StructType) or any(map(_has_call, (e.condition, e.then, e.otherwise)))
        return super().needs_statement(e)

    def ternary(self, e: Ternary) -> Text:
        condition, then, otherwise = self.x(e.condition), self.list_of((e.then,)), self.list_of((e.otherwise,))
        return f"select({otherwise}, {then}, {condition})", PRIMARY


def _value(one: Declare | Evaluate) -> Expression | None:
    return one.value if isinstance(one, Declare) else one.expression


def _has_call(e: Expression) -> bool:
    """Whether it calls a function that may do something."""
    return any(
        isinstance(node, Call) or (isinstance(node, BuiltinCall) and not node.builtin.is_pure) for node in walk(e)
    )
