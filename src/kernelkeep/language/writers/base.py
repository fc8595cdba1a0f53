"""What all writers share: a module from its parts, functions, names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from ..tree import Declare, Expression, Function, Module, Statement, Variable, children
from ..types import StructType
from .effects import Effects
from .loops import LoopWriter
from .names import Names, reserved_words
from .ranges import Ranges


class Written(Struct, frozen=True):
    """A text, and for each of its lines the line of the user's text that it came from; 0 where it came from none."""

    text: str
    lines: tuple[int, ...]


class Entry(Struct, frozen=True):
    """What devices expect around a kernel: the comment that declares it, the name of its function, and its group size."""

    declaration: str
    symbol: str
    group: tuple[int, int, int]


class Writer(LoopWriter):
    """Writes one module for one target.

    `calls` has further built-ins, such as those of state programs: for each, the text of a call, with `{0}` for its first
    argument.
    """

    target: ClassVar[str]  # the name that `names.py` knows its words by

    def __init__(self, module: Module, entry: Entry, calls: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.module = module
        self.entry = entry
        self.calls = calls or {}
        self.group = entry.group
        self.ranges = Ranges(self.group)
        self.effects = Effects(module, self.needs_statement, is_ordered=self.is_ordered)
        self.names = Names(reserved_words(self.target), _names(module), (one.name for one in module.structs))
        self.functions: list[tuple[list[str], list[int]]] = []  # those that were called, each before its callers
        self.written: dict[object, str] = {}  # their names

    def needs_statement(self, e: Expression) -> bool:
        """Whether the target cannot write an expression as one."""
        return False

    # --- the module

    def write(self) -> Written:
        """The whole text."""
        constants = self.section(lambda: _each(self.constant, self.module.constants))
        kernel = self.section(self.kernel)
        structs = self.section(lambda: _each(self.struct, self.module.structs))
        arrays = self.section(self.bindings)
        helpers = self.section(lambda: _each(self.line, "\n".join(self.helpers.values()).splitlines()))
        head = self.section(self.head)
        lines: list[str] = []
        places: list[int] = []
        for texts, numbers in (head, structs, constants, arrays, helpers, *self.functions, kernel):
            if texts:
                if lines:
                    lines.append("")
                    places.append(0)
                lines += texts
                places += numbers
        return Written("\n".join(lines) + "\n", tuple(places))

    def section(self, write: Callable[[], object]) -> tuple[list[str], list[int]]:
        """What `write` writes, apart from the rest."""
        before = self.lines, self.places, self.depth, self.place
        self.lines, self.places, self.depth, self.place = [], [], 0, 0
        write()
        found = self.lines, self.places
        self.lines, self.places, self.depth, self.place = before
        return found

    def head(self) -> None:
        """The first lines."""
        self.line(self.entry.declaration)

    def bindings(self) -> None:
        """Buffers, scalars and shared arrays, where these stand outside all functions."""

    def struct(self, struct: StructType) -> None:
        raise NotImplementedError

    def constant(self, constant: Declare) -> None:
        raise NotImplementedError

    def kernel(self) -> None:
        raise NotImplementedError

    # --- functions

    def function(self, function: Function, key: object, name: str, arrays: dict[Variable, Variable]) -> str:
        """Write a helper function, unless it was written for the same arrays already. Returns its name."""
        found = self.written.get(key)
        if found is None:
            found = self.written[key] = name
            before = self.arrays, self.in_index, self.counter
            self.arrays, self.in_index, self.counter = arrays, False, None
            chunk = self.section(lambda: self.function_lines(function, name))
            self.arrays, self.in_index, self.counter = before
            self.functions.append(chunk)
        return found

    def function_lines(self, function: Function, name: str) -> None:
        self.place = function.at.line
        self.line(f"{self.function_head(function, name)} {{")
        self.function_start(function)
        self.block(function.body)
        self.line("}")

    def function_head(self, function: Function, name: str) -> str:
        raise NotImplementedError

    def function_start(self, function: Function) -> None:
        """What stands first in a function."""

    # --- statements

    def declare(self, variable: Variable, value: Expression | None) -> None:
        self.line(f"{self.declaration(variable, value)};")


def _each(write: Callable[[Any], None], parts: Iterable[object]) -> None:
    for part in parts:
        write(part)


def _names(module: Module) -> set[str]:
    found = {one.variable.name for one in module.constants}
    for struct in module.structs:
        found |= {name for name, _ in struct.fields}
    for function in (*module.functions, module.kernel):
        if function is not module.kernel:
            found.add(function.name)
        found |= {one.name for one in function.parameters}
        found |= {one.name for one in declared_variables(function.body)}
    return found


def declared_variables(node: Statement) -> list[Variable]:
    """The variables that are declared in a statement."""
    found = [node.variable] if isinstance(node, Declare) else []
    for child in children(node):
        if not isinstance(child, Expression):
            found += declared_variables(child)  # type: ignore[arg-type]
    return found
