"""Writers: from the typed tree to a text in a target language.

cuda.py opencl.py glsl.py wgsl.py   one target each; cuda_*.py, opencl_*.py, glsl_*.py and wgsl_*.py are their parts

base.py         the whole text, functions, the map of its lines
texts.py        lines, names, numbers, parentheses: what every part of a writer needs
statements.py   statements; loops.py, those that are loops
expressions.py  expressions; assignments.py, those that change something; ordering.py, what is evaluated before others
pocl.py         what OpenCL C needs for PoCL to compile it right
pointers.py     what CUDA C and OpenCL C share: pointers, structs, C's casts
wrapping.py     signed integers that wrap, in these two, and variables that need not
bindings.py     what GLSL and WGSL share: arrays outside of functions; small_values.py, small types in words
effects.py      which expressions change something, and where the order of evaluation matters
ranges.py       which values an integer expression can have
names.py        names that a target has a meaning for, and other ones for what the user called so
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ...errors import ArgumentError
from .base import Entry, Writer, Written

if TYPE_CHECKING:
    from ..tree import Module

__all__ = ["TARGETS", "Entry", "Written", "write"]

TARGETS = {"cuda": "CudaWriter", "opencl": "OpenCLWriter", "glsl": "GlslWriter", "wgsl": "WgslWriter"}


def write(
    target: str,
    module: Module,
    entry: Entry,
    calls: Mapping[str, str] | None = None,
    **options: bool,
) -> Written:
    """The kernel in a target's language: "cuda", "opencl", "glsl" or "wgsl".

    `calls` has the texts of further built-ins, such as those of state programs. Raises `Unsupported` where the kernel uses what
    the target lacks and cannot emulate. `options` are those of the target's writer.
    """
    if target not in TARGETS:
        raise ArgumentError(f"target must be one of {', '.join(TARGETS)}, got {target!r}")
    writer: type[Writer] = getattr(import_module(f".{target}", __name__), TARGETS[target])
    return writer(module, entry, calls, **options).write()
