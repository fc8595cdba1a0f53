"""A submitted batch: its arguments are checked and its host arrays copied before anything is on the device."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.arguments import dimensions
from ..devices.array import Array
from ..devices.base import Device, Fence
from ..devices.guests import is_guest
from ..devices.host_data import host_view, parse_dtype
from ..devices.lanes import Block, Lanes, Mark
from ..errors import ArgumentError, OutOfMemory
from .job import Job

if TYPE_CHECKING:
    from ..programs.signature import Parameter
    from .binding import Binding
    from .buffers import Buffers


class Result:
    """One output of a submission: the buffer it is in, and the block it is downloaded to."""

    __slots__ = ("block", "dtype", "index", "name", "nbytes", "shape")

    def __init__(self, name: str, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name = name
        self.index = index
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * dtype.itemsize  # not NumPy's, which wraps round at 2**63
        self.block: Block | None = None


class Submission:
    """One submitted batch."""

    def __init__(self, job: Job, future: Future[Any]) -> None:
        self.job = job
        self.future = future
        self.binding: Binding
        self.number = 0
        self.slot = 0
        self.grid: Any = None
        self.values: dict[int, Any] = {}  # scalars and device arrays as the driver takes them
        self.originals: dict[int, Any] = {}  # and as the caller passed them, which also keeps the arrays alive
        self.on_device: set[int] = set()  # those of them that are device arrays
        self.fences: list[Fence] = []  # after what other libraries do with arrays that they share
        self.blocks: dict[int, Block] = {}  # copies of host arrays
        self.borrowed: dict[int, np.ndarray[Any, Any]] = {}  # host arrays that are read while under way
        self.results: list[Result] = []
        self.cleared: set[int] = set()  # outputs that start as zeros
        # While it is on the device:
        self.arrays: list[tuple[int, Array]] = []
        self.held: list[Any] = []
        self.marks: list[Mark] = []
        self.staged = (0.0, 0.0)  # when the host arrays were copied
        self.dispatched = (0.0, 0.0)
        # While somebody traces: what the submitting thread did, and when the stages began and ended.
        self.parent: Any = None
        self.stages: list[tuple[float, float]] = []

    def stage(self, binding: Binding, batch: Mapping[str, Any], lanes: Lanes, buffers: Buffers) -> None:
        """Check a batch's arguments and copy its host arrays."""
        self.binding = binding
        start = time.perf_counter()
        for name in batch:
            if name not in binding.names:
                known = ", ".join(binding.names) or "none"
                raise ArgumentError(f"job {self.job.name} has no argument {name!r}; it has: {known}")
        self.grid = dimensions(self.job.grid_for(batch), "grid")
        outputs = self.job.outputs
        for index, param in enumerate(binding.params):
            if param.name in batch:
                self._take(index, param, batch[param.name], lanes, buffers)
            elif param.name not in outputs:
                raise ArgumentError(f"job {self.job.name} needs its argument {param.name!r}; pass it with the batch")
            if param.name in outputs:
                self._expect(index, param, batch)
        self.staged = (start, time.perf_counter())

    def _take(self, index: int, param: Parameter, value: Any, lanes: Lanes, buffers: Buffers) -> None:
        kernel = self.binding.kernel
        if param.kind not in ("buffer", "any") or (param.kind == "any" and isinstance(value, np.generic | bytes)):
            self.values[index] = kernel.convert(index, value)
            self.originals[index] = value
            return
        if isinstance(value, Array):
            self.values[index] = kernel.convert(index, value)
            self.originals[index] = value
            self.on_device.add(index)
            value.stop_recycling()  # lanes are orders of their own
            return
        host = _host_array(value, param.dtype, f"argument {param.name!r} of job {self.job.name}")
        dtype = host.dtype if param.dtype is None else np.dtype(param.dtype)
        if host.dtype != dtype:
            raise ArgumentError(
                f"argument {param.name!r} of job {self.job.name} must be {dtype.name}, got {host.dtype.name}; convert it with "
                ".astype"
            )
        if self.job.copy or lanes.shares_memory or not host.flags.c_contiguous:
            block = self.blocks[index] = buffers.blocks.take(max(host.nbytes, 16))
            if host.nbytes:
                buffers.copier.copy(block.host[: host.nbytes].view(dtype).reshape(host.shape), host)
        else:
            self.borrowed[index] = host
        self.originals[index] = host.shape, dtype

    def _expect(self, index: int, param: Parameter, batch: Mapping[str, Any]) -> None:
        label = f"output {param.name!r} of job {self.job.name}"
        wanted = self.job.output_for(param.name, batch)
        passed = self.originals.get(index)
        if isinstance(passed, tuple):
            shape, dtype = passed
        elif passed is not None:
            shape, dtype = tuple(passed.shape), parse_dtype(param.dtype or getattr(passed, "dtype", "u1"))
        elif wanted is None:
            raise ArgumentError(
                f"{label} has neither shape nor dtype: name them in outputs=, or pass the array with the batch"
            )
        else:
            shape, dtype = wanted
            if param.dtype is not None and dtype != np.dtype(param.dtype):
                raise ArgumentError(
                    f"{label} must be {np.dtype(param.dtype).name} as in the kernel, got {dtype.name} in outputs="
                )
            if param.access != "w":
                self.cleared.add(index)
        if wanted is not None and dtype != wanted[1]:
            raise ArgumentError(f"{label} must be {wanted[1].name} as in outputs=, got an array of {dtype.name}")
        result = Result(param.name, index, shape, dtype)
        if result.nbytes > sys.maxsize:  # drivers and NumPy have many names for this
            raise OutOfMemory(f"{label} would be {result.nbytes:,} bytes, more than can be addressed")
        self.results.append(result)


def _host_array(value: Any, dtype: str | None, label: str) -> np.ndarray[Any, Any]:
    """A NumPy array, contiguous or not: it is copied anyway. Python's numbers get the dtype of the parameter."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OU" and value.dtype.isnative:
        return value
    try:
        return host_view(value, default=None if dtype is None else np.dtype(dtype))
    except ArgumentError as error:
        raise ArgumentError(f"{label}: {error}") from None


def ordered_batch(batch: Mapping[str, Any], device: Device) -> tuple[Mapping[str, Any], list[Fence]]:
    """A batch with other libraries' arrays as arrays of the device, and fences after what they do with them now.

    Called in the caller's thread: each thread of a library may use another stream.
    """
    adopted = dict(batch)
    shared: list[Array] = []
    for name, value in batch.items():
        if not isinstance(value, Array) and is_guest(value):
            value = device.guests.adopt(device, value)
            if value is None:
                continue  # in host memory
            adopted[name] = value
        if isinstance(value, Array) and value.peers is not None and value.device is device:
            shared.append(value)
    return adopted, device.guests.fences(device, shared) if shared else []
