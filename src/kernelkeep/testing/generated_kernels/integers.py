"""Integer expressions: every operator, every width, with and without side effects."""

from __future__ import annotations

from .floats import FloatExpressions
from .scope import FLOATS, SHORT_NAMES, ArrayName, FunctionName

_NUMBERS = (
    "0", "1", "2", "3", "-1", "7", "13", "-77", "255", "0x7f", "0177", "65535", "-32768", "1000003", "5u", "0x80000000u",
    "2147483647", "(-2147483647 - 1)", "4294967295u", "'A'", "INT_MIN", "true",
)  # fmt: skip
_LONG_NUMBERS = (
    "1L",
    "-3l",
    "0x123456789abcdefL",
    "(-9223372036854775807L - 1)",
    "0xfedcba9876543210UL",
    "10000000000",
)


class IntegerExpressions(FloatExpressions):
    """Makes integer expressions."""

    def integer(self, depth: int = 0) -> str:
        """An integer expression, which binds tightly enough to stand anywhere."""
        c = self.choices
        kinds = (
            self._readable, self._number, self._element, self._arithmetic, self._arithmetic, self._division, self._shift,
            self._comparison, self._logical, self._ternary, self._unary, self._cast, self._change, self._comma, self._call,
            self._builtin, self._of_floats, self._part,
        )  # fmt: skip
        found: str = c.pick(*(kinds[:3] if depth >= 3 or self.scope.rounds > self.MOST_ROUNDS else kinds))(depth + 1)
        return found

    def index(self, length: int, depth: int = 0) -> str:
        return f"{self.integer(max(depth, 2))} & {length - 1}"

    def condition(self) -> str:
        """A condition: any number is one."""
        c = self.choices
        return c.pick(self._comparison, self.integer, self._logical, self._float_condition)(1)

    # --- kinds of expressions

    def _readable(self, depth: int) -> str:
        scope = self.scope
        return self.choices.one_of([*scope.readable, *(name for name, _ in scope.integers)] or ["1"])

    def _number(self, depth: int) -> str:
        text = self.choices.pick(*_NUMBERS, *(_LONG_NUMBERS if self.features.int64 else ()))
        return f"({text})" if text[0] == "-" else text

    def _element(self, depth: int) -> str:
        arrays = [one for one in (*self.constants, *self.scope.arrays) if one.element not in FLOATS]
        if not arrays:
            return self._readable(depth)
        return self.element(self.choices.one_of(arrays), depth)

    def element(self, one: ArrayName, depth: int = 0) -> str:
        """An element of an array."""
        return f"{one.name}[{self.index(one.length, depth)}]"

    def _arithmetic(self, depth: int) -> str:
        left = self.integer(depth)
        return f"({left} {self.choices.pick('+', '-', '*', '&', '|', '^')} {self.integer(depth)})"

    def _division(self, depth: int) -> str:
        """By what is neither 0 nor -1, seen by the compiler or not."""
        c = self.choices
        operator = c.pick("/", "%")
        if c.chance(4) and self.scope.integers:
            name, kind = c.one_of(self.scope.integers)
            guard = f"{name} == 0" + ("" if "unsigned" in kind or kind == "bool" else f" || {name} == -1")
            before, self.is_pure = self.is_pure, True  # the left operand must not change the right one
            left = self.integer(depth)
            self.is_pure = before
            return f"({guard} ? {self.integer(depth)} : {left} {operator} {name})"
        left = self.integer(depth)
        divisor = c.pick("(({} & 7) + 1)", "(-2 - ({} & 7))", "(({} & 255) | 1)", "3", "(-7)", "10u")
        return f"({left} {operator} {divisor.format(self.integer(3)) if '{}' in divisor else divisor})"

    def _shift(self, depth: int) -> str:
        left = self.integer(depth)
        return f"({left} {self.choices.pick('<<', '>>')} {self.integer(depth + 1)})"

    def _comparison(self, depth: int) -> str:
        left = self.integer(depth)
        return f"({left} {self.choices.pick('<', '==', '!=', '>', '<=', '>=')} {self.integer(depth)})"

    def _logical(self, depth: int) -> str:
        left = self.integer(depth)
        return f"({left} {self.choices.pick('&&', '||')} {self.integer(depth)})"

    def _ternary(self, depth: int) -> str:
        condition = self.condition()
        return f"({condition} ? {self.integer(depth)} : {self.integer(depth)})"

    def _unary(self, depth: int) -> str:
        return f"({self.choices.pick('-', '~', '!')}{self.integer(depth)})"

    def _cast(self, depth: int) -> str:
        return f"({self.integer_type()}){self.integer(depth)}"

    def _change(self, depth: int) -> str:
        """An assignment, or ++ or --, as a value."""
        c, scope = self.choices, self.scope
        if self.is_pure or not scope.integers:
            return self._readable(depth)
        name, kind = c.one_of(scope.integers)
        form = c.below(3)
        if form == 0 or kind == "bool":
            return f"({name} {c.pick('', '+', '-', '*', '^', '|', '&', '<<', '>>')}= {self.integer(depth)})"
        operator = c.pick("++", "--")
        return f"({name}{operator})" if form == 1 else f"({operator}{name})"

    def _comma(self, depth: int) -> str:
        left = self.integer(depth)
        return f"({left}, {self.integer(depth)})"

    def _call(self, depth: int) -> str:
        found = [
            one
            for one in self.functions
            if one.result in SHORT_NAMES and one.result not in FLOATS and self.can_call(one)
        ]
        return self.call(self.choices.one_of(found), depth) if found else self._readable(depth)

    def can_call(self, function: FunctionName) -> bool:
        """Whether there is an array for each parameter that is one, and the call does not take too long."""
        wanted = [one for one in function.parameters if one.endswith("[]")]
        return (
            not self.is_pure
            and self.scope.rounds * function.cost <= self.MOST_ROUNDS
            and all(map(self._arrays_for, wanted))
        )

    def _arrays_for(self, parameter: str) -> list[ArrayName]:
        element = parameter.removesuffix("[]").removeprefix("const ")
        only_writable = not parameter.startswith("const ")
        return [
            one
            for one in self.scope.arrays
            if one.element == element and one.length >= 4 and (one.is_local or not only_writable)
        ]

    def call(self, function: FunctionName, depth: int) -> str:
        """A call of a helper function."""
        given = []
        for kind in function.parameters:
            if kind.endswith("[]"):
                one = self.choices.one_of(self._arrays_for(kind))
                part = one.length >= 8 and self.choices.chance(3)
                given.append(f"&{one.name}[{self.index(one.length // 2, depth)}]" if part else one.name)
            elif kind in FLOATS:
                given.append(self.held(self.float_value(depth + 1, kind)))
            else:
                given.append(self.integer(depth + 1))
        return f"{function.name}({', '.join(given)})"

    def _builtin(self, depth: int) -> str:
        c = self.choices
        form = c.below(5)
        if form == 0:
            return f"{c.pick('min', 'max')}({self.integer(depth)}, {self.integer(depth)})"
        if form == 1:
            return f"abs((int){self.integer(depth)})"
        if form == 2:
            return f"{c.pick('popcount', 'clz')}((unsigned){self.integer(depth)})"
        if form == 3:
            return f"clamp((int){self.integer(depth)}, -{c.below(100)}, {c.below(1000)})"
        if self.macros:
            return f"{c.one_of(self.macros)}({self.integer(depth)}, {self.integer(depth)})"
        return f"(int)as_uint({self.held(self.float_value(depth, 'float'))} + 65.0f)"

    def _of_floats(self, depth: int) -> str:
        c = self.choices
        if c.chance(4) and self.scope.is_kernel:
            return f"({self.integer_type()})reals[16 + ({self.index(16, depth)})]"
        if c.chance(2):
            return self._float_condition(depth)
        return f"({self.integer_type()})({self.float_value(depth).text})"

    def _float_condition(self, depth: int) -> str:
        c = self.choices
        if c.chance(4) and self.scope.is_kernel:
            wild = f"reals[16 + ({self.index(16, depth)})]"
            return c.pick(f"(a < {wild})", f"isnan({wild})", f"isinf({wild})", f"({wild} ? 1 : 0)", f"(!{wild})")
        left = self.float_value(depth + 1)
        return f"({left.text} {c.pick('<', '>', '<=', '>=', '==', '!=')} {self.float_value(depth + 1).text})"

    def _part(self, depth: int) -> str:
        """A part of a vector or of a struct."""
        c, scope = self.choices, self.scope
        parts = [
            f"{name}.{field}" for name, struct in scope.structs for field, kind in struct.fields if kind != "float"
        ]
        for name, kind in scope.vectors:
            if not kind.startswith("float"):
                parts += [f"{name}.{one}" for one in "xyzw"[: int(kind[-1])]]
                if kind[-1] in "24":
                    parts.append(f"{name}[{self.index(int(kind[-1]), depth)}]")
        return c.one_of(parts) if parts else self._readable(depth)
