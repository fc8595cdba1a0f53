"""Python's expressions, from `ast` to the typed tree."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..checker.conversions import invalid
from ..problems import nearest
from ..tree import Expression, Index, Literal, Logical, Name, Place, Slice, has_effect
from ..types import ANY_FLOAT, BOOL, I4, I8, INVALID, U8, Array, Buffer, Scalar, Type, buffer, limits
from .python_calls import Calls
from .python_names import Meaning, builtin_meaning, defined_meaning, dotted, fits, integer_literal, member_meaning
from .python_operators import Operators
from .python_refusals import LENGTH_UNKNOWN, constant_refusal, refusal, unknown

if TYPE_CHECKING:
    from .python_function import FunctionReader

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_KNOWN_MODULES = frozenset(("kernelkeep", "math", "numpy"))


class ExpressionReader:
    """Reads the expressions of one function."""

    def __init__(self, function: FunctionReader) -> None:
        self._function = function
        self.checker = function.checker
        self.operators = Operators(function.checker, function.module.generated)
        self.calls = Calls(self, function)
        self._readers: dict[type, Callable[..., Expression]] = {
            ast.Constant: self._constant, ast.Name: self._name, ast.BinOp: self._binary, ast.UnaryOp: self._unary,
            ast.BoolOp: self._logical, ast.Compare: self._compare, ast.IfExp: self._ternary, ast.Subscript: self._element,
            ast.Attribute: self._attribute, ast.Call: self.calls.call,
        }  # fmt: skip

    def error(self, node: ast.AST, sentence: str) -> Expression:
        """Report a mistake at a node."""
        at = self.at(node)
        self.checker.problems.error(at, sentence)
        return invalid(at)

    def at(self, node: ast.AST) -> Place:
        """The place where a node begins."""
        return self._function.place(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))

    # --- expressions

    def read(self, node: ast.expr) -> Expression:
        """Any expression. It may be an array, where one may stand."""
        reader = self._readers.get(type(node))
        return self.error(node, refusal(node)) if reader is None else reader(node)

    def value(self, node: ast.expr) -> Expression:
        """An expression with a value."""
        return self.checker.conversions.value(self.read(node))

    def full(self, node: ast.expr) -> Expression:
        """A whole expression with a type of its own."""
        return self.checker.expressions.full(self.value(node))

    def condition(self, node: ast.expr) -> Expression:
        """Something that is true or false; `and` and `or` are as in Python, whatever they join."""
        if isinstance(node, ast.BoolOp):
            return self._joined(node, self.condition)
        found = self.checker.conversions.condition(self.value(node))
        return self.checker.expressions.full(found)

    # --- leaves

    def _constant(self, node: ast.Constant) -> Expression:
        value, at = node.value, self.at(node)
        if isinstance(value, bool):
            return Literal(at, BOOL, value)
        if isinstance(value, int):
            if not fits(value, U8):
                return self.error(node, f"{value} does not fit into 64 bits")
            return integer_literal(value, at)
        return Literal(at, ANY_FLOAT, value) if isinstance(value, float) else self.error(node, constant_refusal(value))

    def _name(self, node: ast.Name) -> Expression:
        variable = self._function.variables.get(node.id)
        if variable is not None:
            return Name(self.at(node), variable.type, variable)
        if self._function.scope.is_local(node.id):
            if node.id in self._function.failed:
                return invalid(self.at(node))
            return self.error(node, f"{node.id} is used before it is assigned: give it a first value above, or a type")
        found = self.meaning(node)
        if found is None:
            known = {*self._function.variables, *self._function.text.names}
            hint = unknown(node.id, self.calls.own_names(), self._function.text.names)
            if hint is not None:
                self.checker.problems.error_once(self.at(node), hint)
                return invalid(self.at(node))
            now = node.id.removesuffix("_next")
            if now != node.id and now in known:
                return self.error(node, f"unknown name {node.id}: it must be a parameter, beside {now}")
            return self.error(node, f"unknown name {node.id}{nearest(node.id, known)}")
        return self._known(node, node.id, found)

    def _known(self, node: ast.expr, name: str, found: Meaning) -> Expression:
        """What a name from outside is worth."""
        if found.literal is not None:
            return found.literal
        if found.kind == "other":
            what = f"{name} is {found.text}"
            return self.error(node, f"{what}: a kernel can use numbers, @kk.function and modules from outside")
        if found.kind == "module":
            return self.error(node, f"{name} is a module: write {name}.something")
        return self.error(node, f"{name} is a function: call it as {name}(…)")

    def meaning(self, node: ast.expr) -> Meaning | None:
        """What a name, or a name with dots, means outside of the function; None for variables, and what is not known."""
        at = self.at(node)
        if isinstance(node, ast.Name):
            if self._function.scope.is_local(node.id):
                return None
            defined = self._function.module.defines.get(node.id)
            if defined is not None:
                return defined_meaning(defined, at)
            return dotted(self._function.text.names, node.id, at) or builtin_meaning(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        base = self.meaning(node.value)
        if base is None or base.kind != "module":
            return None
        if base.text in _KNOWN_MODULES:
            return member_meaning(base.text, node.attr, at)
        path = ast.unparse(node)
        found = dotted(self._function.text.names, path, at)
        return found or Meaning("other", f"nothing that {base.text} has, or no number")

    # --- operators

    def sign_at(self, left: ast.expr, node: ast.expr | ast.stmt) -> Place:
        """Where the operator behind an operand stands."""
        return self._function.sign_place(left.end_lineno, left.end_col_offset) or self.at(node)

    def _binary(self, node: ast.BinOp) -> Expression:
        left, right = self.read(node.left), self.read(node.right)
        sign = _BINARY.get(type(node.op))
        if sign is None:
            return self.error(node, "there is no @ in a kernel: write loops, or use kernelkeep.kernels.gemm")
        return self.operators.binary(sign, left, right, self.sign_at(node.left, node))

    def _unary(self, node: ast.UnaryOp) -> Expression:
        sign = _UNARY[type(node.op)]
        if sign == "not":
            return self.operators.unary(sign, self.condition(node.operand), self.at(node))
        inner = node.operand
        if sign == "-" and isinstance(inner, ast.Constant) and inner.value == -limits(I8)[0]:
            return Literal(self.at(node), I8, limits(I8)[0])
        return self.operators.unary(sign, self.value(inner), self.at(node))

    def _logical(self, node: ast.BoolOp) -> Expression:
        return self._joined(node, self._truth)

    def _truth(self, node: ast.expr) -> Expression:
        found = self.value(node)
        if found.type is not BOOL and found.type is not INVALID:
            return self.error(
                node, f"and and or take bools here, got {found.type}: write a comparison, or x if c else y"
            )
        return found

    def _joined(self, node: ast.BoolOp, read: Callable[[ast.expr], Expression]) -> Expression:
        sign = "&&" if isinstance(node.op, ast.And) else "||"
        found = read(node.values[0])
        for before, value in zip(node.values, node.values[1:], strict=False):
            found = self.checker.expressions.logical(sign, found, read(value), self.sign_at(before, node))
        return found

    def _compare(self, node: ast.Compare) -> Expression:
        found: Expression | None = None
        left_node, left = node.left, self.value(node.left)
        for index, (kind, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            sign = _COMPARISONS.get(type(kind))
            if sign is None:
                is_in = isinstance(kind, ast.In | ast.NotIn)
                what = "no in in a kernel: compare with == and join with or" if is_in else "no is in a kernel: write =="
                return self.error(node, f"there is {what}")
            right = self.value(right_node)
            if index + 1 < len(node.ops) and has_effect(right):
                return self.error(right_node, "this is evaluated once in Python: put it into a variable first")
            at = self.sign_at(left_node, node)
            one = self.operators.compare(sign, left, right, at)
            found = one if found is None else Logical(at, BOOL, "&&", found, one)
            left_node, left = right_node, right
        assert found is not None
        return found

    def _ternary(self, node: ast.IfExp) -> Expression:
        condition = self.condition(node.test)
        if isinstance(condition, Literal):
            return self.value(node.body if condition.value else node.orelse)
        then, otherwise = self.value(node.body), self.value(node.orelse)
        return self.checker.expressions.ternary(condition, then, otherwise, self.sign_at(node.body, node))

    # --- elements and fields

    def _element(self, node: ast.Subscript) -> Expression:
        base = self.read(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._part(node, base, node.slice)
        for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(base.type, Scalar) and base.type is not INVALID and isinstance(base, Index):
                return self.error(
                    node, "this array has fewer dimensions: compute one index, as in x[row * width + column]"
                )
            found = self.value(index)
            if isinstance(found, Literal) and isinstance(found.value, int) and found.value < 0:
                return self.error(
                    index, "an index below 0 does not count from the end in a kernel: write the index itself"
                )
            base = self.checker.expressions.index(base, found, self.at(node))
        return base

    def _part(self, node: ast.Subscript, base: Expression, part: ast.Slice) -> Expression:
        """`x[i:]`, an array from an element on: an argument for a helper function."""
        if part.lower is None or part.upper is not None or part.step is not None or not isinstance(base, Name):
            return self.error(node, refusal(part))
        kind = base.type
        offset = self.checker.conversions.integer(self.value(part.lower), "an index")
        if not isinstance(kind, Array | Buffer) or offset.type is INVALID:
            return self.error(node, "only arrays have parts")
        return Slice(
            self.at(node), buffer(kind.element, kind.access if isinstance(kind, Buffer) else "rw"), base, offset
        )

    def _attribute(self, node: ast.Attribute) -> Expression:
        found = self.meaning(node)
        if found is not None:
            return self._known(node, ast.unparse(node), found)
        base = self.read(node.value)
        if isinstance(base.type, Buffer) and node.attr in ("shape", "size"):
            return self.error(node, LENGTH_UNKNOWN)
        base = self.checker.conversions.value(base)
        return self.checker.expressions.member(base, node.attr, self._function.end_place(node, len(node.attr)))

    # --- values for a place

    def given(
        self, value: Expression, kind: Type, what: str, *, is_element: bool = False, instead: str = ""
    ) -> Expression:
        """A value for a variable, a parameter or an element of a type. Reports a value that the type does not hold.

        Elements take any number of their kind, as those of NumPy's arrays do: integers wrap and floats are rounded. `instead` is
        what else the user may have meant.
        """
        source = value.type
        if isinstance(source, Scalar) and isinstance(kind, Scalar) and source.is_number and kind.is_number:
            if _loses(value, source, kind, is_element=is_element):
                write = "bool" if kind is BOOL else f"kk.{kind.name}"
                self.checker.problems.error(
                    value.at, f"{what} is {kind}, and this is {source}: {instead}write {write}(…) if that is meant"
                )
                return invalid(value.at)
            return self.checker.conversions.convert(value, kind, what, is_written=True)
        return self.checker.conversions.convert(value, kind, what)


def _loses(value: Expression, source: Scalar, kind: Scalar, *, is_element: bool) -> bool:
    """Whether a conversion must be written."""
    if source is kind or (source is ANY_FLOAT and kind.kind == "float"):
        return False
    ranks = {"bool": 0, "integer": 1, "float": 2}
    if ranks[source.kind] > ranks[kind.kind]:
        return True
    if isinstance(value, Literal) and kind.kind == "integer" and source.kind == "integer":
        return not is_element and not fits(value.value, kind)
    if is_element or source.kind != kind.kind:
        return False
    return kind.size < source.size and source.size > 4


def variable_type(value: Expression) -> Type:
    """The type of a variable that is first assigned a value: integers have at least 32 bits."""
    kind = value.type
    return I4 if isinstance(kind, Scalar) and kind.kind == "integer" and kind.size < 4 else kind
