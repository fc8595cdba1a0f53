"""Python's statements, from `ast` to the typed tree."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..tree import (
    Block,
    Break,
    Continue,
    Evaluate,
    Expression,
    If,
    Literal,
    Name,
    Place,
    Return,
    Statement,
    Variable,
    While,
    has_effect,
    walk,
)
from ..types import ANY_FLOAT, F4, INVALID, VOID, Array, Buffer, Scalar, Type
from .python_arrays import Arrays
from .python_expressions import variable_type
from .python_function import FunctionReader
from .python_loops import Loops
from .python_refusals import refusal

_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_AS_IN_C = frozenset(("+", "-", "*", "<<", ">>", "&", "|", "^"))


class StatementReader:
    """Reads statements into lists."""

    def __init__(self, function: FunctionReader) -> None:
        self._function = function
        self._read = function.expressions
        self._checker = function.checker
        self._arrays = Arrays(function)
        self._loops = Loops(function, self)
        self._depth = 0  # of loops
        self._readers: dict[type, Callable[..., None]] = {
            ast.Assign: self._assign, ast.AnnAssign: self._annotated, ast.AugAssign: self._augmented, ast.If: self._if,
            ast.While: self._while, ast.For: self._loops.read, ast.Return: self._return, ast.Expr: self._expression,
            ast.Break: self._break, ast.Continue: self._continue, ast.Pass: lambda node, into: None,
        }  # fmt: skip

    def block(self, nodes: list[ast.stmt], at: Place, before: list[Statement] | None = None) -> Block:
        """Statements with a scope of their own."""
        into = before if before is not None else []
        self._function.blocks[id(nodes)] = into
        for node in nodes:
            self.statement(node, into)
        del self._function.blocks[id(nodes)]
        return Block(at, tuple(into))

    def body(self, nodes: list[ast.stmt], at: Place, before: list[Statement] | None = None) -> Block:
        """The body of a loop."""
        self._depth += 1
        found = self.block(nodes, at, before)
        self._depth -= 1
        return found

    def statement(self, node: ast.stmt, into: list[Statement]) -> None:
        """One statement."""
        reader = self._readers.get(type(node))
        if reader is None:
            self._read.error(node, refusal(node))
        else:
            reader(node, into)

    # --- assignments

    def _assign(self, node: ast.Assign, into: list[Statement]) -> None:
        target = node.targets[0]
        if len(node.targets) == 1 and self._arrays.declare(target, node.value, into):
            return
        if len(node.targets) == 1 and isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, node.value, into)
            return
        value = self._read.value(node.value)
        if len(node.targets) > 1 and not isinstance(value, Literal) and value.type is not INVALID:
            value = self._kept(value, into)
        for one in node.targets:
            self.assign(one, value, into)

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr, into: list[Statement]) -> None:
        """`a, b = b, a`: all values are read before the first is assigned."""
        if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != len(target.elts):
            self._read.error(value, f"write {len(target.elts)} values here, one for each name on the left")
            return
        values = [self._read.value(one) for one in value.elts]
        names = {inner.id for one in target.elts for inner in ast.walk(one) if isinstance(inner, ast.Name)}
        for at, found in enumerate(values):
            used = {inner.variable.written for inner in walk(found) if isinstance(inner, Name)}
            if at and used & names and found.type is not INVALID:
                values[at] = self._kept(found, into)
        for one, found in zip(target.elts, values, strict=True):
            self.assign(one, found, into)

    def _kept(self, value: Expression, into: list[Statement]) -> Expression:
        """The value in a variable of its own."""
        value = self._checker.expressions.full(value)
        declared = self._function.hidden("value", value.type, value.at, value)
        into.append(declared)
        return Name(value.at, value.type, declared.variable)

    def assign(self, target: ast.expr, value: Expression, into: list[Statement]) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            self._assign_name(target, value, into)
        elif isinstance(target, ast.Subscript | ast.Attribute):
            found = self._read.read(target)
            if found.type is not INVALID:
                self._store(found, value, self._read.sign_at(target, target), into)
        else:
            self._read.error(target, refusal(target))

    def _store(self, target: Expression, value: Expression, at: Place, into: list[Statement]) -> None:
        if not isinstance(target.type, Array | Buffer) and value.type is not INVALID:
            value = self._read.given(value, target.type, "this element", is_element=True)
            if has_effect(target) and value.type is not INVALID:  # Python computes the value before the index
                value = self._kept(value, into)
        self._evaluate(self._checker.expressions.assignments.assign("=", target, value, at), at, into)

    def _assign_name(self, node: ast.Name, value: Expression, into: list[Statement]) -> None:
        name, at = node.id, self._read.at(node)
        known = self._function.variables.get(name)
        if known is None:
            kind = variable_type(value)
            if self._function.is_failed(name, kind):
                return
            self._first(name, F4 if kind is ANY_FLOAT else kind, at, value, into)
            return
        if isinstance(known.type, Array | Buffer):
            self._read.error(node, f"{name} is an array and stays one: assign its elements, as in {name}[i] = …")
            return
        if value.type is INVALID:
            return
        before = len(self._checker.problems.errors)
        value = self._kept_type(known, value)
        if len(self._checker.problems.errors) == before:
            sign = self._read.sign_at(node, node)
            target = Name(at, known.type, known)
            self._evaluate(self._checker.expressions.assignments.assign("=", target, value, sign), at, into)

    def _kept_type(self, known: Variable, value: Expression) -> Expression:
        """A value for a variable that has its type already."""
        line, instead = known.at.line, ""
        source, kind = value.type, known.type
        if line and isinstance(source, Scalar) and isinstance(kind, Scalar) and source.kind != kind.kind:
            instead = f"give it {_article(source)} there, or "
        elif line and isinstance(source, Scalar):
            instead = f"write {known.written}: kk.{source.name} there, or "
        where = f"since line {line}" if line else "as a parameter"
        return self._read.given(value, kind, f"{known.written}, {where},", instead=instead)

    def _first(self, name: str, kind: Type, at: Place, value: Expression | None, into: list[Statement]) -> None:
        """The first assignment of a variable decides its type."""
        if value is not None:
            value = self._checker.expressions.full(self._read.given(value, kind, name))
            if self._function.is_failed(name, value.type):
                return
        is_home = self._function.blocks[self._function.scope.homes[name]] is into
        self._function.declare(name, kind, at, value if is_home else None)
        if not is_home and value is not None:
            variable = self._function.variables[name]
            target = Name(at, kind, variable)
            self._evaluate(self._checker.expressions.assignments.assign("=", target, value, at), at, into)

    def _annotated(self, node: ast.AnnAssign, into: list[Statement]) -> None:
        if not isinstance(node.target, ast.Name):
            self._read.error(node, "only a variable has a type of its own: leave the type out")
            return
        name, known = node.target.id, self._function.variables.get(node.target.id)
        kind = self._function.type_of(node.annotation)
        if known is not None and kind is not None and known.type is not kind:
            line = f"line {known.at.line}" if known.at.line else "the parameters"
            self._read.error(node, f"{name} is {known.type} already, see {line}: choose another name")
            return
        if node.value is not None and self._arrays.declare(node.target, node.value, into):
            return
        if kind is None or isinstance(kind, Buffer):
            self._function.failed.add(name)
            if kind is not None:
                self._read.error(node, "an array is made with kk.array('f4', 8) or kk.shared('f4', 8)")
            return
        value = None if node.value is None else self._read.value(node.value)
        if known is not None:
            if value is not None:
                self._assign_name(node.target, value, into)
        else:
            self._first(name, kind, self._read.at(node), value, into)

    def _augmented(self, node: ast.AugAssign, into: list[Statement]) -> None:
        target, sign = self._read.read(node.target), _SIGNS.get(type(node.op), "@")
        value = self._read.value(node.value)
        at = self._read.sign_at(node.target, node)
        kind = target.type
        if kind is INVALID or value.type is INVALID:
            return
        if isinstance(kind, Array | Buffer):
            self._read.error(node, "an array cannot be changed as a whole: change its elements")
            return
        result = self._read.operators.binary(sign, target, value, at) if sign != "@" else None
        if result is None:
            self._read.error(node, "there is no @ in a kernel: write loops")
            return
        if result.type is INVALID:
            return
        if sign in _AS_IN_C or (sign == "/" and isinstance(kind, Scalar) and kind.kind == "float"):
            before = len(self._checker.problems.errors)
            if isinstance(target, Name):  # reports what the target cannot hold
                self._kept_type(target.variable, result)
            else:
                self._read.given(result, kind, "this element", is_element=True)
            if len(self._checker.problems.errors) == before:
                change = self._checker.expressions.assignments.assign(f"{sign}=", target, value, at)
                self._evaluate(change, self._read.at(node), into)
        elif isinstance(node.target, ast.Name):
            self._assign_name(node.target, result, into)
        else:
            self._store(target, result, at, into)

    # --- other statements

    def _evaluate(self, expression: Expression, at: Place, into: list[Statement]) -> None:
        into.append(Evaluate(at, self._checker.expressions.full(expression)))

    def _expression(self, node: ast.Expr, into: list[Statement]) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and node is self._function.node.body[0]:
            return  # the docstring
        found = self._read.read(value)
        if not isinstance(value, ast.Call):
            if found.type is not INVALID:
                self._read.error(node, "this does nothing: assign it, or leave it out")
            return
        self._evaluate(self._checker.expressions.unused(found), self._read.at(node), into)

    def _if(self, node: ast.If, into: list[Statement]) -> None:
        at, condition = self._read.at(node), self._read.condition(node.test)
        if isinstance(condition, Literal) and condition.type is not INVALID:
            # A constant decides: as in Python, the other branch is not looked at.
            for inner in node.body if condition.value else node.orelse:
                self._pruned(node, inner, into)
            return
        then = self.block(node.body, at)
        otherwise = self.block(node.orelse, self._read.at(node.orelse[0])) if node.orelse else None
        into.append(If(at, condition, then, otherwise))

    def _pruned(self, node: ast.If, inner: ast.stmt, into: list[Statement]) -> None:
        """A statement of the branch that a constant chose: it stands in the block around."""
        lists = [id(node.body), id(node.orelse)]
        self._function.blocks.update(dict.fromkeys(lists, into))
        self.statement(inner, into)
        for one in lists:
            self._function.blocks.pop(one, None)

    def _while(self, node: ast.While, into: list[Statement]) -> None:
        at = self._read.at(node)
        if node.orelse:
            self._read.error(node.orelse[0], "there is no else behind a loop in a kernel: use a variable")
        condition = self._read.condition(node.test)
        into.append(While(at, condition, self.body(node.body, at)))

    def _break(self, node: ast.Break, into: list[Statement]) -> None:
        into.append(Break(self._read.at(node)))

    def _continue(self, node: ast.Continue, into: list[Statement]) -> None:
        into.append(Continue(self._read.at(node)))

    def _return(self, node: ast.Return, into: list[Statement]) -> None:
        at, result = self._read.at(node), self._function.current.result
        name, value = self._function.text.name, None
        is_nothing = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if not is_nothing and node.value is not None:
            if result is VOID:
                what = "a kernel" if self._function.current.is_kernel else name
                hint = "write into an array" if self._function.current.is_kernel else "write its type behind ->"
                self._read.error(node.value, f"{what} returns nothing: {hint}")
                return
            value = self._read.given(self._read.value(node.value), result, f"the result of {name}")
            value = self._checker.expressions.full(value)
        elif result is not VOID:
            self._checker.problems.error(at, f"{name} must return {result}")
        into.append(Return(at, value))


def _article(kind: Scalar) -> str:
    return f"{'an' if kind.title[0] in 'aeiou' else 'a'} {kind}"
