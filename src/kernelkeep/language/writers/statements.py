"""Statements in the syntax that C, GLSL and WGSL share."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..tree import (
    Assign,
    Block,
    Break,
    BuiltinCall,
    Case,
    Comma,
    Continue,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    If,
    Increment,
    Return,
    Statement,
    Switch,
    Ternary,
    Unary,
    Update,
    Variable,
    While,
)
from ..types import BOOL, I4
from .ordering import OrderingWriter
from .texts import UNARY


class StatementWriter(OrderingWriter):
    """Writes statements, one line each."""

    def __init__(self) -> None:
        super().__init__()
        self.counter: Variable | None = None  # of the loop whose step is being written: it does not overflow

    def block(self, block: Block) -> None:
        """The statements of a block, indented by one more."""
        self.depth += 1
        for statement in block.statements:
            self.statement(statement)
        self.depth -= 1

    def statement(self, s: Statement) -> None:
        """One statement."""
        self.place = s.at.line or self.place
        match s:
            case Declare():
                self.declare(s.variable, s.value)
                self.know_value(s.variable, s.value)
            case Evaluate():
                self.evaluate(s.expression)
            case Block():
                self.line("{")
                self.block(s)
                self.line("}")
            case If():
                self.if_statement(s)
            case For() | While() | DoWhile():
                self.loop(s)
            case Switch():
                self.switch(s)
            case Break():
                self.line("break;")
            case Continue():
                self.line("continue;")
            case Return():
                self.leave(s)

    def loop(self, s: For | While | DoWhile) -> None:
        raise NotImplementedError

    def leave(self, s: Return) -> None:
        self.line("return;" if s.value is None else f"return {self.x(s.value)};")

    def evaluate(self, e: Expression) -> None:
        """An expression whose value is not used."""
        if id(e) in self.effects.spilled:
            e = self.with_kept_operands(e)
        match e:
            case Comma():
                self.evaluate(e.first)
                self.evaluate(e.last)
            case Ternary():
                self.branches(self.x(e.condition), lambda: self.evaluate(e.then), lambda: self.evaluate(e.otherwise))
            case BuiltinCall() if e.builtin.rule == "print":
                for argument in e.arguments:
                    if self.changes(argument):
                        self.evaluate(argument)
            case Assign() | Update() | Increment():
                self.line(f"{self.change(e)};")
            case _:
                self.line(f"{self.x(e)};")

    def change(self, e: Expression) -> str:
        """An assignment whose value is not used."""
        if isinstance(e, Increment) and self.plain_increment(e):
            return f"{self.x(e.target, UNARY)}{e.operator}"
        if isinstance(e, Increment) and e.is_postfix:
            e = replace(e, is_postfix=False)
        return self.table[type(e)](e)[0]

    def branches(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] | None) -> None:
        self.line(self.if_head(condition))
        self.depth += 1
        then()
        self.depth -= 1
        if otherwise is not None:
            self.line("} else {")
            self.depth += 1
            otherwise()
            self.depth -= 1
        self.line("}")

    def if_head(self, condition: str) -> str:
        return f"if ({condition}) {{"

    def if_statement(self, s: If) -> None:
        condition, prefix = self.decision(s), ""
        while True:
            self.line(prefix + self.if_head(condition))
            self.block(s.then)
            other = s.otherwise
            if other is None or not other.statements:
                break
            nested = other.statements[0]
            if len(other.statements) > 1 or not isinstance(nested, If) or id(nested.condition) in self.effects.emits:
                self.line("} else {")
                self.block(other)
                break
            s, prefix = nested, "} else "
            self.place = s.at.line or self.place
            condition = self.decision(s)
        self.line("}")

    def decision(self, s: If) -> str:
        """What an `if` asks."""
        return self.x(s.condition)

    def emits(self, e: Expression | None) -> bool:
        """Whether statements are written before an expression."""
        return e is not None and id(e) in self.effects.emits

    def know_value(self, variable: Variable, value: Expression | None) -> None:
        """Tell the values of a variable that is set once."""
        if value is not None and variable.type is I4 and variable not in self.effects.assigned:
            self.ranges.variables[variable] = self.ranges.of(value)

    def declaration(self, variable: Variable, value: Expression | None) -> str:
        raise NotImplementedError

    def indented(self, write: Callable[[], None]) -> None:
        self.depth += 1
        write()
        self.depth -= 1

    def leave_unless(self, condition: Expression) -> None:
        """`if (!condition) break;`, one level deeper."""

        def write() -> None:
            negated = self.x(Unary(condition.at, BOOL, "!", condition))
            self.line(f"{self.if_head(negated)} break; }}")

        self.indented(write)

    # --- switch

    def switch(self, s: Switch) -> None:
        self.line(f"switch ({self.x(s.value)}) {{")
        for case in s.cases:
            self.case(case, s.value)
        self.line("}")

    def case(self, case: Case, value: Expression) -> None:
        labels = [f"case {self.number(one, value.type)[0]}:" for one in case.values]
        labels += ["default:"] if case.is_default else []
        braces = any(isinstance(one, Declare) for one in case.body.statements)
        self.place = case.at.line or self.place
        self.line(" ".join(labels) + (" {" if braces else ""))
        self.block(case.body)
        if not case.falls_through and not _leaves(case.body):
            self.indented(lambda: self.line("break;"))
        if braces:
            self.line("}")


def _leaves(block: Block) -> bool:
    last = block.statements[-1] if block.statements else None
    if isinstance(last, Block):
        return _leaves(last)
    return isinstance(last, (Break, Continue, Return))
