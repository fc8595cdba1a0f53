"""A loaded library of kernels, and their launches."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import ArgumentError, BinaryRejected, DeviceError
from ...programs.signature import KernelSignature, Parameter
from ..arguments import Launcher
from ..base import Binary, FastLaunch, Kernel, LaunchOptions, Program
from .code_loading import load_function, unload_library
from .guests import guests_wait, wait_for_guests
from .native_launch import first_launch, native_launcher
from .packing import as_bytes, layout_of
from .param_layout import placed
from .prepared import CudaPrepared, new_prepared
from .synchronization import stream_of

if TYPE_CHECKING:
    from .device import CudaDevice

_DEFAULT_SHARED_BYTES = 48 * 1024  # more per group must be requested from the driver


class _Library:
    """A loaded library, unloaded when its last holder drops it.

    A thread holds it during a launch, so another thread may close the program meanwhile. `payload` are the bytes it was loaded
    from.
    """

    __slots__ = ("_device", "_payload", "handle")

    def __init__(self, device: CudaDevice, handle: Any, payload: bytes) -> None:
        self._device = device
        self._payload = payload
        self.handle = handle

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            if not self._device.lost:
                self._device.discarded.add(unload_library, self._device, self.handle, self._payload)


class CudaProgram(Program):
    """A loaded library of kernels."""

    device: CudaDevice

    def __init__(self, device: CudaDevice, compiled: Binary, library: Any) -> None:
        super().__init__(device, compiled)
        self._library: _Library | None = _Library(device, library, compiled.payload)
        self._found: dict[str, Any] = {}  # the driver's handles of kernels, by their names
        self._functions: dict[int, Any] = {}  # of kernels whose code is on the device

    def make_resident(self) -> None:
        for signature in self.compiled.kernels:
            self.load_kernel(self._find(signature), signature.name)

    def load_kernel(self, kernel: Any, name: str) -> Any:
        """The function of a kernel, whose code is on the device from now on."""
        function = self._functions.get(int(kernel))
        if function is None:
            _held = self.hold()
            function = load_function(self.device, kernel, name, self.name)
            self._functions[int(kernel)] = function
        return function

    def find_kernels(self) -> list[Any]:
        """The driver's handles of all kernels."""
        return [self._find(signature) for signature in self.compiled.kernels]

    def hold(self) -> _Library:
        """The library, to be held while a kernel of it is used; `DeviceError` if the program is closed."""
        library = self._library
        if library is None:
            self.device.check_open()
            raise DeviceError(f"program {self.name} is closed")
        return library

    def _find(self, signature: KernelSignature) -> Any:
        library = self.hold()
        kernel = self._found.get(signature.name)
        if kernel is None:
            symbol = (signature.symbol or signature.name).encode()
            status, kernel = self.device.driver.cuLibraryGetKernel(library.handle, symbol)
            if status is not self.device.success:
                raise BinaryRejected(f"the binary of {self.name} has no kernel {signature.name}")
            self._found[signature.name] = kernel
        return kernel

    def kernel_without_code(self) -> CudaKernel:
        """The program's only kernel, as `kernel()` gives it, but its code may not be on the device yet."""
        (signature,) = self.compiled.kernels
        self.check_open()
        kernel = self.keep(CudaKernel(self, signature, self._find(signature)))
        assert isinstance(kernel, CudaKernel)
        return kernel

    def make_kernel(self, signature: KernelSignature) -> Kernel:
        kernel = self._find(signature)
        if self.device.residents.grids:
            self.load_kernel(kernel, signature.name)  # the first launch would block
        return CudaKernel(self, signature, kernel)

    def unload(self, *, collected: bool = False) -> None:
        self._library = None
        if not collected:
            with self.device.current:
                self.device.discarded.clear()


def _confirmed(device: CudaDevice, kernel: Any, signature: KernelSignature) -> tuple[Parameter, ...]:
    """The parameters with the driver's offsets; if the driver's sizes differ from the signature's, sizes without types."""
    driver = device.driver
    layout: list[tuple[int, int]] = []
    while True:
        status, offset, size = driver.cuKernelGetParamInfo(kernel, len(layout))
        if status is not device.success:
            break
        layout.append((int(offset), int(size)))
    known = placed(signature.params or (), layout)
    if known is not None:
        return known
    return tuple(Parameter(f"arg{i}", "any", None, "rw", size, offset) for i, (offset, size) in enumerate(layout))


class _Packing:
    """The buffer that launches pack their arguments into, one launch at a time, and the pointers the driver takes."""

    def __init__(self, library: _Library, params: tuple[Parameter, ...]) -> None:
        self._library = library  # held for the launch that follows
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
    device: CudaDevice

    def __init__(self, program: CudaProgram, signature: KernelSignature, kernel: Any) -> None:
        super().__init__(program, signature)
        self.cu_kernel = kernel
        self._confirmed: tuple[Parameter, ...] | None = None
        params = signature.params
        if params and min([p.slot for p in params]) >= 0:  # read from the cubin when it was made
            self._confirmed = params
        self._allowed_shared = _DEFAULT_SHARED_BYTES
        self._groups_each: dict[tuple[int, int], int] = {}  # of a multiprocessor, by work-items and shared memory
        self._was_launched = False

    @property
    def params(self) -> tuple[Parameter, ...]:
        # The driver is asked on demand: usually at the first launch.
        if self._confirmed is None:
            if self.program.closed:
                return self.signature.params or ()
            _held = self.program.hold()
            with self.device.current:
                self._confirmed = _confirmed(self.device, self.cu_kernel, self.signature)
        return self._confirmed

    @cached_property
    def function(self) -> Any:
        """The kernel as the bindings take it for a launch. To the driver a CUkernel is as good as a CUfunction."""
        return self.device.driver.CUfunction(int(self.cu_kernel))

    @cached_property
    def _packing(self) -> _Packing:
        # If two threads make one at the same time, both use the first.
        first: _Packing = self.__dict__.setdefault("_first_packing", _Packing(self.program.hold(), self.params))
        return first

    def release(self) -> None:
        for name in ("_packing", "_first_packing"):
            self.__dict__.pop(name, None)

    def prepare_first(self, grid: int, args: tuple[Any, ...]) -> None:
        """Do for a first launch with these arguments what needs no code on the device."""
        self.check_shape(grid, None)
        self.check_arguments(args)
        _ = self._packing, self.function

    def launch_first(self, args: tuple[Any, ...], shape: Any) -> bool:
        if self._was_launched:
            return False
        self._was_launched = True
        return first_launch(self, args, shape)

    def native_launcher(self, slow: Launcher) -> Launcher | None:
        return native_launcher(self, slow)

    def fast_launch(self) -> FastLaunch:
        params, packing = self.params, self._packing
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
        names = {
            "packing": packing,  # owns the memory at address `arguments`
            "lock": packing.lock,
            "pack": packing.pack,
            "buffer": packing.buffer,
            "arguments": packing.arguments,
            "cu_launch": self.device.driver.cuLaunchKernel,
            "function": self.function,
            "stream": self.device.cu_stream,
            "success": self.device.success,
            "as_bytes": as_bytes,
            "again": self._launch_again,
            "wait_for_guests": wait_for_guests,
            "guests_wait": guests_wait,
        }
        return FastLaunch(lines, names)

    def native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return (*grid, *group)

    def _launch_again(self, shape: Any, arguments: int) -> None:
        """Launch again with our context current: the driver may have refused because of the thread's context."""
        stream = self.device.cu_stream
        with self.device.current:
            (status,) = self.device.driver.cuLaunchKernel(self.function, *shape, 0, stream, arguments, 0)
        if status != self.device.success:
            self.refuse(status)

    def check_options(self, options: LaunchOptions) -> None:
        if options.cooperative:
            self.device.capabilities.require("cooperative")
        self._allow_shared(options.shared_bytes)

    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        device, driver = self.device, self.device.driver
        packing = self._packing
        packed = (as_bytes(v) if p.kind == "any" else v for p, v in zip(self.params, values, strict=True))
        tail = (options.shared_bytes, stream_of(options.queue, device), packing.arguments)
        with packing.lock, device.current:
            packing.pack(packing.buffer, 0, *packed)
            if options.cooperative:
                (status,) = driver.cuLaunchCooperativeKernel(self.function, *shape, *tail)
            else:
                (status,) = driver.cuLaunchKernel(self.function, *shape, *tail, 0)
        if status != device.success:
            self.refuse(status)

    def bind_launch(
        self, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> CudaPrepared:
        return new_prepared(self, args, values, shape, options)

    def count_resident_groups(self, items: int, shared_bytes: int) -> int:
        return self.count_groups_each(items, shared_bytes) * self.device.count_sms()

    def count_groups_each(self, items: int, shared_bytes: int) -> int:
        """How many groups of this size run at the same time on one multiprocessor."""
        known = self._groups_each.get((items, shared_bytes))
        if known is not None:
            return known
        device, driver = self.device, self.device.driver
        _held = self.program.hold()
        self._allow_shared(shared_bytes)
        function = self.program.load_kernel(self.cu_kernel, self.name)
        with device.current:
            each = device.call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, items, shared_bytes)
        return self._groups_each.setdefault((items, shared_bytes), int(each))

    def _allow_shared(self, shared_bytes: int) -> None:
        """Check an amount of dynamic shared memory, and request it from the driver if it is more than the default."""
        device, driver = self.device, self.device.driver
        most = device.capabilities.shared_bytes
        if shared_bytes > most:
            raise ArgumentError(f"shared_bytes must be at most {most} on {device.spec}, got {shared_bytes}")
        if shared_bytes > self._allowed_shared:
            _held = self.program.hold()
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            with device.residents.out_of_the_way(), device.current:
                device.call(driver.cuKernelSetAttribute, which, shared_bytes, self.cu_kernel, device.cu_device)
            self._allowed_shared = shared_bytes

    def refuse(self, status: Any) -> NoReturn:
        """Raise what a refused launch means."""
        results = self.device.driver.CUresult
        if status in (results.CUDA_ERROR_INVALID_VALUE, results.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES):
            raise ArgumentError(
                f"{self.device.spec}: the driver refuses this grid or group for {self.name} ({status.name})"
            )
        if status == results.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
            raise ArgumentError(
                f"{self.name}: a cooperative launch must fit on the device at once, and this grid does not"
            )
        raise self.device.translated(status, f"launching {self.name}")
