"""OpenCL through pyopencl. PoCL from PyPI is the embedded default: a real driver, no GPU needed.

PoCL needs care in two places:

- It links every kernel it compiles and aborts the whole process when there is no `ld`. So the linker is looked for
  before anything that may compile, which with PoCL includes the first launch of a binary that is not ripe.
- It compiles a kernel again for each group size, and once more for large grids, at the first launch of that kind. A
  binary read back afterwards holds that native code ("ripe") and runs at once in the next process. But a program's
  binary is fixed by the first reading, or by having been made from one: `OpenCLProgram.binary` lives with that.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, NoReturn, Self

import msgspec
import numpy as np

from ..errors import ArgumentError, BinaryRejected, DeviceError, KernelKeepError, OutOfMemory
from ..programs.signature import CTYPES, DTYPES, KernelSignature, Parameter, declared
from ..programs.source import Source
from ..programs.unit import compile_error, translation_unit, user_line
from .array import parse_dtype, parse_shape
from .base import Capabilities, Device, DeviceInfo, Fence, Kernel, LocalMemory, MemoryInfo, Program, Queue, Timer
from .fingerprint import Fingerprint, cpu_identity
from .image import Image

__all__ = ["OpenCLDevice", "list_devices", "open_device"]

_COMPLAINTS = (
    re.compile(r":(?P<line>\d+):\d+: (?:fatal )?error: (?P<message>[^\n]*)"),  # clang, NVIDIA
    re.compile(r"error: \S*?:(?P<line>\d+):\d+(?: <Spelling=[^>]*>)?: (?P<message>[^\n]*)"),  # PoCL
)
_NO_LINKER = (
    "PoCL links every kernel it compiles and needs the linker `ld`, which is not on the PATH; install it with: "
    "apt-get install binutils"
)
# Where PoCL switches from its small-grid code to its general code: the widest dimension, in work-items.
_SMALL_GRID_ITEMS = 65535


def _pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(
            f"OpenCL needs pyopencl ({error}); install it with: pip install 'kernelkeep[opencl]'"
        ) from None
    return pyopencl


class _QuickKernels(threading.local):
    on = False


_quick = _QuickKernels()


@cache
def _teach_pyopencl_quick_kernels() -> None:
    """Have pyopencl make kernels without generating Python code for each, in the thread and for the moment we ask for it.

    That code serves `kernel(queue, …)`, which is never called here, and takes a millisecond per kernel: more than
    loading the program. Everybody else's kernels are made as ever.
    """
    from pyopencl import invoker

    original = getattr(invoker, "generate_enqueue_and_set_args", None)
    if original is not None:

        def generate(*args: Any, **options: Any) -> Any:
            return (None, None) if _quick.on else original(*args, **options)

        invoker.generate_enqueue_and_set_args = generate


def _new_kernel(cl: Any, program: Any, name: str) -> Any:
    _quick.on = True
    try:
        return cl.Kernel(program, name)
    finally:
        _quick.on = False


def _found() -> list[Any]:
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        hint = "for one on the CPU: pip install 'kernelkeep[opencl]'"
        raise DeviceError(f"no OpenCL driver is installed ({error}); {hint}") from None
    devices = []
    for platform in platforms:
        try:
            devices.extend(platform.get_devices())
        except cl.Error:
            continue  # a platform without devices says so by failing
    return devices


def _info(index: int, device: Any) -> DeviceInfo:
    return DeviceInfo(
        spec=f"opencl:{index}",
        backend="opencl",
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        driver=f"{device.platform.name.strip()} {device.driver_version.strip()}",
        is_gpu=bool(device.type & _pyopencl().device_type.GPU),
        index=index,
        memory_bytes=device.global_mem_size,
    )


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every device of every platform."""
    return [_info(index, device) for index, device in enumerate(_found())]


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> OpenCLDevice:
    """Open a device by its place in `list_devices()`, by default the first GPU, else the first.

    OpenCL binaries hold native code, so there is no driver's cache to place.
    """
    devices = _found()
    if index is None:
        gpus = [i for i, device in enumerate(devices) if device.type & _pyopencl().device_type.GPU]
        index = gpus[0] if gpus else 0
    if index >= len(devices):
        raise DeviceError(f"there is no device opencl:{index}; OpenCL has {len(devices)} here")
    return OpenCLDevice(_info(index, devices[index]), devices[index])


class OpenCLDevice(Device):
    """One OpenCL device with a context and an in-order queue of its own."""

    backend = "opencl"
    language = "opencl"

    def __init__(self, info: DeviceInfo, device: Any) -> None:
        cl = self.cl = _pyopencl()
        self._ignores_line_markers = "nvidia" in device.platform.name.lower()
        self.is_pocl = "portable computing language" in device.platform.name.lower()
        fingerprint = Fingerprint(
            backend="opencl",
            vendor=device.vendor,
            model=device.name,
            driver=f"{device.platform.name} {device.driver_version}",
            compiler=device.platform.version,
            architecture=_architecture(cl, device),
        )
        super().__init__(info, fingerprint, self._read_capabilities(device))
        self.cl_device = device
        try:
            self.cl_context = cl.Context([device])
            self.cl_queue = cl.CommandQueue(self.cl_context)
        except cl.Error as error:
            raise DeviceError(f"cannot open {info.spec} ({info.name}): {error}") from None
        self._max_alloc_bytes = int(device.max_mem_alloc_size)
        self._profiling_queue: Any = None
        _teach_pyopencl_quick_kernels()

    def _read_capabilities(self, device: Any) -> Capabilities:
        extensions = device.extensions.split()
        x, y, z = (*device.max_work_item_sizes, 1, 1)[:3]
        return Capabilities(
            float_atomics=True,  # by compare-and-swap, which every OpenCL has
            float64="cl_khr_fp64" in extensions,
            int64=True,
            int8=True,
            queues=True,
            pinned_memory=bool(device.type & self.cl.device_type.GPU),
            ripening_binaries=self.is_pocl,
            max_group_items=int(device.max_work_group_size),
            max_group=(int(x), int(y), int(z)),
            max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
            shared_bytes=int(device.local_mem_size),
        )

    # --- programs

    def _compile(self, source: Source) -> bytes:
        with self._build(source) as program:
            return program.binary()

    def _build(self, source: Source) -> OpenCLProgram:
        cl = self.cl
        self.require_linker()
        recipe = (translation_unit(source), " ".join((*source.options, "-cl-kernel-arg-info")))
        program = self._new_program(recipe)
        try:
            self._build_program(program, recipe[1])
        except cl.Error as error:
            log = program.get_build_info(self.cl_device, cl.program_build_info.LOG)
            if (
                error.code in (cl.status_code.BUILD_PROGRAM_FAILURE, cl.status_code.INVALID_BUILD_OPTIONS)
                or log.strip()
            ):
                # NVIDIA's compiler counts physical lines, whatever #line says.
                locate = (lambda line: user_line(recipe[0], line)) if self._ignores_line_markers else None
                raise compile_error(source, log or str(error), *_COMPLAINTS, locate=locate) from None
            raise self._translated(error) from None
        known = declared(source.text)
        names = self._guarded(lambda: _kernel_names(cl, program))
        signatures = self._guarded(lambda: tuple(self._reflect(program, name, known) for name in names))
        form = "poclbin" if self.is_pocl else "binary"
        image = Image("opencl", form, signatures, b"", source.name, recipe=recipe if self.is_pocl else None)
        return OpenCLProgram(self, image, program)

    def _new_program(self, recipe: tuple[str, str]) -> Any:
        # The class below pyopencl.Program: the public one keeps a cache of its own behind the user's back.
        return self.cl._cl._Program(self.cl_context, recipe[0])

    def _build_program(self, program: Any, options: str) -> None:
        # The call below _Program.build, which warns whenever a compiler says anything at all, as NVIDIA's always does.
        program._build(options=options.encode(), devices=[self.cl_device])

    def _load(self, binary: bytes) -> OpenCLProgram:
        image = Image.decode(binary, "opencl")
        cl = self.cl
        try:
            program = cl._cl._Program(self.cl_context, [self.cl_device], [image.payload])
            self._build_program(program, "")
        except (cl.Error, ValueError) as error:
            raise BinaryRejected(f"{self.spec} refuses the binary of {image.name}: {error}") from None
        return OpenCLProgram(self, image, program)

    def _reflect(self, program: Any, name: str, known: dict[str, KernelSignature]) -> KernelSignature:
        if name in known:
            return known[name]
        cl = self.cl
        kernel = _new_kernel(cl, program, name)
        x, y, z = kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, self.cl_device)
        group = (int(x), int(y), int(z)) if x else None
        try:
            params = tuple(_reflect_argument(cl, kernel, i) for i in range(kernel.num_args))
        except cl.Error:
            params = tuple(Parameter(f"arg{i}", "any") for i in range(kernel.num_args))
        return KernelSignature(name, params, group)

    def require_linker(self) -> None:
        """PoCL without a linker kills the process; say so instead."""
        if self.is_pocl and shutil.which("ld") is None:
            raise DeviceError(_NO_LINKER)

    # --- memory

    def _allocate(self, nbytes: int) -> Any:
        # Some drivers allocate lazily and fail only at the first use, so the promise is checked here.
        if nbytes > self._max_alloc_bytes:
            most = f"{self._max_alloc_bytes:,} bytes at once"
            raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes (it gives at most {most})")
        try:
            return self.cl.Buffer(self.cl_context, self.cl.mem_flags.READ_WRITE, nbytes)
        except self.cl.Error as error:
            raise self._translated(error, f"allocating {nbytes:,} bytes") from None

    def _free(self, handle: Any) -> None:
        handle.release()  # the driver waits for launches that still use it

    def _upload(self, handle: Any, host: np.ndarray[Any, Any]) -> None:
        self._guarded(lambda: self.cl.enqueue_copy(self.cl_queue, handle, host, is_blocking=True))

    def _download(self, handle: Any, out: np.ndarray[Any, Any]) -> None:
        self._guarded(lambda: self.cl.enqueue_copy(self.cl_queue, out, handle, is_blocking=True))

    def _copy(self, target: Any, origin: Any, nbytes: int) -> None:
        self._guarded(lambda: self.cl.enqueue_copy(self.cl_queue, target, origin, byte_count=nbytes))

    def pinned_empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        if not self.capabilities.pinned_memory:
            return super().pinned_empty(shape, dtype)
        self._check_open()
        cl, flags = self.cl, self.cl.mem_flags
        parsed_shape, parsed_dtype = parse_shape(shape), parse_dtype(dtype)
        nbytes = max(16, int(np.prod(parsed_shape, dtype=np.int64)) * parsed_dtype.itemsize)
        both = cl.map_flags.READ | cl.map_flags.WRITE

        def pin() -> Any:
            buffer = cl.Buffer(self.cl_context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, nbytes)
            return cl.enqueue_map_buffer(self.cl_queue, buffer, both, 0, parsed_shape, parsed_dtype)[0]

        result: np.ndarray[Any, Any] = self._guarded(pin)
        return result

    def memory_info(self) -> MemoryInfo:
        self._check_open()
        return MemoryInfo(int(self.cl_device.global_mem_size), None)

    # --- order and time

    def fence(self) -> OpenCLFence:
        self._check_open()
        return OpenCLFence(self, self.cl_queue)

    def timer(self) -> OpenCLTimer:
        self._check_open()
        return OpenCLTimer(self)

    def queue(self) -> OpenCLQueue:
        self._check_open()
        return OpenCLQueue(self)

    def synchronize(self) -> None:
        self._check_open()
        self._guarded(self.cl_queue.finish)

    def _close(self) -> None:
        self._guarded(self.cl_queue.finish)

    # --- errors

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Do it; what pyopencl raises is translated."""
        try:
            return call()
        except self.cl.Error as error:
            raise self._translated(error) from None

    def _translated(self, error: Any, doing: str = "") -> KernelKeepError:
        codes = self.cl.status_code
        memory = (codes.MEM_OBJECT_ALLOCATION_FAILURE, codes.OUT_OF_HOST_MEMORY, codes.INVALID_BUFFER_SIZE)
        where = f"{self.spec}{f', {doing}' if doing else ''}"
        if error.code in memory:
            return OutOfMemory(f"{where}: out of memory ({error})")
        if error.code in (codes.INVALID_WORK_GROUP_SIZE, codes.INVALID_WORK_ITEM_SIZE, codes.INVALID_GLOBAL_WORK_SIZE):
            return ArgumentError(f"{where}: the driver refuses this grid or group ({error})")
        return DeviceError(f"{where}: {error}")


def _architecture(cl: Any, device: Any) -> str:
    parts = [device.version]
    if device.type & cl.device_type.CPU:
        parts.append(cpu_identity())
    try:
        parts.append(f"sm_{device.compute_capability_major_nv}{device.compute_capability_minor_nv}")
    except (cl.Error, AttributeError):
        pass
    return " ".join(parts)


def _kernel_names(cl: Any, program: Any) -> list[str]:
    return [name for name in program.get_info(cl.program_info.KERNEL_NAMES).split(";") if name]


def _reflect_argument(cl: Any, kernel: Any, index: int) -> Parameter:
    info = cl.kernel_arg_info
    name = kernel.get_arg_info(index, info.NAME)
    kind = kernel.get_arg_info(index, info.TYPE_NAME)
    space = kernel.get_arg_info(index, info.ADDRESS_QUALIFIER)
    if space == cl.kernel_arg_address_qualifier.LOCAL:
        return Parameter(name, "local")
    dtype = CTYPES.get(kind.rstrip("*").strip())
    if space == cl.kernel_arg_address_qualifier.PRIVATE:
        nbytes = DTYPES[dtype][0] if dtype in DTYPES else 0
        return Parameter(name, "scalar", dtype if nbytes else None, "r", nbytes)
    constant = kernel.get_arg_info(index, info.TYPE_QUALIFIER) & cl.kernel_arg_type_qualifier.CONST
    return Parameter(name, "buffer", dtype, "r" if constant else "rw")


class OpenCLProgram(Program):
    """A built program.

    With PoCL the binary of a program built from source can be read once, and holds the kinds of launches made until
    then; a program made from a binary gives back just that. A riper one comes from building again: PoCL's own kernel
    cache then contributes every kind launched so far. With that cache off, the one reading is saved for after the
    first launch, and anything wanted before comes from a second build.
    """

    def __init__(self, device: OpenCLDevice, image: Image, program: Any) -> None:
        super().__init__(device, image.name, len(image.payload))
        self._device = device
        self._lock = threading.Lock()
        self.image = image
        self.cl_program = program
        self._unread = not image.payload
        self._signatures = {signature.name: signature for signature in image.kernels}
        self._kinds: set[bytes] = set()  # the kinds of launches made that the image's payload does not hold

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return tuple(self._signatures)

    def _make_kernel(self, name: str) -> Kernel:
        return OpenCLKernel(self, self._signatures[name])

    def _unload(self) -> None:
        self.cl_program = None

    @property
    def ripeness(self) -> int:
        return len(self._kinds)

    def binary(self) -> bytes:
        with self._lock:
            if not self.image.payload or self._kinds:
                payload = self._ripest()
                missing = {kind for kind in self._kinds if kind not in payload}
                if not self.image.payload or len(missing) < len(self._kinds):
                    self.image = msgspec.structs.replace(self.image, payload=payload)
                    self._kinds = missing
                    self.nbytes = len(payload)
            return self.image.encode()

    def _ripest(self) -> bytes:
        device, cl = self._device, self._device.cl
        program, recipe = self.cl_program, self.image.recipe
        if program is None:
            raise DeviceError(f"program {self.name} is closed")
        if device.is_pocl and not _pocl_caches() and not self._unread:
            return self.image.payload  # nothing riper can be had
        keep_unread = device.is_pocl and not _pocl_caches() and not self._kinds
        if recipe is not None and (keep_unread or not self._unread):
            program = device._new_program(recipe)
            device._guarded(lambda: device._build_program(program, recipe[1]))
        else:
            self._unread = False
        payload: bytes = device._guarded(lambda: program.get_info(cl.program_info.BINARIES)[0])
        return payload

    def _note_launch(self, kernel: str, group: tuple[int, int, int], small: bool) -> None:
        """A kind of launch not made before: is its native code in the binary we came from?"""
        kind = "/{}/{}-{}-{}-goffs0{}/".format(kernel, *group, "-smallgrid" if small else "").encode()
        if kind not in self.image.payload:
            self._device.require_linker()
            self._kinds.add(kind)
            if self.on_ripening is not None:
                self.on_ripening()


def _pocl_caches() -> bool:
    return os.environ.get("POCL_KERNEL_CACHE", "1") != "0"


class OpenCLKernel(Kernel):
    """A kernel. OpenCL keeps arguments in the kernel object, so setting them and launching is one locked step."""

    def __init__(self, program: OpenCLProgram, signature: KernelSignature) -> None:
        super().__init__(program, signature)
        device = program.device
        assert isinstance(device, OpenCLDevice)
        cl = self._cl = device.cl
        self._device = device
        self._owner = program
        self._lock = threading.Lock()
        self._kernel = device._guarded(lambda: _new_kernel(cl, program.cl_program, signature.name))
        self._set: list[Any] = [None] * len(signature.params or ())  # the arguments the kernel object has now

    def _launch_body(self, params: tuple[Parameter, ...]) -> tuple[list[str], dict[str, Any]]:
        kernel = self._kernel
        helpers = {
            "lock": self._lock,
            "native": kernel,
            "enqueue": self._cl.enqueue_nd_range_kernel,
            # What pyopencl's own generated code calls; its public set_arg tries every kind of argument in turn.
            "set_buffers": kernel._set_arg_multi,
            "set_scalars": kernel._set_arg_buf_multi,
            "set_others": self._set_others,
            "now": self._set,
            "error": self._cl.Error,
            "refuse": self._refuse,
        }
        lines = ["try:", "    with lock:"]
        for kind, call in (("buffer", "set_buffers"), ("scalar", "set_scalars")):
            places = [i for i, p in enumerate(params) if p.kind == kind]
            if places:
                # The kernel object keeps its arguments; a loop on the same arrays sets them once.
                changed = " or ".join(f"v{i} is not now[{i}]" for i in places)
                pairs = "".join(f"{i}, v{i}, " for i in places)
                noted = "; ".join(f"now[{i}] = v{i}" for i in places)
                lines += [f"        if {changed}:", f"            {call}(({pairs})); {noted}"]
        others = "".join(f"{i}, v{i}, " for i, p in enumerate(params) if p.kind not in ("buffer", "scalar"))
        if others:
            lines.append(f"        set_others(({others}))")
        lines += ["        enqueue(device.cl_queue, native, shape[0], shape[1])"]
        lines += ["except error as problem:", "    refuse(problem)"]
        return lines, helpers

    def _launch_specially(
        self, values: tuple[Any, ...], shape: Any, queue: Queue | None, shared_bytes: int, cooperative: bool
    ) -> None:
        if shared_bytes:
            raise ArgumentError("OpenCL takes group-local memory as arguments: kk.LocalMemory(nbytes)")
        target = self._device.cl_queue if queue is None else _queue_of(queue, self._device)
        pairs = tuple(part for pair in enumerate(values) for part in pair)
        try:
            with self._lock:
                self._set[:] = [None] * len(self._set)
                self._set_others(pairs)
                self._cl.enqueue_nd_range_kernel(target, self._kernel, *shape)
        except self._cl.Error as error:
            self._refuse(error)

    def _set_others(self, pairs: tuple[Any, ...]) -> None:
        """Set arguments of any kind, given as index and value in turn."""
        for i, value in zip(pairs[::2], pairs[1::2], strict=True):
            if isinstance(value, LocalMemory):
                self._kernel.set_arg(i, self._cl.LocalMemory(value.nbytes))
            elif isinstance(value, bytes | np.generic):
                self._kernel._set_arg_buf(i, value)
            else:
                self._kernel.set_arg(i, value)

    def _native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        items = tuple(count * size for count, size in zip(grid, group, strict=True))
        if self._device.capabilities.ripening_binaries:
            self._owner._note_launch(self.name, group, small=max(items) < _SMALL_GRID_ITEMS)
        return (items[:1], group[:1]) if items[1:] == (1, 1) else (items, group)

    def _refuse(self, error: Any) -> NoReturn:
        self._set[:] = [None] * len(self._set)
        raise self._device._translated(error, f"launching {self.name}") from None


def _queue_of(queue: Queue, device: OpenCLDevice) -> Any:
    if not isinstance(queue, OpenCLQueue) or queue.device is not device:
        raise ArgumentError(f"the queue does not belong to {device.spec}")
    return queue.cl_queue


class OpenCLQueue(Queue):
    """An in-order queue beside the device's own."""

    def __init__(self, device: OpenCLDevice) -> None:
        self.device = device
        self.cl_queue = device._guarded(lambda: device.cl.CommandQueue(device.cl_context))

    def fence(self) -> OpenCLFence:
        return OpenCLFence(self.device, self.cl_queue)

    def wait_for(self, fence: Fence) -> None:
        if not isinstance(fence, OpenCLFence):
            raise ArgumentError("the fence does not belong to OpenCL")
        self.device._guarded(lambda: self.device.cl.enqueue_barrier(self.cl_queue, wait_for=[fence.event]))

    def synchronize(self) -> None:
        self.device._guarded(self.cl_queue.finish)


class OpenCLFence(Fence):
    """A marker's event."""

    def __init__(self, device: OpenCLDevice, queue: Any) -> None:
        self._device = device
        self.event = device._guarded(lambda: device.cl.enqueue_marker(queue))
        device._guarded(queue.flush)

    @property
    def done(self) -> bool:
        status = self.event.command_execution_status
        if status < 0:
            raise DeviceError(f"{self._device.spec}: work before the fence failed (OpenCL error {status})")
        return bool(status == self._device.cl.command_execution_status.COMPLETE)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        if timeout_seconds is None:
            self._device._guarded(self.event.wait)
            return True
        deadline = time.monotonic() + timeout_seconds
        while not self.done:
            if time.monotonic() >= deadline:
                return False
            time.sleep(20e-6)
        return True


class OpenCLTimer(Timer):
    """Markers on a profiling queue, which stands in for the device's own queue inside the block.

    Profiling costs NVIDIA's driver a third more per launch, so the queue used otherwise does without. Launches of
    other threads during the block are measured with it.
    """

    def __init__(self, device: OpenCLDevice) -> None:
        self._device = device
        self._start: Any = None
        self._end: Any = None

    def __enter__(self) -> Self:
        device, cl = self._device, self._device.cl
        if device._profiling_queue is None:
            device._profiling_queue = cl.CommandQueue(
                device.cl_context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
        self._plain = device.cl_queue
        device._guarded(self._plain.finish)
        device.cl_queue = device._profiling_queue
        self._start = device._guarded(lambda: cl.enqueue_marker(device._profiling_queue))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device = self._device
        try:
            self._end = device._guarded(lambda: device.cl.enqueue_marker(device._profiling_queue))
            device._guarded(device._profiling_queue.finish)
        finally:
            device.cl_queue = self._plain

    @property
    def seconds(self) -> float:
        if self._end is None:
            raise DeviceError("the timer's block has not ended")
        return float(self._end.profile.end - self._start.profile.end) * 1e-9
