"""What stands before the statements of a body: macros, constants, structs, helper functions."""

from __future__ import annotations

from .scope import FLOATS, ArrayName, FunctionName, Scope, StructName
from .statements import Statements


class Definitions(Statements):
    """Makes definitions."""

    def definitions(self) -> None:
        """Some of each kind."""
        c = self.choices
        if c.chance(2):
            name = self.name("MIX")
            self.line(
                f"#define {name}(a, b) {c.pick('((a) + 3 * (b))', '((a) ^ ((b) >> 3))', '((a) < (b) ? LEVEL : (a))')}"
            )
            self.macros.append(name)
        for _ in range(c.below(3)):
            name = self.name("pair")
            kinds = [c.pick("int", "float", self.integer_type()) for _ in range(1 + c.below(3))]
            fields = tuple(zip("abc", kinds, strict=False))
            self.line(f"struct {name} {{ {' '.join(f'{kind} {field};' for field, kind in fields)} }};")
            self.struct_types.append(StructName(name, fields))
        if c.chance(3):
            name, kind = self.name("TABLE"), c.pick("int", "unsigned char", "short")
            self.line(f"const {kind} {name}[4] = {{{', '.join(str(c.below(100)) for _ in range(4))}}};")
            self.constants.append(ArrayName(name, kind, 4))
        for _ in range(c.below(4)):
            self._function()

    def _function(self) -> None:
        c = self.choices
        before, left = self.scope, self.statements_left
        scope = self.scope = Scope(is_kernel=False)
        self.statements_left = 1 + c.below(5)
        form = c.below(5)
        structs = self.struct_types
        if form == 4 and structs:
            struct = c.one_of(structs)
            result, heads, kinds = (
                f"struct {struct.name}",
                [f"struct {struct.name} s", "int p"],
                [f"struct {struct.name}", "int"],
            )
            scope.structs.append(("s", struct))
            scope.integers.append(("p", "int"))
        else:
            result = c.pick("int", "unsigned", "short", "void" if form == 1 else self.integer_type())
            heads, kinds = [], []
            if form in (1, 2):
                kind = c.pick("int", "int", "float", "unsigned")
                kinds.append(f"{kind}[]" if form == 1 else f"const {kind}[]")
                heads.append(f"{kind} a[]" if form == 1 else c.pick(f"const {kind} a[]", f"const {kind}* a"))
                scope.arrays.append(ArrayName("a", kind, 4, is_writable=form == 1, is_local=form == 1))
            if form == 3:
                result = self.float_type()
            for name in "pq"[: 1 + c.below(2)]:
                kind = self.float_type() if form == 3 and name == "p" else self.integer_type()
                kinds.append(kind)
                heads.append(f"{kind} {name}")
                (scope.floats if kind in FLOATS else scope.integers).append((name, kind))
        name = self.name("help")
        self.line(f"{result} {name}({', '.join(heads)}) {{")
        self.depth += 1
        at = len(self.lines)
        if c.chance(3) and result != "void":
            self.statements(1)
            self.line(f"if ({self.condition()}) return {self._result(result)};")
        self.statements(4)
        if result != "void":
            self.line(f"return {self._result(result)};")
        self.depth -= 1
        self.line("}")
        cost = 2 + sum(3 for line in self.lines[at:] if "for (" in line or "while (" in line)
        self.functions.append(FunctionName(name, result, tuple(kinds), cost))
        self.scope, self.statements_left = before, left

    def _result(self, kind: str) -> str:
        if kind.startswith("struct"):
            return "s"
        return self.held(self.float_value(1, kind)) if kind in FLOATS else self.integer(1)
