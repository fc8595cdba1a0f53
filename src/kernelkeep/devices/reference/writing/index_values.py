"""Which variables become an index: an overflow in what is assigned to them is a bug."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ....language.tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Convert,
    Declare,
    Expression,
    Index,
    Module,
    Name,
    Node,
    Slice,
    Unary,
    Update,
    Variable,
    walk,
)
from ....language.types import Scalar

ARITHMETIC = frozenset("+-*")


def index_variables(module: Module) -> frozenset[Variable]:
    """All variables whose value reaches an index by + - * alone. A hash that is masked or cut to 8 or 16 bits does not count."""
    origins: defaultdict[Variable, set[Variable]] = defaultdict(set)
    found: set[Variable] = set()
    for function in (*module.functions, module.kernel):
        for node in walk(function.body):
            _note(node, origins, found)
    waiting = list(found)
    while waiting:
        for origin in origins[waiting.pop()] - found:
            found.add(origin)
            waiting.append(origin)
    return frozenset(found)


def _note(node: Node, origins: defaultdict[Variable, set[Variable]], found: set[Variable]) -> None:
    if isinstance(node, Index):
        found.update(_variables(node.index))
    elif isinstance(node, BuiltinCall) and node.builtin.rule in ("load4", "store4"):
        found.update(_variables(node.arguments[1]))
    elif isinstance(node, Slice):
        found.update(_variables(node.offset))
    elif isinstance(node, Declare) and node.value is not None:
        origins[node.variable].update(_variables(node.value))
    elif (isinstance(node, Assign) and isinstance(node.target, Name)) or (
        isinstance(node, Update) and isinstance(node.target, Name) and node.operator in ARITHMETIC
    ):
        origins[node.target.variable].update(_variables(node.value))
    elif isinstance(node, Call):
        for parameter, argument in zip(node.function.parameters, node.arguments, strict=True):
            origins[parameter].update(_variables(argument))


def _variables(expression: Expression) -> Iterator[Variable]:
    if not isinstance(expression.type, Scalar) or expression.type.kind != "integer":
        return
    if isinstance(expression, Name):
        yield expression.variable
    elif isinstance(expression, Binary) and expression.operator in ARITHMETIC:
        yield from _variables(expression.left)
        yield from _variables(expression.right)
    elif isinstance(expression, Unary) or (isinstance(expression, Convert) and expression.type.size >= 4):
        yield from _variables(expression.operand)
