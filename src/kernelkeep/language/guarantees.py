"""Checks that a tree keeps what `tree.py` promises. For tests of readers, and for whoever changes a tree."""

from __future__ import annotations

from collections.abc import Iterator

from . import tree
from .types import (
    ANY_FLOAT,
    BOOL,
    F2,
    F4,
    F8,
    I4,
    I8,
    INVALID,
    TEXT,
    U4,
    U8,
    VOID,
    Array,
    Buffer,
    Scalar,
    StructType,
    Type,
)
from .types import Vector as VectorType

_INDEX = (I4, U4, I8, U8)
_COMPUTES = (*_INDEX, F2, F4, F8)
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")


def violations(module: tree.Module) -> list[str]:
    """Every promise that a tree breaks, one sentence each. An empty list is a good tree."""
    found: list[str] = []
    known = [*module.functions, module.kernel]
    for at, function in enumerate(known):
        found += _in_function(function, set(known[:at]))
    names = [function.name for function in module.functions]
    names += [declared.variable.name for declared in module.constants] + [struct.name for struct in module.structs]
    found += [f"two things outside all functions are called {name}" for name in set(names) if names.count(name) > 1]
    for function in known:
        found += _hiding(function.body, {*names, *(parameter.name for parameter in function.parameters)})
    for declared in module.constants:
        for node in tree.walk(declared):
            if isinstance(node, tree.Expression) and not isinstance(node, tree.Literal | tree.Construct):
                found.append(f"constant {declared.variable.name} has a {type(node).__name__}")
    return found


def _in_function(function: tree.Function, defined: set[tree.Function]) -> Iterator[str]:
    used: set[tree.Expression] = (
        set()
    )  # expressions whose value may be an array or nothing, because of where they stand
    for node in tree.walk(function.body):
        where = f"{type(node).__name__} in line {node.at.line}"
        if isinstance(node, tree.Evaluate):
            used.add(node.expression)
        if isinstance(node, tree.Expression):
            used |= _special_uses(node, node in used)
            if node.type in (INVALID, ANY_FLOAT):
                yield f"{where} has the type {node.type.title}"
            if isinstance(node.type, Array | Buffer) and not isinstance(node, tree.Construct) and node not in used:
                yield f"{where} is an array used as a value"
            if node.type in (VOID, TEXT) and node not in used:
                yield f"{where} has no value"
            for sentence in _expression(node):
                yield f"{where}: {sentence}"
            if isinstance(node, tree.Call) and node.function not in defined:
                yield f"{where}: {node.function.name} is not defined before it"
        elif isinstance(node, tree.If | tree.While | tree.DoWhile | tree.For):
            if node.condition is not None and node.condition.type is not BOOL:
                yield f"{where}: its condition is {node.condition.type}"
        elif isinstance(node, tree.Declare):
            if node.value is not None and node.value.type is not node.variable.type:
                yield f"{where}: {node.variable.type} is set to {node.value.type}"
        elif isinstance(node, tree.Return):
            if (VOID if node.value is None else node.value.type) is not function.result:
                yield f"{where}: the result must be {function.result}"
        elif isinstance(node, tree.Switch):
            if node.value.type not in _INDEX:
                yield f"{where}: its value is {node.value.type}"
            if node.cases and node.cases[-1].falls_through:
                yield f"{where}: the last case falls through"


def _special_uses(node: tree.Expression, is_special: bool) -> set[tree.Expression]:
    """The operands of an expression that may be arrays, or have no value."""
    if isinstance(node, tree.Index | tree.Field | tree.Swizzle | tree.Slice):
        return {node.base}
    if isinstance(node, tree.Call | tree.BuiltinCall):
        return set(node.arguments)
    if isinstance(node, tree.Comma):
        return {node.first, *({node.last} if is_special else ())}
    return {node.then, node.otherwise} if isinstance(node, tree.Ternary) and is_special else set()


def _expression(node: tree.Expression) -> Iterator[str]:
    if isinstance(node, tree.Binary):
        left, right = node.left.type, node.right.type
        if node.operator in ("<<", ">>"):
            if right not in _INDEX or left is not node.type:
                yield f"{left} is shifted by {right}"
        elif left is not right or not (
            left in _COMPUTES or isinstance(left, VectorType) or (left is BOOL and node.operator in ("==", "!="))
        ):
            yield f"{left} {node.operator} {right}"
        elif node.type is not (BOOL if node.operator in _COMPARISONS else left):
            yield f"{left} {node.operator} {right} gives {node.type}"
    elif isinstance(node, tree.Logical):
        if (node.left.type, node.right.type, node.type) != (BOOL, BOOL, BOOL):
            yield "it is not all bool"
    elif isinstance(node, tree.Unary):
        if node.operand.type is not node.type or (node.operator == "!") != (node.type is BOOL):
            yield f"{node.operator}{node.operand.type} gives {node.type}"
    elif isinstance(node, tree.Ternary):
        if node.condition.type is not BOOL or not node.then.type is node.otherwise.type is node.type:
            yield f"{node.condition.type} ? {node.then.type} : {node.otherwise.type} gives {node.type}"
    elif isinstance(node, tree.Assign):
        if not node.target.type is node.value.type is node.type:
            yield f"{node.target.type} is set to {node.value.type}"
    elif isinstance(node, tree.Update):
        if node.operator not in ("<<", ">>") and node.value.type is not node.computed:
            yield f"it is computed in {node.computed} with a value of {node.value.type}"
    elif isinstance(node, tree.Convert):
        if not _converts(node.operand.type, node.type):
            yield f"{node.operand.type} becomes {node.type}"
    elif isinstance(node, tree.Construct):
        if [argument.type for argument in node.arguments] != _parts(node.type):
            yield f"{node.type} is made of other elements than it has"
    elif isinstance(node, tree.Index):
        if node.index.type not in _INDEX:
            yield f"the index is {node.index.type}"
    elif isinstance(node, tree.Slice):
        if node.offset.type not in _INDEX or not isinstance(node.base, tree.Name):
            yield f"the offset is {node.offset.type}"
    elif isinstance(node, tree.Call):
        for parameter, argument in zip(node.function.parameters, node.arguments, strict=True):
            if isinstance(parameter.type, Buffer):
                if not isinstance(argument, tree.Name | tree.Slice):
                    yield f"the array {parameter.name} is no name"
            elif parameter.type is not argument.type:
                yield f"{parameter.name} must be {parameter.type}, got {argument.type}"


def _converts(source: Type, target: Type) -> bool:
    if isinstance(target, VectorType):
        return source is target.element or (isinstance(source, VectorType) and source.length == target.length)
    return isinstance(source, Scalar) and isinstance(target, Scalar) and source.is_number and target.is_number


def _parts(kind: Type) -> list[Type]:
    if isinstance(kind, StructType):
        return [part for _, part in kind.fields]
    return [kind.element] * kind.length if isinstance(kind, VectorType | Array) else []


def _hiding(node: tree.Node, visible: set[str]) -> Iterator[str]:
    """Declarations that have the name of another one that is visible."""
    inner = set(visible) if isinstance(node, tree.Block | tree.For) else visible
    for child in tree.children(node):
        if isinstance(child, tree.Declare):
            if child.variable.name in inner:
                yield f"{child.variable.name} in line {child.at.line} hides another"
            inner.add(child.variable.name)
        elif isinstance(child, tree.Statement | tree.Case):
            yield from _hiding(child, inner)
