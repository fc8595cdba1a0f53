"""What a WGSL kernel takes, read from its text.

The order of arguments of a hand-written shader: its storage buffers by binding, then the members of its uniform structs by
binding and offset. Every declared binding is an argument of every kernel in the text: an argument does not vanish because a line
that used it was commented out. A declaration (`//kk: kernel …`) gives the arguments other names, types and another order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import CompileError, Unsupported
from ...programs.includes import without_comments
from ...programs.signature import DTYPES, KernelSignature, Parameter, declared, declared_kernel

_TYPES = {"i32": "i4", "u32": "u4", "f32": "f4"}
_ATTRIBUTES = r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)"
_GLOBAL = re.compile(_ATTRIBUTES + r"\bvar\s*(?:<([^>]*)>)?\s*(\w+)\s*:\s*([^;=]+);")
_ENTRY = re.compile(_ATTRIBUTES + r"\bfn\s+(\w+)\s*\(")
_STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{([^}]*)\}")
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+);")
_CONSTANT = re.compile(r"\b(?:const|override)\s+(\w+)\s*(?::[^=;]*)?=\s*\(?\s*(\d+)[iu]?\s*\)?\s*;")
_ARRAY = re.compile(r"array<\s*(?:atomic<\s*)?(\w+)\s*>*\s*>\Z")
_SHARED = re.compile(r"\bvar\s*<\s*workgroup\s*>\s*\w+\s*:\s*([^;=]+);")
_SHARED_ARRAY = re.compile(r"array<(.+),(\w+)>\Z")
_SIZES = {"i32": 4, "u32": 4, "f32": 4, "bool": 4, "vec2": 8, "vec3": 16, "vec4": 16}
_UNIFORM = re.compile(r"(?:@(?:group|binding)\s*\([^)]*\)\s*)+var\s*<\s*uniform\s*>")
_READ_ONLY = re.compile(r"\bvar\s*<\s*storage\s*(?:,\s*read\s*)?>")


class _Texts(NamedTuple):
    """What the types of a text mean."""

    structs: dict[str, str]
    aliases: dict[str, str]

    def resolve(self, kind: str) -> str:
        for _ in range(8):  # an alias of an alias; a circle is for the compiler to refuse
            kind = self.aliases.get(kind, kind)
        return kind


def reflect(text: str, name: str) -> tuple[KernelSignature, ...]:
    """The signatures of all kernels in a text. `name` is the source's, for errors."""
    plain = without_comments(text)
    params = _parameters(plain)
    known = declared(text)
    constants = _constants(plain)
    signatures = []
    for attributes, symbol in _ENTRY.findall(plain):
        if not re.search(r"@compute\b", attributes):
            continue
        group = _group(attributes, symbol, constants)
        own = declared_kernel(symbol, known)
        if own is None:
            signatures.append(KernelSignature(symbol, params, group))
        else:
            placed = _placed(own, params, name)
            signatures.append(KernelSignature(own.name, placed, group, own.symbol or symbol))
    if not signatures:
        raise CompileError(f"{name}: the text has no kernel, which is a function with @compute", log=text, name=name)
    return tuple(signatures)


def shared_bytes(text: str) -> int:
    """The bytes of shared memory that a text declares, as far as its types are known here. wgpu-native does not count them."""
    plain = without_comments(text)
    constants = _constants(plain)
    texts = _Texts({}, {found[1]: "".join(found[2].split()) for found in _ALIAS.finditer(plain)})
    total = 0
    for declared_type in _SHARED.findall(plain):
        kind, count = texts.resolve("".join(declared_type.split())), 1
        while array := _SHARED_ARRAY.match(kind):
            kind = texts.resolve(array[1])
            word = array[2].rstrip("iu")
            count *= int(word) if word.isdigit() else constants.get(array[2], 0)
        total += count * _SIZES.get(kind.removeprefix("atomic<").split("<")[0].rstrip(">"), 0)
    return total


def _constants(plain: str) -> dict[str, int]:
    return {found[1]: int(found[2]) for found in _CONSTANT.finditer(plain)}


def with_writable_buffers(text: str) -> str:
    """The text with all its storage buffers declared to be written to. Its lines keep their numbers."""
    return _READ_ONLY.sub("var<storage, read_write>", text)


def with_immediate_scalars(text: str) -> str:
    """The text with its uniform struct declared as immediate data. Its lines keep their numbers."""
    return _UNIFORM.sub(lambda found: "\n" * found[0].count("\n") + "var<immediate>", text)


def _parameters(plain: str) -> tuple[Parameter, ...]:
    texts = _Texts(
        {found[1]: found[2] for found in _STRUCT.finditer(plain)},
        {found[1]: "".join(found[2].split()) for found in _ALIAS.finditer(plain)},
    )
    buffers: list[Parameter] = []
    scalars: list[tuple[int, int, Parameter]] = []
    for attributes, space, name, kind in _GLOBAL.findall(plain):
        found = re.search(r"@binding\s*\(\s*(\d+)[iu]?\s*\)", attributes)
        if found is None:
            continue
        binding = int(found[1])
        group = re.search(r"@group\s*\(\s*(\d+)[iu]?\s*\)", attributes)
        if group is None or int(group[1]):
            raise Unsupported("bind groups", f"{name} must be in @group(0), where all arguments are")
        kind = texts.resolve("".join(kind.split()))
        words = [word.strip() for word in space.split(",")]
        if words[0] == "storage":
            element = _ARRAY.match(kind)
            dtype = _TYPES.get(texts.resolve(element[1])) if element else None
            buffers.append(Parameter(name, "buffer", dtype, "rw" if "read_write" in words else "r", 0, binding))
        elif words[0] == "uniform":
            scalars += [(binding, one.slot, one) for one in _members(texts, name, kind, binding)]
        else:
            raise Unsupported("textures", f"{name} is a {kind}: only storage buffers and uniforms can be passed")
    buffers.sort(key=lambda one: one.slot)
    return (*buffers, *(one for _, _, one in sorted(scalars, key=lambda each: each[:2])))


def _members(texts: _Texts, name: str, kind: str, binding: int) -> list[Parameter]:
    """The scalars in a uniform variable, with their offsets."""
    if kind in _TYPES:
        return [Parameter(name, "scalar", _TYPES[kind], "r", 4, 0, str(binding))]
    if kind not in texts.structs:
        raise Unsupported("uniforms", f"uniform {name} is a {kind}: i32, u32, f32 and structs of them can be passed")
    members = []
    for at, text in enumerate(one for one in texts.structs[kind].split(",") if one.strip()):
        member, _, written = text.partition(":")
        dtype = _TYPES.get(texts.resolve("".join(written.split())))
        if dtype is None or "@" in member:
            raise Unsupported(
                "uniforms", f"{member.strip()} of uniform {name} must be an i32, u32 or f32 without attributes"
            )
        members.append(Parameter(member.strip(), "scalar", dtype, "r", 4, 4 * at, str(binding)))
    return members


def _group(attributes: str, symbol: str, constants: dict[str, int]) -> tuple[int, int, int]:
    found = re.search(r"@workgroup_size\s*\(([^)]*)\)", attributes)
    sizes = []
    for word in (found[1] if found else "").split(","):
        word = word.strip()
        number = re.match(r"(\d+)[iu]?\Z", word)
        if number:
            sizes.append(int(number[1]))
        elif word in constants:
            sizes.append(constants[word])
        elif word:
            raise Unsupported("group sizes", f"the group size of {symbol} must be a number or a constant, got {word}")
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _placed(own: KernelSignature, params: tuple[Parameter, ...], name: str) -> tuple[Parameter, ...]:
    """Declared parameters, each with the place of its kind in the text, in order."""
    places = {kind: [one for one in params if one.kind == kind] for kind in ("buffer", "scalar")}
    placed = []
    for one in own.params or ():
        if not places.get(one.kind):
            raise CompileError(f"{name}: {own.name} declares {one.name}, and the text has no {one.kind} for it")
        place = places[one.kind].pop(0)
        nbytes = DTYPES.get(one.dtype or "", 4) if one.kind == "scalar" else 0
        access = place.access if one.kind == "buffer" else "r"
        placed.append(Parameter(one.name, one.kind, one.dtype, access, nbytes, place.slot, place.place, one.element))
    left = [one.name for rest in places.values() for one in rest]
    if left:
        raise CompileError(f"{name}: the declaration of {own.name} lacks {', '.join(left)}")
    return tuple(placed)
