"""C's declarations: variables, shared arrays, structs and typedefs."""

from __future__ import annotations

from ..builtins import SHARED
from ..checker.checker import Checker
from ..checker.declarations import InitialiserList
from ..checker.scopes import Space
from ..tree import Declare, Expression, Place, Statement
from ..types import VOID, StructType, Type
from .c_expressions import ExpressionParser
from .c_tokens import Token


class DeclarationParser:
    """Reads declarations."""

    def __init__(self, read: ExpressionParser, checker: Checker) -> None:
        self._read = read
        self._checker = checker

    def declaration(self) -> list[Declare]:
        """`const int a = 1, b[2];` without its semicolon. `__shared__` and `__local` variables belong to the group."""
        first = self._read.token.at
        kind, is_const = self._read.specifiers()
        if self._read.has_shared and self._read.token.text != "*":
            return self._shared_variables(kind, first)
        return self.declarators(kind, is_const=is_const)

    def declarators(self, base: Type, *, is_const: bool, is_global: bool = False) -> list[Declare]:
        """The names behind a type, with their sizes and first values."""
        read, make = self._read, self._checker.declarations
        found: list[Declare] = []
        while True:
            if read.token.text == "*" and not is_global:
                found.append(self._pointer(base, is_const=is_const))
                if not read.accept(","):
                    return found
                continue
            name = self.declared_name()
            if read.token.text == "(":
                read.fail("helper functions stand before the first statement of the body", name)
            sizes = self.sizes()
            initial: Expression | InitialiserList | None = read.initialiser() if read.accept("=") else None
            if None in sizes:
                if sizes.count(None) > 1 or sizes[0] is not None or not isinstance(initial, InitialiserList):
                    self._checker.problems.error(name.at, f"the size of {name.text} is missing")
                sizes[0] = len(initial.items) if isinstance(initial, InitialiserList) else 1
            kind = make.array(base, [size or 1 for size in sizes])
            space: Space = "constant" if is_global else "local"
            found.append(make.declare(name.text, kind, space, name.at, initial, is_const=is_const))
            if (value := found[-1].value) is not None:
                self._checker.expressions.full(value)
            if not read.accept(","):
                return found

    def _pointer(self, element: Type, *, is_const: bool) -> Declare:
        """`*p = x + i`: a variable with an offset into x."""
        read = self._read
        while read.token.text in ("*", "const", "restrict", "__restrict__", "__restrict"):
            read.advance()
        name = self.declared_name()
        pointers = self._checker.expressions.pointers
        if not read.accept("="):
            return pointers.declare_unset(name.text, element, name.at, is_const=is_const)
        return pointers.declare(name.text, element, read.assignment(), name.at, is_const=is_const)

    def declared_name(self) -> Token:
        """The name that a declaration declares."""
        if self._read.token.text == "*":
            self._read.fail("there are no pointers: a variable holds a number, a vector, a struct or an array")
        return self._read.expect_name("the name of a variable")

    def sizes(self) -> list[int | None]:
        """`[2][3]`. A size that is left out is None."""
        found: list[int | None] = []
        while self._read.accept("["):
            if self._read.token.text == "]":
                found.append(None)
            else:
                found.append(self._checker.declarations.length(self._read.assignment()))
            self._read.expect("]")
        return found

    def shared(self, into: list[Statement]) -> None:
        """`kk_shared(float, tile, 16, 17);`."""
        read = self._read
        at = read.advance().at
        read.expect("(")
        kind = read.type_name()
        read.expect(",")
        name = read.expect_name("the name of the shared array")
        lengths: list[int | None] = []
        while read.accept(","):
            lengths.append(self._checker.declarations.length(read.assignment()))
        if not lengths:
            self._checker.problems.error(
                name.at, f"the size of shared array {name.text} is missing: kk_shared(float, {name.text}, 16);"
            )
        read.expect(")")
        read.expect(";", f" behind {SHARED}(…)")
        into.append(self._share(kind, name, lengths, at))

    def _shared_variables(self, kind: Type, at: Place) -> list[Declare]:
        found = [self._share(kind, self.declared_name(), self.sizes(), at)]
        while self._read.accept(","):
            found.append(self._share(kind, self.declared_name(), self.sizes(), at))
        return found

    def _share(self, kind: Type, name: Token, lengths: list[int | None], at: Place) -> Declare:
        if not self._checker.scopes.function.is_kernel or self._checker.scopes.depth > 2:
            self._checker.problems.error(at, f"{SHARED} stands at the top level of the body only")
        known = [length for length in lengths if length is not None]
        return self._checker.declarations.shared(name.text, kind, known, name.at)

    def struct(self, into: list[Statement]) -> None:
        """`struct name { … };`, also with variables behind it, or a variable of a struct."""
        read = self._read
        if read.peek(2).text == "{" or read.peek(1).text == "{":
            kind = self.struct_definition()
            if read.token.kind == "name":
                if not kind.name:
                    kind = self._checker.scopes.name_struct(kind, f"{read.token.text}_struct")
                into += self.declarators(kind, is_const=False)
            read.expect(";", " behind the struct")
        else:
            into += self.declaration()
            read.expect(";", " behind the declaration")

    def struct_definition(self) -> StructType:
        """`struct name { int a; float b; }`."""
        read = self._read
        at = read.expect("struct").at
        name = read.advance().text if read.token.kind == "name" else ""
        read.expect("{")
        fields: dict[str, Type] = {}
        while not read.accept("}"):
            base, _ = read.specifiers()
            while True:
                own = self.declared_name()
                if own.text in fields:
                    self._checker.problems.error(own.at, f"field {own.text} is there twice")
                sizes = [size or 1 for size in self.sizes()]
                if base is VOID:
                    self._checker.problems.error(own.at, f"field {own.text} must have a type other than void")
                fields[own.text] = self._checker.declarations.array(base, sizes)
                if not read.accept(","):
                    break
            read.expect(";", " behind the field")
        if not fields:
            self._checker.problems.error(at, "a struct must have a field")
        return self._checker.scopes.define_struct(name, tuple(fields.items()), at)

    def typedef(self, into: list[Statement]) -> None:
        """`typedef float real;`."""
        read = self._read
        read.advance()
        after = read.peek(1)
        behind = read.peek(2)
        if read.token.text == "struct" and "{" in (after.text, behind.text):
            kind: Type = self.struct_definition()
        else:
            kind, _ = read.specifiers()
        name = self.declared_name()
        sizes = [size or 1 for size in self.sizes()]
        if isinstance(kind, StructType) and not kind.name:
            kind = self._checker.scopes.name_struct(kind, name.text)
        self._checker.scopes.define_type(name.text, self._checker.declarations.array(kind, sizes), name.at)
        read.expect(";", " behind typedef")
