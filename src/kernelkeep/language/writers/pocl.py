"""What an OpenCL C text needs so that PoCL 3.0 compiles barriers right. Each was seen in kernels that other devices run right.

- An element of a shared array with a constant index, or a shared variable: PoCL's optimiser takes it for one that no other
  work-item changes, unless its address is stored somewhere.
- A branch with a barrier in it, where the condition differs between groups: work done there is lost, unless a barrier follows.

Both are written in macros that are empty for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..tree import Break, BuiltinCall, Call, Continue, Function, If, Index, Literal, Name, Node, Return, Variable, walk
from ..types import Array

_CPU = """#if defined(__x86_64__) || defined(__aarch64__)
#define {head} {text}
#else
#define {head}
#endif"""
# Names of the macros, and their definitions.
SHOWN = (
    "kk_show_to_group",
    _CPU.format(head="kk_show_to_group(x)", text="__local void* volatile kk_shown_##x = (__local void*)&x;"),
)
AFTER_BRANCH = "kk_after_branch", _CPU.format(head="kk_after_branch", text="barrier(CLK_LOCAL_MEM_FENCE);")


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


def is_branch_with_barrier(branch: If) -> bool:
    """Whether all work-items of a group meet in a branch and go on behind it."""
    barrier = False
    for node in walk(branch):
        if isinstance(node, (Return, Break, Continue)):
            return False
        barrier = barrier or _waits(node)
    return barrier


def _waits(node: Node) -> bool:
    if isinstance(node, Call):
        return node.function.has_barrier
    return isinstance(node, BuiltinCall) and node.builtin.name == "kk_barrier"
