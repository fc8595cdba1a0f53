"""What an OpenCL C text needs so that PoCL 3.0 compiles it right. All of it is empty for GPUs.

- A shared variable, or an element of a shared array with a constant index: PoCL's optimiser takes it for one that no other
  work-item changes, unless its address is stored somewhere.
- A branch with a barrier in it that some groups take and others do not: what is done there may be lost, unless PoCL's first
  optimiser leaves the kernel alone.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    Name,
    Node,
    Update,
    Variable,
    walk,
)
from ..types import Array

_CPU = "#if defined(__x86_64__) || defined(__aarch64__)"
# The name of a macro, and its definition.
SHOWN = (
    "kk_show_to_group",
    f"""{_CPU}
#define kk_show_to_group(x) __local void* volatile kk_shown_##x = (__local void*)&x;
#else
#define kk_show_to_group(x)
#endif""",
)
LEFT_ALONE = _CPU, "#pragma clang optimize off", "#endif"


def variables_to_show(functions: Iterable[Function]) -> set[Variable]:
    """Shared variables, and shared arrays with a constant index somewhere or that are passed to functions."""
    found: set[Variable] = set()
    for function in functions:
        for node in walk(function.body):
            base: object = None
            if isinstance(node, Name) and not isinstance(node.type, Array):
                base = node
            elif isinstance(node, Index) and isinstance(node.index, Literal):
                base = node.base
                while isinstance(base, Index):
                    base = base.base
            elif isinstance(node, Call):
                names = (one for argument in node.arguments for one in walk(argument) if isinstance(one, Name))
                found |= {one.variable for one in names if one.variable.space == "shared"}
            if isinstance(base, Name) and base.variable.space == "shared":
                found.add(base.variable)
    return found


def has_branch_of_some_groups(function: Function) -> bool:
    """Whether there is a branch with a barrier in it whose condition comes from a position in the grid."""
    nodes = list(walk(function.body))
    branches = [one for one in nodes if isinstance(one, If) and any(map(_waits, walk(one)))]
    if not branches:
        return False
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
