"""Runs portable kernels and state programs on the interpreter, with made-up arguments."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..cache.program_cache import ProgramCache
from ..continuous.program import StateProgram
from ..continuous.runner import run
from ..devices.base import Device
from ..errors import ArgumentError
from ..programs.portable import Buffer, PortableKernel
from ..programs.signature import VECTORS

Grid = tuple[int, ...]


def run_once(
    device: Device,
    kernel: PortableKernel,
    *,
    items: int = 1000,
    grid: Grid | None = None,
    scalars: Mapping[str, float] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Grid:
    """Launch a kernel once, and return the grid. Raises `CompileError`, and `KernelFault` for a bug that the run met.

    Each buffer has `items` elements or as many as `sizes` says, integers counting up from 0, floats between 0 and 1. Integer
    scalars are `items`, floats 1, or what `scalars` says. The grid has enough groups for `items` work-items.
    """
    scalars, sizes = scalars or {}, sizes or {}
    _check_names(kernel, scalars, sizes)
    group = kernel.signature.group or (1, 1, 1)
    chosen = _grid_for(items, group) if grid is None else grid
    args: list[Any] = []
    for param in kernel.params:
        if isinstance(param, Buffer):
            args.append(device.array(_contents(param, sizes.get(param.name, items))))
        else:
            dtype = np.dtype(param.dtype)
            default = min(items, np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0
            value = scalars.get(param.name, default)
            args.append(int(value) if dtype.kind in "iu" and float(value).is_integer() else value)
    with device.build(kernel.source(device)) as program:
        program.kernel(kernel.name).launch(chosen, tuple(args))
    device.synchronize()
    return chosen


def run_program(device: Device, program: StateProgram, iterations: int = 3) -> int:
    """Run some iterations of a state program, and return how many. Raises as `run_once` does."""
    with tempfile.TemporaryDirectory() as folder, ProgramCache(device, folder) as cache:
        with run(cache, program, iterations, "redispatch") as done:
            return done.iteration


def _check_names(kernel: PortableKernel, scalars: Mapping[str, float], sizes: Mapping[str, int]) -> None:
    buffers = [param.name for param in kernel.params if isinstance(param, Buffer)]
    others = [param.name for param in kernel.params if not isinstance(param, Buffer)]
    for given, known, what in ((sizes, buffers, "buffer"), (scalars, others, "scalar")):
        for name in given:
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise ArgumentError(f"kernel {kernel.name} has no {what} {name}: {has}")


def _grid_for(items: int, group: Sequence[int]) -> Grid:
    """Groups enough for so many work-items, spread over the dimensions that the group has."""
    used = max((at + 1 for at, size in enumerate(group) if size > 1), default=1)
    side = math.ceil(items ** (1 / used))
    return tuple(max(1, -(-(items if used == 1 else side) // size)) for size in group[:used])


def _contents(buffer: Buffer, size: int) -> np.ndarray[Any, Any]:
    if buffer.dtype.startswith("struct "):
        raise ArgumentError(
            f"buffer {buffer.name} has elements of {buffer.dtype}: only buffers of numbers can be made up"
        )
    if buffer.dtype in VECTORS:
        size *= int(buffer.dtype[-1])
    kind = np.dtype(VECTORS.get(buffer.dtype, buffer.dtype))
    if kind.kind == "f":
        return np.random.default_rng(0).random(size).astype(kind)
    return (np.arange(size) % (int(np.iinfo(kind).max) + 1 if kind.itemsize < 4 else max(size, 1))).astype(kind)
