"""The types of the kernel language, and C's conversions between them.

A type is one object: compare with `is`. `int` has 32 bits and `long` 64, on every target. `char` is signed.

    scalars   bool, char … ulong, half, float, double      BOOL, I1 … U8, F2, F4, F8
    vectors   float2, int3, uint4, …                       vector(F4, 4)
    arrays    float tile[16][17]                           array(array(F4, 17), 16)
    structs   struct particle { float3 place; int kind; }  StructType
    buffers   arrays of unknown length                     buffer(F4, "rw"), buffer(vector(F4, 4), "r")

A literal such as `0.5`, without a suffix, is a double in C, and a float in languages for GPUs. Here it takes the type of what it
meets: in `0.5 * x` that of x, in `double d = 1.0 / 3` double, and float where nothing tells. Until then its type is ANY_FLOAT,
which is never in a finished tree.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Literal

from msgspec import Struct

Access = Literal["r", "w", "rw"]


class Type(Struct, frozen=True, eq=False):
    """A type. `title` is what a C programmer calls it."""

    title: str

    def __str__(self) -> str:
        return self.title


class Scalar(Type, frozen=True, eq=False):
    """A number, bool or void. `name` is NumPy's short name: "f4"."""

    name: str
    kind: Literal["void", "bool", "integer", "float", "invalid", "text"]
    size: int = 0  # bytes
    signed: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it has a value to compute with."""
        return self.kind in ("bool", "integer", "float")


class Vector(Type, frozen=True, eq=False):
    """Two to four numbers."""

    element: Scalar
    length: int
    kind: str = "vector"


class Array(Type, frozen=True, eq=False):
    """An array of fixed length."""

    element: Type
    length: int
    kind: str = "array"


class StructType(Type, frozen=True, eq=False):
    """A struct: its name, and the name and type of each field."""

    name: str
    fields: tuple[tuple[str, Type], ...]
    kind: str = "struct"

    def field(self, name: str) -> Type | None:
        """The type of a field, or None where there is none of that name."""
        return next((found for own, found in self.fields if own == name), None)


class Buffer(Type, frozen=True, eq=False):
    """An array of unknown length, by reference: of a kernel, or passed to a helper function."""

    element: Type
    access: Access
    kind: str = "buffer"


class Named(Type, frozen=True, eq=False):
    """A type that the text defines, in a kernel's parameters: readers replace it."""

    kind: str = "named"


VOID = Scalar("void", "void", "void")
INVALID = Scalar("invalid", "invalid", "invalid")  # of an expression whose mistake was reported already
TEXT = Scalar("text", "text", "text")  # the label that kk_print takes
BOOL = Scalar("bool", "b1", "bool", 1)
I1 = Scalar("char", "i1", "integer", 1, True)
U1 = Scalar("uchar", "u1", "integer", 1)
I2 = Scalar("short", "i2", "integer", 2, True)
U2 = Scalar("ushort", "u2", "integer", 2)
I4 = Scalar("int", "i4", "integer", 4, True)
U4 = Scalar("uint", "u4", "integer", 4)
I8 = Scalar("long", "i8", "integer", 8, True)
U8 = Scalar("ulong", "u8", "integer", 8)
F2 = Scalar("half", "f2", "float", 2, True)
F4 = Scalar("float", "f4", "float", 4, True)
F8 = Scalar("double", "f8", "float", 8, True)
ANY_FLOAT = Scalar("float", "f?", "float", 4, True)

SCALARS = {one.name: one for one in (BOOL, I1, U1, I2, U2, I4, U4, I8, U8, F2, F4, F8)}


@cache
def vector(element: Scalar, length: int) -> Vector:
    """The vector type of so many elements."""
    return Vector(f"{element.title}{length}", element, length)


@cache
def array(element: Type, length: int) -> Array:
    """The array type of so many elements."""
    head, bracket, rest = element.title.partition("[")  # the outer length comes first: float[16][17]
    return Array(f"{head}[{length}]{bracket}{rest}", element, length)


@cache
def buffer(element: Type, access: Access) -> Buffer:
    """An array of unknown length."""
    return Buffer(f"{element.title}[]", element, access)


# --- names

# Types with a name of one word. C's own words are in `_WORDS`, because they can be combined.
TYPE_NAMES: dict[str, Type] = {
    "_Bool": BOOL, "bool": BOOL, "void": VOID, "half": F2, "float": F4, "double": F8,
    "uchar": U1, "ushort": U2, "uint": U4, "ulong": U8,
    "int8_t": I1, "uint8_t": U1, "int16_t": I2, "uint16_t": U2, "int32_t": I4, "uint32_t": U4, "int64_t": I8, "uint64_t": U8,
    "size_t": U8, "ptrdiff_t": I8, "intptr_t": I8, "uintptr_t": U8,
    **{vector(element, length).title: vector(element, length) for element in (F4, I4, U4) for length in (2, 3, 4)},
    "kk_float4": vector(F4, 4),
}  # fmt: skip
WORDS = frozenset(("char", "short", "int", "long", "signed", "unsigned"))
_COMBINATIONS: dict[tuple[str, ...], Scalar] = {
    tuple(sorted(words.split())): found
    for found, spellings in (
        (I1, "char|signed char"), (U1, "unsigned char"),
        (I2, "short|short int|signed short|signed short int"), (U2, "unsigned short|unsigned short int"),
        (I4, "int|signed|signed int"), (U4, "unsigned|unsigned int"),
        (I8, "long|long int|signed long|signed long int|long long|long long int|signed long long|signed long long int"),
        (U8, "unsigned long|unsigned long int|unsigned long long|unsigned long long int"),
    )
    for words in spellings.split("|")
}  # fmt: skip


def type_of_words(words: list[str]) -> Scalar | None:
    """The type that C's words name in any order, such as `unsigned long int`."""
    return _COMBINATIONS.get(tuple(sorted(words)))


# --- C's conversions


def promoted(one: Scalar) -> Scalar:
    """Integer promotion: bool and what is smaller than int become int."""
    return I4 if one.kind == "bool" or (one.kind == "integer" and one.size < 4) else one


def common_scalar(a: Scalar, b: Scalar) -> Scalar:
    """The usual arithmetic conversions: the type in which two numbers are added or compared."""
    if a is b and a.size >= 4:
        return a
    if a.kind == "float" or b.kind == "float":
        if a is ANY_FLOAT or b is ANY_FLOAT:
            other = b if a is ANY_FLOAT else a
            return other if other.kind == "float" else ANY_FLOAT
        if a.kind != b.kind:
            return a if a.kind == "float" else b
        return a if a.size >= b.size else b
    a, b = promoted(a), promoted(b)
    if a.size != b.size:
        return a if a.size > b.size else b
    return b if a.signed else a


def common_type(a: Type, b: Type) -> Type | None:
    """The type in which two operands meet: scalars as in C, a scalar beside a vector as that vector. None: they do not."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return common_scalar(a, b) if a.is_number and b.is_number else None
    if isinstance(a, Vector) and isinstance(b, Vector):
        return a if a is b else None
    if isinstance(a, Vector) and isinstance(b, Scalar) and b.is_number:
        return None if b.kind == "float" and a.element.kind != "float" else a
    if isinstance(b, Vector) and isinstance(a, Scalar) and a.is_number:
        return common_type(b, a)
    return None


def is_lossy(source: Scalar, target: Scalar) -> bool:
    """Whether an implicit conversion may change a value so much that C compilers warn."""
    if source.kind == "float":
        narrower = target.kind == "float" and target.size < source.size
        return target.kind == "integer" or (narrower and source is not ANY_FLOAT)
    return source.kind == target.kind == "integer" and target.size < source.size


# --- constants


def wrapped(value: int, target: Scalar) -> int:
    """An integer in two's complement, as wide as the type."""
    bits = 8 * target.size
    value &= (1 << bits) - 1
    return value - (1 << bits) if target.signed and value >> (bits - 1) else value


def converted(value: bool | int | float, target: Scalar) -> bool | int | float:
    """The value of a constant after a conversion. A float that is too large for an integer becomes the nearest one."""
    if target.kind == "bool":
        return bool(value)
    if target.kind == "integer":
        if isinstance(value, float):
            least, most = limits(target)
            return 0 if math.isnan(value) else int(min(max(value, least), most))
        return wrapped(int(value), target)
    return rounded(float(value), target)


def rounded(value: float, target: Scalar) -> float:
    """The nearest value of a float type."""
    if target is F8 or target is ANY_FLOAT or math.isnan(value) or math.isinf(value):
        return value
    if target is F4:
        cell = memoryview(bytearray(4)).cast("f")  # without the import of struct, which few kernels need
        cell[0] = value
        return cell[0]
    import struct

    try:
        return float(struct.unpack("e", struct.pack("e", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def limits(target: Scalar) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = 8 * target.size - target.signed
    return (-(1 << bits) if target.signed else 0, (1 << bits) - 1)


_FLOAT_SUFFIXES = {"f": F4, "l": F8, "h": F2}
_INTEGER_SUFFIXES = {"": (True, 4), "u": (False, 4), "l": (True, 8), "ul": (False, 8), "lu": (False, 8),
                     "ll": (True, 8), "ull": (False, 8), "llu": (False, 8)}  # fmt: skip


@lru_cache(1000)
def literal(text: str) -> tuple[int | float, Scalar] | None:
    """The value and type of a number in C. None where it is none."""
    low = text.lower()
    if not low.isascii():  # Python takes the digits of every script
        return None
    is_hexadecimal = low.startswith("0x")
    try:
        if "p" in low or (not is_hexadecimal and ("." in low or "e" in low or low[-1] == "f")):
            kind = _FLOAT_SUFFIXES.get(low[-1], ANY_FLOAT)
            digits = low if kind is ANY_FLOAT else low[:-1]
            return rounded(float.fromhex(digits) if is_hexadecimal else float(digits), kind), kind
        digits = low.rstrip("ul")
        signed, size = _INTEGER_SUFFIXES[low[len(digits) :]]
        is_decimal = digits[0] != "0" or digits == "0"
        value = int(digits, 8 if digits.isdigit() and not is_decimal else 0)
    except (KeyError, ValueError):
        return None
    except OverflowError:  # of hexadecimal floats
        return math.inf, kind
    if "_" in text:  # Python allows it
        return None
    for kind in (I4, U4, I8, U8):
        # A decimal number is unsigned only where it says so; others are where they do not fit otherwise.
        allowed = signed if kind.signed else not signed or not is_decimal
        if allowed and kind.size >= size and value <= limits(kind)[1]:
            return value, kind
    return None
