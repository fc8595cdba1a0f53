"""Variables that are used in indices only: `int at = row * n + column; y[at] = x[at];`."""

from __future__ import annotations

from ..tree import (
    Assign,
    BuiltinCall,
    Declare,
    Evaluate,
    Expression,
    For,
    Increment,
    Index,
    Literal,
    Module,
    Name,
    Node,
    Slice,
    Update,
    Variable,
    children,
)
from ..types import Vector
from .texts import stays_in_index

_INDEX = object()


def index_variables(module: Module) -> set[Variable]:
    """Those whose values are never used but in indices, and to set others of the kind."""
    uses = _Uses()
    for function in (*module.functions, module.kernel):
        uses.of(function.body)
    bad, found = list(uses.outside), uses.outside
    while bad:
        for source in uses.sources.get(bad.pop(), ()):
            if source not in found:
                found.add(source)
                bad.append(source)
    return uses.named - found


class _Uses:
    def __init__(self) -> None:
        self.named: set[Variable] = set()
        self.outside: set[Variable] = set()  # used elsewhere than in an index
        self.sources: dict[Variable, set[Variable]] = {}  # what a variable's values are computed from

    def of(self, node: Node) -> None:
        """The uses in a statement, or in an expression that is no index."""
        if isinstance(node, Declare):
            self.named.add(node.variable)
            if node.value is not None:
                self.value(node.value, node.variable)
        elif isinstance(node, Evaluate):
            self.change(node.expression)
        elif isinstance(node, For):
            for child in children(node):
                if child is node.step:
                    self.change(node.step)
                else:
                    self.of(child)
        elif isinstance(node, Expression):
            self.value(node, None)
        else:
            for child in children(node):
                self.of(child)

    def change(self, e: Expression) -> None:
        """An expression whose own value is not used."""
        if isinstance(e, (Assign, Update, Increment)) and isinstance(e.target, Name):
            if isinstance(e, Update) and e.operator not in ("+", "-", "*"):
                self.outside.add(e.target.variable)
            if not isinstance(e, Increment):
                self.value(e.value, e.target.variable)
        else:
            self.value(e, None)

    def value(self, e: Expression, into: object) -> None:
        """`into`: an index, a variable that is set to the value, or None for any other use."""
        if type(e) is Literal:
            return
        if isinstance(e, Name):
            if into is None:
                self.outside.add(e.variable)
            elif into is not _INDEX:
                self.sources.setdefault(into, set()).add(e.variable)  # type: ignore[arg-type]
        elif into is not None and stays_in_index(e):
            for child in children(e):
                self.value(child, into)  # type: ignore[arg-type]
        elif isinstance(e, Index) and not isinstance(e.base.type, Vector):
            self.value(e.base, None)
            self.value(e.index, _INDEX)
        elif isinstance(e, Slice):
            self.value(e.base, None)
            self.value(e.offset, _INDEX)
        elif isinstance(e, BuiltinCall) and e.builtin.rule in ("load4", "store4"):
            array, at, *values = e.arguments
            self.value(array, None)
            self.value(at, _INDEX)
            for one in values:
                self.value(one, None)
        else:
            for child in children(e):
                self.value(child, None)  # type: ignore[arg-type]
