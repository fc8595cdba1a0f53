"""Statements. Every loop is a `for` over a range, whose end is the bound of rounds that a loop may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ....language.tree import (
    Block,
    Break,
    Continue,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    If,
    Return,
    Statement,
    Switch,
    Variable,
    While,
)
from ....language.types import Array, StructType, Type, Vector
from .code import Code
from .expressions import Expressions
from .storage import flat_element

if TYPE_CHECKING:
    from .module import FunctionScope


class _Loop(Struct, eq=False):
    """A loop or switch around the statement. `advance` writes what stands between `continue` and the next round."""

    advance: Callable[[], None] | None = None  # None: a switch
    flag: str = ""  # of a switch: the name that tells it was left by `continue`
    is_flag_used: bool = False


class Statements:
    """Writes the statements of one function."""

    def __init__(self, code: Code, scope: FunctionScope, expressions: Expressions) -> None:
        self._code = code
        self._scope = scope
        self._expressions = expressions
        self._loops: list[_Loop] = []

    def block(self, block: Block) -> None:
        """The statements of a block."""
        for statement in block.statements:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """One statement."""
        if self._scope.stops_at(statement.at.line) and not isinstance(statement, Block):
            self._code.add(f"stop({self._code.point(statement.at)}, me, locals())")
        match statement:
            case Evaluate():
                self._expressions.evaluate(statement.expression)
            case Declare():
                self._declare(statement)
            case Block():
                self.block(statement)
            case If():
                self._if(statement)
            case For():
                self._for(statement)
            case While():
                self._loop(statement, statement.condition, statement.body, lambda: None)
            case DoWhile():
                self._do_while(statement)
            case Switch():
                self._switch(statement)
            case Return():
                self._return(statement)
            case Break():
                self._code.add("break")
            case Continue():
                self._continue(len(self._loops) - 1)
            case _:
                raise AssertionError(statement)

    def _declare(self, statement: Declare) -> None:
        variable = statement.variable
        if variable.space == "shared":
            return
        name = self._scope.declare(variable)
        if statement.value is None:
            self._scope.may_be_unset.add(variable)
            self._code.add(f"{name} = {self._boxed(variable, unset_text(variable.type))}")
            return
        is_index = variable in self._scope.index_variables
        value = self._expressions.initial(variable.type, statement.value, is_index)
        is_struct = isinstance(variable.type, StructType)
        text = f"copied({value.text})" if is_struct else value.text
        self._code.add(f"{name} = {self._boxed(variable, text)}")
        if not isinstance(flat_element(variable.type), StructType):  # a field may be unset where the value comes from
            self._scope.always_set.add(variable)

    def _boxed(self, variable: Variable, text: str) -> str:
        return f"[{text}]" if variable in self._scope.boxed else text

    def _if(self, statement: If) -> None:
        condition = self._expressions.value(statement.condition)
        with self._code.block(f"if {condition.text}:"):
            self.block(statement.then)
        if statement.otherwise is not None:
            with self._code.block("else:"):
                self.block(statement.otherwise)

    # --- loops

    def _for(self, statement: For) -> None:
        for one in statement.start:
            self.statement(one)
        step = statement.step

        def advance() -> None:
            if step is not None:
                self._expressions.evaluate(step)

        self._loop(statement, statement.condition, statement.body, advance)

    def _loop(
        self, statement: For | While, condition: Expression | None, body: Block, advance: Callable[[], None]
    ) -> None:
        with self._code.block("for _ in range(ROUNDS):"):
            if condition is not None:
                self._code.add(f"if not {self._expressions.value(condition).text}: break")
            self._loops.append(_Loop(advance))
            self.block(body)
            self._loops.pop()
            if not _ends(body):
                advance()
        self._endless(statement)

    def _do_while(self, statement: DoWhile) -> None:
        def advance() -> None:
            self._code.add(f"if not {self._expressions.value(statement.condition).text}: break")

        with self._code.block("for _ in range(ROUNDS):"):
            self._loops.append(_Loop(advance))
            self.block(statement.body)
            self._loops.pop()
            if not _ends(statement.body):
                advance()
        self._endless(statement)

    def _endless(self, statement: Statement) -> None:
        self._code.add(f"else: endless({self._code.point(statement.at)}, me)")

    def _continue(self, innermost: int) -> None:
        loop = self._loops[innermost]
        if loop.advance is None:
            loop.is_flag_used = True
            self._code.add(f"{loop.flag} = True")
            self._code.add("break")
        else:
            loop.advance()
            self._code.add("continue")

    def _switch(self, statement: Switch) -> None:
        value = self._expressions.value(statement.value)
        places: dict[int, int] = {}
        default = len(statement.cases)
        for number, case in enumerate(statement.cases):
            places |= dict.fromkeys(case.values, number)
            default = number if case.is_default else default
        code = self._code
        chosen = code.new_name()
        code.add(f"{chosen} = {places!r}.get({value.text}, {default})")
        loop = _Loop(flag=code.new_name())
        mark = len(code.lines)
        self._loops.append(loop)
        with code.block("for _ in ONCE:"):
            for number, case in enumerate(statement.cases):
                # Whoever comes here from the case before fell through.
                with code.block(f"if {chosen} <= {number}:"):
                    self.block(case.body)
                    if not case.falls_through and not _ends(case.body):
                        code.add("break")
        self._loops.pop()
        if loop.is_flag_used:
            code.insert(mark, f"{loop.flag} = False")
            with code.block(f"if {loop.flag}:"):
                self._continue(len(self._loops) - 1)

    def _return(self, statement: Return) -> None:
        value = None if statement.value is None else self._expressions.value(statement.value).text
        self._code.add(self._scope.return_text(value))


def _ends(block: Block) -> bool:
    """Whether control never comes to the end of a block, as far as its last statement tells."""
    return bool(block.statements) and isinstance(block.statements[-1], Break | Continue | Return)


def unset_text(kind: Type) -> str:
    """What a variable without a value holds."""
    if isinstance(kind, Array):
        return f"[{unset_text(kind.element)} for _ in range({kind.length})]"
    if isinstance(kind, StructType):
        return f"[{', '.join(unset_text(field) for _, field in kind.fields)}]"
    if isinstance(kind, Vector):
        return f"(UNSET,) * {kind.length}"
    return "UNSET"
