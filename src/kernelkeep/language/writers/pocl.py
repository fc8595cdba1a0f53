"""What an OpenCL C text needs so that PoCL 3.0 compiles it right. Other compilers do not see it.

- A shared variable, or an element of a shared array with a constant index: PoCL's optimiser takes it for one that no other
  work-item changes, unless its address is stored somewhere.
- A condition of two parts, `n > 5 && x[i] > 3`, of which the first is the same for all work-items: where such a branch sets
  constants, all have the same one behind a barrier, unless the first part seems to differ between work-items, too.
- A branch with a barrier in it that some groups take and others do not: what is done there may be lost, unless PoCL's first
  optimiser leaves the kernel alone.
- A switch before a barrier whose cases are all values that its value can have: the optimiser drops the default that is never
  reached, and all work-items take one and the same case. So the last case becomes the default, on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from ..builtins import WORK_ITEM
from ..tree import (
    Assign,
    BuiltinCall,
    Call,
    Declare,
    DoWhile,
    Expression,
    For,
    If,
    Index,
    Literal,
    Logical,
    Module,
    Name,
    Node,
    Switch,
    Ternary,
    Update,
    Variable,
    While,
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
VARIES = (
    "kk_varies",
    f"""{_POCL}
#define kk_varies(condition) ((condition) & (get_local_id(0) < 0x7fffffff))
#else
#define kk_varies(condition) (condition)
#endif""",
)
LEFT_ALONE = _POCL, "#pragma clang optimize off", "#endif"


class Needs(NamedTuple):
    """What a kernel needs."""

    shown: set[
        Variable
    ]  # shared variables, and shared arrays with a constant index somewhere or that are passed to functions
    same: set[int]  # ids of first parts of conditions that are the same for all work-items of a group, and need not be
    is_left_alone: bool  # there is a branch with a barrier in it whose condition comes from a position in the grid


def needs(module: Module) -> Needs:
    """What a kernel with barriers needs."""
    shown: set[Variable] = set()
    nodes: list[Node] = []  # of the kernel
    for function in (*module.functions, module.kernel):
        nodes = list(walk(function.body))
        for node in nodes:
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
    waiting = [one for one in nodes if isinstance(one, If) and any(map(_waits, walk(one)))]
    return Needs(shown, _same_for_all(nodes), bool(waiting) and _some_groups_take(waiting, nodes))


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


def _same_for_all(nodes: list[Node]) -> set[int]:
    """Conditions before `&&`, `||` and `?`. Those that lead to a barrier are left out: they must be the same."""
    found: set[int] = set()
    varies: set[Variable] | None = None
    for node in nodes:
        first = node.left if isinstance(node, Logical) else node.condition if isinstance(node, Ternary) else None
        if first is None or isinstance(first, Logical):
            continue
        if varies is None:
            varies = _reached(nodes, _is_own)
        if not _depends(first, varies, _is_own):
            found.add(id(first))
    if found:
        for node in nodes:
            if isinstance(node, (If, For, While, DoWhile)) and node.condition and any(map(_waits, walk(node))):
                found -= {id(one) for one in walk(node.condition)}
    return found


def _is_own(node: Node) -> bool:
    """Whether work-items of a group have different values of it."""
    if isinstance(node, BuiltinCall):
        return node.builtin.name in WORK_ITEM or node.builtin.rule == "atomic"
    return isinstance(node, (Index, Call))


def _shared_in(expression: Expression) -> set[Variable]:
    names = (node for node in walk(expression) if isinstance(node, Name))
    return {one.variable for one in names if one.variable.space == "shared"}


def _some_groups_take(branches: list[If], nodes: list[Node]) -> bool:
    differs = _reached(nodes, _is_of_group)
    return any(_depends(one.condition, differs, _is_of_group) for one in branches)


def _is_of_group(node: Node) -> bool:
    return isinstance(node, BuiltinCall) and node.builtin.name in ("kk_group_id", "kk_global_id")


def _reached(nodes: list[Node], is_source: Callable[[Node], bool]) -> set[Variable]:
    """The variables whose values come from a source."""
    found: set[Variable] = set()
    rest: list[tuple[Variable, set[Variable]]] = []  # a variable, and those that a value of it is computed from
    for node in nodes:
        if isinstance(node, Declare) and node.value is not None:
            variable, value = node.variable, node.value
        elif isinstance(node, (Assign, Update)) and isinstance(node.target, Name):
            variable, value = node.target.variable, node.value
        else:
            continue
        within = list(walk(value))
        if any(map(is_source, within)):
            found.add(variable)
        else:
            rest.append((variable, {one.variable for one in within if isinstance(one, Name)}))
    count = -1
    while len(found) > count:  # until no variable comes in any more
        count = len(found)
        found.update(variable for variable, used in rest if variable not in found and not used.isdisjoint(found))
    return found


def _depends(expression: Expression, variables: set[Variable], is_source: Callable[[Node], bool]) -> bool:
    return any((isinstance(node, Name) and node.variable in variables) or is_source(node) for node in walk(expression))


def _waits(node: Node) -> bool:
    if isinstance(node, Call):
        return node.function.has_barrier
    return isinstance(node, BuiltinCall) and node.builtin.name == "kk_barrier"
