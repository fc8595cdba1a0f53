"""Statements: every kind of the language, with loops that end."""

from __future__ import annotations

from collections.abc import Callable

from .scope import FLOATS, INTEGERS, ArrayName
from .vectors import VectorExpressions

_ASSIGNMENTS = ("", "+", "-", "*", "^", "|", "&", "<<", ">>")


class Statements(VectorExpressions):
    """Makes statements."""

    def statements(self, count: int) -> None:
        """Some statements, as many as are left to make."""
        for _ in range(count):
            if self.statements_left > 0:
                self.statements_left -= 1
                self._statement()

    def _statement(self) -> None:
        simple: tuple[Callable[[], None], ...] = (
            self.assign, self._declare, self._count, self._assign_element, self._declare_float, self._assign_float,
            self.change_vector, self._change_struct, self._evaluate, self.effect, self._leave, self.effect,
        )  # fmt: skip
        inner = (self._if, self._if_else, self._for, self._while, self._do, self._switch, self._block, self._conditional_text,
                 self._declare_array, self.declare_vector, self._pointer)  # fmt: skip
        self.choices.pick(*simple, *(inner if self.depth < 4 else ()))()

    def effect(self) -> None:
        """A statement that only the kernel itself can have."""
        self.assign()

    # --- simple ones

    def assign(self) -> None:
        """An assignment to a variable."""
        c = self.choices
        if not self.scope.integers:
            return self._declare()
        name, _ = c.one_of(self.scope.integers)
        self.line(f"{name} {c.pick(*_ASSIGNMENTS)}= {self.integer()};")

    def _declare(self) -> None:
        kind, value = self.integer_type(), self.integer()
        name = self.name("x")
        self.line(f"{kind} {name} = {value};")
        self.scope.integers.append((name, kind))

    def _count(self) -> None:
        c = self.choices
        names = [name for name, kind in self.scope.integers if kind != "bool"]
        if not names:
            return self._declare()
        name, operator = c.one_of(names), c.pick("++", "--")
        self.line(c.pick(f"{name}{operator};", f"{operator}{name};"))

    def _assign_element(self) -> None:
        c = self.choices
        arrays = [one for one in self.scope.arrays if one.is_writable]
        if not arrays:
            return self.assign()
        one = c.one_of(arrays)
        if one.element in FLOATS:
            return self.line(f"{self.element(one)} = {self.held(self.float_value(0, one.element))};")
        self.line(f"{self.element(one)} {c.pick(*_ASSIGNMENTS)}= {self.integer()};")

    def _declare_float(self) -> None:
        kind = self.float_type()
        value = self.held(self.float_value(0))
        name = self.name("f")
        self.line(f"{kind} {name} = {value};")
        self.scope.floats.append((name, kind))

    def _assign_float(self) -> None:
        if not self.scope.floats:
            return self._declare_float()
        name, _ = self.choices.one_of(self.scope.floats)
        self.line(f"{name} = {self.held(self.float_value(0))};")

    def _change_struct(self) -> None:
        c = self.choices
        if not self.struct_types:
            return self.assign()
        if not self.scope.structs or c.chance(3):
            kind = c.one_of(self.struct_types)
            parts = [
                self.held(self.float_value(1, "float")) if own == "float" else self.integer(1) for _, own in kind.fields
            ]
            name = self.name("s")
            self.line(f"struct {kind.name} {name} = {{{', '.join(parts)}}};")
            self.scope.structs.append((name, kind))
            return
        name, kind = c.one_of(self.scope.structs)
        others = [other for other, its_kind in self.scope.structs if its_kind is kind and other != name]
        if others and c.chance(3):
            return self.line(f"{name} = {c.one_of(others)};")
        changing = [one for one in self.functions if one.result == f"struct {kind.name}" and self.can_call(one)]
        if changing and c.chance(2):
            return self.line(f"{name} = {changing[0].name}({name}, {self.integer(1)});")
        field, own = c.one_of(kind.fields)
        if own == "float":
            return self.line(f"{name}.{field} = {self.held(self.float_value(0, 'float'))};")
        self.line(f"{name}.{field} {c.pick(*_ASSIGNMENTS)}= {self.integer()};")

    def _evaluate(self) -> None:
        """A call, or another expression, for its effect."""
        found = [one for one in self.functions if self.can_call(one) and not one.result.startswith("struct")]
        if not found:
            return self.assign()
        self.line(f"{self.call(self.choices.one_of(found), 1)};")

    def _leave(self) -> None:
        """`break` or `continue`."""
        scope = self.scope
        # Mesa 22 compiles a `continue` in a switch in a switch wrong.
        words = ["break"] * bool(scope.breakable) + ["continue"] * bool(scope.loops and scope.switches < 2)
        if not words:
            return self.assign()
        self.line(f"if ({self.condition()}) {self.choices.pick(*words)};")

    # --- those with others inside

    def body(self, head: str, count: int = 3, tail: str = "") -> None:
        """A block behind a head."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        with self.scope.block():
            self.statements(1 + self.choices.below(count))
        self.depth -= 1
        self.line(f"}}{tail}")

    def _block(self) -> None:
        self.body("")

    def _if(self) -> None:
        self.body(f"if ({self.condition()})")

    def _if_else(self) -> None:
        self._if()
        if self.choices.chance(3):
            self.body(f"else if ({self.condition()})")
        self.body("else")

    def _loop(self, rounds: int, write: Callable[[], None]) -> None:
        scope = self.scope
        before = scope.loops, scope.breakable, scope.rounds, scope.switches
        scope.loops, scope.breakable, scope.rounds = scope.loops + 1, scope.breakable + 1, scope.rounds * rounds
        scope.switches = 0
        write()
        scope.loops, scope.breakable, scope.rounds, scope.switches = before

    def _rounds(self) -> int:
        return 1 + self.choices.below(4 if self.scope.rounds * 4 <= self.MOST_ROUNDS else 1)

    def _for(self) -> None:
        c, rounds, name = self.choices, self._rounds(), self.name("k")
        change = f", {c.one_of(self.scope.integers)[0]} ^= {name}" if self.scope.integers and c.chance(4) else ""
        head = c.pick(
            f"for (int {name} = 0; {name} < {rounds}; {name}++{change})",
            f"for (int {name} = {rounds}; {name} > 0; --{name}{change})",
            f"for (unsigned {name} = {2 * rounds}; {name}; {name} -= 2{change})",
            f"kk_unroll for (int {name} = 0; {name} < {rounds}; {name}++)",
            f"for (short {name} = -{rounds}; {name} < 0; {name}++{change})",
            f"for (int {name} = 1, {name}_end = 1 << {rounds}; {name} < {name}_end; {name} <<= 1{change})",
        )
        with self.scope.block():
            self.scope.readable.append(name)
            self._loop(rounds, lambda: self.body(head))

    def _while(self) -> None:
        rounds, name = self._rounds(), self.name("w")
        self.line(
            f"{self.choices.pick('int', 'unsigned char', 'long' if self.features.int64 else 'int')} {name} = {rounds};"
        )
        more = f" && {self.condition()}" if self.choices.chance(2) else ""
        self.scope.readable.append(name)
        self._loop(rounds, lambda: self.body(f"while ({name}-- > 0{more})"))

    def _do(self) -> None:
        rounds, name = self._rounds(), self.name("d")
        self.line(f"int {name} = 0;")
        more = f" && {self.condition()}" if self.choices.chance(2) else ""
        self.scope.readable.append(name)
        self._loop(rounds, lambda: self.body("do", tail=f" while (++{name} < {rounds}{more});"))

    def _switch(self) -> None:
        c, scope = self.choices, self.scope
        self.line(f"switch ({self.integer(1)} & 3) {{")
        count = 1 + c.below(4)
        default = c.below(count + 2)
        scope.breakable += 1
        scope.switches += 1
        for at in range(count):
            labels = f"case {at}:" + (" case 7:" if at == 1 else "") + (" default:" if at == default else "")
            self.body(labels, 2)
            if c.below(3) < 2:
                self.line("    break;")
        if default == count:
            self.body("default:", 2)
        scope.breakable -= 1
        scope.switches -= 1
        self.line("}")

    def _conditional_text(self) -> None:
        self.line(self.choices.pick("#if LEVEL > 1", "#ifdef NOT_DEFINED", "#if defined(LEVEL) && LEVEL % 2"))
        with self.scope.block():
            self.statements(1)
        self.line("#else")
        with self.scope.block():
            self.statements(1)
        self.line("#endif")

    def _declare_array(self) -> None:
        c = self.choices
        kind = c.pick("int", "float", *INTEGERS)
        length = c.pick(4, 2, 8)
        count = 1 + c.below(length)
        values = [self.held(self.float_value(2, "float")) if kind == "float" else self.integer(2) for _ in range(count)]
        name = self.name("t")
        self.line(f"{kind} {name}[{length}] = {{{', '.join(values)}}};")
        self.scope.arrays.append(ArrayName(name, kind, length, is_writable=True, is_local=True))

    def _pointer(self) -> None:
        """A pointer into an array, used in a block of its own."""
        c = self.choices
        arrays = [
            one
            for one in self.scope.arrays
            if one.is_local and one.length >= 4 and one.element not in (*FLOATS, "bool")
        ]
        if not arrays or not self.scope.integers:
            return self._declare_array()
        one, name = c.one_of(arrays), self.name("p")
        target, _ = c.one_of(self.scope.integers)
        self.line("{")
        self.line(f"    {one.element}* {name} = {one.name} + ({self.index(one.length // 2)});")
        self.line(
            c.pick(f"    *{name} += {self.integer(2)};", f"    {target} += *{name}++;", f"    {name}[1] = {target};")
        )
        self.line(c.pick(f"    {target} ^= *{name};", f"    {name}[{self.index(2)}]--;"))
        self.line("}")
