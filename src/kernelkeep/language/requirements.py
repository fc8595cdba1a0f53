"""What a kernel needs of a target: types, atomics, barriers. Writers and devices say what they have."""

from __future__ import annotations

from msgspec import Struct

from . import tree
from .types import Array, Buffer, Scalar, StructType, Type, Vector


class Requirements(Struct, frozen=True):
    """`types` has NumPy's short names of all scalars that occur, `atomics` pairs of an operation and a type: ("add", "f4")."""

    types: frozenset[str]
    atomics: frozenset[tuple[str, str]]
    builtins: frozenset[str]  # the names of all built-ins that are called
    shared_bytes: int
    # Buffers, shared arrays and parameters with elements that are changed by atomics, here or in a function that they are passed
    # to: in some targets all accesses to these are special.
    atomic_variables: frozenset[tree.Variable] = frozenset()


def requirements(module: tree.Module) -> Requirements:
    """What a kernel and its helper functions use."""
    types: set[str] = set()
    atomics: set[tuple[str, str]] = set()
    builtins: set[str] = set()
    atomic_variables: set[tree.Variable] = set()
    shared_bytes = 0
    declared = [*module.constants]
    for function in (*module.functions, module.kernel):
        for parameter in function.parameters:
            types |= _scalars(parameter.type)
        for node in tree.walk(function.body):
            if isinstance(node, tree.Declare):
                declared.append(node)
            elif isinstance(node, tree.Expression):
                types |= _scalars(node.type)
                if isinstance(node, tree.BuiltinCall):
                    builtins.add(node.builtin.name)
                    if node.builtin.rule == "atomic" and isinstance(node.arguments[0].type, Scalar):
                        atomics.add((node.builtin.name.removeprefix("kk_atomic_"), node.arguments[0].type.name))
                        atomic_variables.add(_array_of(node.arguments[0]))
                elif isinstance(node, tree.Call):
                    # A function comes after those it calls, so what its parameters are used for is known.
                    for parameter, argument in zip(node.function.parameters, node.arguments, strict=True):
                        if parameter in atomic_variables:
                            atomic_variables.add(_array_of(argument))
    for one in declared:
        types |= _scalars(one.variable.type)
        if one.variable.space == "shared":
            shared_bytes += _bytes(one.variable.type)
    return Requirements(
        frozenset(types), frozenset(atomics), frozenset(builtins), shared_bytes, frozenset(atomic_variables)
    )


def first_use(module: tree.Module, kind: Type) -> tree.Expression | tree.Declare | None:
    """The first place in a text where something has this type."""
    uses = [
        node
        for function in (*module.functions, module.kernel)
        for node in tree.walk(function.body)
        if (isinstance(node, tree.Declare) and node.variable.type is kind)
        or (isinstance(node, tree.Expression) and node.type is kind)
    ]
    return min((one for one in uses if one.at.line), key=lambda one: (one.at.line, one.at.column), default=None)


def _array_of(element: tree.Expression) -> tree.Variable:
    while isinstance(element, (tree.Index, tree.Slice)):
        element = element.base
    assert isinstance(element, tree.Name), element
    return element.variable


def _scalars(kind: Type) -> set[str]:
    if isinstance(kind, Scalar):
        return {kind.name} if kind.is_number else set()
    if isinstance(kind, StructType):
        return {name for _, part in kind.fields for name in _scalars(part)}
    return _scalars(kind.element) if isinstance(kind, (Vector, Array, Buffer)) else set()


def _bytes(kind: Type) -> int:
    """The size in memory, where a vector of three takes as much as one of four."""
    if isinstance(kind, Vector):
        return kind.element.size * (4 if kind.length == 3 else kind.length)
    if isinstance(kind, Array):
        return kind.length * _bytes(kind.element)
    if isinstance(kind, StructType):
        return sum(_bytes(part) for _, part in kind.fields)
    return kind.size if isinstance(kind, Scalar) else 0
