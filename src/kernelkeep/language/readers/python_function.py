"""One Python function: its text, its places, its variables."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..checker.scopes import CurrentFunction
from ..tree import Declare, Expression, Place, Statement, Variable
from ..types import BOOL, F4, I4, INVALID, SCALARS, VOID, Type, buffer
from .python_calls import VECTORS
from .python_expressions import ExpressionReader
from .python_names import NUMPY_TYPES
from .python_problems import PythonFunction
from .python_variables import Variables

if TYPE_CHECKING:
    from .python_kernel import ModuleReader

_ARRAYS = {"kernelkeep.In": "r", "kernelkeep.Out": "rw", "kernelkeep.InOut": "rw"}
_PYTHON_TYPES = {"builtins.int": I4, "builtins.float": F4, "builtins.bool": BOOL}


def ascii_name(name: str) -> str:
    """A name that every target can have: letters beyond ASCII are left out."""
    return name if name.isascii() else f"v_{name.encode('ascii', 'ignore').decode()}"


class FunctionReader:
    """What the readers of statements and expressions share while they read one function.

    `variables` has those that are declared, `failed` those whose first value had a mistake.
    """

    def __init__(self, module: ModuleReader, text: PythonFunction, node: ast.FunctionDef, offset: int) -> None:
        self.module = module
        self.checker = module.checker
        self.text = text
        self.node = node
        self.scope = Variables(node)
        self.variables: dict[str, Variable] = {}
        self.failed: set[str] = set()
        self.current = CurrentFunction(f"{text.name}()", VOID)
        self.blocks: dict[
            int, list[Statement]
        ] = {}  # the blocks that are open, by the id() of their statements in Python
        self.used: set[str] = set()  # names that variables have in the tree
        self._lines = text.text.splitlines()
        self._offset = offset  # lines that stand before the text where it was parsed
        self.expressions = ExpressionReader(self)

    # --- places

    def place(self, line: int, column: int) -> Place:
        """A place in the file, from one in the text that was parsed: `ast` counts bytes."""
        row = line - 1 - self._offset
        shown = self._lines[row] if 0 <= row < len(self._lines) else ""
        if not shown.isascii():
            column = len(shown.encode()[:column].decode(errors="ignore"))
        return Place(self.text.first_line + row, column + 1)

    def sign_place(self, line: int | None, column: int | None) -> Place | None:
        """The first sign behind a place, that of an operator; None where the line ends there."""
        if line is None or column is None:
            return None
        at = self.place(line, column)
        shown = self._lines[at.line - self.text.first_line]
        rest = shown[at.column - 1 :]
        behind = len(rest) - len(rest.lstrip(" )\t"))
        return None if behind == len(rest) or rest[behind] in "#\\" else Place(at.line, at.column + behind)

    def end_place(self, node: ast.expr, length: int) -> Place:
        """The place of the last word of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        at = self.place(node.end_lineno, node.end_col_offset)
        return Place(at.line, max(1, at.column - length))

    # --- variables

    def declare(self, name: str, kind: Type, at: Place, value: Expression | None = None) -> None:
        """A variable comes into being, at home. Where that is not the current block, it gets its value later."""
        variable = Variable(self.unique(name), kind, "local", at, name)
        self.variables[name] = variable
        home = self.blocks[self.scope.homes[name]]
        if value is None:
            self.current.without_value.add(variable)
        else:
            self.current.values[variable] = [value]
            if self.scope.stores[name] == 1 and self.expressions.operators.is_nonnegative(value):
                self.expressions.operators.nonnegative.add(variable)
        home.append(Declare(at, variable, value))

    def hidden(self, name: str, kind: Type, at: Place, value: Expression) -> Declare:
        """A variable that the text does not have."""
        variable = Variable(self.unique(name), kind, "local", at, name)
        self.current.values[variable] = [value]
        return Declare(at, variable, value)

    def unique(self, name: str) -> str:
        """The name, or one like it that nothing else has."""
        found, count = ascii_name(name), 1
        name = found
        while found in self.used or found in self.module.taken or (count > 1 and self.scope.is_local(found)):
            count += 1
            found = f"{name}_{count}"
        self.used.add(found)
        return found

    # --- types

    def type_of(self, node: ast.expr) -> Type | None:
        """The type that an annotation names; None where it names none, which is reported."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.type_of(ast.copy_location(ast.parse(node.value, mode="eval").body, node))
            except (SyntaxError, ValueError, RecursionError):
                pass
        elif isinstance(node, ast.Subscript):
            found = self.expressions.meaning(node.value)
            access = _ARRAYS.get(found.text) if found is not None and found.kind == "name" else None
            element = self.element_type(node.slice) if access is not None else None
            if element is not None:
                return buffer(element, "r" if access == "r" else "rw")
        else:
            found = self.expressions.meaning(node)
            if found is not None and found.kind == "name":
                module, _, name = found.text.partition(".")
                known: Type | None = _PYTHON_TYPES.get(found.text)
                if module == "kernelkeep":
                    known = SCALARS.get(name) or VECTORS.get(name)
                elif module == "numpy":
                    known = SCALARS.get(NUMPY_TYPES.get(name, ""))
                if known is not None:
                    return known
        self.expressions.error(node, "this is no type: write kk.f4, kk.i4, kk.float4, kk.In[kk.f4] …")
        return None

    def element_type(self, node: ast.expr) -> Type | None:
        """The type of elements: "f4", kk.f4 or kk.float4."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return SCALARS.get(node.value) or VECTORS.get(node.value)
        return self.type_of(node)

    def is_failed(self, name: str, kind: Type) -> bool:
        """Whether a variable has no type, because its first value had a mistake."""
        if kind is INVALID:
            self.failed.add(name)
        return kind is INVALID
