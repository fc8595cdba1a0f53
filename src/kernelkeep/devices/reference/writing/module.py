"""The whole text: a function `make` that is called for each launch with its arrays and numbers.

It returns `run_group(me, many, grp0, grp1, grp2)`, which runs the work-items of a group, or, with barriers, a list of generators.
Helper functions are written once for each combination of buffers and shared arrays that they are called with, so that an array is
always known by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....language.tree import BuiltinCall, Function, Literal, Module, Variable, walk
from ....language.types import VOID, Array, Buffer, StructType
from .array_use import ArrayUse
from .builtins import POSITIONS
from .code import CheckPoint, Code, python_name
from .expressions import Expressions
from .index_values import index_variables
from .statements import Statements
from .storage import Binding, Storage

Group = tuple[int, int, int]
_CHECKS = ("bounds", "check_read", "note_read", "check_write", "check_atomic", "unset", "overflow", "division", "endless",
           "misaligned", "fence", "show", "stop", "Label")  # fmt: skip
_OF_ARRAYS = ("", "_n", "_W", "_R", "_A", "_S")


class Plan(NamedTuple):
    """What the text depends on beside the tree. Of each array: whether it is watched, and whether it must be written first."""

    group: Group | None
    storages: tuple[tuple[Variable, Storage], ...]
    breakpoints: frozenset[int] = frozenset()


class Written(NamedTuple):
    """The text, its check points, and the names that variables have in it."""

    text: str
    points: list[CheckPoint]
    names: dict[str, str]


class FunctionScope:
    """What is known in one function."""

    def __init__(self, writer: ModuleWriter, function: Function, *, is_kernel: bool) -> None:
        self._writer = writer
        self._function = function
        self._is_kernel = is_kernel
        self.names: dict[Variable, str] = dict(writer.constants)
        self.storages: dict[Variable, Storage] = dict(writer.plan.storages)
        self.offsets: dict[Variable, str] = {}  # of arrays that were passed from an element on
        self.boxed = writer.use.boxed
        self.may_be_unset: set[Variable] = set()
        self.always_set: set[Variable] = set(writer.constants)
        self.index_variables = writer.index_variables
        self.group = writer.plan.group
        self.context = writer.context

    def declare(self, variable: Variable) -> str:
        """The name of a new variable."""
        name = self.names[variable] = python_name("v", variable.name)
        self._writer.names[name] = variable.written or variable.name
        return name

    def stops_at(self, line: int) -> bool:
        """Whether there is a breakpoint on a line."""
        return line in self._writer.plan.breakpoints

    def variant(self, function: Function, bound: Mapping[int, Binding]) -> str:
        """The name of a helper function for these arrays."""
        return self._writer.variant(function, bound)

    def return_text(self, value: str | None) -> str:
        """The statement that leaves the function."""
        if self._is_kernel:
            return "return"
        if self._function.has_barrier:
            return f"return {value}, me, lo, many"
        return "return" if value is None else f"return {value}"


class ModuleWriter:
    """Writes one module."""

    def __init__(self, module: Module, use: ArrayUse, plan: Plan) -> None:
        self.module = module
        self.plan = plan
        self.use = use
        self.index_variables = index_variables(module)
        self.names: dict[str, str] = {}
        self.constants: dict[Variable, str] = {}
        self.context = ["me", "lo", "many", *sorted(_positions(module) - _SIZE_NAMES)]
        self._points: list[CheckPoint] = []
        self._functions: list[str] = []
        self._variants: dict[tuple[Any, ...], str] = {}

    def text(self) -> Written:
        """All of it."""
        head = Code(self._points, 1)
        scope = FunctionScope(self, self.module.kernel, is_kernel=True)
        expressions = Expressions(head, scope)
        for constant in self.module.constants:
            assert constant.value is not None
            name = self.constants[constant.variable] = python_name("c", constant.variable.name)
            head.add(f"{name} = {expressions.value(constant.value).text}")
        for name in _CHECKS:
            head.add(f"{name} = rt.{name}")
        item = self._item()
        parameters = ["rt", "F", "B", "ROUNDS", "S0", "S1", "S2", "C0", "C1", "C2"]
        parameters += [f"{storage.prefix}{end}" for _, storage in self.plan.storages for end in _OF_ARRAYS]
        parameters += [python_name("p", one.name) for one in self.module.kernel.parameters if one.space == "scalar"]
        lines = [f"def make({', '.join(parameters)}):", *head.lines, *self._functions, *item, *self._run_group()]
        return Written("\n".join([*lines, "    return run_group", ""]), self._points, self.names)

    def variant(self, function: Function, bound: Mapping[int, Binding]) -> str:
        """The name of a helper function for some arrays; it is written when it is first asked for."""
        key = function.name, tuple((number, bound[number].key) for number in sorted(bound))
        if key not in self._variants:
            name = self._variants[key] = f"{python_name('f', function.name)}_{len(self._variants)}"
            self._functions += self._helper(function, name, bound)
        return self._variants[key]

    def _helper(self, function: Function, name: str, bound: Mapping[int, Binding]) -> list[str]:
        code = Code(self._points, 1)
        scope = FunctionScope(self, function, is_kernel=False)
        parameters = list(self.context)
        for number, parameter in enumerate(function.parameters):
            binding = bound.get(number)
            if binding is not None and binding.storage is not None:
                scope.storages[parameter] = binding.storage
            else:
                parameters.append(scope.declare(parameter))
            if binding is not None and binding.has_offset:
                scope.offsets[parameter] = python_name("o", parameter.name)
                parameters.append(scope.offsets[parameter])
            if not isinstance(parameter.type, Array | Buffer | StructType):
                scope.always_set.add(parameter)
        with code.block(f"def {name}({', '.join(parameters)}):"):
            for parameter in function.parameters:
                if parameter in self.use.boxed:
                    code.add(f"{scope.names[parameter]} = [{scope.names[parameter]}]")
            Statements(code, scope, Expressions(code, scope)).block(function.body)
            if function.has_barrier and function.result is VOID:
                code.add(scope.return_text(None))
        return code.lines

    def _item(self) -> list[str]:
        kernel = self.module.kernel
        code = Code(self._points, 1)
        scope = FunctionScope(self, kernel, is_kernel=True)
        with code.block(f"def item({', '.join(self.context)}):"):
            for one in kernel.parameters:
                if one.space != "scalar":
                    continue
                if one in self.use.boxed:
                    code.add(f"{scope.declare(one)} = [{python_name('p', one.name)}]")
                elif one in kernel.changed:
                    code.add(f"{scope.declare(one)} = {python_name('p', one.name)}")
                else:
                    scope.names[one] = python_name("p", one.name)
                scope.always_set.add(one)
            Statements(code, scope, Expressions(code, scope)).block(kernel.body)
        return code.lines

    def _run_group(self) -> list[str]:
        code = Code(self._points, 1)
        has_barrier = self.module.kernel.has_barrier
        with code.block("def run_group(me, many, grp0, grp1, grp2):"):
            code.add("lo = me")
            if has_barrier:
                code.add("waiting = []")
            with code.block("for lid2 in range(S2):"):
                self._global_id(code, 2)
                with code.block("for lid1 in range(S1):"):
                    self._global_id(code, 1)
                    with code.block("for lid0 in range(S0):"):
                        self._global_id(code, 0)
                        call = f"item({', '.join(self.context)})"
                        code.add(f"waiting.append({call})" if has_barrier else call)
                        code.add("me += 1")
            code.add("return waiting" if has_barrier else "return None")
        return code.lines

    def _global_id(self, code: Code, dimension: int) -> None:
        if f"gid{dimension}" in self.context:
            code.add(f"gid{dimension} = grp{dimension} * S{dimension} + lid{dimension}")


_SIZE_NAMES = frozenset(f"{letter}{dimension}" for letter in "SC" for dimension in range(3))


def _positions(module: Module) -> set[str]:
    """The names of all positions that a kernel asks for."""
    found: set[str] = set()
    for function in (*module.functions, module.kernel):
        for node in walk(function.body):
            if isinstance(node, BuiltinCall) and node.builtin.rule == "position":
                (asked,) = node.arguments
                pattern = POSITIONS[node.builtin.name]
                if pattern.startswith("("):
                    continue
                known = [asked.value] if isinstance(asked, Literal) and asked.value in (0, 1, 2) else range(3)
                found.update(pattern.format(d=dimension) for dimension in known)
    return found
