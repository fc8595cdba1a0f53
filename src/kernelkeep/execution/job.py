"""A job: a program from the cache, how it is launched, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.arguments import dimensions
from ..devices.host_data import parse_dtype, parse_shape
from ..errors import ArgumentError
from ..programs.portable import Buffer, PortableKernel
from ..programs.source import Source, not_a_source
from .plan import Stage, check_output_dtype

Batch = Mapping[str, Any]  # a batch's arguments by name
Grid = int | tuple[int, ...]
Output = tuple[Any, Any]  # shape, dtype


class Job:
    """What an executor does with each batch. It owns nothing itself, and several executors may use it.

    `grid` is as in `kernel.launch`, or a function of the batch's arguments. `outputs` names the buffers that are
    downloaded: each with its `(shape, dtype)`, a function of the batch's arguments that returns them, or None (also: just a
    list of names) where the buffer is passed in as well. A buffer that is passed in must have the shape and dtype that are
    named, if any are. One that is not passed in starts as zeros, unless the kernel declares it write-only.

    With `copy=False` the executor may read host arrays while the batch is under way instead of copying them at `submit`:
    the caller must then not change them until the result arrives. That is faster for arrays made by `device.pinned_empty`.
    """

    def __init__(
        self,
        cache: ProgramCache,
        source: Source | PortableKernel,
        grid: Grid | Callable[[Batch], Grid],
        outputs: Mapping[str, Output | Callable[[Batch], Output] | None] | Iterable[str],
        *,
        kernel: str | None = None,
        group: int | tuple[int, ...] | None = None,
        shared_bytes: int = 0,
        copy: bool = True,
        name: str | None = None,
    ) -> None:
        if not isinstance(cache, ProgramCache):
            raise ArgumentError(f"cache must be a kk.ProgramCache, got a {type(cache).__name__}")
        if not isinstance(source, Source | PortableKernel):
            raise not_a_source(source)
        self.cache = cache
        self.source = source
        self.grid = grid
        self.kernel = kernel
        self.group = group
        self.shared_bytes = shared_bytes
        self.copy = copy
        self.name = name or kernel or source.name
        self.outputs = _parse_outputs(outputs)
        if not callable(grid):
            dimensions(grid, f"grid of job {self.name}")
        if isinstance(source, PortableKernel):
            check_outputs(self, {param.name for param in source.params if isinstance(param, Buffer)})
            self._check_written(source)

    def _check_written(self, kernel: PortableKernel) -> None:
        """Every output must be written by the kernel, with the dtype that it declares."""
        for param in kernel.signature.params or ():
            wanted = self.outputs.get(param.name)
            if param.name not in self.outputs:
                continue
            if param.access == "r":
                written = ", ".join(one.name for one in kernel.params if isinstance(one, Buffer) and one.access != "r")
                raise ArgumentError(
                    f"output {param.name!r} of job {self.name} is only read by its kernel, which writes: {written or 'nothing'}"
                )
            if isinstance(wanted, tuple):
                check_output_dtype(self, param, wanted[1])

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Itself alone, as a pipeline has several."""
        return (self,)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Itself alone, with the names of its own parameters."""
        return (Stage(self, {}),)

    @property
    def returns(self) -> None:
        """Which outputs come back: those of its kernel. A pipeline has a choice here."""
        return None

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"job {self.name}"

    def grid_for(self, batch: Batch) -> Grid:
        """The grid of one batch."""
        return self.grid(batch) if callable(self.grid) else self.grid

    def output_for(self, name: str, batch: Batch) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
        """The shape and dtype of one output of one batch; None where they are those of what is passed in."""
        wanted = self.outputs[name]
        if wanted is None:
            return None
        return _parse_output(name, wanted(batch)) if callable(wanted) else (wanted[0], wanted[1])

    def __repr__(self) -> str:
        return f"<Job {self.name} on {self.cache.device.spec}: {', '.join(self.outputs)}>"


def check_outputs(job: Job, buffers: set[str]) -> None:
    """Every output must be a buffer of the kernel."""
    for name in job.outputs:
        if name not in buffers:
            known = ", ".join(sorted(buffers)) or "none"
            raise ArgumentError(f"output {name!r} of job {job.name} must be a buffer of its kernel, which has: {known}")


def _parse_outputs(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, str):
        outputs = [outputs]
    if not isinstance(outputs, Mapping):
        try:
            outputs = dict.fromkeys(outputs)
        except TypeError:
            raise ArgumentError(
                f"outputs must be a mapping of names to (shape, dtype), or names, got a {type(outputs).__name__}"
            ) from None
    if not outputs:
        raise ArgumentError("outputs must name at least one buffer: the result is how a batch reports that it is done")
    return {
        name: wanted if wanted is None or callable(wanted) else _parse_output(name, wanted)
        for name, wanted in outputs.items()
    }


def _parse_output(name: str, wanted: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        shape, dtype = wanted
    except (TypeError, ValueError):
        raise ArgumentError(
            f"output {name!r} must be a pair of shape and dtype, as in ((1024,), 'f4'), got {wanted!r}"
        ) from None
    if isinstance(dtype, int):  # a shape of two sizes
        raise ArgumentError(
            f"output {name!r} must be a pair of shape and dtype, as in ({wanted!r}, 'f4'), got {wanted!r}"
        )
    return parse_shape(shape), parse_dtype(dtype)
