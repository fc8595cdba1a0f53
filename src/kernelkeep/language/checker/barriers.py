"""Barriers that some work-items of a group reach and others do not."""

from __future__ import annotations

from ..builtins import WORK_ITEM
from ..problems import Problems
from ..tree import (
    Block,
    Break,
    BuiltinCall,
    Call,
    Continue,
    DoWhile,
    Evaluate,
    Expression,
    For,
    If,
    Index,
    Name,
    Place,
    Return,
    Statement,
    Switch,
    Variable,
    While,
    children,
    walk,
)
from ..types import Buffer
from .assignments import root_of
from .constants import constant_value
from .flow import inner_blocks
from .scopes import CurrentFunction

# How much a value differs between the work-items of a group: not at all, perhaps (it comes from memory), surely.
_UNIFORM, _UNKNOWN, _VARYING = 0, 1, 2
_Conditions = tuple[Expression, ...]


class Barriers:
    """Reports barriers that some work-items of a group reach and others do not.

    `control` has the conditions under which a statement is reached.
    """

    def __init__(self, seen: CurrentFunction, problems: Problems, group: tuple[int, ...] | None) -> None:
        self._values = seen.values
        self._problems = problems
        self._group = group
        self._returns: list[tuple[int, Place]] = []  # how much the condition of each return varies
        self._levels: dict[Variable, int] = {}

    def block(self, block: Block, control: _Conditions) -> None:
        """Go through a block."""
        for statement in block.statements:
            if isinstance(statement, Evaluate):
                if _waits(statement.expression):
                    self._barrier(statement.at, control)
            elif isinstance(statement, Return):
                self._returns.append((self._level_of(control), statement.at))
            elif isinstance(statement, If):
                inner = (*control, statement.condition)
                self.block(statement.then, inner)
                if statement.otherwise is not None:
                    self.block(statement.otherwise, inner)
                control += _leaving(statement)
            elif isinstance(statement, (For, While, DoWhile)):
                inner = control if statement.condition is None else (*control, statement.condition)
                self.block(statement.body, inner + _leaving(statement.body))
            elif isinstance(statement, Switch):
                for case in statement.cases:
                    self.block(case.body, (*control, statement.value))
            elif isinstance(statement, Block):
                self.block(statement, control)

    def _barrier(self, at: Place, control: _Conditions) -> None:
        level, where = max(self._returns, key=lambda one: one[0], default=(_UNIFORM, at))
        if level == _VARYING:
            self._problems.error(where, f"return before the barrier in line {at.line}: all work-items must reach it")
        elif level == _UNKNOWN:
            self._problems.warn(where, f"return before the barrier in line {at.line}, which all work-items must reach")
        elif self._level_of(control) == _VARYING:
            self._problems.warn(at, "this barrier is in a branch or loop that may differ between work-items of a group")

    def _level_of(self, control: _Conditions) -> int:
        return max(map(self._level, control), default=_UNIFORM)

    def _level(self, expression: Expression) -> int:
        """How much a value differs between the work-items of a group."""
        if isinstance(expression, Name):
            return self._variable(expression.variable)
        if isinstance(expression, BuiltinCall):
            name = expression.builtin.name
            if name in WORK_ITEM:
                dimension = constant_value(expression.arguments[0])
                alone = self._group is not None and dimension is not None and self._group[int(dimension)] == 1
                return _UNIFORM if alone else _VARYING
            if expression.builtin.rule == "atomic" or name in ("kk_item", "kk_clock"):
                return _VARYING
        if isinstance(expression, Index):
            base = expression.base.type
            index = self._level(expression.index)
            if isinstance(base, Buffer) and base.access == "r":
                return index
            root = root_of(expression)
            if isinstance(base, Buffer) or (root is not None and root.space == "shared"):
                return max(index, _UNKNOWN)
        if isinstance(expression, Call):
            return max((_UNKNOWN, *map(self._level, expression.arguments)))
        return max((self._level(child) for child in children(expression) if isinstance(child, Expression)), default=0)

    def _variable(self, variable: Variable) -> int:
        if variable.space in ("scalar", "constant"):
            return _UNIFORM if variable not in self._values else _UNKNOWN
        if variable.space == "parameter":
            return _UNKNOWN
        if variable not in self._levels:
            self._levels[variable] = _UNIFORM  # while its own values are looked at
            self._levels[variable] = max(map(self._level, self._values.get(variable, ())), default=_UNIFORM)
        return self._levels[variable]


def _waits(expression: Expression) -> bool:
    for node in walk(expression):
        if isinstance(node, BuiltinCall):
            if node.builtin.name == "kk_barrier":
                return True
        elif isinstance(node, Call) and node.function.has_barrier:
            return True
    return False


def _leaving(statement: Statement) -> _Conditions:
    """The conditions under which a break or continue in it ends a round of the loop around it."""
    if isinstance(statement, Block):
        return tuple(condition for inner in statement.statements for condition in _leaving(inner))
    if isinstance(statement, If) and _ends_round(statement):
        return (statement.condition, *(one for inner in inner_blocks(statement) for one in _leaving(inner)))
    return ()


def _ends_round(statement: Statement, *, in_switch: bool = False) -> bool:
    """Whether there is a break or continue in it that belongs to the loop around it."""
    if isinstance(statement, Continue):
        return True
    if isinstance(statement, Break):
        return not in_switch
    if isinstance(statement, (For, While, DoWhile)):
        return False
    in_switch = in_switch or isinstance(statement, Switch)
    parts = statement.statements if isinstance(statement, Block) else inner_blocks(statement)
    return any(_ends_round(inner, in_switch=in_switch) for inner in parts)
