"""Every function and constant that a body can use without defining it: one table.

A `Builtin` has one name for writers, whatever the user wrote: `sqrtf(x)` and `sqrt(x)` are both `sqrt`, called with a float
or a double. Its `rule` says what it takes and returns:

    position   (int) → int                       the work-item's place, by dimension 0, 1 or 2
    fixed      (parameters) → result             exactly these types
    atomic     (element, value, …) → old value   the element is of a buffer or shared array and is passed itself, not its value;
                                                 kk_atomic_store returns nothing
    load4      (array of float, index) → float4  the array is passed itself
    store4     (array of float, index, float4) → void
    float      (T, …) → T                        T is a float, or a vector of floats
    test       (T) → bool                        T is a float
    number     (T, …) → T                        T is int, uint, long, ulong or a float, or a vector of int, uint or float
    integer    (T) → T                           T is int, uint, long or ulong
    bits       (32-bit T) → result               the same bits as another type
    reduce     (vector of float, …) → float
    direction  (vector of float, …) → that vector
    print      (label or number, …) → void

All arguments of `float`, `number`, `reduce` and `direction` have one and the same type T, which is also that of the call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal as OneOf

from msgspec import Struct

from .types import ANY_FLOAT, F2, F4, F8, I4, I8, U4, U8, VOID, Scalar, Type, Vector, vector

Rule = OneOf["position", "fixed", "atomic", "load4", "store4", "float", "test", "number", "integer", "bits", "reduce",
             "direction", "print"]  # fmt: skip


class Builtin(Struct, frozen=True, eq=False):
    """A function that is always there. `name` is the one that writers know it by."""

    name: str
    rule: Rule
    count: int  # of arguments
    is_pure: bool = True  # it only computes: no memory is written, and none that others write is read
    parameters: tuple[Type, ...] = ()  # of rule "fixed"
    result: Type = VOID  # of rules "fixed" and "bits"
    takes_floats: bool = True  # of rule "atomic": on elements of type float, too


class Spelling(Struct, frozen=True, eq=False):
    """A name that users write for a built-in. `precision` is the type that the name fixes, as the f in `sqrtf` does."""

    builtin: Builtin
    precision: Scalar | None = None


_POSITIONS = "kk_global_id kk_local_id kk_group_id kk_group_size kk_group_count kk_global_size"
_ATOMICS = "add sub min max exchange"
_INTEGER_ATOMICS = "and or xor"
# Each with its number of arguments. C's names with f at the end work too.
_FLOAT = {
    1: "sqrt rsqrt cbrt exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "floor ceil round trunc rint fabs degrees radians sign fract",
    2: "pow atan2 fmin fmax fmod hypot copysign fdim step",
    3: "fma mad mix smoothstep",
}
_TEST = "isnan isinf isfinite signbit"
_NUMBER = {1: "abs", 2: "min max", 3: "clamp"}
_INTEGER = "popcount clz"
_REDUCE = {1: "length", 2: "dot distance"}
_DIRECTION = {1: "normalize", 2: "cross"}
# Other spellings of the same. Those with less precision in their own language are taken for the precise function.
_ALIASES = {
    "rsqrt": "rsqrtf inversesqrt native_rsqrt half_rsqrt __frsqrt_rn",
    "sqrt": "native_sqrt half_sqrt __fsqrt_rn", "exp": "native_exp half_exp __expf", "log": "native_log half_log __logf",
    "sin": "native_sin half_sin __sinf", "cos": "native_cos half_cos __cosf", "tan": "native_tan __tanf",
    "pow": "powr native_powr __powf", "exp2": "native_exp2", "log2": "native_log2 __log2f", "log10": "native_log10 __log10f",
    "rint": "nearbyint nearbyintf", "fma": "__fmaf_rn", "popcount": "__popc __popcll", "clz": "__clz __clzll",
    "abs": "labs llabs",
}  # fmt: skip
# How CUDA C and OpenCL C spell what has a name of ours. Their barriers may take flags, which do not matter here.
_FOREIGN = {
    "kk_barrier": "__syncthreads barrier work_group_barrier", "kk_fence": "__threadfence mem_fence",
    **{f"kk_atomic_{name}": f"atomic{name.title()} atomic_{name} atom_{name}" for name in "add sub min max and or xor".split()},
    "kk_atomic_exchange": "atomicExch atomic_xchg atom_xchg", "kk_atomic_cas": "atomicCAS atomic_cmpxchg atom_cmpxchg",
}  # fmt: skip
_BITS: dict[str, tuple[Type, str]] = {
    "as_int": (I4, "__float_as_int floatBitsToInt"),
    "as_uint": (U4, "__float_as_uint floatBitsToUint"),
    "as_float": (F4, "__int_as_float __uint_as_float intBitsToFloat uintBitsToFloat"),
}

SHARED = "kk_shared"  # kk_shared(float, tile, 16, 17); is a declaration, not a call
UNROLL = "kk_unroll"  # a word before `for`; kk_unroll(4) makes one round of four
WORK_ITEM = frozenset(("kk_global_id", "kk_local_id"))  # differ between the work-items of a group

# Calls that are casts, and calls that make vectors.
CONVERSIONS: dict[str, Scalar] = {
    "kk_int": I4, "kk_uint": U4, "kk_long": I8, "kk_ulong": U8, "kk_half": F2, "kk_float": F4, "kk_double": F8,
    "convert_int": I4, "convert_uint": U4, "convert_long": I8, "convert_ulong": U8, "convert_float": F4, "convert_double": F8,
}  # fmt: skip
# Functions of other languages that are an operator here.
OPERATORS: dict[str, str] = {"__fdividef": "/", "native_divide": "/", "mul24": "*", "__mul24": "*", "__umul24": "*"}
RECIPROCALS = frozenset(("native_recip", "half_recip", "__frcp_rn"))
COUNTERS: dict[str, str] = {"atomic_inc": "kk_atomic_add", "atomic_dec": "kk_atomic_sub"}  # by 1
TAKES_FLAGS = frozenset(("barrier", "work_group_barrier", "mem_fence"))
CONSTRUCTORS: dict[str, Vector] = {
    f"{prefix}{kind.title}": kind
    for prefix in ("kk_make_", "make_")
    for kind in (vector(element, length) for element in (F4, I4, U4) for length in (2, 3, 4))
}

_LIMITS = {"CHAR": 8, "SHRT": 16, "INT": 32, "LONG": 64, "LLONG": 64}
CONSTANTS: dict[str, tuple[bool | int | float, Scalar]] = {
    "CLK_LOCAL_MEM_FENCE": (1, U4),
    "CLK_GLOBAL_MEM_FENCE": (2, U4),
    "NAN": (math.nan, F4),
    "INFINITY": (math.inf, F4),
    "HUGE_VALF": (math.inf, F4),
    "FLT_MAX": (float.fromhex("0x1.fffffep127"), F4),
    "MAXFLOAT": (float.fromhex("0x1.fffffep127"), F4),
    "FLT_MIN": (2.0**-126, F4),
    "FLT_EPSILON": (2.0**-23, F4),
    "DBL_MAX": (1.7976931348623157e308, F8),
    "DBL_MIN": (2.2250738585072014e-308, F8),
    "DBL_EPSILON": (2.0**-52, F8),
    **{f"{name}_MAX": (2 ** (bits - 1) - 1, I8 if bits > 32 else I4) for name, bits in _LIMITS.items()},
    **{f"{name}_MIN": (-(2 ** (bits - 1)), I8 if bits > 32 else I4) for name, bits in _LIMITS.items()},
    **{
        f"U{name}_MAX": (2**bits - 1, U8 if bits > 32 else U4 if bits == 32 else I4) for name, bits in _LIMITS.items()
    },
    **{
        f"M_{name}{suffix}": (value, kind)
        for name, value in (
            ("E", math.e), ("PI", math.pi), ("PI_2", math.pi / 2), ("PI_4", math.pi / 4), ("1_PI", 1 / math.pi),
            ("2_PI", 2 / math.pi), ("LN2", math.log(2)), ("LN10", math.log(10)), ("LOG2E", 1 / math.log(2)),
            ("LOG10E", 1 / math.log(10)), ("SQRT2", math.sqrt(2)), ("SQRT1_2", math.sqrt(0.5)),
            ("2_SQRTPI", 2 / math.sqrt(math.pi)),
        )
        for suffix, kind in (("", ANY_FLOAT), ("_F", F4))
    },
}  # fmt: skip


def _table() -> dict[str, Spelling]:
    found = [Builtin(name, "position", 1) for name in _POSITIONS.split()]
    found += [Builtin(name, "fixed", 0, False) for name in ("kk_barrier", "kk_fence")]
    found += [Builtin(f"kk_atomic_{name}", "atomic", 2, False) for name in _ATOMICS.split()]
    found += [Builtin(f"kk_atomic_{name}", "atomic", 2, False, takes_floats=False) for name in _INTEGER_ATOMICS.split()]
    found += [
        Builtin("kk_atomic_cas", "atomic", 3, False, takes_floats=False),
        Builtin("kk_atomic_load", "atomic", 1, False),
        Builtin("kk_atomic_store", "atomic", 2, False),
        Builtin("kk_load4", "load4", 2, False),
        Builtin("kk_store4", "store4", 3, False),
        Builtin("kk_print", "print", 0, False),
    ]
    found += [Builtin(name, "test", 1) for name in _TEST.split()]
    found += [Builtin(name, "integer", 1) for name in _INTEGER.split()]
    groups: tuple[tuple[Rule, dict[int, str]], ...] = (
        ("number", _NUMBER),
        ("reduce", _REDUCE),
        ("direction", _DIRECTION),
    )
    for rule, counts in groups:
        found += [Builtin(name, rule, count) for count, names in counts.items() for name in names.split()]
    table = {one.name: Spelling(one) for one in found}
    for count, names in _FLOAT.items():
        for name in names.split():
            one = Builtin(name, "float", count)
            table[name] = Spelling(one)
            table[f"{name}f"] = Spelling(one, F4)
    for name, spellings in _ALIASES.items():
        for other in spellings.split():
            table[other] = Spelling(table[name].builtin, F4 if other.endswith(("f", "_rn")) else None)
    for name, spellings in _FOREIGN.items():
        table |= dict.fromkeys(spellings.split(), table[name])
    for name, (result, spellings) in _BITS.items():
        one = Builtin(name, "bits", 1, result=result)
        for other in (name, *spellings.split()):
            table[other] = Spelling(one)
    return table


BUILTINS: dict[str, Spelling] = _table()


SYSTEM = frozenset(("kk_clock", "kk_fence_system", "kk_pause"))


def system_builtins() -> dict[str, Spelling]:
    """What only generated kernels call, for devices whose groups wait for each other and for the host.

    kk_clock()         nanoseconds, the same for all groups
    kk_fence_system()  orders memory for the host, too
    kk_pause()         gives others time in a loop that waits
    """
    found = [Builtin(name, "fixed", 0, False, result=U8 if name == "kk_clock" else VOID) for name in sorted(SYSTEM)]
    return {one.name: Spelling(one) for one in found}


def state_builtins(tasks: Sequence[Type] | None = None) -> dict[str, Spelling]:
    """What the body of a state program can call as well. `tasks` has the types of a task's fields, where there are tasks."""
    found = [Builtin(name, "fixed", 0, result=I4) for name in ("kk_item", "kk_items", "kk_iteration", "kk_phase")]
    found += [Builtin("kk_stop", "fixed", 0, False), Builtin("kk_set_phase", "fixed", 1, False, (I4,))]
    if tasks is not None:
        found.append(Builtin("kk_push", "fixed", len(tasks), False, tuple(tasks)))
    return {one.name: Spelling(one) for one in found}
