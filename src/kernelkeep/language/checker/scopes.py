"""Which name means what, and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as OneOf

from msgspec import Struct

from ..problems import Problems
from ..tree import Expression, Function, Literal, Place, Variable
from ..types import VOID, Buffer, StructType, Type


class View(Struct, frozen=True, eq=False):
    """What a pointer into one array means: the array, and the variable that has the offset.

    The array is None from `float* p;` until p is set.
    """

    array: Variable | None
    offset: Variable
    type: Buffer


Meaning = Variable | Function | View
Space = OneOf["buffer", "scalar", "parameter", "local", "shared", "constant"]


class CurrentFunction:
    """The function that is being read: its result, and what was seen in it so far."""

    def __init__(self, name: str, result: Type, *, is_kernel: bool = False) -> None:
        self.name = name
        self.result = result
        self.is_kernel = is_kernel
        self.changed: set[Variable] = set()  # parameters that it assigns to
        self.has_barrier = False
        self.without_value: set[Variable] = set()  # local variables that are declared without one
        self.values: dict[Variable, list[Expression]] = {}  # what is assigned to each variable, wherever


class Scopes:
    """The names that are visible, innermost last. The outermost scope is that of functions and constants."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._meanings: list[dict[str, Meaning]] = [{}]
        self._types: dict[str, Type] = {}  # typedefs and structs
        self._used: list[set[str]] = [set()]  # the names of variables after renaming, for each scope
        self.tags: dict[str, StructType] = {}  # of structs
        self.prototypes: dict[str, int] = {}  # the lines of functions that are declared and not defined yet
        self.function = CurrentFunction("", VOID)  # the one that is being read

    # --- scopes

    def open(self) -> None:
        """Begin a scope."""
        self._meanings.append({})
        self._used.append(set())

    def close(self) -> None:
        """End the innermost scope."""
        self._meanings.pop()
        self._used.pop()

    @property
    def is_outermost(self) -> bool:
        """Whether no function is open."""
        return len(self._meanings) == 1

    @property
    def depth(self) -> int:
        """How many scopes are open."""
        return len(self._meanings)

    # --- names

    def find(self, name: str) -> Meaning | None:
        """The variable or function that a name means here."""
        for scope in reversed(self._meanings):
            if name in scope:
                return scope[name]
        return None

    def find_type(self, name: str) -> Type | None:
        """The typedef or struct that a name means, if no variable hides it."""
        return self._types.get(name)

    def visible(self) -> Iterator[str]:
        """All names that mean something here."""
        for scope in self._meanings:
            yield from scope

    def declare(
        self,
        name: str,
        type_: Type,
        space: Space,
        at: Place,
        *,
        is_const: bool = False,
        value: Literal | None = None,
        is_restrict: bool = False,
    ) -> Variable:
        """Make a name mean a new variable. It gets another name where it would hide one."""
        self._check_new(name, at)
        variable = Variable(self._unique(name), type_, space, at, name, is_const, value, is_restrict)
        self._meanings[-1][name] = variable
        return variable

    def declare_view(self, name: str, array: Variable | None, offset_type: Type, view: Buffer, at: Place) -> Variable:
        """Make a name mean a pointer into an array; returns the new variable that has the offset."""
        if self._meanings[-1].get(name) is not array or array is None:
            self._check_new(name, at)
        offset = Variable(self._unique(f"{name}_at"), offset_type, "local", at, name)
        self._meanings[-1][name] = View(array, offset, view)
        return offset

    def unset_pointer(self, name: str) -> View | None:
        """The pointer of that name, if it was declared and not set yet."""
        found = self.find(name)
        return found if isinstance(found, View) and found.array is None else None

    def set_view(self, name: str, array: Variable, view: Buffer) -> Variable:
        """Make a pointer that was declared without a value point into an array; returns the variable that has the offset."""
        scope = next(scope for scope in reversed(self._meanings) if name in scope)
        found = scope[name]
        assert isinstance(found, View)
        scope[name] = View(array, found.offset, view)
        return found.offset

    def _check_new(self, name: str, at: Place) -> None:
        if name in self._meanings[-1]:
            self._problems.error(at, f"{name} is declared twice in this scope")

    def _unique(self, name: str) -> str:
        """The name, or one like it that nothing visible has."""
        unique, count = name, 1
        while any(unique in used for used in self._used) or (unique in self.tags):
            count += 1
            unique = f"{name}_{count}"
        self._used[-1].add(unique)
        return unique

    def define(self, function: Function) -> None:
        """Make a name mean a helper function."""
        if function.name in self._meanings[0]:
            self._problems.error(function.at, f"{function.name} is defined twice")
        self._meanings[0][function.name] = function
        self._used[0].add(function.name)

    def define_type(self, name: str, type_: Type, at: Place) -> None:
        """Make a name mean a type."""
        if name in self._types and self._types[name] is not type_:
            self._problems.error(at, f"type {name} is defined twice")
        self._types[name] = type_

    def define_struct(self, name: str, fields: tuple[tuple[str, Type], ...], at: Place) -> StructType:
        """Make a tag, and the plain name, mean a struct. One without a name gets it from `name_struct`."""
        found = StructType(f"struct {name}", name, fields)
        if name:
            if name in self.tags:
                self._problems.error(at, f"struct {name} is defined twice")
            self.tags[name] = found
            self._types.setdefault(name, found)
        return found

    def name_struct(self, struct: StructType, name: str) -> StructType:
        """The struct of `typedef struct { … } name;`."""
        while name in self.tags:
            name += "_2"
        self.tags[name] = found = StructType(name, name, struct.fields)
        return found
