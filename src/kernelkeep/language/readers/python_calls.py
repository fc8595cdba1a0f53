"""Calls in Python kernels: helper functions, kernelkeep's functions, those of `math` and NumPy, and Python's own."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..builtins import BUILTINS, CONSTRUCTORS
from ..checker.conversions import invalid
from ..problems import nearest
from ..tree import Expression, Function, Literal, Name, Place
from ..types import ANY_FLOAT, BOOL, F4, I4, I8, INVALID, SCALARS, TEXT, Array, Buffer, Scalar, Vector
from .python_names import NUMPY_FUNCTIONS, NUMPY_TYPES, Meaning
from .python_refusals import LENGTH_UNKNOWN, unknown

if TYPE_CHECKING:
    from .python_expressions import ExpressionReader
    from .python_function import FunctionReader

VECTORS: dict[str, Vector] = {kind.title: kind for kind in CONSTRUCTORS.values()}
_DECLARES = {
    "shared": "kk.shared(…) is assigned to a name, at the top level of the kernel",
    "array": "kk.array(…) is assigned to a name",
    "unroll": "kk.unroll(…) stands in for: for k in kk.unroll(range(4))",
}
_TO_INTEGER = frozenset(("floor", "ceil", "trunc"))  # in Python's math they give integers


class Calls:
    """Reads calls."""

    def __init__(self, expressions: ExpressionReader, function: FunctionReader) -> None:
        self._read = expressions
        self._function = function
        self._checker = function.checker

    def call(self, node: ast.Call) -> Expression:
        """A call of anything."""
        found = self._read.meaning(node.func)
        name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
        if not name:
            return self._read.error(node, "only a function can be called")
        if node.keywords:
            return self._read.error(
                node.keywords[0].value, f"{name} takes its arguments by position here, without names"
            )
        if any(isinstance(one, ast.Starred) for one in node.args):
            return self._read.error(
                node, "there is no * before an argument in a kernel: write the arguments one by one"
            )
        if found is None:
            return self._unknown(node, name)
        if found.kind == "function":
            return self._helper(node, int(found.text))
        if found.kind != "name":
            from ..hints import of_python

            if told := of_python(name):  # of a library that is imported
                return self._read.error(node, told)
            what = found.text if found.kind == "other" else f"a {found.kind}"
            return self._read.error(
                node, f"{name} is {what}, and cannot be called in a kernel: write it with @kk.function"
            )
        return self._known(node, name, found)

    def _unknown(self, node: ast.Call, name: str) -> Expression:
        if name.partition(".")[0] in self._function.variables:
            if "." in name:
                return self._read.error(node, f"there is no {name}(…) in a kernel: nothing has methods here")
            return self._read.error(node, f"{name} is a variable and cannot be called")
        arguments = f"({', '.join(map(ast.unparse, node.args))})"
        hint = unknown(name, self.own_names(), self._function.text.names, arguments)
        near = nearest(name, (*self._function.text.names, *(f"kk.{one}" for one in self.own_names())))
        return self._read.error(node, hint or f"unknown function {name}{near}")

    def _known(self, node: ast.Call, written: str, found: Meaning) -> Expression:
        module, _, name = found.text.partition(".")
        at = self._read.at(node)
        if name == "print" and module != "math":
            return self._print(node, at)
        if module == "numpy" and name in NUMPY_TYPES:
            return self._cast(node, written, SCALARS[NUMPY_TYPES[name]])
        if module == "kernelkeep":
            if name in _DECLARES:
                return self._read.error(node, _DECLARES[name])
            if name in SCALARS:
                return self._cast(node, written, SCALARS[name])
            if name in VECTORS:
                return self._checker.calls.construct(VECTORS[name], self._values(node), at)
            if name.startswith("atomic_"):
                return self._atomic(node, f"kk_{name}", at)
            if f"kk_{name}" in self._function.module.of_body and not self._function.current.is_kernel:
                return self._read.error(node, f"{written} is for the body itself: pass its value to this function")
            if f"kk_{name}" in self._function.module.callable:
                return self._checker.calls.call(f"kk_{name}", [self._read.read(one) for one in node.args], at)
        if module == "builtins" and name in ("int", "float", "bool", "len", "round", "range"):
            return self._python_own(node, name, at)
        if name == "pow":
            values = self._values(node)
            if len(values) != 2:
                return self._count(node, "pow", 2)
            return self._read.operators.binary("**", values[0], values[1], at)
        name = NUMPY_FUNCTIONS.get(name, name) if module == "numpy" else name
        if name in ("min", "max"):
            return self._several(node, name, at)
        if name not in BUILTINS or name.startswith("kk_"):
            from ..hints import of_python

            if told := of_python(written):
                return self._read.error(node, told)
            hint = nearest(name, BUILTINS) if module != "kernelkeep" else nearest(name, self.own_names())
            return self._read.error(node, f"there is no {written} in a kernel{hint}")
        result = self._checker.calls.call(name, self._values(node), at)
        if module == "math" and name in _TO_INTEGER:
            return self._checker.conversions.convert(result, I4, is_written=True)
        return result

    def own_names(self) -> set[str]:
        """What stands behind `kk.` in kernels."""
        own = {one.removeprefix("kk_") for one in self._function.module.callable}
        return own | {name for name, found in BUILTINS.items() if name == found.builtin.name} | {*SCALARS, *VECTORS}

    def _values(self, node: ast.Call) -> list[Expression]:
        return [self._read.value(one) for one in node.args]

    def _count(self, node: ast.Call, name: str, wanted: int) -> Expression:
        return self._read.error(
            node, f"{name} takes {wanted} argument{'' if wanted == 1 else 's'}, got {len(node.args)}"
        )

    def _cast(self, node: ast.Call, name: str, kind: Scalar) -> Expression:
        if len(node.args) != 1:
            return self._count(node, name, 1)
        return self._checker.calls.cast(kind, self._read.value(node.args[0]), self._read.at(node))

    # --- Python's own functions

    def _python_own(self, node: ast.Call, name: str, at: Place) -> Expression:
        if name == "range":
            return self._read.error(node, "range stands in for only: for i in range(n)")
        if len(node.args) != 1:
            return self._count(node, name, 1)
        argument = node.args[0]
        if name == "float" and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            try:
                return Literal(at, ANY_FLOAT, float(argument.value))
            except ValueError:
                return self._read.error(node, f"{argument.value!r} is no float")
        if name == "len":
            return self._length(argument, at)
        value = self._read.value(argument)
        kind = value.type
        if kind is INVALID:
            return value
        if not isinstance(kind, Scalar):
            return self._read.error(node, f"{name} takes a number, got {kind}")
        cast = self._checker.calls.cast
        if name == "bool":
            return cast(BOOL, value, at)
        if name == "float":
            return value if kind.kind == "float" else self._checker.conversions.convert(value, ANY_FLOAT)
        if kind.kind != "float":
            return (
                self._checker.conversions.promote(value)
                if name == "round"
                else cast(I8 if kind.size == 8 else I4, value, at)
            )
        if name == "round":
            value = self._checker.calls.call("rint", [value], at)
        return cast(I4, value, at)

    def _length(self, argument: ast.expr, at: Place) -> Expression:
        kind = self._read.read(argument).type
        if isinstance(kind, Array):
            return Literal(at, I4, kind.length)
        if isinstance(kind, Buffer):
            return self._read.error(argument, LENGTH_UNKNOWN)
        return invalid(at) if kind is INVALID else self._read.error(argument, f"len takes an array, got {kind}")

    def _several(self, node: ast.Call, name: str, at: Place) -> Expression:
        values = self._values(node)
        if len(values) < 2:
            return self._read.error(node, f"{name} takes at least 2 numbers, got {len(values)}")
        found = values[0]
        for value in values[1:]:
            if self._read.operators.mixes_signs(found, value):
                return self._read.error(
                    node, f"{name} of {found.type} and {value.type} may be wrong below 0: convert one"
                )
            found = self._checker.calls.call(name, [found, value], at)
        return found

    def _print(self, node: ast.Call, at: Place) -> Expression:
        given = [
            Literal(self._read.at(one), TEXT, one.value)
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
            else self._read.value(one)
            for one in node.args
        ]
        return self._checker.calls.call("kk_print", list[Expression](given), at)

    # --- helper functions and atomics

    def _helper(self, node: ast.Call, number: int) -> Expression:
        at = self._read.at(node)
        function = self._function.module.helper(number, at, self._function)
        if function is None:
            return invalid(at)
        if len(node.args) != len(function.parameters):
            return self._count(node, function.name, len(function.parameters))
        arguments = [self._argument(function, place, one) for place, one in enumerate(node.args)]
        return self._checker.calls.call_helper(function, arguments, at)

    def _argument(self, function: Function, place: int, node: ast.expr) -> Expression:
        parameter = function.parameters[place]
        if isinstance(parameter.type, Buffer):
            return self._read.read(node)
        return self._read.given(self._read.value(node), parameter.type, f"{parameter.written} of {function.name}")

    def _atomic(self, node: ast.Call, name: str, at: Place) -> Expression:
        """`kk.atomic_add(x[i], v)`, or `kk.atomic_add(x, i, v)`."""
        spelling = BUILTINS.get(name)
        if spelling is None:
            return self._read.error(node, f"there is no {name}{nearest(name, BUILTINS)}")
        arguments = [self._read.read(one) for one in node.args]
        first = arguments[0] if arguments else None
        is_array = isinstance(first, Name) and isinstance(first.type, Array | Buffer)
        if first is not None and is_array and len(arguments) == spelling.builtin.count + 1:
            arguments[:2] = [self._checker.expressions.index(first, arguments[1], first.at)]
        if len(arguments) == spelling.builtin.count and len(arguments) > 1:
            kind = arguments[0].type
            if isinstance(kind, Scalar) and kind in (I4, F4, SCALARS["u4"]):
                what = f"the value of {name}"
                arguments[1:] = [self._read.given(one, kind, what, is_element=True) for one in arguments[1:]]
        return self._checker.calls.call(name, arguments, at)
