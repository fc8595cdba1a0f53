"""CUDA through cuda-bindings: NVRTC compiles, the driver API runs.

Compiling needs no GPU and no driver (`compile_for`): NVRTC from PyPI makes a cubin for any architecture it knows. Running uses
the device's primary context, so memory of CuPy, PyTorch and JAX can be used as it is.

`load` puts all code on the device at once: code that is loaded by the first launch can wait for ever beside a kernel that
never exits. The cache's hits leave that to the first launch, and `preload` does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import re
import struct
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from ..errors import ArgumentError, BinaryRejected, DeviceError, KernelKeepError, OutOfMemory
from ..programs.signature import KernelSignature, Parameter, declared, read_heads, same_kernel
from ..programs.source import Source
from ..programs.unit import compile_error, translation_unit
from . import dlpack
from .array import Array, parse_dtype, parse_shape
from .base import Capabilities, Device, DeviceInfo, Fence, Kernel, MemoryInfo, Program, Queue, Timer
from .fingerprint import Fingerprint
from .image import Image

__all__ = ["CudaDevice", "compile_for", "compiler_version", "list_devices", "open_device"]

_COMPLAINT = re.compile(r"\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>[^\n]*)")
# Every kernel has its own parameter bank in the cubin, and nothing else has one.
_KERNEL_SECTION = re.compile(rb"\.nv\.constant0\.(\w+)\0")
_PTX_ENTRY = re.compile(rb"\.entry\s+(\w+)")
_STRUCT_CODES = dict(i1="b", u1="B", i2="h", u2="H", i4="i", u4="I", i8="q", u8="Q", f2="e", f4="f", f8="d")
_PLAIN_SHARED_BYTES = 48 * 1024  # more per group must be asked for


def _import(name: str) -> Any:
    try:
        import importlib

        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise DeviceError(
            f"CUDA needs cuda-bindings ({error}); install it with: pip install 'kernelkeep[cuda]'"
        ) from None


# --- compiling, which needs no GPU


@cache
def compiler_version() -> str:
    """NVRTC's version, told apart down to its build."""
    nvrtc = _import("nvrtc")
    try:
        _, major, minor = nvrtc.nvrtcVersion()
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception as error:
        message = f"CUDA needs NVRTC, which was not found ({error}); install it with: pip install 'kernelkeep[cuda]'"
        raise DeviceError(message.replace("\n", " ")) from None
    build = ""
    if path:
        # The first page of the library holds its build id; the whole of it is a hundred megabytes.
        with contextlib.suppress(OSError), Path(path).open("rb") as library:
            build = "-" + hashlib.sha256(library.read(4096)).hexdigest()[:8]
    return f"nvrtc {major}.{minor}{build} headers {_headers_identity()}"


@cache
def _headers_identity() -> str:
    """A digest of the toolkit's headers by name and size: they come in packages of their own, and programs use them."""
    digest = hashlib.sha256()
    for folder in _toolkit_headers():
        with contextlib.suppress(OSError):
            for path in sorted(Path(folder).glob("*.h*")):
                digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:8]


@cache
def _toolkit_headers() -> tuple[str, ...]:
    """Folders of CUDA's own headers (cuda_fp16.h, cooperative_groups.h), where they are installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    folders = []
    for component in ("cudart", "cccl"):
        with contextlib.suppress(Exception):
            folder = find_nvidia_header_directory(component)
            if folder:
                folders.append(str(folder))
    return tuple(folders)


def compile_for(source: Source, architecture: str) -> bytes:
    """Compile CUDA C for an architecture such as "sm_90"; no GPU is needed. Returns what `device.load` takes."""
    if source.language != "cuda":
        raise ArgumentError(f"source {source.name} is {source.language}, and CUDA takes cuda")
    if not re.fullmatch(r"sm_\d+[af]?", architecture):
        raise ArgumentError(f"{architecture!r} is not an architecture like sm_90")
    compiler_version()  # says clearly when there is no NVRTC
    nvrtc = _import("nvrtc")
    text = translation_unit(source).encode()
    status, program = nvrtc.nvrtcCreateProgram(text, f"{source.name}.cu".encode("utf-8", "replace"), 0, [], [])
    _check_nvrtc(nvrtc, status)
    try:
        form, target = _target(nvrtc, architecture)
        options = [f"--gpu-architecture={target}", "--std=c++17"]
        options += [f"--include-path={folder}" for folder in _toolkit_headers()]
        options += source.options
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode("utf-8", "replace")
            raise compile_error(source, log or f"NVRTC: {status.name}", _COMPLAINT)
        if form == "cubin":
            payload = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        else:
            payload = _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Image("cuda", form, _signatures(source, payload, form), payload, source.name).encode()


def _target(nvrtc: Any, architecture: str) -> tuple[str, str]:
    """A cubin for the real architecture, or PTX for the newest older one where the GPU is newer than the compiler."""
    _, known = nvrtc.nvrtcGetSupportedArchs()
    number = int(re.sub(r"\D", "", architecture))
    if number in known or number < min(known):
        return "cubin", architecture
    return "ptx", f"compute_{max(arch for arch in known if arch < number)}"


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    _, size = size_of(program)
    raw: bytes = b" " * size  # the bindings fill it in place
    read(program, raw)
    return raw


def _check_nvrtc(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"NVRTC: {status.name}")


def _signatures(source: Source, payload: bytes, form: str) -> tuple[KernelSignature, ...]:
    pattern = _KERNEL_SECTION if form == "cubin" else _PTX_ENTRY
    symbols = sorted({symbol.decode() for symbol in pattern.findall(payload)})
    known = read_heads(source.text) | declared(source.text)
    found = []
    for symbol in symbols:
        name = next((name for name in known if same_kernel(symbol, name)), _demangled(symbol))
        facts = known.get(name, KernelSignature(name))
        found.append(KernelSignature(name, facts.params, facts.group, symbol))
    return tuple(found)


def _demangled(symbol: str) -> str:
    """`axpy` from `_Z4axpyPff`; a symbol with more to it (templates, namespaces) keeps its full name."""
    match = re.match(r"_Z(\d+)", symbol)
    return symbol[match.end() : match.end() + int(match.group(1))] if match else symbol


# --- devices


@cache
def _driver() -> Any:
    """The driver, initialised once."""
    driver = _import("driver")
    try:
        (status,) = driver.cuInit(0)
    except Exception:
        raise DeviceError("there is no CUDA device here: no NVIDIA driver is installed") from None
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"there is no CUDA device here: the driver says {status.name}")
    return driver


def _count(driver: Any) -> int:
    _, count = driver.cuDeviceGetCount()
    if not count:
        raise DeviceError("there is no CUDA device here: the driver finds none")
    return int(count)


@cache
def _driver_version() -> str:
    _, version = _driver().cuDriverGetVersion()
    kernel_module = ""
    with contextlib.suppress(OSError):
        kernel_module = Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip() + " "
    return f"{kernel_module}cuda {version // 1000}.{version % 1000 // 10}"


def _info(index: int) -> DeviceInfo:
    driver = _driver()
    _, handle = driver.cuDeviceGet(index)
    _, name = driver.cuDeviceGetName(256, handle)
    _, memory = driver.cuDeviceTotalMem(handle)
    return DeviceInfo(
        spec=f"cuda:{index}",
        backend="cuda",
        name=name.split(b"\0")[0].decode(),
        vendor="NVIDIA",
        driver=_driver_version(),
        is_gpu=True,
        index=index,
        memory_bytes=int(memory),
    )


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every CUDA device."""
    return [_info(index) for index in range(_count(_driver()))]


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> CudaDevice:
    """Open a device by index, the first by default. A cubin is native code: there is no driver's cache to place."""
    count = _count(_driver())
    index = index or 0
    if index >= count:
        raise DeviceError(f"there is no device cuda:{index}; CUDA has {count} here")
    return CudaDevice(_info(index))


class CudaDevice(Device):
    """One CUDA device: its primary context and a stream of our own."""

    backend = "cuda"
    language = "cuda"

    def __init__(self, info: DeviceInfo) -> None:
        driver = self.driver = _driver()
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
        if image.form == "cubin" and not _is_whole_cubin(image.payload):
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

    def synchronize(self) -> None:
        self._check_open()
        self._enter()
        self._call(self.driver.cuStreamSynchronize, self.cu_stream)

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
        spec = getattr(self, "spec", "cuda")
        where = f"{spec}{f', {doing}' if doing else ''}"
        _, text = self.driver.cuGetErrorString(status)
        said = f"{status.name}: {text.decode() if isinstance(text, bytes) else text}"
        if status == self.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return OutOfMemory(f"{where}: out of memory")
        return DeviceError(f"{where}: {said}")


# 64-bit little-endian ELF for CUDA: magic, machine 190, and where its tables of segments and sections are.
_ELF = struct.Struct("<4sBB10x2xH4x8xQQ4x2xHHHH")


def _is_whole_cubin(payload: bytes) -> bool:
    """Whether these bytes are an ELF file for CUDA that is not cut off."""
    if len(payload) < _ELF.size:
        return False
    magic, kind, order, machine, segments_at, sections_at, *sizes = _ELF.unpack_from(payload)
    segment_size, segments, section_size, sections = sizes
    end = max(segments_at + segment_size * segments, sections_at + section_size * sections)
    return bool((magic, kind, order, machine) == (b"\x7fELF", 2, 1, 190) and sections and end <= len(payload))


class _Pinned:
    """Page-locked host memory, freed with the last NumPy array on it."""

    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        flags = device.driver.CU_MEMHOSTALLOC_PORTABLE | device.driver.CU_MEMHOSTALLOC_DEVICEMAP
        self._device = device
        self._pointer = int(device._call(device.driver.cuMemHostAlloc, nbytes, flags, doing="pinning host memory"))
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self._pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._device._enter()
            self._device.driver.cuMemFreeHost(self._pointer)


class CudaProgram(Program):
    """A loaded library of kernels."""

    def __init__(self, device: CudaDevice, image: Image, library: Any) -> None:
        super().__init__(device, image.name, len(image.payload))
        self._device = device
        self.image = image
        self.cu_library = library
        self._signatures = {signature.name: signature for signature in image.kernels}

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return tuple(self._signatures)

    def make_resident(self) -> None:
        device, driver = self._device, self._device.driver
        device._enter()
        for signature in self.image.kernels:
            status, _ = driver.cuKernelGetFunction(self._find(signature))
            if status is not device._success:
                if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                    raise device._translated(status, f"loading {self.name}")
                raise BinaryRejected(f"{device.spec} refuses kernel {signature.name} of {self.name}: {status.name}")

    def _find(self, signature: KernelSignature) -> Any:
        symbol = (signature.symbol or signature.name).encode()
        status, kernel = self._device.driver.cuLibraryGetKernel(self.cu_library, symbol)
        if status is not self._device._success:
            raise BinaryRejected(f"the binary of {self.name} has no kernel {signature.name}")
        return kernel

    def _make_kernel(self, name: str) -> Kernel:
        signature = self._signatures[name]
        return CudaKernel(self, signature, self._find(signature))

    def _unload(self) -> None:
        device = self._device
        device._enter()
        # A launch of it may still be running, and unloading does not wait for one.
        device.driver.cuStreamSynchronize(device.cu_stream)
        device.driver.cuLibraryUnload(self.cu_library)

    def binary(self) -> bytes:
        return self.image.encode()


def _confirmed(device: CudaDevice, kernel: Any, signature: KernelSignature) -> tuple[Parameter, ...]:
    """The signature as far as the driver agrees with it: where the sizes differ, the driver's sizes and no types."""
    driver = device.driver
    layout: list[tuple[int, int]] = []
    while True:
        status, offset, size = driver.cuKernelGetParamInfo(kernel, len(layout))
        if status is not device._success:
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


class CudaKernel(Kernel):
    """A kernel. Its arguments are packed into one buffer that the driver reads during the launch call."""

    def __init__(self, program: CudaProgram, signature: KernelSignature, kernel: Any) -> None:
        super().__init__(program, signature)
        self._device = program._device
        self._cu_kernel = kernel
        self._confirmed: tuple[Parameter, ...] | None = None
        self._lock = threading.Lock()
        self._function: Any = None

    @property
    def params(self) -> tuple[Parameter, ...]:
        # Asked of the driver when somebody wants to know: at the first launch, as a rule.
        if self._confirmed is None:
            self._device._enter()
            self._confirmed = _confirmed(self._device, self._cu_kernel, self.signature)
        return self._confirmed

    def _prepare(self) -> None:
        """Make the buffer that arguments are packed into."""
        params = self.params
        layout = struct.Struct(_layout(params))
        self._pack = layout.pack_into
        self._buffer = ctypes.create_string_buffer(max(layout.size, 8))
        address = ctypes.addressof(self._buffer)
        self._pointers = (ctypes.c_void_p * max(len(params), 1))(*(address + p.slot for p in params))
        self._arguments = ctypes.addressof(self._pointers)
        # The driver takes a CUkernel for a CUfunction; the bindings want to be told.
        self._function = self._device.driver.CUfunction(int(self._cu_kernel))

    def _launch_body(self, params: tuple[Parameter, ...]) -> tuple[list[str], dict[str, Any]]:
        if self._function is None:
            self._prepare()
        values = "".join(f"v{i}, " if p.kind != "any" else f"as_bytes(v{i}), " for i, p in enumerate(params))
        lines = [
            "x, y, z, gx, gy, gz = shape",
            "with lock:",
            f"    pack(buffer, 0, {values})",
            "    status = cu_launch(function, x, y, z, gx, gy, gz, 0, stream, arguments, 0)[0]",
            "    if status is not success:",
            "        again(shape)",
        ]
        helpers = {
            "lock": self._lock,
            "pack": self._pack,
            "buffer": self._buffer,
            "cu_launch": self._device.driver.cuLaunchKernel,
            "function": self._function,
            "stream": self._device.cu_stream,
            "arguments": self._arguments,
            "success": self._device._success,
            "as_bytes": _as_bytes,
            "again": self._launch_again,
        }
        return lines, helpers

    def _native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        return (*grid, *group)

    def _launch_again(self, shape: Any) -> None:
        """The launch was refused: perhaps only because this thread has no context, or another library's."""
        self._device._enter()
        stream = self._device.cu_stream
        (status,) = self._device.driver.cuLaunchKernel(self._function, *shape, 0, stream, self._arguments, 0)
        if status != self._device._success:
            self._refuse(status)

    def _launch_specially(
        self, values: tuple[Any, ...], shape: Any, queue: Queue | None, shared_bytes: int, cooperative: bool
    ) -> None:
        device, driver = self._device, self._device.driver
        if self._function is None:
            self._prepare()
        most = device.capabilities.shared_bytes
        if shared_bytes > most:
            raise ArgumentError(f"shared_bytes {shared_bytes} is more than {device.spec} has ({most})")
        stream = device.cu_stream if queue is None else _stream_of(queue, device)
        device._enter()
        if shared_bytes > _PLAIN_SHARED_BYTES:
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device._call(driver.cuKernelSetAttribute, which, shared_bytes, self._cu_kernel, device.cu_device)
        packed = (_as_bytes(v) if p.kind == "any" else v for p, v in zip(self.params, values, strict=True))
        tail = (shared_bytes, stream, self._arguments)
        with self._lock:
            self._pack(self._buffer, 0, *packed)
            if cooperative:
                (status,) = driver.cuLaunchCooperativeKernel(self._function, *shape, *tail)
            else:
                (status,) = driver.cuLaunchKernel(self._function, *shape, *tail, 0)
        if status != device._success:
            self._refuse(status)

    def _refuse(self, status: Any) -> NoReturn:
        results = self._device.driver.CUresult
        if status in (results.CUDA_ERROR_INVALID_VALUE, results.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES):
            raise ArgumentError(
                f"{self._device.spec}: the driver refuses this grid or group for {self.name} ({status.name})"
            )
        if status == results.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
            raise ArgumentError(
                f"{self.name}: a cooperative launch must fit on the device at once, and this grid does not"
            )
        raise self._device._translated(status, f"launching {self.name}")


def _as_bytes(value: Any) -> Any:
    """A handle as raw bytes, which the layout has where only the size of a parameter is known."""
    return value.to_bytes(8, "little") if isinstance(value, int) else value


def _layout(params: tuple[Parameter, ...]) -> str:
    """The struct format that puts each value at the offset the driver named."""
    text, at = "<", 0
    for p in params:
        text += "x" * (p.slot - at)
        if p.kind == "buffer":
            text += "Q"
        elif p.kind == "scalar" and p.dtype is not None:
            text += _STRUCT_CODES[p.dtype]
        else:
            text += f"{p.nbytes}s"
        at = p.slot + p.nbytes
    return text


def _stream_of(queue: Queue, device: CudaDevice) -> Any:
    if not isinstance(queue, CudaQueue) or queue.device is not device:
        raise ArgumentError(f"the queue does not belong to {device.spec}")
    return queue.cu_stream


class CudaQueue(Queue):
    """A stream."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        device._enter()
        flags = device.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.cu_stream = device._call(device.driver.cuStreamCreate, flags)

    def fence(self) -> CudaFence:
        return CudaFence(self.device, self.cu_stream)

    def wait_for(self, fence: Fence) -> None:
        if not isinstance(fence, CudaFence):
            raise ArgumentError("the fence does not belong to CUDA")
        self.device._enter()
        self.device._call(self.device.driver.cuStreamWaitEvent, self.cu_stream, fence.event, 0)

    def synchronize(self) -> None:
        self.device._enter()
        self.device._call(self.device.driver.cuStreamSynchronize, self.cu_stream)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if not self.device.closed:
                self.device._enter()
                self.device.driver.cuStreamDestroy(self.cu_stream)


class CudaFence(Fence):
    """An event."""

    def __init__(self, device: CudaDevice, stream: Any, *, timing: bool = False) -> None:
        self._device = device
        flags = device.driver.CUevent_flags
        device._enter()
        kind = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        self.event = device._call(device.driver.cuEventCreate, kind)
        device._call(device.driver.cuEventRecord, self.event, stream)

    @property
    def done(self) -> bool:
        self._device._enter()
        (status,) = self._device.driver.cuEventQuery(self.event)
        if status == self._device.driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if status != self._device._success:
            raise self._device._translated(status, "work before the fence")
        return True

    def wait(self, timeout_seconds: float | None = None) -> bool:
        if timeout_seconds is None:
            self._device._enter()
            self._device._call(self._device.driver.cuEventSynchronize, self.event)
            return True
        deadline = time.monotonic() + timeout_seconds
        while not self.done:
            if time.monotonic() >= deadline:
                return False
            time.sleep(20e-6)
        return True

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if not self._device.closed:
                self._device._enter()
                self._device.driver.cuEventDestroy(self.event)


class CudaTimer(Timer):
    """Two events."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._start: CudaFence | None = None
        self._end: CudaFence | None = None

    def __enter__(self) -> Self:
        self._start = CudaFence(self._device, self._device.cu_stream, timing=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end = CudaFence(self._device, self._device.cu_stream, timing=True)

    @property
    def seconds(self) -> float:
        if self._start is None or self._end is None:
            raise DeviceError("the timer's block has not ended")
        self._end.wait()
        driver = self._device.driver
        return float(self._device._call(driver.cuEventElapsedTime, self._start.event, self._end.event)) * 1e-3
