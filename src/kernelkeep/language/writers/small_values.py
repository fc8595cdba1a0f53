"""What GLSL and WGSL share about numbers: values of 8 and 16 bits are kept in an int, and `%` of negative numbers is open."""

from __future__ import annotations

from ..tree import Binary, Expression, Increment, Update
from ..types import BOOL, F2, F4, I4, U4, U8, Array, Buffer, Scalar, StructType, Type, Vector, limits
from .base import Writer
from .texts import PRIMARY, Text

_AS_WORD = {ord("<"): "_", ord(">"): None}


class SmallValueWriter(Writer):
    """Writes operators on values that the target has no type for."""

    nonnegative_remainders = False  # the user promises that no operand of `%` is negative

    def is_within(self, e: Expression, target: Scalar) -> bool:
        """Whether the value of an integer expression fits a type, whatever it is."""
        low, high = self.ranges.of(e)
        least, most = limits(target)
        return least <= low and high <= most

    def plain_increment(self, e: Increment) -> bool:
        return self.plain_store(e.target) and self.plain_value(e.type)

    def plain_update(self, e: Update) -> bool:
        return e.computed is not F2 and (e.operator != "%" or self.is_plain_remainder(e.target, e.value))

    def is_plain_remainder(self, left: Expression, right: Expression) -> bool:
        """Whether `%` of the target is C's: GLSL leaves that of negative numbers open, and so does wgpu where it writes GLSL."""
        kind = left.type
        if self.nonnegative_remainders or (kind.element if isinstance(kind, Vector) else kind) in (U4, U8):
            return True
        return isinstance(kind, Scalar) and self.ranges.of(left)[0] >= 0 and self.ranges.of(right)[0] >= 0

    def remainder(self, kind: Type) -> str:
        """A function that computes C's remainder."""
        text = self.type_name(kind)
        return self.returning(f"kk_remainder_{as_word(text)}", text, "a - a / b * b", a=text, b=text)

    def returning(self, name: str, result: str, value: str, **parameters: str) -> str:
        """Have a function in the text that returns a value, by the names and types of its parameters. Returns its name."""
        return self.helper(name, f"{self.signature(name, result, parameters)} {{ return {value}; }}")

    def signature(self, name: str, result: str, parameters: dict[str, str]) -> str:
        """What stands before the body of a function."""
        raise NotImplementedError

    def by_element(self, function: str, count: int, kind: Vector) -> str:
        """A function that applies one with so many parameters to each element of vectors."""
        vector, names = self.type_name(kind), "abc"[:count]
        parts = [f"{function}({', '.join(f'{one}.{at}' for one in names)})" for at in "xyzw"[: kind.length]]
        value = f"{vector}({', '.join(parts)})"
        return self.returning(f"{function}_{as_word(vector)}", vector, value, **dict.fromkeys(names, vector))

    def truncation(self, source: Scalar, target: Scalar) -> str:
        """A function that makes an integer of 32 or 64 bits of a float, as C rounds it."""
        raise NotImplementedError

    def float_to_integer(self, text: str, source: Scalar, target: Scalar) -> Text:
        if target.size >= 4:
            return f"{self.truncation(source, target)}({text})", PRIMARY
        least, most = limits(target)
        return f"clamp({self.truncation(source, I4)}({text}), {least}, {most})", PRIMARY

    def vector_cast(self, operand: Expression, target: Vector) -> Text:
        assert isinstance(operand.type, Vector)
        name = result = self.type_name(target)
        if operand.type.element is F4:
            elements = [self.float_to_integer(f"v.{one}", F4, target.element)[0] for one in "xyzw"[: target.length]]
            value = f"{result}({', '.join(elements)})"
            name = self.returning(f"kk_to_{as_word(result)}", result, value, v=self.type_name(operand.type))
        return f"{name}({self.x(operand)})", PRIMARY

    def binary(self, e: Binary) -> Text:
        if e.operator == "%" and not self.is_plain_remainder(e.left, e.right):
            return f"{self.remainder(e.type)}({self.x(e.left, 2)}, {self.x(e.right, 2)})", PRIMARY
        if e.operator in ("<<", ">>"):
            return self.shift(e)
        if e.type is F2 and e.left.type is F2:
            return self.round_to_half(self.infix(e.operator, e.left, e.right)[0])
        return self.infix(e.operator, e.left, e.right)

    def shift(self, e: Binary) -> Text:
        return self.infix(e.operator, e.left, self.shift_amount(e.right, e.type))

    @staticmethod
    def plain_value(kind: Type) -> bool:
        """Whether `x++` of this type means the same in the target language."""
        return not is_small(kind) and kind not in (F2, BOOL)


def as_word(kind: str) -> str:
    """The name of a type as a part of another name."""
    return kind.translate(_AS_WORD)


def packing(kind: Scalar) -> tuple[int, int, int]:
    """Of a type of 8 or 16 bits: its bits, the shift from an element to its word, and the mask of its place there."""
    return (8, 2, 3) if kind.size == 1 else (16, 1, 1)


def is_small(kind: Type) -> bool:
    """Whether it is an integer of 8 or 16 bits."""
    return isinstance(kind, Scalar) and kind.kind == "integer" and kind.size < 4


def element_of(kind: Type) -> Type:
    """What an array consists of, in the end."""
    while isinstance(kind, (Array, Buffer)):
        kind = kind.element
    return kind


def has_small_field(kind: Type) -> bool:
    """Whether it is a struct with an integer of 8 or 16 bits in it."""
    if not isinstance(kind, StructType):
        return False
    return any(is_small(element_of(part)) or has_small_field(element_of(part)) for _, part in kind.fields)
