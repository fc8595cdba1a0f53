"""What an OpenCL C text needs so that PoCL 3.0 compiles it right.

A shared variable, or an element of a shared array with a constant index: PoCL's optimiser takes it for one that no other
work-item changes, unless its address is stored somewhere. A macro does that, which is empty for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..tree import Call, Function, Index, Literal, Name, Variable, walk
from ..types import Array

# The name of the macro, and its definition.
SHOWN = (
    "kk_show_to_group",
    """#if defined(__x86_64__) || defined(__aarch64__)
#define kk_show_to_group(x) __local void* volatile kk_shown_##x = (__local void*)&x;
#else
#define kk_show_to_group(x)
#endif""",
)


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
