"""The numbers of the kernel language in Python: what generated code calls (`writing/`).

An integer is an int within the limits of its type, a float of any size is a Python float that its type can hold exactly, and a
vector is a tuple. For + - * / and sqrt on floats of 32 bits, computing with 64 bits and rounding once gives the exact result.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ...language.types import SCALARS, Scalar, limits, wrapped

__all__ = ["EXACT", "FUNCTIONS", "NAMES", "UNSET"]


class _Unset:
    """The value of what was never written."""

    def __repr__(self) -> str:
        return "(never written)"


UNSET = _Unset()


def round_f4(value: float) -> float:
    """The nearest float of 32 bits."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def round_f2(value: float) -> float:
    """The nearest float of 16 bits."""
    try:
        return float(struct.unpack("e", struct.pack("e", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _identity(value: float) -> float:
    return value


_ROUND: dict[str, Callable[[float], float]] = {"f2": round_f2, "f4": round_f4, "f8": _identity}


def float_quotient(left: float, right: float) -> float:
    """left / right where right is 0."""
    if right:
        return left / right
    if left == 0 or left != left or right != right:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def quotient(left: int, right: int) -> int:
    """left / right, truncated towards zero."""
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def remainder(left: int, right: int) -> int:
    """What quotient() leaves; it has the sign of `left`."""
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def int_to_float(value: int, name: str) -> float:
    """The nearest float of an integer, rounded once."""
    size = value.bit_length()
    if size > 53 and name != "f8":  # float() would round a first time: keep what it drops as one sticky bit
        shift = size - 53
        kept = abs(value) >> shift
        kept |= abs(value) != kept << shift
        value = kept << shift if value > 0 else -(kept << shift)
    return _ROUND[name](float(value))


def _saturating(target: Scalar) -> Callable[[float], int]:
    least, most = limits(target)

    def convert(value: float) -> int:
        if value != value:
            return 0
        if value <= least:
            return least
        return most if value >= most else int(value)

    return convert


def _wrapping(target: Scalar) -> Callable[[int], int]:
    return lambda value: wrapped(value, target)


# --- functions of floats: IEEE's results where Python raises


def _guarded(function: Callable[..., float], on_overflow: float = math.inf) -> Callable[..., float]:
    def call(*values: float) -> float:
        try:
            return function(*values)
        except OverflowError:
            return on_overflow
        except ValueError:
            return math.nan

    return call


def _log_of(function: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    def call(value: float) -> float:
        if value > pole:
            return function(value)
        return -math.inf if value == pole else math.nan

    return call


def _pow(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = float(exponent).is_integer() and exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:  # with a negative exponent
            odd = float(exponent).is_integer() and exponent % 2 == 1
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    """floor and others: Python makes integers of their results, and so loses -0, inf and nan."""

    def call(value: float) -> float:
        return math.copysign(float(function(value)), value) if math.isfinite(value) else value

    return call


def _round(value: float) -> float:
    whole = math.floor(abs(value))
    return float(whole + 1 if abs(value) - whole >= 0.5 else whole)


def _fmod(left: float, right: float) -> float:
    return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


def fmin(left: float, right: float) -> float:
    """The smaller one; the other where one is NaN."""
    return right if left != left or right < left else left


def fmax(left: float, right: float) -> float:
    """The larger one; the other where one is NaN."""
    return right if left != left or right > left else left


def _fma(a: float, b: float, c: float) -> float:
    """a * b + c for floats of 32 bits: to be rounded once more, so made odd where it is not exact."""
    product = a * b
    total = product + c
    if not math.isfinite(total):
        return total
    part = total - product
    error = (product - (total - part)) + (c - part)
    if error and not struct.unpack("<q", struct.pack("<d", total))[0] & 1:
        return math.nextafter(total, math.inf if error > 0 else -math.inf)
    return total


def _fma_f8(a: float, b: float, c: float) -> float:
    from fractions import Fraction

    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else a * b + c
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sign(value: float) -> float:
    return 0.0 if value != value else value if value == 0 else math.copysign(1.0, value)


def _smoothstep(low: float, high: float, value: float) -> float:
    t = min(max(float_quotient(value - low, high - low), 0.0), 1.0)
    return t * t * (3 - 2 * t)


# Of each function the result, before it is rounded to its type.
FUNCTIONS: dict[str, Callable[..., float]] = {
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt": lambda x: float_quotient(1.0, math.sqrt(x)) if x >= 0 else math.nan,
    "cbrt": math.cbrt,
    "exp": _guarded(math.exp), "exp2": _guarded(math.exp2), "exp10": lambda x: _pow(10.0, x), "expm1": _guarded(math.expm1),
    "log": _log_of(math.log), "log2": _log_of(math.log2), "log10": _log_of(math.log10), "log1p": _log_of(math.log1p, -1.0),
    "sin": _guarded(math.sin), "cos": _guarded(math.cos), "tan": _guarded(math.tan),
    "asin": _guarded(math.asin), "acos": _guarded(math.acos), "atan": math.atan, "atan2": math.atan2,
    "sinh": lambda x: math.copysign(_guarded(math.sinh)(x), x), "cosh": _guarded(math.cosh), "tanh": math.tanh,
    "asinh": math.asinh, "acosh": _guarded(math.acosh),
    "atanh": lambda x: math.copysign(math.inf, x) if abs(x) == 1 else _guarded(math.atanh)(x),
    "floor": _whole(math.floor), "ceil": _whole(math.ceil),
    "round": _whole(_round), "trunc": _whole(math.trunc), "rint": _whole(lambda x: round(x)),
    "fabs": abs, "degrees": lambda x: x * (180 / math.pi), "radians": lambda x: x * (math.pi / 180),
    "sign": _sign, "fract": lambda x: fmin(x - math.floor(x), 1 - 2.0**-24) if math.isfinite(x) else math.nan,
    "pow": _pow, "fmin": fmin, "fmax": fmax, "fmod": _fmod, "hypot": math.hypot, "copysign": math.copysign,
    "fdim": lambda x, y: x - y if x > y else 0.0 if x == x and y == y else math.nan,
    "step": lambda edge, x: 0.0 if x < edge else 1.0,
    "fma": _fma, "mad": _fma, "mix": lambda a, b, t: a + (b - a) * t, "smoothstep": _smoothstep,
}  # fmt: skip
# Those whose result needs no rounding.
EXACT = frozenset("floor ceil round trunc rint fabs sign fmin fmax copysign step fmod".split())


# --- vectors


def _summed(products: list[float], name: str) -> float:
    rounding = _ROUND[name]
    total = rounding(products[0])
    for product in products[1:]:
        total = rounding(total + rounding(product))
    return total


def dot(left: tuple[float, ...], right: tuple[float, ...], name: str) -> float:
    """The sum of products, each step rounded."""
    return _summed([a * b for a, b in zip(left, right, strict=True)], name)


def length(value: tuple[float, ...], name: str) -> float:
    """The root of the sum of squares."""
    return _ROUND[name](math.hypot(*value))


def distance(left: tuple[float, ...], right: tuple[float, ...], name: str) -> float:
    """The length of the difference."""
    return length(tuple(_ROUND[name](a - b) for a, b in zip(left, right, strict=True)), name)


def normalize(value: tuple[float, ...], name: str) -> tuple[float, ...]:
    """The vector of length 1 with the same direction."""
    size = length(value, name)
    return tuple(_ROUND[name](float_quotient(one, size)) for one in value)


def cross(a: tuple[float, ...], b: tuple[float, ...], name: str) -> tuple[float, ...]:
    """The vector product."""

    def component(i: int, j: int) -> float:
        return _ROUND[name](_ROUND[name](a[i] * b[j]) - _ROUND[name](a[j] * b[i]))

    return component(1, 2), component(2, 0), component(0, 1)


def copied(value: Any) -> Any:
    """A copy of a struct, or of an array in one."""
    return [copied(one) for one in value] if isinstance(value, list) else value


def same_bits(value: Any, source: str, target: str) -> Any:
    """A number of 32 bits as another type."""
    codes = {"i4": "i", "u4": "I", "f4": "f"}
    return struct.unpack(codes[target], struct.pack(codes[source], value))[0]


def _signbit(value: float) -> bool:
    return math.copysign(1.0, value) < 0


# All that generated code sees.
NAMES: dict[str, Any] = {
    "UNSET": UNSET, "INF": math.inf, "NAN": math.nan, "ONCE": (0,),
    "round_f2": round_f2, "float_quotient": float_quotient, "quotient": quotient, "remainder": remainder,
    "int_to_float": int_to_float, "fmin": fmin, "fmax": fmax, "dot": dot, "length": length, "distance": distance,
    "normalize": normalize, "cross": cross, "copied": copied, "same_bits": same_bits, "isinf": math.isinf,
    "isfinite": math.isfinite, "signbit": _signbit, "fma_f8": _fma_f8,
    **{f"m_{name}": function for name, function in FUNCTIONS.items()},
    **{f"to_{one.name}": _saturating(one) for one in SCALARS.values() if one.kind == "integer"},
    **{f"wrap_{one.name}": _wrapping(one) for one in SCALARS.values() if one.kind == "integer"},
}  # fmt: skip
