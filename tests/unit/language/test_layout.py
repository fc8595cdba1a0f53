"""Where the parts of an element lie in memory: as a C compiler on this machine puts them."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from kernelkeep.language import layout
from kernelkeep.language.types import BOOL, F2, F4, F8, I1, I2, I4, I8, U4, StructType, Type, array, vector

TYPES: dict[Type, Any] = {I1: ctypes.c_int8, I2: ctypes.c_int16, I4: ctypes.c_int32, U4: ctypes.c_uint32, I8: ctypes.c_int64,
                          F4: ctypes.c_float, F8: ctypes.c_double}  # fmt: skip


def struct(*kinds: Type) -> StructType:
    return StructType("struct s", "s", tuple((f"f{number}", kind) for number, kind in enumerate(kinds)))


def as_ctypes(kind: Type) -> Any:
    if isinstance(kind, StructType):
        fields = [(name, as_ctypes(part)) for name, part in kind.fields]
        return type("S", (ctypes.Structure,), {"_fields_": fields})
    return TYPES[kind] if kind in TYPES else as_ctypes(kind.element) * kind.length  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "kinds",
    [
        (I4, I4),
        (F4, I8, F4),
        (I1, I2, I1, F8),
        (I4, array(F8, 3), I1),
        (I1, struct(I8, I1), F4),
        (array(struct(F4, I8), 2), I4),
    ],
)
def test_structs_lie_as_in_c(kinds: tuple[Type, ...]) -> None:
    kind = struct(*kinds)
    expected = as_ctypes(kind)
    assert layout.size(kind) == ctypes.sizeof(expected)
    assert layout.alignment(kind) == ctypes.alignment(expected)
    offsets = [getattr(expected, name).offset for name, _ in kind.fields]
    assert [at for _, at in layout.places(kind, 0)] == offsets


def test_vectors_are_aligned_to_their_size() -> None:
    kind = struct(I4, vector(F4, 2), I4, vector(F4, 4))
    assert [at for _, at in layout.places(kind, 0)] == [0, 8, 16, 32]
    assert (layout.size(kind), layout.alignment(kind)) == (48, 16)


def test_what_differs_between_targets_has_no_layout() -> None:
    for part in (vector(F4, 3), BOOL, F2):
        assert layout.has_no_layout(struct(I4, array(struct(part), 2))) is part
    assert layout.has_no_layout(struct(I4, vector(F4, 4), array(I1, 4))) is None
