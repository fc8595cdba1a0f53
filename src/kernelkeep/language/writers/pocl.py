"""What an OpenCL C text needs so that PoCL 3.0 compiles it right. Other compilers do not see it.

- A shared variable, or an element of a shared array with a constant index: PoCL's optimiser takes it for one that no other
  work-item changes, unless its address is stored somewhere.
- A branch with a barrier in it that some groups take and others do not: what is done there may be lost, unless PoCL's first
  optimiser leaves the kernel alone.
- A switch before a barrier whose cases are all values that its value can have: the optimiser drops the default that is never
  reached, and all work-items take one and the same case. So the last case becomes the default, on every device.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from ..tree import (
    Assign,
    BuiltinCall,
    Call,
    Declare,
    Expression,
    Function,
    If,
    Index,
    Literal,
    Module,
    Name,
    Node,
    Switch,
    Update,
    Variable,
    walk,
)
from ..types import Array

_POCL = "#ifdef POCL_DEVICE_ADDRESS_BITS"  # which PoCL defines for every program
# The name of a macro, and its definition.
SHOWN = (
    "kk_show_to_group",
    f"""{_POCL}
#define kk_show_to_group(x) __local void* volatile kk_shown_##x = (__local void*)&x;
#else
#define kk_show_to_group(x)
#endif""",
)
LEFT_ALONE = _POCL, "#pragma clang optimize off", "#endif"


class Needs(NamedTuple):
    """What a kernel needs."""

    shown: set[
        Variable
    ]  # shared variables, and shared arrays with a constant index somewhere or that are passed to functions
    is_left_alone: bool  # there is a branch with a barrier in it whose condition comes from a position in the grid


def needs(module: Module) -> Needs:
    """What a kernel with barriers needs."""
    shown: set[Variable] = set()
    branches: list[If] = []
    for function in (*module.functions, module.kernel):
        for node in walk(function.body):
            kind = type(node)
            if kind is Name:
                if node.variable.space == "shared" and type(node.type) is not Array:  # type: ignore[attr-defined]
                    shown.add(node.variable)  # type: ignore[attr-defined]
            elif kind is Index:
                if type(node.index) is Literal:  # type: ignore[attr-defined]
                    shown |= _shared_in(node.base)  # type: ignore[attr-defined]
            elif kind is Call:
                for argument in node.arguments:  # type: ignore[attr-defined]
                    shown |= _shared_in(argument)
            elif kind is If and function is module.kernel:
                branches.append(node)  # type: ignore[arg-type]
    waiting = [one for one in branches if any(map(_waits, walk(one)))]
    return Needs(shown, bool(waiting) and _some_groups_take(waiting, module.kernel))


def with_reachable_default(switch: Switch, values: tuple[int, int]) -> Switch:
    """The same switch, with a default that is reached, where its cases are all values from the least to the greatest."""
    # `case 0: default:` is `default:`.
    cases = [replace(one, values=()) if one.is_default else one for one in switch.cases]
    named = {value for one in cases for value in one.values}
    low, high = values
    if high - low < len(named) and named.issuperset(range(low, high + 1)):
        unused = max(named) + 1
        cases = [replace(one, values=(unused,), is_default=False) if one.is_default else one for one in cases]
        last = max(at for at, one in enumerate(cases) if unused not in one.values)
        cases[last] = replace(cases[last], values=(), is_default=True)
    return replace(switch, cases=tuple(cases))


def _shared_in(expression: Expression) -> set[Variable]:
    names = (node for node in walk(expression) if isinstance(node, Name))
    return {one.variable for one in names if one.variable.space == "shared"}


def _some_groups_take(branches: list[If], kernel: Function) -> bool:
    nodes = list(walk(kernel.body))
    differs: set[Variable] = set()
    count = -1
    while len(differs) > count:  # until no variable comes in any more
        count = len(differs)
        for node in nodes:
            if isinstance(node, Declare) and node.value is not None and _differs(node.value, differs):
                differs.add(node.variable)
            elif isinstance(node, (Assign, Update)) and isinstance(node.target, Name) and _differs(node.value, differs):
                differs.add(node.target.variable)
    return any(_differs(one.condition, differs) for one in branches)


def _differs(expression: Expression, variables: set[Variable]) -> bool:
    return any(
        (isinstance(node, Name) and node.variable in variables)
        or (isinstance(node, BuiltinCall) and node.builtin.name in ("kk_group_id", "kk_global_id"))
        for node in walk(expression)
    )


def _waits(node: Node) -> bool:
    if isinstance(node, Call):
        return node.function.has_barrier
    return isinstance(node, BuiltinCall) and node.builtin.name == "kk_barrier"
