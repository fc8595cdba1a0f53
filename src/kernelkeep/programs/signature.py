"""Kernel signatures: the parameters of a kernel, so that a wrong argument is found before the launch.

A signature comes from the first of these that has one:

1. A declaration comment in the text. Portable kernels always have it, and any author may write it:
       //kk: kernel saxpy group(256,1,1) x:buffer:f4:r y:buffer:f4:rw a:scalar:f4 n:scalar:i4
   An array of vectors has their type behind it: place:buffer:f4:r:float4
2. The driver's own reflection (OpenCL argument info, GL program interface queries).
3. The head of the `__global__` or `__kernel` function, best effort: an unknown type stays None and is not checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from ..errors import CompileError

# The types that kernels take, by NumPy's short names, and their sizes in bytes.
DTYPES = {"i1": 1, "u1": 1, "i2": 2, "u2": 2, "i4": 4, "u4": 4, "i8": 8, "u8": 8, "f2": 2, "f4": 4, "f8": 8}

# Vectors that buffers of portable kernels can have as elements, and the type of their numbers.
VECTORS = {
    f"{name}{length}": dtype for name, dtype in (("float", "f4"), ("int", "i4"), ("uint", "u4")) for length in (2, 4)
}

# How these types are spelled in C, without `const`, `restrict` and other qualifiers.
CTYPES: dict[str, str] = {
    "char": "i1", "signed char": "i1", "int8_t": "i1", "cl_char": "i1",
    "unsigned char": "u1", "uchar": "u1", "uint8_t": "u1",
    "short": "i2", "short int": "i2", "int16_t": "i2",
    "unsigned short": "u2", "ushort": "u2", "uint16_t": "u2",
    "int": "i4", "signed int": "i4", "signed": "i4", "int32_t": "i4",
    "unsigned int": "u4", "unsigned": "u4", "uint": "u4", "uint32_t": "u4",
    "long long": "i8", "long long int": "i8", "int64_t": "i8",
    "unsigned long long": "u8", "unsigned long long int": "u8", "uint64_t": "u8", "size_t": "u8",
    "long": "i8", "long int": "i8", "unsigned long": "u8", "ulong": "u8",  # LP64, as CUDA on Linux and OpenCL C
    "float": "f4", "double": "f8",
    "half": "f2", "__half": "f2",
}  # fmt: skip


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """One parameter. `dtype` is None where it is unknown; `nbytes` is the size of a scalar, 0 where it is unknown."""

    name: str
    kind: str  # "buffer" | "scalar" | "local" | "any" (only the size is known)
    dtype: str | None = None
    access: str = "rw"
    nbytes: int = 0
    slot: int = -1  # where the backend binds it: a binding point, an offset, a location
    place: str = ""  # OpenGL scalars: "block" (slot is an offset) or "uniform" (slot is a location)
    # Of a portable kernel's buffer whose elements are no numbers: "float4", or the name of a struct of the body. `dtype` is that
    # of the numbers in a vector, and None for a struct.
    element: str = ""


class KernelSignature(msgspec.Struct, frozen=True, gc=False):
    """One kernel. `params` is None where they are unknown, `group` is None where the launch chooses it."""

    name: str
    params: tuple[Parameter, ...] | None = None
    group: tuple[int, int, int] | None = None
    symbol: str = ""  # the name the driver knows it by, where it differs


# Names without a meaning in any language. The shipped kernels keep them: their records are valid for the measured text only.
_FREE_NAMES = frozenset(("conv2d", "gemm"))
_PLAIN_SYMBOL = re.compile(r"[A-Za-z0-9_]{1,64}\Z", re.ASCII)


def entry_symbol(name: str) -> str:
    """The name of a portable kernel's function in CUDA C and OpenCL C.

    Not `name` itself: `step`, `main`, `half` and `NAN` have a meaning there already.
    """
    if name in _FREE_NAMES:
        return name
    if _PLAIN_SYMBOL.match(name):
        return f"kk_entry_{name}"
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:16]
    return f"kk_entry_{re.sub(r'[^A-Za-z0-9_]', '_', name)[:40]}_{digest}"


def declared_kernel(symbol: str, known: Mapping[str, KernelSignature]) -> KernelSignature | None:
    """The declared kernel whose function is `symbol`."""
    for name, signature in known.items():
        if name == symbol:
            return signature
        if entry_symbol(name) == symbol:
            return msgspec.structs.replace(signature, symbol=symbol)
    return None


# What only a compile needs is not a compiled pattern: compiling them takes as long as importing the rest of this module.
_DECLARATION = r"(?m)^[ \t]*//kk:[ \t]*kernel[ \t]+(\w+)(?:[ \t]+group\((\d+),(\d+),(\d+)\))?([^\n]*)$"


def declaration(signature: KernelSignature) -> str:
    """The comment that declares `signature`; `declared` reads it back."""
    group = "" if signature.group is None else " group({},{},{})".format(*signature.group)
    words = [
        f"{p.name}:{p.kind}:{p.dtype or '?'}:{p.access}{p.element and ':' + p.element}" for p in signature.params or ()
    ]
    return " ".join([f"//kk: kernel {signature.name}{group}", *words])


def declared(text: str) -> dict[str, KernelSignature]:
    """The signatures declared by comments in the text. `CompileError` for a declaration that cannot be read."""
    found = {}
    for match in re.finditer(_DECLARATION, text):
        name, x, y, z, rest = match.groups()
        params = []
        for word in rest.split():
            param = _declared_parameter(word)
            if param is None:
                line = text.count("\n", 0, match.start()) + 1
                raise CompileError(
                    f"line {line}: a parameter must be declared like name:buffer:f4:rw, got {word!r}", line=line
                )
            params.append(param)
        group = (int(x), int(y), int(z)) if x else None
        found[name] = KernelSignature(name, tuple(params), group)
    return found


def _declared_parameter(word: str) -> Parameter | None:
    parts = word.split(":")
    if not 3 <= len(parts) <= 5:
        return None
    name, kind, dtype, access, element = (*parts, "rw", "")[:5] if len(parts) == 3 else (*parts, "")[:5]
    if not name or kind not in ("buffer", "scalar", "local") or access not in ("r", "w", "rw"):
        return None
    dtype = CTYPES.get(dtype, dtype)
    if dtype != "?" and dtype not in DTYPES:
        return None
    size = DTYPES[dtype] if dtype in DTYPES and kind == "scalar" else 0
    return Parameter(name, kind, dtype if dtype != "?" else None, access, size, element=element)


_HEAD = (
    r"(?:__global__|__kernel|\bkernel)\b([^;{}]*?)\bvoid\b"
    r"([^;{}()]*(?:\([^;{}()]*\))*[^;{}()]*?)\b(\w+)\s*\(([^{};]*)\)\s*\{"
)
_NOISE = r"\b(const|volatile|restrict|__restrict__|__restrict|__global|global|__constant|constant|struct|__grid_constant__)\b"


def read_heads(text: str) -> dict[str, KernelSignature]:
    """Signatures read from the heads of kernel functions in CUDA C or OpenCL C."""
    from .includes import without_comments  # a program that a cache has needs none

    found = {}
    for match in re.finditer(_HEAD, without_comments(text)):
        name, inside = match.group(3), match.group(4).strip()
        pieces = [] if inside in ("", "void") else _split(inside)
        found[name] = KernelSignature(name, tuple(_read_parameter(piece) for piece in pieces))
    return found


def _split(inside: str) -> list[str]:
    pieces, depth, current = [], 0, ""
    for character in inside:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and depth == 0:
            pieces.append(current)
            current = ""
        else:
            current += character
    return [*pieces, current]


def _read_parameter(piece: str) -> Parameter:
    words = " ".join(re.sub(_NOISE, " ", piece).split())
    name_match = re.search(r"(\w+)\s*(\[\s*\w*\s*\])?$", words)
    name = name_match.group(1) if name_match else "?"
    kind_text = words[: name_match.start()].strip() if name_match else words
    pointer = "*" in kind_text or bool(name_match and name_match.group(2))
    dtype = CTYPES.get(kind_text.replace("*", " ").strip())
    if re.search(r"\b(__local|local)\b", piece) and pointer:
        return Parameter(name, "local")
    if pointer:
        read_only = re.search(r"\bconst\b", piece.split("*")[0]) is not None
        return Parameter(name, "buffer", dtype, "r" if read_only else "rw")
    return Parameter(name, "scalar", dtype, "r", DTYPES.get(dtype or "", 0))


def same_kernel(symbol: str, name: str) -> bool:
    """Whether a driver's symbol is the kernel `name`; C++ mangles `axpy` to `_Z4axpyPff`."""
    return symbol == name or re.match(rf"_Z{len(name)}{re.escape(name)}(?![a-z0-9]*\d*_Z)", symbol) is not None
