"""`tile = kk.shared("f4", 16, 17)` and `w = kk.array("f4", 8)`: declarations that Python writes as assignments."""

from __future__ import annotations

import ast

from ..checker.declarations import InitialiserList
from ..tree import Declare, Expression, Place, Statement, Variable
from ..types import VOID, Scalar, Type, Vector
from .python_function import FunctionReader


class Arrays:
    """Reads declarations of arrays."""

    def __init__(self, function: FunctionReader) -> None:
        self._function = function
        self._read = function.expressions
        self._make = function.checker.declarations

    def declare(self, target: ast.expr, value: ast.expr, into: list[Statement]) -> bool:
        """Read `target = value` if it declares an array; returns whether it does."""
        if not isinstance(value, ast.Call):
            return False
        found = self._read.meaning(value.func)
        if found is None or found.kind != "name" or found.text not in ("kernelkeep.shared", "kernelkeep.array"):
            return False
        word = found.text.partition(".")[2]
        if not isinstance(target, ast.Name):
            self._read.error(target, f"kk.{word}(…) is assigned to a name")
            return True
        if target.id in self._function.variables:
            self._read.error(target, f"{target.id} is there already: give the array a name of its own")
            return True
        declared = self._array(target, value, word, into)
        if declared is None:
            self._function.failed.add(target.id)
        return True

    def _array(self, target: ast.Name, call: ast.Call, word: str, into: list[Statement]) -> Declare | None:
        at = self._read.at(target)
        if call.keywords or not call.args or (len(call.args) < 2 and word == "array"):
            self._read.error(call, f"write kk.{word}('f4', 16): the type of the elements, and how many")
            return None
        element = self._function.element_type(call.args[0])
        if not isinstance(element, Scalar | Vector) or element is VOID:
            self._read.error(call.args[0], "the type of the elements must be one like 'f4', kk.i4 or kk.float4")
            return None
        if word == "array" and len(call.args) == 2 and isinstance(call.args[1], ast.List | ast.Tuple):
            return self._listed(target.id, element, call.args[1], at, into)
        before = len(self._function.checker.problems.errors)
        lengths = [self._make.length(self._read.value(size)) for size in call.args[1:]]
        if len(self._function.checker.problems.errors) > before:
            return None
        kind = self._make.array(element, lengths)
        if word == "array":
            return self._added(target.id, kind, at, None, into)
        is_top = into is self._function.blocks.get(id(self._function.node.body))
        if not self._function.current.is_kernel or not is_top:
            self._read.error(call, "kk.shared(…) stands at the top level of the kernel: pass the array to functions")
            return None
        variable = Variable(self._function.unique(target.id), kind, "shared", at, target.id)
        self._function.variables[target.id] = variable
        declared = Declare(at, variable)
        into.append(declared)
        return declared

    def _listed(
        self, name: str, element: Type, values: ast.List | ast.Tuple, at: Place, into: list[Statement]
    ) -> Declare | None:
        items = tuple((None, self._given(one, element)) for one in values.elts)
        if not items:
            self._read.error(values, "the list of values is empty")
            return None
        kind = self._make.array(element, [len(items)])
        before = len(self._function.checker.problems.errors)
        value = self._make.initial(kind, InitialiserList(self._read.at(values), items), "the list")
        if len(self._function.checker.problems.errors) > before:
            return None
        return self._added(name, kind, at, value, into)

    def _given(self, node: ast.expr, element: Type) -> Expression:
        return self._read.given(self._read.value(node), element, "an element")

    def _added(
        self, name: str, kind: Type, at: Place, value: Expression | None, into: list[Statement]
    ) -> Declare | None:
        if self._function.blocks[self._function.scope.homes[name]] is not into:
            self._function.checker.problems.error(at, f"the array {name} is used outside of this block: make it above")
            return None
        variable = Variable(self._function.unique(name), kind, "local", at, name)
        self._function.variables[name] = variable
        if value is None:
            self._function.current.without_value.add(variable)
        declared = Declare(at, variable, value)
        into.append(declared)
        return declared
