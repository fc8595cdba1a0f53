"""The paths through a function: statements that are never reached, and results that are missing."""

from __future__ import annotations

from ..problems import Problems
from ..tree import (
    Block,
    Break,
    Continue,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    Function,
    If,
    Literal,
    Node,
    Return,
    Statement,
    Switch,
    While,
)
from ..types import VOID
from .scopes import CurrentFunction

_PLAIN = frozenset((Declare, Evaluate))  # most statements: control goes on behind them


def check_flow(function: Function, seen: CurrentFunction, problems: Problems, group: tuple[int, ...] | None) -> None:
    """Report what is wrong with the paths through a function."""
    completes = check_reachable(function.body, problems)
    if completes and function.result is not VOID:
        problems.error(function.at, f"{function.name} must return {function.result} on every path")
    if seen.without_value:
        from .unset_values import UnsetValues

        UnsetValues(seen.without_value, problems).check(function.body)
    if function.has_barrier:
        from .barriers import Barriers

        Barriers(seen, problems, group).block(function.body, ())


def can_complete(statement: Statement) -> bool:
    """Whether control may go on behind a statement."""
    if type(statement) in _PLAIN:
        return True
    if isinstance(statement, (Return, Break, Continue)):
        return False
    if isinstance(statement, Block):
        return all(map(can_complete, statement.statements))
    if isinstance(statement, If):
        return statement.otherwise is None or can_complete(statement.then) or can_complete(statement.otherwise)
    if isinstance(statement, (For, While, DoWhile)):
        forever = statement.condition is None or _is_true(statement.condition)
        return not forever or _breaks(statement.body)
    if isinstance(statement, Switch):
        cases = statement.cases
        complete = not cases or can_complete(cases[-1].body) or any(_breaks(case.body) for case in cases)
        return complete or not any(case.is_default for case in cases)
    return True


def _is_true(condition: Expression) -> bool:
    return isinstance(condition, Literal) and bool(condition.value)


def _breaks(statement: Node) -> bool:
    """Whether there is a break in it that leaves what is around it."""
    if isinstance(statement, Break):
        return True
    if isinstance(statement, Block):
        return any(map(_breaks, statement.statements))
    if isinstance(statement, If):
        return _breaks(statement.then) or (statement.otherwise is not None and _breaks(statement.otherwise))
    return False


def check_reachable(block: Block, problems: Problems) -> bool:
    """Whether control may go on behind a block; warns of the first statement that is never reached."""
    completes = True
    for statement in block.statements:
        if not completes:
            problems.warn(statement.at, "this is never reached")
            return False
        for inner in inner_blocks(statement):
            check_reachable(inner, problems)
        completes = can_complete(statement)
    return completes


def inner_blocks(statement: Statement) -> list[Block]:
    """The blocks that a statement consists of."""
    if type(statement) in _PLAIN:
        return []
    if isinstance(statement, Block):
        return [statement]
    if isinstance(statement, If):
        return [statement.then] if statement.otherwise is None else [statement.then, statement.otherwise]
    if isinstance(statement, (For, While, DoWhile)):
        return [statement.body]
    return [case.body for case in statement.cases] if isinstance(statement, Switch) else []
