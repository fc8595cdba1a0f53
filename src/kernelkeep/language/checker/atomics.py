"""Which arrays a helper function uses atomics on: it cannot be given an array that only one work-item has."""

from __future__ import annotations

from ..tree import BuiltinCall, Call, Expression, Function, Index, Name, Slice, Variable, walk


def uses_atomics(function: Function, parameter: Variable) -> bool:
    """Whether a function, or one that it calls, uses atomics on the array that it is given for a parameter."""
    for node in walk(function.body):
        if isinstance(node, BuiltinCall) and node.builtin.rule == "atomic" and _array(node.arguments[0]) is parameter:
            return True
        if isinstance(node, Call):
            for inner, argument in zip(node.function.parameters, node.arguments, strict=True):
                if _array(argument) is parameter and uses_atomics(node.function, inner):
                    return True
    return False


def _array(e: Expression) -> Variable | None:
    while isinstance(e, (Index, Slice)):
        e = e.base
    return e.variable if isinstance(e, Name) else None
