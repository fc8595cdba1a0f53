"""A kernel's arguments as bytes, each at the offset the driver named."""

from __future__ import annotations

from typing import Any

from ...programs.signature import Parameter

_STRUCT_CODES = dict(i1="b", u1="B", i2="h", u2="H", i4="i", u4="I", i8="q", u8="Q", f2="e", f4="f", f8="d")


def as_bytes(value: Any) -> Any:
    """A handle as bytes, for a parameter of which only the size is known."""
    return value.to_bytes(8, "little") if isinstance(value, int) else value


def layout_of(params: tuple[Parameter, ...]) -> str:
    """The struct format that puts each value at the offset the driver named."""
    text, at = "<", 0
    for p in params:
        text += "x" * (p.slot - at)
        text += code_of(p)
        at = p.slot + p.nbytes
    return text


def code_of(param: Parameter) -> str:
    """The struct code of one argument."""
    if param.kind == "buffer":
        return "Q"
    if param.kind == "scalar" and param.dtype is not None:
        return _STRUCT_CODES[param.dtype]
    return f"{param.nbytes}s"
