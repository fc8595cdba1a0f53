"""The words that Python kernels use: `kk.f4`, `kk.In["f4"]`, `kk.global_id(0)`, `kk.sqrt(x)`.

Kernels are read and not executed, so these do nothing: they are here for annotations, for editors and type checkers, and for an
error that says so where one is called outside of a kernel.
"""

from __future__ import annotations

from ..errors import ArgumentError

TYPE_CHECKING = False  # what type checkers take for True

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Generic, Self, TypeVar, overload

    T = TypeVar("T")

# Each with what it does; the arguments are in docs/python-kernels.md.
FUNCTIONS = {
    "global_id": "This work-item's number in the whole grid, along dimension 0, 1 or 2.",
    "local_id": "This work-item's number in its group.",
    "group_id": "The number of this work-item's group.",
    "group_size": "How many work-items a group has.",
    "group_count": "How many groups there are.",
    "global_size": "How many work-items there are in all.",
    "barrier": "Waits until the whole group is here.",
    "fence": "All work-items see the writes before it before those after it.",
    "shared": "An array that the group shares: tile = kk.shared('f4', 16, 17).",
    "array": "An array of the work-item's own: w = kk.array('f4', 8), or with values: kk.array('f4', [1, 2, 1]).",
    "unroll": "Writes the rounds of a loop out: for k in kk.unroll(range(4)).",
    "load4": "Four floats of an array in one access, from an index that is a multiple of 4.",
    "store4": "Writes four floats in one access.",
    "print": "Prints a label and numbers, on the reference device.",
    "item": "In a state program: which item this is.",
    "items": "In a state program: how many items there are.",
    "iteration": "In a state program: the iteration, counted from 0.",
    "phase": "In a state program: the number that set_phase set.",
    "set_phase": "In a state program: sets the phase, from the next iteration on.",
    "stop": "In a state program: this iteration is the last.",
    "push": "In a state program with tasks: adds a task.",
    **{
        f"atomic_{name}": f"Atomic {name} on one element: kk.atomic_{name}(x[i], …). Returns the old value."
        for name in "add sub min max and or xor exchange cas load store".split()
    },
}
MATH = (
    "sqrt rsqrt cbrt exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "floor ceil round trunc rint fabs degrees radians sign fract pow atan2 fmin fmax fmod hypot copysign fdim step fma mad mix "
    "smoothstep isnan isinf isfinite signbit abs min max clamp popcount clz length dot distance normalize cross as_int as_uint "
    "as_float"
).split()
SCALARS = "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split()
VECTORS = [f"{kind}{length}" for kind in ("float", "int", "uint") for length in (2, 3, 4)]


class Word:
    """A function or a type that only kernels can call."""

    def __init__(self, name: str, doc: str, dtype: str = "") -> None:
        self.__name__ = name
        self.__doc__ = doc
        self.dtype = dtype  # of a scalar's type

    def __call__(self, *arguments: object, **named: object) -> object:
        """Says that this is not for the host."""
        raise ArgumentError(
            f"kk.{self.__name__} is only for kernels: call it in a function with @kk.kernel or @kk.function"
        )

    def __repr__(self) -> str:
        return f"kk.{self.__name__}"

    def __reduce__(self) -> tuple[object, ...]:
        return find_word, (self.__name__,)


class ArrayAnnotation:
    """What `kk.In["f4"]` is: an array that a kernel takes."""

    __slots__ = ("access", "dtype")

    def __init__(self, access: str, dtype: object) -> None:
        self.access = access
        if isinstance(dtype, Word):
            dtype = dtype.dtype or (dtype.__name__ if dtype.__name__ in VECTORS else dtype)
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"kk.{ {'r': 'In', 'w': 'Out', 'rw': 'InOut'}[self.access] }[{self.dtype!r}]"


if TYPE_CHECKING:
    # What type checkers are told: a kernel's array has elements of one type, and one that is only read is not assigned to.
    class In(Generic[T]):
        """An array that the kernel reads: `x: kk.In[kk.f4]`, or `kk.In["f4"]` where no type checker reads it."""

        @overload
        def __getitem__(self, index: slice) -> Self: ...
        @overload
        def __getitem__(self, index: int) -> T: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __len__(self) -> int: ...

    class InOut(In[T]):
        """An array that the kernel reads and writes: `y: kk.InOut[kk.f4]`, or `kk.InOut["f4"]` where no type checker reads it."""

        def __setitem__(self, index: int, value: T) -> None: ...

    Out = InOut  # functions take either
else:

    class In:
        """An array that the kernel reads: `x: kk.In["f4"]`."""

        def __class_getitem__(cls, dtype: object) -> ArrayAnnotation:
            return ArrayAnnotation("r", dtype)

    class Out:
        """An array that the kernel writes: `y: kk.Out["f4"]`."""

        def __class_getitem__(cls, dtype: object) -> ArrayAnnotation:
            return ArrayAnnotation("w", dtype)

    class InOut:
        """An array that the kernel reads and writes: `y: kk.InOut["f4"]`."""

        def __class_getitem__(cls, dtype: object) -> ArrayAnnotation:
            return ArrayAnnotation("rw", dtype)


_words: dict[str, Word] = {}


def all_words() -> dict[str, Word]:
    """Every word by its name, without `In`, `Out` and `InOut`."""
    if not _words:
        _words.update({name: Word(name, doc) for name, doc in FUNCTIONS.items()})
        _words.update({name: Word(name, f"The kernel language's {name}.") for name in MATH})
        _words.update({name: Word(name, f"The type {name}; kk.{name}(x) converts.", name) for name in SCALARS})
        _words.update({name: Word(name, f"The vector {name}: kk.{name}(…) makes one.") for name in VECTORS})
    return _words


def find_word(name: str) -> Word | None:
    """The word of that name."""
    return all_words().get(name)


if TYPE_CHECKING:
    # What type checkers are told: numbers are Python's own, and vectors are anything.
    i1 = int
    u1 = int
    i2 = int
    u2 = int
    i4 = int
    u4 = int
    i8 = int
    u8 = int
    f2 = float
    f4 = float
    f8 = float
    _call: Callable[..., Any] = Word

    def _number(*arguments: object) -> int: ...

    global_id = local_id = group_id = group_size = group_count = global_size = _number
    item = items = iteration = phase = _number
    barrier = fence = shared = array = unroll = load4 = store4 = print = set_phase = stop = push = _call
    atomic_add = atomic_sub = atomic_min = atomic_max = atomic_and = atomic_or = atomic_xor = atomic_exchange = _call
    atomic_cas = atomic_load = atomic_store = _call
    sqrt = rsqrt = cbrt = exp = exp2 = exp10 = expm1 = log = log2 = log10 = log1p = sin = _call
    cos = tan = asin = acos = atan = sinh = cosh = tanh = asinh = acosh = atanh = floor = _call
    ceil = round = trunc = rint = fabs = degrees = radians = sign = fract = pow = atan2 = fmin = _call
    fmax = fmod = hypot = copysign = fdim = step = fma = mad = mix = smoothstep = isnan = isinf = _call
    isfinite = signbit = abs = min = max = clamp = popcount = clz = length = dot = distance = normalize = _call
    cross = as_int = as_uint = as_float = _call
    float2: Any
    float3: Any
    float4: Any
    int2: Any
    int3: Any
    int4: Any
    uint2: Any
    uint3: Any
    uint4: Any
