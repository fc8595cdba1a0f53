"""Float expressions.

*Exact* ones have values that every operation gives exactly: multiples of a power of two that are small enough. They are the same
on every device, whether or not it contracts `a * b + c` to one operation, and whatever they decide is the same, too. *Near* ones
are rounded. Each comes with a bound of its error, which the kernel computes beside it.
"""

from __future__ import annotations

from typing import NamedTuple

from .scope import Base

BOUND, GRAIN = 64, 3  # what variables hold: multiples of 1/8 up to 64
# "any": of literals without a suffix, which take the type of what they meet.
_BITS = {"any": 11, "half": 11, "float": 24, "double": 53}
_SUFFIX = {"any": "", "half": "", "float": "f", "double": ""}


class Exact(NamedTuple):
    """A text whose value is a multiple of 2**-grain, up to `bound`."""

    text: str
    kind: str
    bound: int
    grain: int


class Near(NamedTuple):
    """A text, a text of at least its size, and how many operations round it."""

    text: str
    size: str
    operations: int


class FloatExpressions(Base):
    """Makes float expressions."""

    def float_type(self) -> str:
        """A float type that the devices have."""
        found: str = self.choices.pick("float", "float", "half", *(("double",) if self.features.float64 else ()))
        return found

    # --- exact

    def float_value(self, depth: int = 0, kind: str = "") -> Exact:
        """An exact expression, of a given type or of any."""
        c = self.choices
        forms = (self._float_number, self._float_name, self._float_of_integer, self._sum, self._product, self._float_choice,
                 self._whole, self._smaller, self._fused, self._float_part, self._dot)  # fmt: skip
        found: Exact = c.pick(*(forms[:3] if depth >= 3 else forms))(depth + 1)
        if kind and found.kind != kind:
            found = self.reduced(found) if kind == "half" else found
            return Exact(f"({kind})({found.text})", kind, found.bound, found.grain)
        return found

    def held(self, value: Exact) -> str:
        """The text of a value that a variable can hold."""
        return self.reduced(value).text

    def reduced(self, value: Exact) -> Exact:
        """The value, made small enough for a variable."""
        c = self.choices
        text, kind, bound, grain = value
        if grain > GRAIN:
            text, bound, grain = f"{c.pick('floor', 'trunc', 'ceil', 'rint', 'round')}({text})", bound + 1, 0
        if bound > BOUND:
            most = f"{BOUND}.0{_SUFFIX[kind]}"
            text = c.pick("clamp({0}, -{1}, {1})", "fmin(fmax({0}, -{1}), {1})", "fmod({0}, {1})").format(text, most)
        return Exact(text, kind, min(bound, BOUND), grain)

    def _float_number(self, depth: int) -> Exact:
        c = self.choices
        text = c.pick("0.0", "1.0", "0.5", ".125", "1.5", "2.5", "1e1", "62.5", "0x1p-3", "6375e-2")
        suffix = c.pick("f", "")
        return Exact(f"(-{text}{suffix})" if c.chance(3) else text + suffix, "float" if suffix else "any", BOUND, GRAIN)

    def _float_name(self, depth: int) -> Exact:
        arrays = [one for one in self.scope.arrays if one.element in _BITS]
        names = [*self.scope.floats]
        if arrays and (not names or self.choices.chance(3)):
            one = self.choices.one_of(arrays)
            return Exact(f"{one.name}[{self.index(one.length, depth)}]", one.element, BOUND, GRAIN)
        if not names:
            return self._float_number(depth)
        name, kind = self.choices.one_of(names)
        return Exact(name, kind, BOUND, GRAIN)

    def _float_of_integer(self, depth: int) -> Exact:
        kind = self.float_type()
        return Exact(f"({kind})({self.integer(depth + 1)} & 63)", kind, BOUND, 0)

    def _sum(self, depth: int) -> Exact:
        left, right = self.float_value(depth), self.float_value(depth)
        grain = max(left.grain, right.grain)
        return self._fitting(left, self.choices.pick("+", "-"), right, left.bound + right.bound, grain)

    def _product(self, depth: int) -> Exact:
        left, right = self.float_value(depth), self.float_value(depth)
        return self._fitting(left, "*", right, left.bound * right.bound, left.grain + right.grain)

    def _fitting(self, left: Exact, operator: str, right: Exact, bound: int, grain: int) -> Exact:
        kind = wider(left.kind, right.kind)
        if bound << grain > 1 << _BITS[kind]:
            return left
        return Exact(f"({left.text} {operator} {right.text})", kind, bound, grain)

    def _float_choice(self, depth: int) -> Exact:
        left, right = self.float_value(depth), self.float_value(depth)
        text = f"({self.integer(depth)} ? {left.text} : {right.text})"
        return self._either(text, left, right)

    def _either(self, text: str, left: Exact, right: Exact) -> Exact:
        kind = wider(left.kind, right.kind)
        bound, grain = max(left.bound, right.bound), max(left.grain, right.grain)
        if bound << grain > 1 << _BITS[kind]:
            return left
        return Exact(text, kind, bound, grain)

    def _whole(self, depth: int) -> Exact:
        inner = self.float_value(depth)
        text = f"{self.choices.pick('floor', 'ceil', 'trunc', 'rint', 'round')}({inner.text})"
        return Exact(text, inner.kind, inner.bound + 1, 0) if inner.bound << 1 < 1 << _BITS[inner.kind] else inner

    def _smaller(self, depth: int) -> Exact:
        c = self.choices
        left = self.float_value(depth)
        if c.chance(2):
            return left._replace(text=c.pick("fabs({})", "(-{})", "sign({})").format(left.text))
        right = self.float_value(depth)
        return self._either(f"{c.pick('fmin', 'fmax', 'min', 'max')}({left.text}, {right.text})", left, right)

    def _fused(self, depth: int) -> Exact:
        c = self.choices
        parts = [self.float_value(depth + 1, c.pick("float", "float")) for _ in range(3)]
        bound = parts[0].bound * parts[1].bound + parts[2].bound
        grain = max(parts[0].grain + parts[1].grain, parts[2].grain)
        if bound << grain > 1 << _BITS["float"]:
            return parts[0]
        return Exact(f"{c.pick('fma', 'mad')}({', '.join(one.text for one in parts)})", "float", bound, grain)

    def _float_part(self, depth: int) -> Exact:
        parts = [
            f"{name}.{field}" for name, struct in self.scope.structs for field, kind in struct.fields if kind == "float"
        ]
        for name, kind in self.scope.vectors:
            if kind.startswith("float"):
                parts += [f"{name}.{one}" for one in "xyzw"[: int(kind[-1])]]
        return Exact(self.choices.one_of(parts), "float", BOUND, GRAIN) if parts else self._float_name(depth)

    def _dot(self, depth: int) -> Exact:
        vectors = [(name, kind) for name, kind in self.scope.vectors if kind.startswith("float")]
        if not vectors:
            return self._float_name(depth)
        name, kind = self.choices.one_of(vectors)
        other = self.choices.one_of([one for one, its_kind in vectors if its_kind == kind])
        return Exact(f"dot({name}, {other})", "float", int(kind[-1]) * BOUND * BOUND, 2 * GRAIN)

    # --- near

    def near_value(self, depth: int = 0) -> Near:
        """A rounded expression of type float. It is written twice, so it changes nothing."""
        before, self.is_pure = self.is_pure, True
        found = self._near_value(depth)
        self.is_pure = before
        return found

    def _near_value(self, depth: int) -> Near:
        c = self.choices
        if depth >= 2 or c.chance(4):
            return self._near_leaf()
        form = c.below(6)
        left = self._near_value(depth + 1)
        if form < 2:
            right = self._near_value(depth + 1)
            return self._near(f"({left.text} {'+-'[form]} {right.text})", f"({left.size} + {right.size})", left, right)
        if form == 2:
            right = self._near_leaf(whole=False)
            return self._near(f"({left.text} * {right.text})", f"({left.size} * {right.size})", left, right)
        divisor = f"({self.float_value(3, 'float').text} * 0.25f + 999.0f)"  # at least 900
        if form == 3:
            return self._near(f"({left.text} / {divisor})", f"({left.size} / {divisor})", left)
        if form == 4:
            text = f"{c.pick('sqrt', 'rsqrt')}{divisor}"
            return Near(text, text, 3)
        right = self._near_leaf(whole=False)
        text = f"fma({left.text}, {right.text}, {right.text})"
        return self._near(text, f"({left.size} * {right.size} + {right.size})", left, right)

    def _near(self, text: str, size: str, *parts: Near) -> Near:
        return Near(text, size, 1 + sum(one.operations for one in parts))

    def _near_leaf(self, *, whole: bool = True) -> Near:
        form = self.choices.below(3 if whole else 2)
        if form == 2:
            text = f"(float)({self.choices.pick('int', 'unsigned')}){self.integer(3)}"
            return Near(text, f"fabs({text})", 1)
        text = (
            self.choices.pick("0.1f", "3.14159f", "1.0f / 3") if form == 0 else self.held(self.float_value(2, "float"))
        )
        return Near(f"({text})", f"fabs({text})", int(form == 0))


def wider(left: str, right: str) -> str:
    """The type in which two floats meet."""
    order = ("any", "half", "float", "double")
    return max(left, right, key=order.index)
