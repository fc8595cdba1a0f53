"""One kernel body for every backend.

A `PortableKernel` has typed parameters and a body in C (docs/language.md). `source(device)` is the kernel in the device's
language: CUDA C, OpenCL C, GLSL 4.30 or WGSL. Its text is written when a compiler, or a person, asks for it: the body is read
into a typed tree, checked, and written out (`language/`). What a body can call beside C's operators and mathematical functions:

    kk_global_id(d) kk_local_id(d) kk_group_id(d)        the work-item's position, d = 0, 1 or 2; all of type int
    kk_group_size(d) kk_group_count(d) kk_global_size(d)
    kk_barrier()                                         waits for the whole group; earlier writes are visible to it afterwards
    kk_fence()                                           all work-items see the writes before it before those after it
    kk_shared(float, tile, 16, 17);                      an array tile[16][17] that the group shares
    kk_atomic_add(x[i], v)  sub min max and or xor exchange, kk_atomic_cas(x[i], expected, v)
                                                         on elements, not pointers; returns the old value
    kk_load4(x, i)  kk_store4(x, i, v)                   elements i … i+3 of a float buffer or one-dimensional shared
                                                         array in one access; i is a multiple of 4
    kk_unroll                                            unrolls the `for` of constant length that follows, so that
                                                         arrays it indexes can stay in registers

A buffer that is a view into another must start at a multiple of 16 bytes for kk_load4 and kk_store4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ArgumentError, Unsupported
from .kernel_parts import NEEDS, KernelParts
from .languages import Language, find_language
from .portable_source import PortableSource
from .signature import DTYPES, VECTORS, KernelSignature, Parameter

if TYPE_CHECKING:
    from ..words import Access

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_STRUCT = re.compile(r"struct +[A-Za-z_]\w*\Z")
# No parameter can have these names: the body could not mean anything else by them. Words that only some targets reserve are fine.
_KEYWORDS = frozenset(
    """auto bool break case char const continue default do double else enum extern false float for goto if inline int long
    register restrict return short signed sizeof static struct switch true typedef union unsigned void volatile while""".split()
)
# C and NumPy mean different sizes by these.
_AMBIGUOUS: dict[str | type, tuple[str, str]] = {
    "float": ("f4", "f8"), "int": ("i4", "i8"), "uint": ("u4", "u8"), float: ("f4", "f8"), int: ("i4", "i8"),
}  # fmt: skip
_CAPABILITIES = ("int8", "int64", "float64", "float_atomics")


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
    """A device array that the kernel reads ("r"), writes ("w") or both ("rw").

    Its elements are numbers; or vectors, with a dtype such as "float4", for an array of four times as many numbers; or structs,
    with a dtype such as "struct node", which the body defines before its first statement. An array of structs is given as an
    array of any type with the same bytes, laid out as in C.
    """

    name: str
    dtype: str
    access: Access = "rw"

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str) and (self.dtype in VECTORS or _STRUCT.match(self.dtype)):
            _check_parameter(self.name, "u1")
        else:
            object.__setattr__(self, "dtype", _check_parameter(self.name, self.dtype, more=VECTORS))
        if self.access not in ("r", "w", "rw"):
            raise ArgumentError(f"access of buffer {self.name} must be 'r', 'w' or 'rw', got {self.access!r}")


@dataclass(frozen=True)
class Scalar:
    """One value, passed with each launch."""

    name: str
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _check_parameter(self.name, self.dtype))


def _check_parameter(name: str, dtype: Any, *, more: Iterable[str] = ()) -> str:
    """The dtype's short name. NumPy's other names (np.float32, "float32") are accepted too; an error names `more` as well."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ArgumentError(f"the name of a parameter must be an identifier, got {name!r}")
    if name.startswith(("kk_", "__")):
        raise ArgumentError(
            f"the parameter name {name} is reserved, as all that begin with kk_ or __: choose another one"
        )
    if name in _KEYWORDS:
        raise ArgumentError(f"the parameter name {name} is a word of C: choose another one")
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    if isinstance(dtype, str | type) and dtype in _AMBIGUOUS:
        in_c, in_numpy = _AMBIGUOUS[dtype]
        raise ArgumentError(
            f"dtype of parameter {name} must say its size: write {in_c!r} or {in_numpy!r}, got {dtype!r}, "
            f"which is {in_c} in C and {in_numpy} in NumPy"
        )
    import numpy as np

    try:
        short = "" if dtype is None else str(np.dtype(dtype).str[1:])  # NumPy takes None for float64
    except (TypeError, ValueError, SyntaxError):
        short = ""
    if short not in DTYPES:
        raise ArgumentError(f"dtype of parameter {name} must be one of {', '.join((*DTYPES, *more))}, got {dtype!r}")
    return short


def _buffer_parameter(buffer: Buffer) -> Parameter:
    name, dtype, access = buffer.name, buffer.dtype, buffer.access
    if dtype in DTYPES:
        return Parameter(name, "buffer", dtype, access)
    if dtype in VECTORS:
        return Parameter(name, "buffer", VECTORS[dtype], access, element=dtype)
    return Parameter(name, "buffer", None, access, element=dtype.split()[1])


@dataclass(frozen=True, eq=False)
class PortableKernel:
    """Typed parameters and one body, translated to the language of each device.

    `group` is the number of work-items in a group, fixed at compile time on every backend: an int, or up to three.
    `nonnegative_remainders` promises that no operand of `%` is ever negative. OpenGL then uses the driver's `%`, which is
    undefined for negative operands.

    Two parameters are for code that generates kernels. `functions` is called with a `Language` and returns a text that stands
    before the body: functions and macros that the body uses, in the same C. `first_line` is the number of the first line of the
    body in errors.
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
        if isinstance(self.options, str) or not isinstance(self.options, Iterable):
            raise ArgumentError(
                f"options of kernel {self.name} must be a sequence of single options, got {self.options!r}"
            )
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

    __iter__ = None  # __getitem__ does not make it a sequence

    def __getitem__(self, grid: Any) -> Any:
        """Says how a kernel is launched: Triton and Numba write `kernel[grid](…)`."""
        self()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Says how a kernel is launched."""
        names = ", ".join(param.name for param in self.params)
        launch = f"cache.get({self.name}).kernel().launch(grid, ({names}{',' if len(self.params) == 1 else ''}))"
        raise ArgumentError(f"{self.name} is a kernel and cannot be called: launch it, as in {launch}")

    @cached_property
    def signature(self) -> KernelSignature:
        """The kernel's parameters and group size, the same on every backend."""
        group = (self.group,) if isinstance(self.group, int) else tuple(self.group)
        x, y, z = (*group, 1, 1)[:3]
        params = tuple(
            _buffer_parameter(p)
            if isinstance(p, Buffer)
            else Parameter(p.name, "scalar", p.dtype, "r", DTYPES[p.dtype])
            for p in self.params
        )
        return KernelSignature(self.name, params, (x, y, z))

    def source(self, device: Target | str) -> PortableSource:
        """This kernel in the language of `device`, or in the language of that name.

        Raises `Unsupported` where the device or the language lacks a type of a parameter, or the device has smaller groups. What
        the body uses is looked at when the text is written.
        """
        language, lacks = self._check(device)
        # All of it is about atomics. A text without them is the same on every device, and so is its key.
        assumes = tuple(getattr(device, "writer_assumes", ())) if self.may_use_atomics() else ()
        # The same Source each time, so that a cache finds its program without hashing anything.
        sources: dict[Any, PortableSource] = self.__dict__["_sources"]
        found = sources.get((language.name, lacks, assumes))
        if found is None:
            parts = self.parts(language, lacks, assumes)
            found = PortableSource(parts, language.name, tuple(self.options), self.defines)
            sources[language.name, lacks, assumes] = found
        return found

    def may_use_atomics(self) -> bool:
        """Whether the kernel may have atomics in it, told without reading it."""
        return "atomic" in self.body or self.functions is not None

    def parts(self, language: Language, lacks: tuple[str, ...], assumes: tuple[str, ...]) -> KernelParts:
        """The kernel as plain data, for one language and the devices that lack and allow the same."""
        functions = "" if self.functions is None else self.functions(language)
        if not isinstance(functions, str):
            raise ArgumentError(f"functions of kernel {self.name} must return a str, got {type(functions).__name__}")
        return KernelParts(
            signature=self.signature,
            body=self.body,
            functions=functions,
            first_line=self.first_line,
            assumes=(*assumes, "nonnegative_remainders") if self.nonnegative_remainders else assumes,
            lacks=lacks,
        )

    def _repr_html_(self) -> str:
        from .html import kernel_html

        return kernel_html(self)

    def check_supported(self, device: Target | str) -> None:
        """Raise `Unsupported` where a device lacks the type of a parameter, or has smaller groups."""
        self._check(device)

    def _check(self, device: Target | str) -> tuple[Language, tuple[str, ...]]:
        """The language, and the capabilities that the device lacks."""
        if isinstance(device, str):
            language, capabilities = find_language(device), None
            lacking = language.title
        else:
            try:
                name = device.language
            except AttributeError:
                raise ArgumentError(f"device must be a device, or the name of a language, got {device!r}") from None
            language, capabilities, lacking = find_language(name), device.capabilities, "this device"
        items = math.prod(self.signature.group or ())
        if capabilities is not None and items > capabilities.max_group_items:
            most = f"this device takes at most {capabilities.max_group_items:,}"
            raise Unsupported("max_group_items", f"kernel {self.name} has groups of {items:,} work-items, and {most}")
        lacks = tuple(name for name in _CAPABILITIES if capabilities is not None and not getattr(capabilities, name))
        for param in self.params:
            needed, words = NEEDS.get(param.dtype, ("", ""))
            if needed and (param.dtype not in language.parameter_types or needed in lacks):
                raise Unsupported(needed, f"kernel {self.name} uses {param.dtype}, and {lacking} has no {words}")
        return language, lacks
