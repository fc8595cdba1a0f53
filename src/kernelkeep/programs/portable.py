"""One kernel body for every backend.

A `PortableKernel` has typed parameters and a C-like body. `source(device)` lowers it, which means that it writes the kernel in
the device's language: CUDA C, OpenCL C or GLSL 4.30. The body is written in the part of C that these share, plus:

    kk_global_id(d) kk_local_id(d) kk_group_id(d)        the work-item's position, d = 0, 1 or 2; all of type int
    kk_group_size(d) kk_group_count(d) kk_global_size(d)
    kk_barrier()                                         waits for the whole group; earlier writes are visible to it afterwards
    kk_fence()                                           all work-items see the writes before it before those after it
    kk_shared(float, tile, 16, 17);                      an array tile[16][17] that the group shares; sizes may be macros
                                                         from `defines` or from the first lines of the body
    kk_atomic_add(x[i], v)  sub min max and or xor exchange, kk_atomic_cas(x[i], expected, v)
                                                         on elements, not pointers; returns the old value
    kk_int(v) kk_uint(v) kk_float(v) kk_double(v)        conversions ("(int)v" is not GLSL, "int(v)" is not OpenCL C)
    kk_float4 v = kk_make_float4(a, b, c, d);            four floats, v.x v.y v.z v.w
    kk_load4(x, i)  kk_store4(x, i, v)                   elements i … i+3 of a float buffer or one-dimensional shared
                                                         array in one access; i is a multiple of 4
    kk_unroll                                            unrolls the `for` of constant length that follows, so that
                                                         arrays it indexes can stay in registers

A buffer that is a view into another must start at a multiple of 16 bytes for kk_load4 and kk_store4.

Two habits keep a body portable: conditions are comparisons (`if (n != 0)`), and mathematical functions have their OpenCL
names (`fabs`, `fmin`, `sqrt`, `exp`, `pow`, `fma`, …; C's names with f, such as `sqrtf`, work too).

A `#line 1` stands before the body, so that an error of the compiler names the line of the body as the user wrote it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ..errors import ArgumentError, Unsupported
from .languages import Language, find_language, reserved_in
from .signature import DTYPES, KernelSignature, Parameter
from .source import Source

SHARED_ARRAY = re.compile(r"\bkk_shared\s*\(\s*(\w+)\s*,\s*(\w+)\s*,([^;]*)\)\s*;")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_ATOMIC = re.compile(r"\bkk_atomic_(\w+)\s*\(\s*(\w+)")
_SHARED_TYPES = {"float": "f4", "double": "f8", "int": "i4", "uint": "u4"}
# The capability that a type needs, and what a device without it lacks.
_NEEDS = {
    **dict.fromkeys(("i1", "u1", "i2", "u2"), ("int8", "8- and 16-bit types")),
    **dict.fromkeys(("i8", "u8"), ("int64", "int64")),
    "f8": ("float64", "float64"),
}


class _Capable(Protocol):
    @property
    def float_atomics(self) -> bool: ...
    @property
    def float64(self) -> bool: ...
    @property
    def int64(self) -> bool: ...
    @property
    def int8(self) -> bool: ...
    @property
    def max_group_items(self) -> int: ...


class Target(Protocol):
    """What a portable kernel needs to know of a device."""

    @property
    def language(self) -> str: ...
    @property
    def capabilities(self) -> _Capable: ...


@dataclass(frozen=True)
class Buffer:
    """A device array that the kernel reads ("r"), writes ("w") or both ("rw")."""

    name: str
    dtype: str
    access: str = "rw"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _check_parameter(self.name, self.dtype))
        if self.access not in ("r", "w", "rw"):
            raise ArgumentError(f"access of buffer {self.name} must be 'r', 'w' or 'rw', got {self.access!r}")


@dataclass(frozen=True)
class Scalar:
    """One value, passed with each launch."""

    name: str
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _check_parameter(self.name, self.dtype))


def _check_parameter(name: str, dtype: Any) -> str:
    """The dtype's short name. NumPy's other names (np.float32, "float32") are accepted too."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ArgumentError(f"the name of a parameter must be an identifier, got {name!r}")
    if name.startswith(("kk_", "__")):
        raise ArgumentError(
            f"the parameter name {name} is reserved, as all that begin with kk_ or __: choose another one"
        )
    if (language := reserved_in(name)) is not None:
        raise ArgumentError(f"the parameter name {name} is reserved in {language}: choose another one")
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    import numpy as np

    try:
        short = "" if dtype is None else str(np.dtype(dtype).str[1:])  # NumPy takes None for float64
    except (TypeError, ValueError, SyntaxError):
        short = ""
    if short not in DTYPES:
        raise ArgumentError(f"dtype of parameter {name} must be one of {', '.join(DTYPES)}, got {dtype!r}")
    return short


@dataclass(frozen=True, eq=False)
class PortableKernel:
    """Typed parameters and one body, translated to the language of each device.

    `group` is the number of work-items in a group, fixed at compile time on every backend: an int, or up to three.
    `nonnegative_remainders` promises that no operand of `%` is ever negative. OpenGL then uses the driver's `%`, which is
    undefined for negative operands.

    Two parameters are for code that generates kernels. `functions` is called with a `Language` and returns the text that
    stands before the kernel in that language: functions and macros that the body uses. `first_line` is the number that
    compilers give to the first line of the body.
    """

    name: str
    params: Sequence[Buffer | Scalar]
    body: str
    group: int | tuple[int, ...] = 256
    defines: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    nonnegative_remainders: bool = False
    functions: Callable[[Language], str] | None = None
    first_line: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise ArgumentError(
                f"a kernel's name must be a letter followed by letters, digits and _, got {self.name!r}"
            )
        if isinstance(self.params, str) or not isinstance(self.params, Iterable):
            raise ArgumentError(
                f"params of kernel {self.name} must be a list of kk.Buffer and kk.Scalar, got {self.params!r}"
            )
        for param in self.params:
            if not isinstance(param, Buffer | Scalar):
                raise ArgumentError(f"params of kernel {self.name} must be kk.Buffer or kk.Scalar, got {param!r}")
        if not isinstance(self.body, str):
            raise ArgumentError(f"body of kernel {self.name} must be a str, got {type(self.body).__name__}")
        if isinstance(self.options, str):
            raise ArgumentError(
                f"options of kernel {self.name} must be a sequence of single options, got {self.options!r}"
            )
        if re.search(r"\bkk_shared\b(?!\s*\()", self.body):
            raise ArgumentError(f"kernel {self.name}: write a shared array as kk_shared(float, tile, 16);")
        if re.search(r"\bkk_atomic_\w+\s*\(\s*&", self.body):
            raise ArgumentError(f"kernel {self.name}: atomics take an element, kk_atomic_add(x[i], v), not its address")
        names = [param.name for param in self.params]
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError(f"kernel {self.name} has two parameters named {name}")
        group = tuple(self.group) if isinstance(self.group, tuple | list) else (self.group,)
        if not 1 <= len(group) <= 3 or any(not isinstance(n, int) or n < 1 for n in group):
            raise ArgumentError(
                f"group of kernel {self.name} must be one to three positive integers, got {self.group!r}"
            )
        if self.functions is not None and not callable(self.functions):
            raise ArgumentError(
                f"functions of kernel {self.name} must be called with a Language and return a text, got {self.functions!r}"
            )
        if not isinstance(self.first_line, int) or self.first_line < 1:
            raise ArgumentError(f"first_line of kernel {self.name} must be a positive integer, got {self.first_line!r}")
        object.__setattr__(self, "params", tuple(self.params))
        object.__setattr__(self, "_sources", {})

    @cached_property
    def signature(self) -> KernelSignature:
        """The kernel's parameters and group size, the same on every backend."""
        group = (self.group,) if isinstance(self.group, int) else tuple(self.group)
        x, y, z = (*group, 1, 1)[:3]
        params = tuple(
            Parameter(p.name, "buffer", p.dtype, p.access)
            if isinstance(p, Buffer)
            else Parameter(p.name, "scalar", p.dtype, "r", DTYPES[p.dtype])
            for p in self.params
        )
        return KernelSignature(self.name, params, (x, y, z))

    def source(self, device: Target | str) -> Source:
        """This kernel in the language of `device`, or in the language of that name.

        Raises `Unsupported` where the device lacks what the kernel uses. Without a device, only what the language itself lacks
        is found.
        """
        language = self._check(device)
        # The same Source each time, so that a cache finds its program without hashing anything.
        sources: dict[str, Source] = self.__dict__["_sources"]
        if language.name not in sources:
            from .lowering import lower

            sources[language.name] = lower(self, language)
        return sources[language.name]

    def check_supported(self, device: Target | str) -> None:
        """Raise `Unsupported` where a device lacks what this kernel uses."""
        self._check(device)

    def _check(self, device: Target | str) -> Language:
        if isinstance(device, str):
            language, capabilities, lacking = find_language(device), None, device
        else:
            language, capabilities, lacking = find_language(device.language), device.capabilities, "this device"
        items = math.prod(self.signature.group or ())
        if capabilities is not None and items > capabilities.max_group_items:
            most = f"this device takes at most {capabilities.max_group_items}"
            raise ArgumentError(f"kernel {self.name} has groups of {items} work-items, and {most}")
        for dtype in self._dtypes.values():
            needed, words = _NEEDS.get(dtype, ("", ""))
            if needed and not (dtype in language.types and getattr(capabilities, needed, True)):
                raise Unsupported(needed, f"kernel {self.name} uses {dtype}, and {lacking} has no {words}")
        for operation, target in self._float_atomics:
            if operation in language.integer_only_atomics or not getattr(capabilities, "float_atomics", True):
                message = f"kernel {self.name} uses kk_atomic_{operation} on float {target}, which {lacking} lacks"
                raise Unsupported("float_atomics", message)
        return language

    @cached_property
    def _dtypes(self) -> dict[str, str]:
        """The type of each parameter and each shared array."""
        shared = {name: _SHARED_TYPES.get(kind, "i4") for kind, name, _ in SHARED_ARRAY.findall(self.body)}
        return {p.name: p.dtype for p in self.params} | shared

    @cached_property
    def _float_atomics(self) -> list[tuple[str, str]]:
        """The atomic operations on floats, each with the array it is applied to."""
        return [(op, target) for op, target in _ATOMIC.findall(self.body) if self._dtypes.get(target) == "f4"]
