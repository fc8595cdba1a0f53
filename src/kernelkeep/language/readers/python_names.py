"""What the free names of a Python function mean: one line of text for each, so that a kernel travels and has a key.

module math             a module
name math.sqrt          something in a module that kernels know: kernelkeep, math, numpy, builtins
int 16                  a constant; also `float 0x1p-1`, `bool True`
number f4 0x1p-1        a constant with a type of its own, NumPy's
function 2              a helper function, by its place in the list
other a list            what a kernel cannot use
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from ..tree import Literal, Place
from ..types import ANY_FLOAT, BOOL, I4, I8, SCALARS, U4, U8, Scalar, limits

OWN = "kernelkeep"
_BUILTINS = frozenset("min max abs int float bool range len print round pow".split())
_NUMPY = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
# NumPy's names of types, and of functions that are called otherwise here.
NUMPY_TYPES = {
    "bool": "b1", "bool_": "b1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "int64": "i8", "uint64": "u8", "float16": "f2", "float32": "f4", "float64": "f8",
}  # fmt: skip
NUMPY_FUNCTIONS = {
    "minimum": "min", "maximum": "max", "absolute": "abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "power": "pow",
}  # fmt: skip


class Meaning(Struct, frozen=True):
    """What a name, or names with dots, mean."""

    kind: str  # "module", "name", "number", "function", "other"
    text: str = ""
    literal: Literal | None = None


def meaning_of(described: str, at: Place) -> Meaning:
    """A line of the list above."""
    kind, _, rest = described.partition(" ")
    if kind == "int" and not (fits(int(rest), U8) or fits(int(rest), I8)):
        return Meaning("other", "an integer that does not fit into 64 bits")
    if kind in ("int", "float", "bool"):
        return Meaning("number", rest, _literal(kind, rest, at))
    if kind == "number":
        name, _, digits = rest.partition(" ")
        scalar = SCALARS[name]
        value = _literal({"bool": "bool", "integer": "int"}.get(scalar.kind, "float"), digits, at).value
        return Meaning("number", rest, Literal(at, scalar, value))
    return Meaning(kind, rest)


def builtin_meaning(name: str) -> Meaning | None:
    """What Python itself means by a name, where kernels know it."""
    return Meaning("name", f"builtins.{name}") if name in _BUILTINS else None


def member_meaning(module: str, name: str, at: Place) -> Meaning:
    """`module.name` of a module that kernels know."""
    value = getattr(math, name, None) if module == "math" else _NUMPY.get(name) if module == "numpy" else None
    if isinstance(value, float):
        return Meaning("number", name, Literal(at, ANY_FLOAT, value))
    return Meaning("name", f"{module}.{name}")


def defined_meaning(text: str, at: Place) -> Meaning:
    """A value of `defines`, which is a number here."""
    word = text.strip().strip("()").rstrip("uUlL") if not text.lower().startswith("0x") else text
    if word in ("True", "False", "true", "false"):
        return Meaning("number", word, _literal("bool", word.title(), at))
    try:
        return Meaning("number", word, integer_literal(int(word, 0), at))
    except ValueError:
        pass
    try:
        return Meaning("number", word, Literal(at, ANY_FLOAT, float(word.rstrip("fF"))))
    except ValueError:
        return Meaning("other", f"{text!r} in defines=, which is no number")


def integer_literal(value: int, at: Place) -> Literal:
    """An integer in the first type that holds it."""
    kind: Scalar = next((one for one in (I4, I8, U8) if limits(one)[0] <= value <= limits(one)[1]), I8)
    return Literal(at, kind, value)


def fits(value: bool | int | float | str, kind: Scalar) -> bool:
    """Whether an integer is one of a type's values."""
    least, most = limits(kind)
    return isinstance(value, int) and least <= value <= most


def with_type_of(literal: Literal, other: Scalar) -> Literal:
    """An integer literal beside an operand takes that operand's type, where it fits: `x & 0xFFFFFFFF` stays unsigned."""
    wide = other if other in (I4, U4, I8, U8) else I4
    if literal.type is not BOOL and fits(literal.value, wide):
        return Literal(literal.at, wide, literal.value)
    return literal


def _literal(kind: str, text: str, at: Place) -> Literal:
    if kind == "bool":
        return Literal(at, BOOL, text == "True")
    if kind == "int":
        return integer_literal(int(text), at)
    return Literal(at, ANY_FLOAT, float.fromhex(text))


def dotted(names: Mapping[str, str], path: str, at: Place) -> Meaning | None:
    """What `path` means, if it is in the list."""
    return meaning_of(names[path], at) if path in names else None
