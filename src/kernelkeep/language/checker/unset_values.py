"""Variables that are read before anything can have set them."""

from __future__ import annotations

from ..problems import Problems
from ..tree import (
    Assign,
    DoWhile,
    Expression,
    Field,
    For,
    Increment,
    Index,
    Name,
    Node,
    Swizzle,
    Update,
    Variable,
    While,
    children,
    walk,
)
from ..types import Array
from .assignments import root_of


class UnsetValues:
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
