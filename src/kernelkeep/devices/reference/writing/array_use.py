"""What a kernel does with its arrays: which it writes, and which it changes atomically."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....language.tree import (
    Assign,
    BuiltinCall,
    Call,
    Declare,
    Expression,
    Field,
    Increment,
    Index,
    Module,
    Name,
    Node,
    Slice,
    Swizzle,
    Update,
    Variable,
    walk,
)
from ....language.types import Array, Buffer


class ArrayUse(NamedTuple):
    """The arrays that are written, those with atomics, and those with a compare-and-swap.

    Parameters of helper functions are among them.
    """

    written: frozenset[Variable]
    atomic: frozenset[Variable]
    swapped: frozenset[Variable]
    shared: tuple[Variable, ...]
    boxed: frozenset[Variable]  # variables that are passed as an array of one element


def array_use(module: Module) -> ArrayUse:
    """What all functions of a module do."""
    written: set[Variable] = set()
    atomic: set[Variable] = set()
    swapped: set[Variable] = set()
    shared: list[Variable] = []
    calls: list[Call] = []
    for function in (*module.functions, module.kernel):
        for node in walk(function.body):
            if isinstance(node, Declare) and node.variable.space == "shared":
                shared.append(node.variable)
            elif isinstance(node, Call):
                calls.append(node)
            else:
                _note(node, written, atomic, swapped)
    grows = True
    while grows:  # a helper function does it for its caller
        before = len(written) + len(atomic) + len(swapped)
        for call in calls:
            for parameter, argument in zip(call.function.parameters, call.arguments, strict=True):
                argument = argument.base if isinstance(argument, Slice) else argument
                if isinstance(argument, Name):
                    for found in (written, atomic, swapped):
                        if parameter in found and isinstance(parameter.type, Buffer):
                            found.add(argument.variable)
        grows = len(written) + len(atomic) + len(swapped) > before
    return ArrayUse(frozenset(written), frozenset(atomic), frozenset(swapped), tuple(shared), frozenset(_boxed(calls)))


def _boxed(calls: list[Call]) -> Iterator[Variable]:
    for call in calls:
        for parameter, argument in zip(call.function.parameters, call.arguments, strict=True):
            if isinstance(parameter.type, Buffer) and isinstance(argument, Name):
                variable = argument.variable
                if variable.space != "shared" and not isinstance(variable.type, Array | Buffer):
                    yield variable


def _note(node: Node, written: set[Variable], atomic: set[Variable], swapped: set[Variable]) -> None:
    target: Expression | None = None
    if isinstance(node, Assign | Update | Increment):
        target = node.target
    elif isinstance(node, BuiltinCall) and node.builtin.rule in ("atomic", "store4"):
        target = node.arguments[0]
    while isinstance(target, Index | Field | Swizzle):
        target = target.base
    if isinstance(target, Name):
        written.add(target.variable)
        if isinstance(node, BuiltinCall) and node.builtin.rule == "atomic":
            atomic.add(target.variable)
            if node.builtin.count == 3:
                swapped.add(target.variable)
