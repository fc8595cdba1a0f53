"""What a GLSL compute program takes, and in which order.

The order of arguments of a hand-written shader: its storage buffers by binding, then its uniforms: the members of a
uniform block by offset, then loose uniforms by location (declaration order where no location is given). A linker drops
what a shader does not use, so declarations are read from the text first and from the linked program second: an argument
does not vanish because a line that used it was commented out.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

from ...errors import Unsupported
from ...programs.includes import without_comments
from ...programs.signature import DTYPES, KernelSignature, Parameter, declared
from ...programs.source import Source
from .libgl import Constants as C
from .program import block_bytes

_GLSL = {"int": "i4", "uint": "u4", "int64_t": "i8", "uint64_t": "u8", "float": "f4", "double": "f8"}
_GL_TYPES = {0x1404: "i4", 0x1405: "u4", 0x1406: "f4", 0x140A: "f8", 0x140E: "i8", 0x140F: "u8", 0x8B56: "u4"}
_COUNTER = 0x92DB
# Samplers, images and counters, as the GL headers number them.
_IMAGE_TYPES = (
    range(0x8B5D, 0x8B65), range(0x8DC0, 0x8DD9), range(0x900C, 0x9010), range(0x904C, 0x906D), range(0x9108, 0x910E),
    (_COUNTER,),
)  # fmt: skip
_BUFFER = re.compile(
    r"layout\s*\(([^)]*)\)\s*((?:\b(?:readonly|writeonly|coherent|volatile|restrict)\b\s*)*)\bbuffer\s+(\w+)\s*\{([^}]*)\}"
)
_UNIFORM = re.compile(r"(?:layout\s*\(([^)]*)\)\s*)?\buniform\s+(\w+)\s+(\w+)\s*(?:=[^;]*)?;")


def reflect(gl: Any, program: int, source: Source, text: str) -> tuple[KernelSignature, int]:
    """The signature, and the binding of the block with its scalars. `text` is the whole translation unit."""
    size = (ctypes.c_int * 3)()
    gl.glGetProgramiv(program, C.COMPUTE_WORK_GROUP_SIZE, size)
    group = (size[0], size[1], size[2])
    known = declared(source.text)
    if source.name in known:
        return KernelSignature(source.name, _placed(known[source.name].params or ()), group), 0
    plain = without_comments(text)
    members, binding = _block_members(gl, program)
    params = (*_buffers(gl, program, plain), *members, *_loose(gl, program, plain))
    return KernelSignature(source.name, params, group), binding


def _placed(params: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """A portable kernel's parameters as lowering laid them out: buffers in order, scalars in one std140 block."""
    placed, binding, offset = [], 0, 0
    for p in params:
        if p.kind == "buffer":
            placed.append(Parameter(p.name, p.kind, p.dtype, p.access, 0, binding))
            binding += 1
        else:
            offset += -offset % block_bytes(p)
            placed.append(Parameter(p.name, p.kind, p.dtype, p.access, p.nbytes, offset, "block"))
            offset += block_bytes(p)
    return tuple(placed)


def _resources(gl: Any, program: int, interface: int, *properties: int) -> list[tuple[str, list[int]]]:
    count = ctypes.c_int()
    gl.glGetProgramInterfaceiv(program, interface, C.ACTIVE_RESOURCES, ctypes.byref(count))
    wanted = (ctypes.c_uint * len(properties))(*properties)
    found = []
    for index in range(count.value):
        values = (ctypes.c_int * len(properties))()
        gl.glGetProgramResourceiv(program, interface, index, len(properties), wanted, len(properties), None, values)
        name = ctypes.create_string_buffer(256)
        gl.glGetProgramResourceName(program, interface, index, 256, None, name)
        found.append((name.value.decode(), list(values)))
    return found


def _buffers(gl: Any, program: int, text: str) -> list[Parameter]:
    by_binding = {}
    for name, (binding,) in _resources(gl, program, C.SHADER_STORAGE_BLOCK, C.BUFFER_BINDING):
        by_binding[binding] = Parameter(name, "buffer", None, "rw", 0, binding)
    for layout, qualifiers, block, inside in _BUFFER.findall(text):
        found = re.search(r"binding\s*=\s*(\d+)", layout)
        if not found:
            continue
        access = "r" if "readonly" in qualifiers else "w" if "writeonly" in qualifiers else "rw"
        member = re.search(r"(\w+)\s+(\w+)\s*\[\s*\]\s*;\s*$", inside.strip())
        # Only a block that is nothing but one array of a known type can be checked by dtype.
        alone = member is not None and inside.count(";") == 1
        dtype = _GLSL.get(member.group(1)) if member and alone else None
        name = member.group(2) if member else block
        by_binding[int(found.group(1))] = Parameter(name, "buffer", dtype, access, 0, int(found.group(1)))
    return [by_binding[binding] for binding in sorted(by_binding)]


def _block_members(gl: Any, program: int) -> tuple[list[Parameter], int]:
    blocks = _resources(gl, program, C.UNIFORM_BLOCK, C.BUFFER_BINDING)
    if len(blocks) > 1:
        raise Unsupported(
            "several uniform blocks",
            "a shader with more than one uniform block cannot be launched: put all scalars into one",
        )
    found = []
    for name, (kind, block, offset) in _resources(gl, program, C.UNIFORM, C.TYPE, C.BLOCK_INDEX, C.OFFSET):
        if block >= 0:
            dtype = _known_type(kind, name)
            found.append(Parameter(name, "scalar", dtype, "r", DTYPES[dtype], offset, "block"))
    return sorted(found, key=lambda p: p.slot), blocks[0][1][0] if blocks else 0


def _loose(gl: Any, program: int, text: str) -> list[Parameter]:
    active = {}
    for name, (kind, block, location) in _resources(gl, program, C.UNIFORM, C.TYPE, C.BLOCK_INDEX, C.LOCATION):
        if block < 0 and (location >= 0 or kind == _COUNTER):
            dtype = _known_type(kind, name)
            if dtype in ("i8", "u8"):
                raise Unsupported("64-bit uniforms", f"uniform {name} has 64 bits; put it into a uniform block")
            active[name] = (dtype, location)
    written = []
    for order, (layout, kind, name) in enumerate(_UNIFORM.findall(text)):
        explicit = re.search(r"location\s*=\s*(\d+)", layout or "")
        if kind in _GLSL or kind == "bool":
            dtype = _GLSL.get(kind, "u4")
            place = int(explicit.group(1)) if explicit else order
            written.append(
                (
                    place,
                    Parameter(name, "scalar", dtype, "r", DTYPES[dtype], active.get(name, (0, -1))[1], "uniform"),
                )
            )
    known = {p.name for _, p in written}
    for name, (dtype, location) in active.items():
        if name not in known:
            written.append((location, Parameter(name, "scalar", dtype, "r", DTYPES[dtype], location, "uniform")))
    return [p for _, p in sorted(written, key=lambda pair: pair[0])]


def _known_type(kind: int, name: str) -> str:
    if any(kind in kinds for kinds in _IMAGE_TYPES):
        raise Unsupported(
            "image uniforms",
            f"uniform {name} is an image, a sampler or a counter; kernelkeep passes arrays and numbers only",
        )
    if name.endswith("]"):
        raise Unsupported("array uniforms", f"uniform {name} is an array; put it into a storage buffer")
    if kind not in _GL_TYPES:
        raise Unsupported("vector uniforms", f"uniform {name} is not a scalar; put it into a storage buffer")
    return _GL_TYPES[kind]
