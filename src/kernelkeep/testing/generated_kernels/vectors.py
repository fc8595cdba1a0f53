"""Vector expressions, and statements that change vectors."""

from __future__ import annotations

from .floats import BOUND
from .integers import IntegerExpressions

VECTORS = tuple(f"{element}{length}" for length in (2, 4, 3) for element in ("int", "uint", "float"))


class VectorExpressions(IntegerExpressions):
    """Makes vector expressions."""

    def vector_value(self, kind: str, depth: int = 0) -> str:
        """A vector of a type. Elements that are floats are small enough for variables."""
        c, length = self.choices, int(kind[-1])
        names = [name for name, its_kind in self.scope.vectors if its_kind == kind]
        form = c.below(2 if depth >= 2 else 6)
        if form == 0 or (form == 1 and not names):
            return self._constructed(kind)
        if form == 1:
            return c.one_of(names)
        if kind.startswith("float"):
            return self._float_vector(kind, depth + 1)
        left = self.vector_value(kind, depth + 1)
        if form == 2:
            operator = c.pick("+", "-", "*", "&", "|", "^")
            element = "int" if kind[0] == "i" else "uint"
            right = f"({element}){self.integer(2)}" if c.chance(3) else self.vector_value(kind, depth + 1)
            return f"({left} {operator} {right})"
        if form == 3:
            return f"({left} {c.pick('/', '%')} (({self.vector_value(kind, depth + 1)} & 7) + 1))"
        if form == 4:
            return f"({left} {c.pick('<<', '>>')} {self.integer(2)})"
        order = "".join(c.pick(*"xyzw"[:length]) for _ in range(length))
        return c.pick(f"(-{left})", f"(~{left})", f"{left}.{order}", f"abs({left})" if kind[0] == "i" else left)

    def _constructed(self, kind: str) -> str:
        is_float = kind.startswith("float")
        parts = [self.held(self.float_value(2, "float")) if is_float else self.integer(2) for _ in range(int(kind[-1]))]
        if self.choices.chance(3) and not is_float:
            return f"({kind})({', '.join(parts)})"
        return f"make_{kind}({', '.join(parts)})"

    def _float_vector(self, kind: str, depth: int) -> str:
        c = self.choices
        left, right = self.vector_value(kind, depth), self.vector_value(kind, depth)
        form = c.below(5)
        if form == 0:
            return f"floor(({left} {c.pick('+', '-')} {right}) * 0.5f)"
        if form == 1:
            return f"clamp(floor({left} * {right}), {self._repeated(kind, -BOUND)}, {self._repeated(kind, BOUND)})"
        if form == 2:
            return f"{c.pick('min', 'max', 'fmin', 'fmax')}({left}, {right})"
        if form == 3:
            return c.pick(f"(-{left})", f"fabs({left})", f"trunc({left})")
        return f"{left}.{''.join(c.pick(*'xyzw'[: int(kind[-1])]) for _ in range(int(kind[-1])))}"

    def _repeated(self, kind: str, value: int) -> str:
        return f"make_{kind}({', '.join([f'{value}.0f'] * int(kind[-1]))})"

    # --- statements

    def declare_vector(self) -> None:
        """A new vector."""
        kind = self.choices.pick(*VECTORS)
        value = self.vector_value(kind)
        name = self.name("v")
        self.line(f"{kind} {name} = {value};")
        self.scope.vectors.append((name, kind))

    def change_vector(self) -> None:
        """An assignment to a vector, or to elements of it."""
        c = self.choices
        if not self.scope.vectors:
            return self.declare_vector()
        name, kind = c.one_of(self.scope.vectors)
        length, is_float = int(kind[-1]), kind.startswith("float")
        form = c.below(4)
        if form == 0:
            self.line(f"{name} = {self.vector_value(kind)};")
        elif form == 1:
            element = c.pick(*"xyzw"[:length])
            if is_float:
                self.line(f"{name}.{element} = {self.held(self.float_value(1, 'float'))};")
            else:
                self.line(f"{name}.{element} {c.pick('', '+', '-', '*', '^', '<<', '>>')}= {self.integer(1)};")
        elif form == 2 and length > 2:
            pair = kind[:-1] + "2"
            self.line(f"{name}.{c.pick('xy', 'yx', 'xz', 'zy')} = {self.vector_value(pair)};")
        elif is_float:
            self.line(f"{name} = floor({name} * 0.5f);")
        elif length != 3:
            self.line(f"{name}[{self.index(length)}] {c.pick('', '+', '^')}= {self.integer(1)};")
        else:
            self.line(f"{name} {c.pick('+', '-', '*', '^', '|')}= {self.vector_value(kind)};")
