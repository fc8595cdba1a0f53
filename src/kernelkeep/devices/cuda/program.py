"""A loaded library of kernels, and launching them."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import ArgumentError, BinaryRejected, DeviceError
from ...programs.signature import KernelSignature, Parameter
from ..base import Kernel, Program, Queue
from ..image import Image
from .guests import guests_wait, wait_for_guests
from .order import stream_of
from .packing import as_bytes, layout_of
from .prepared import CudaPrepared, new_prepared

if TYPE_CHECKING:
    from .device import CudaDevice

__all__ = ["CudaKernel", "CudaProgram", "is_whole_cubin"]

_PLAIN_SHARED_BYTES = 48 * 1024  # more per group must be asked for
# 64-bit little-endian ELF for CUDA: magic, machine 190, and where its tables of segments and sections are.
_ELF = struct.Struct("<4sBB10x2xH4x8xQQ4x2xHHHH")


def is_whole_cubin(payload: bytes) -> bool:
    """Whether these bytes are an ELF file for CUDA that is not cut off."""
    if len(payload) < _ELF.size:
        return False
    magic, kind, order, machine, segments_at, sections_at, *sizes = _ELF.unpack_from(payload)
    segment_size, segments, section_size, sections = sizes
    end = max(segments_at + segment_size * segments, sections_at + section_size * sections)
    return bool((magic, kind, order, machine) == (b"\x7fELF", 2, 1, 190) and sections and end <= len(payload))


class _Library:
    """A loaded library. It is unloaded once everybody has let it go who could be about to launch from it.

    A thread that is in the middle of a launch holds it, also while another one closes the program.
    """

    __slots__ = ("_device", "handle")

    def __init__(self, device: CudaDevice, handle: Any) -> None:
        self._device = device
        self.handle = handle

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            if not self._device.lost:
                self._device.discarded.add(_unload, self._device, self.handle)


class CudaProgram(Program):
    """A loaded library of kernels."""

    def __init__(self, device: CudaDevice, image: Image, library: Any) -> None:
        super().__init__(device, image.name, len(image.payload))
        self._device = device
        self.image = image
        self._library: _Library | None = _Library(device, library)
        self._signatures = {signature.name: signature for signature in image.kernels}

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return tuple(self._signatures)

    def make_resident(self) -> None:
        device, driver = self._device, self._device.driver
        for signature in self.image.kernels:
            with device.current:
                status, _ = driver.cuKernelGetFunction(self._find(signature))
            if status is not device.success:
                if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                    raise device.translated(status, f"loading {self.name}")
                raise BinaryRejected(f"{device.spec} refuses kernel {signature.name} of {self.name}: {status.name}")

    def hold(self) -> _Library:
        """What has to be kept while something of the program is used; `DeviceError` if it is closed."""
        library = self._library
        if library is None:
            self.device._check_open()
            raise DeviceError(f"program {self.name} is closed")
        return library

    def _find(self, signature: KernelSignature) -> Any:
        symbol = (signature.symbol or signature.name).encode()
        library = self.hold()
        status, kernel = self._device.driver.cuLibraryGetKernel(library.handle, symbol)
        if status is not self._device.success:
            raise BinaryRejected(f"the binary of {self.name} has no kernel {signature.name}")
        return kernel

    def _make_kernel(self, name: str) -> Kernel:
        signature = self._signatures[name]
        return CudaKernel(self, signature, self._find(signature))

    def _unload(self) -> None:
        self._library = None
        with self._device.current:
            self._device.discarded.clear()

    def _abandon(self) -> None:
        self._library = None

    def binary(self) -> bytes:
        return self.image.encode()


def _unload(device: CudaDevice, library: Any) -> None:
    device.settle()  # a launch of it may still be running, and unloading does not wait for one
    device.driver.cuLibraryUnload(library)


def _confirmed(device: CudaDevice, kernel: Any, signature: KernelSignature) -> tuple[Parameter, ...]:
    """The signature as far as the driver agrees with it: where the sizes differ, the driver's sizes and no types."""
    driver = device.driver
    layout: list[tuple[int, int]] = []
    while True:
        status, offset, size = driver.cuKernelGetParamInfo(kernel, len(layout))
        if status is not device.success:
            break
        layout.append((int(offset), int(size)))
    params = signature.params or ()
    sizes = [8 if p.kind == "buffer" else p.nbytes for p in params]
    if len(sizes) == len(layout) and all(size in (0, real) for size, (_, real) in zip(sizes, layout, strict=True)):
        return tuple(
            Parameter(p.name, p.kind, p.dtype, p.access, size, slot=offset)
            for p, (offset, size) in zip(params, layout, strict=True)
        )
    return tuple(Parameter(f"arg{i}", "any", None, "rw", size, offset) for i, (offset, size) in enumerate(layout))


class _Packing:
    """The buffer that the arguments of launches are packed into, and the driver's view of it; one launch at a time."""

    def __init__(self, library: _Library, params: tuple[Parameter, ...]) -> None:
        self._library = library  # whoever packs arguments is about to launch
        layout = struct.Struct(layout_of(params))
        self.lock = threading.Lock()
        self.pack = layout.pack_into
        self.buffer = ctypes.create_string_buffer(max(layout.size, 8))
        address = ctypes.addressof(self.buffer)
        self._pointers = (ctypes.c_void_p * max(len(params), 1))(*(address + p.slot for p in params))
        self.arguments = ctypes.addressof(self._pointers)


class CudaKernel(Kernel):
    """A kernel. Its arguments are packed into one buffer that the driver reads during the launch call."""

    program: CudaProgram

    def __init__(self, program: CudaProgram, signature: KernelSignature, kernel: Any) -> None:
        super().__init__(program, signature)
        self._device = program._device
        self._cu_kernel = kernel
        # The driver takes a CUkernel for a CUfunction; the bindings want to be told.
        self.function = self._device.driver.CUfunction(int(kernel))
        self._confirmed: tuple[Parameter, ...] | None = None

    @property
    def params(self) -> tuple[Parameter, ...]:
        # Asked of the driver when somebody wants to know: at the first launch, as a rule.
        if self._confirmed is None:
            if self.program.closed:
                return self.signature.params or ()
            _held = self.program.hold()
            with self._device.current:
                self._confirmed = _confirmed(self._device, self._cu_kernel, self.signature)
        return self._confirmed

    @cached_property
    def _packing(self) -> _Packing:
        # Two threads may make one each at the same time; then both use the same.
        first: _Packing = self.__dict__.setdefault("_first_packing", _Packing(self.program.hold(), self.params))
        return first

    def _retire(self) -> None:
        super()._retire()
        for name in ("_packing", "_first_packing"):
            self.__dict__.pop(name, None)

    def _launch_body(self, params: tuple[Parameter, ...]) -> tuple[list[str], dict[str, Any]]:
        packing = self._packing
        values = "".join(f"v{i}, " if p.kind != "any" else f"as_bytes(v{i}), " for i, p in enumerate(params))
        lines = [
            "x, y, z, gx, gy, gz = shape",
            "if shared:",
            "    streams = wait_for_guests(device, shared, stream)",
            "with lock:",
            f"    pack(buffer, 0, {values})",
            "    status = cu_launch(function, x, y, z, gx, gy, gz, 0, stream, arguments, 0)[0]",
            "    if status is not success:",
            "        again(shape, arguments)",
            "if shared:",
            "    guests_wait(device, streams, stream)",
        ]
        helpers = {
            "packing": packing,  # it owns the memory that `arguments` is the address of
            "lock": packing.lock,
            "pack": packing.pack,
            "buffer": packing.buffer,
            "arguments": packing.arguments,
            "cu_launch": self._device.driver.cuLaunchKernel,
            "function": self.function,
            "stream": self._device.cu_stream,
            "success": self._device.success,
            "as_bytes": as_bytes,
            "again": self._launch_again,
            "wait_for_guests": wait_for_guests,
            "guests_wait": guests_wait,
        }
        return lines, helpers

    def _native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return (*grid, *group)

    def _launch_again(self, shape: Any, arguments: int) -> None:
        """The launch was refused: perhaps only because this thread has no context, or another library's."""
        stream = self._device.cu_stream
        with self._device.current:
            (status,) = self._device.driver.cuLaunchKernel(self.function, *shape, 0, stream, arguments, 0)
        if status != self._device.success:
            self.refuse(status)

    def _launch_specially(
        self, values: tuple[Any, ...], shape: Any, queue: Queue | None, shared_bytes: int, cooperative: bool
    ) -> None:
        device, driver = self._device, self._device.driver
        packing = self._packing
        self._allow_shared(shared_bytes)
        stream = device.cu_stream if queue is None else stream_of(queue, device)
        packed = (as_bytes(v) if p.kind == "any" else v for p, v in zip(self.params, values, strict=True))
        tail = (shared_bytes, stream, packing.arguments)
        with packing.lock, device.current:
            packing.pack(packing.buffer, 0, *packed)
            if cooperative:
                (status,) = driver.cuLaunchCooperativeKernel(self.function, *shape, *tail)
            else:
                (status,) = driver.cuLaunchKernel(self.function, *shape, *tail, 0)
        if status != device.success:
            self.refuse(status)

    def _prepare_launch(
        self,
        args: tuple[Any, ...],
        values: tuple[Any, ...],
        shape: Any,
        queue: Queue | None,
        shared_bytes: int,
        cooperative: bool,
    ) -> CudaPrepared:
        _held = self.program.hold()
        self._allow_shared(shared_bytes)
        stream = self._device.cu_stream if queue is None else stream_of(queue, self._device)
        prepared = new_prepared(self, args, values, shape, stream, shared_bytes, cooperative)
        prepared.queue = queue
        return prepared

    def _resident_groups(self, items: int, shared_bytes: int) -> int:
        device, driver = self._device, self._device.driver
        _held = self.program.hold()
        self._allow_shared(shared_bytes)
        with device.current:
            function = device.call(driver.cuKernelGetFunction, self._cu_kernel)
            each = device.call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, items, shared_bytes)
        count = device._attribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        return int(each) * count

    def _allow_shared(self, shared_bytes: int) -> None:
        """Check an amount of dynamic shared memory, and ask for it where it must be asked for."""
        device, driver = self._device, self._device.driver
        most = device.capabilities.shared_bytes
        if shared_bytes > most:
            raise ArgumentError(f"shared_bytes {shared_bytes} is more than {device.spec} has ({most})")
        if shared_bytes > _PLAIN_SHARED_BYTES:
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            with device.current:
                device.call(driver.cuKernelSetAttribute, which, shared_bytes, self._cu_kernel, device.cu_device)

    def refuse(self, status: Any) -> NoReturn:
        results = self._device.driver.CUresult
        if status in (results.CUDA_ERROR_INVALID_VALUE, results.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES):
            raise ArgumentError(
                f"{self._device.spec}: the driver refuses this grid or group for {self.name} ({status.name})"
            )
        if status == results.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
            raise ArgumentError(
                f"{self.name}: a cooperative launch must fit on the device at once, and this grid does not"
            )
        raise self._device.translated(status, f"launching {self.name}")
