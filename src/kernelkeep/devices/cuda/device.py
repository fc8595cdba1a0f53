"""The CUDA device: its context, its memory, and memory shared with other libraries.

It uses the device's primary context, so memory of CuPy, PyTorch and JAX can be used as it is.

`load` puts all code on the device at once: code that is loaded by the first launch can wait for ever beside a kernel that
never exits. The cache's hits leave that to the first launch, and `preload` does not.
"""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...errors import ArgumentError, BinaryRejected, DeviceError, KernelKeepError, OutOfMemory
from ...programs.source import Source
from .. import dlpack
from ..array import Array, parse_dtype, parse_shape
from ..base import Capabilities, Device, DeviceInfo, MemoryInfo, Queue
from ..fingerprint import Fingerprint
from ..image import Image
from ..replay import Step
from .compiler import compile_for, compiler_version
from .driver import count_devices, info_of, load_driver
from .lanes import CudaLanes
from .order import CudaFence, CudaQueue, CudaTimer, stream_of
from .program import CudaProgram, is_whole_cubin
from .replay import CudaReplay

__all__ = ["CudaDevice", "open_device"]


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> CudaDevice:
    """Open a device by index, the first by default. A cubin is native code: there is no driver's cache to place."""
    count = count_devices(load_driver())
    index = index or 0
    if index >= count:
        raise DeviceError(f"there is no device cuda:{index}; CUDA has {count} here")
    return CudaDevice(info_of(index))


class CudaDevice(Device):
    """One CUDA device: its primary context and a stream of our own."""

    backend = "cuda"
    language = "cuda"
    replays_whole = True

    def __init__(self, info: DeviceInfo) -> None:
        driver = self.driver = load_driver()
        self._success = driver.CUresult.CUDA_SUCCESS
        self.cu_device = self._call(driver.cuDeviceGet, info.index)
        attribute = driver.CUdevice_attribute
        major = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        self.architecture = f"sm_{major}{minor}"
        fingerprint = Fingerprint(
            backend="cuda",
            vendor="NVIDIA",
            model=info.name,
            driver=info.driver,
            compiler=compiler_version(),
            architecture=self.architecture,
        )
        super().__init__(info, fingerprint, self._read_capabilities())
        self.cu_context = self._call(driver.cuDevicePrimaryCtxRetain, self.cu_device)
        self._enter()
        self.cu_stream = self._call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._allocations: set[int] = set()
        self._queues: weakref.WeakSet[CudaQueue] = weakref.WeakSet()

    def _read_capabilities(self) -> Capabilities:
        attribute = self.driver.CUdevice_attribute

        def read(name: str) -> int:
            return self._attribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"))

        cooperative = bool(read("COOPERATIVE_LAUNCH"))
        return Capabilities(
            cooperative=cooperative,
            device_clock=True,
            mapped_ring=bool(read("CAN_MAP_HOST_MEMORY")),
            forward_progress=cooperative,
            float_atomics=True,
            float64=True,
            int64=True,
            int8=True,
            queues=True,
            pinned_memory=True,
            max_group_items=read("MAX_THREADS_PER_BLOCK"),
            max_group=(read("MAX_BLOCK_DIM_X"), read("MAX_BLOCK_DIM_Y"), read("MAX_BLOCK_DIM_Z")),
            max_grid=(read("MAX_GRID_DIM_X"), read("MAX_GRID_DIM_Y"), read("MAX_GRID_DIM_Z")),
            shared_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        )

    # --- programs

    def _compile(self, source: Source) -> bytes:
        return compile_for(source, self.architecture)

    def _build(self, source: Source) -> CudaProgram:
        return self._load(self._compile(source))

    def _load(self, binary: bytes) -> CudaProgram:
        program = self._load_lazily(binary)
        try:
            program.make_resident()
        except DeviceError:
            program.close()
            raise
        return program

    def _load_lazily(self, binary: bytes) -> CudaProgram:
        image = Image.decode(binary, "cuda")
        if image.form == "cubin" and not is_whole_cubin(image.payload):
            # The driver would find out only when the code is first needed, which is too late to compile again.
            raise BinaryRejected(f"the binary of {image.name} is not a whole cubin")
        self._enter()
        driver = self.driver
        status, library = driver.cuLibraryLoadData(image.payload, [], [], 0, [], [], 0)
        if status is not self._success:
            if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise self._translated(status, f"loading {image.name}")
            raise BinaryRejected(f"{self.spec} refuses the binary of {image.name}: {status.name}")
        return CudaProgram(self, image, library)

    # --- memory

    def _allocate(self, nbytes: int) -> int:
        self._enter()
        pointer = int(self._call(self.driver.cuMemAlloc, nbytes, doing=f"allocating {nbytes:,} bytes"))
        self._allocations.add(pointer)
        return pointer

    def _free(self, handle: int) -> None:
        if handle in self._allocations:
            self._allocations.discard(handle)
            self._enter()
            self.driver.cuMemFree(handle)

    def _upload(self, handle: int, host: np.ndarray[Any, Any]) -> None:
        self._enter()
        self._call(self.driver.cuMemcpyHtoDAsync, handle, host.ctypes.data, host.nbytes, self.cu_stream)
        self._call(self.driver.cuStreamSynchronize, self.cu_stream)

    def _download(self, handle: int, out: np.ndarray[Any, Any]) -> None:
        self._enter()
        self._call(self.driver.cuMemcpyDtoHAsync, out.ctypes.data, handle, out.nbytes, self.cu_stream)
        self._call(self.driver.cuStreamSynchronize, self.cu_stream)

    def _copy(self, target: int, origin: int, nbytes: int) -> None:
        self._enter()
        self._call(self.driver.cuMemcpyDtoDAsync, target, origin, nbytes, self.cu_stream)

    def pinned_empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        self._check_open()
        self._enter()
        parsed_shape, parsed_dtype = parse_shape(shape), parse_dtype(dtype)
        nbytes = max(16, math.prod(parsed_shape) * parsed_dtype.itemsize)
        memory = _Pinned(self, nbytes)
        return (
            np.asarray(memory)[: math.prod(parsed_shape) * parsed_dtype.itemsize]
            .view(parsed_dtype)
            .reshape(parsed_shape)
        )

    def memory_info(self) -> MemoryInfo:
        self._check_open()
        self._enter()
        free, total = self._call(self.driver.cuMemGetInfo)
        return MemoryInfo(int(total), int(free))

    def _guest_array(self, data: Any) -> Array | None:
        if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
            with contextlib.suppress(BufferError, RuntimeError, TypeError):
                if data.__dlpack_device__() == (dlpack.CUDA, self.info.index):
                    # The producer makes our stream wait for what it has still under way.
                    taken = dlpack.take(data.__dlpack__(stream=int(self.cu_stream)))
                    return Array(self, taken.shape, taken.dtype, taken.pointer, guest=taken.owner)
        interface = getattr(data, "__cuda_array_interface__", None)
        if interface is None:
            return None
        pointer, read_only = interface["data"]
        dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
        if read_only:
            raise ArgumentError("the array is read-only and cannot be shared")
        if not dlpack.is_contiguous(shape, interface.get("strides"), dtype.itemsize):
            raise ArgumentError("the array is not contiguous; copy it first")
        if pointer and self._device_of(pointer) != self.info.index:
            raise ArgumentError(f"the array is on cuda:{self._device_of(pointer)}, not on {self.spec}")
        self._enter()
        stream = interface.get("stream")
        if stream is not None:
            self._call(self.driver.cuStreamSynchronize, stream)
        return Array(self, shape, dtype, pointer or self._allocate(16), guest=data)

    def _device_of(self, pointer: int) -> int:
        which = self.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._call(self.driver.cuPointerGetAttribute, which, pointer))

    def _cuda_array_interface(self, array: Array) -> dict[str, Any]:
        array._check_open()
        return {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.handle, False),
            "strides": None,
            "stream": int(self.cu_stream),
            "version": 3,
        }

    def _dlpack(self, array: Array) -> Any:
        self.synchronize()  # the consumer then needs to know nothing of our stream
        return dlpack.give(array.handle, self.info.index, array.shape, array.dtype, array)

    def _dlpack_device(self) -> tuple[int, int]:
        return dlpack.CUDA, self.info.index

    # --- order and time

    def fence(self) -> CudaFence:
        self._check_open()
        return CudaFence(self, self.cu_stream)

    def timer(self) -> CudaTimer:
        self._check_open()
        return CudaTimer(self)

    def queue(self) -> CudaQueue:
        self._check_open()
        return CudaQueue(self)

    def _new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> CudaReplay:
        return CudaReplay(self, steps, self.cu_stream if queue is None else stream_of(queue, self))

    def exclusive(self) -> AbstractContextManager[Any]:
        """CUDA serves all threads at once; here a block only finds this thread's context in place."""
        self._check_open()
        self._enter()
        return contextlib.nullcontext()

    def _open_lanes(self, *, timed: bool = True) -> CudaLanes:
        self._check_open()
        return CudaLanes(self, timed)

    def synchronize(self) -> None:
        self._check_open()
        self._enter()
        self._call(self.driver.cuStreamSynchronize, self.cu_stream)

    def _settle(self) -> None:
        """Wait for everything on every queue of ours."""
        self._enter()
        self.driver.cuStreamSynchronize(self.cu_stream)
        for queue in list(self._queues):
            self.driver.cuStreamSynchronize(queue.cu_stream)

    def _close(self) -> None:
        self._enter()
        driver = self.driver
        driver.cuStreamSynchronize(self.cu_stream)
        for pointer in list(self._allocations):
            driver.cuMemFree(pointer)
        self._allocations.clear()
        driver.cuStreamDestroy(self.cu_stream)
        driver.cuDevicePrimaryCtxRelease(self.cu_device)

    # --- calls and errors

    def _enter(self) -> None:
        """Make our context this thread's. A third of a microsecond, so nobody tries to be clever about it."""
        self.driver.cuCtxSetCurrent(self.cu_context)

    def _attribute(self, attribute: Any) -> int:
        return int(self._call(self.driver.cuDeviceGetAttribute, attribute, self.cu_device))

    def _call(self, function: Any, *args: Any, doing: str = "") -> Any:
        status, *results = function(*args)
        if status is not self._success and status != self._success:
            raise self._translated(status, doing)
        return results[0] if len(results) == 1 else results

    def _translated(self, status: Any, doing: str = "") -> KernelKeepError:
        if getattr(self, "lost", ""):
            return DeviceError(self.lost)
        spec = getattr(self, "spec", "cuda")
        where = f"{spec}{f', {doing}' if doing else ''}"
        _, text = self.driver.cuGetErrorString(status)
        said = f"{status.name}: {text.decode() if isinstance(text, bytes) else text}"
        if status == self.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return OutOfMemory(f"{where}: out of memory")
        return DeviceError(f"{where}: {said}")


class _Pinned:
    """Page-locked host memory, freed with the last NumPy array on it.

    It goes with its context, so it keeps that one: the array may be in use after the device was closed.
    """

    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        flags = device.driver.CU_MEMHOSTALLOC_PORTABLE | device.driver.CU_MEMHOSTALLOC_DEVICEMAP
        self._device = device
        device._call(device.driver.cuDevicePrimaryCtxRetain, device.cu_device)
        self._pointer = int(device._call(device.driver.cuMemHostAlloc, nbytes, flags, doing="pinning host memory"))
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self._pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            device, driver = self._device, self._device.driver
            if device.lost:
                return
            if hasattr(self, "_pointer"):
                device._enter()
                driver.cuMemFreeHost(self._pointer)
            driver.cuDevicePrimaryCtxRelease(device.cu_device)
