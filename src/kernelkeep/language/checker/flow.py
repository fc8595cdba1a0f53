"""What can be seen only in a whole function: barriers that not all reach, paths without a result, values that were never set."""

from __future__ import annotations

from ..builtins import WORK_ITEM
from ..problems import Problems
from ..tree import (
    Assign,
    Block,
    Break,
    BuiltinCall,
    Call,
    Continue,
    DoWhile,
    Evaluate,
    Expression,
    Field,
    For,
    Function,
    If,
    Increment,
    Index,
    Literal,
    Name,
    Node,
    Place,
    Return,
    Statement,
    Switch,
    Swizzle,
    Update,
    Variable,
    While,
    children,
    walk,
)
from ..types import VOID, Array, Buffer
from .assignments import root_of
from .constants import constant_value
from .scopes import CurrentFunction

# How much a value differs between the work-items of a group: not at all, perhaps (it comes from memory), surely.
_UNIFORM, _UNKNOWN, _VARYING = 0, 1, 2
_Conditions = tuple[Expression, ...]


def check_flow(function: Function, seen: CurrentFunction, problems: Problems, group: tuple[int, ...] | None) -> None:
    """Report what is wrong with the paths through a function."""
    completes = _check_reachable(function.body, problems)
    if completes and function.result is not VOID:
        problems.error(function.at, f"{function.name} must return {function.result} on every path")
    if seen.without_value:
        _Unset(seen.without_value, problems).check(function.body)
    if function.has_barrier:
        _Barriers(seen, problems, group).block(function.body, ())


# --- paths


def can_complete(statement: Statement) -> bool:
    """Whether control may go on behind a statement."""
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


def _check_reachable(block: Block, problems: Problems) -> bool:
    """Whether control may go on behind a block; warns of the first statement that is never reached."""
    completes = True
    for statement in block.statements:
        if not completes:
            problems.warn(statement.at, "this is never reached")
            return False
        for inner in _inner_blocks(statement):
            _check_reachable(inner, problems)
        completes = can_complete(statement)
    return completes


def _inner_blocks(statement: Statement) -> list[Block]:
    if isinstance(statement, Block):
        return [statement]
    if isinstance(statement, If):
        return [statement.then] if statement.otherwise is None else [statement.then, statement.otherwise]
    if isinstance(statement, (For, While, DoWhile)):
        return [statement.body]
    return [case.body for case in statement.cases] if isinstance(statement, Switch) else []


# --- barriers


class _Barriers:
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
    return any(
        (isinstance(node, BuiltinCall) and node.builtin.name == "kk_barrier")
        or (isinstance(node, Call) and node.function.has_barrier)
        for node in walk(expression)
    )


def _leaving(statement: Statement) -> _Conditions:
    """The conditions under which a break or continue in it ends a round of the loop around it."""
    if isinstance(statement, Block):
        return tuple(condition for inner in statement.statements for condition in _leaving(inner))
    if isinstance(statement, If) and any(isinstance(node, (Break, Continue)) for node in _statements(statement)):
        return (statement.condition, *(one for inner in _inner_blocks(statement) for one in _leaving(inner)))
    return ()


def _statements(statement: Statement) -> list[Statement]:
    """A statement and those in it that belong to the same loop."""
    found = [statement]
    if not isinstance(statement, (For, While, DoWhile)):
        for block in [statement] if isinstance(statement, Block) else _inner_blocks(statement):
            found += [each for inner in block.statements for each in _statements(inner)]
    return found


# --- values that were never set


class _Unset:
    """Warns where a variable is read that no statement before can have set."""

    def __init__(self, variables: set[Variable], problems: Problems) -> None:
        self._unset = {variable for variable in variables if not isinstance(variable.type, Array)}
        self._problems = problems

    def check(self, node: Node) -> None:
        """Go through a node in the order of evaluation."""
        if not self._unset:
            return
        if isinstance(node, Name):
            if node.variable in self._unset:
                self._unset.discard(node.variable)
                self._problems.warn(node.at, f"{node.variable.written} is read here, and was never set")
            return
        if isinstance(node, (For, While, DoWhile)):
            # A round may read what an earlier one has set.
            for inner in walk(node):
                if isinstance(inner, (Assign, Update, Increment)):
                    self._set(inner.target)
        if isinstance(node, Assign):
            self._check_indices(node.target)
            self.check(node.value)
            self._set(node.target)
            return
        for child in children(node):
            self.check(child)

    def _check_indices(self, target: Expression) -> None:
        while isinstance(target, (Index, Field, Swizzle)):
            if isinstance(target, Index):
                self.check(target.index)
            target = target.base

    def _set(self, target: Expression) -> None:
        root = root_of(target)
        if root is not None:
            self._unset.discard(root)
