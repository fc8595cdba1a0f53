"""The OpenCL device: compiling, loading, memory and errors.

PoCL links every kernel it compiles and aborts the whole process if there is no linker, or no space to write. So both are
checked (`require_tools`) before anything that may compile. With PoCL that includes the first launch of a binary that is not
ripe (`program.py`).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, BinaryRejected, DeviceError, KernelKeepError, OutOfMemory, Unsupported
from ...programs.source import Source
from ...programs.translation_unit import compile_error, translation_unit, user_line
from ..base import Binary, Capabilities, Device, DeviceInfo, MemoryInfo, Queue
from ..fingerprint import Fingerprint, cpu_identity
from ..host_data import parse_dtype, parse_shape
from ..replay import Replay, Step
from .lanes import OpenCLLanes
from .library import find_devices, info_of, install_fast_kernel_lookup, load_pyopencl
from .memory import buffer_class, part_of_buffer
from .native import new_target
from .pocl import choose_method, is_pocl, lacks_program, vectors_used
from .pocl_cpu import compiled_for
from .pocl_folder import remove_damaged, require_folder
from .program import OpenCLProgram
from .reflection import kernel_symbols, reflect
from .replay import new_replay
from .silence import silence_in_forked_child
from .synchronization import OpenCLFence, OpenCLQueue, OpenCLTimer

_COMPLAINTS = (
    re.compile(r":(?P<line>\d+):\d+: (?:fatal )?error: (?P<message>[^\n]*)"),  # clang, NVIDIA
    re.compile(r"error: \S*?:(?P<line>\d+):\d+(?: <Spelling=[^>]*>)?: (?P<message>[^\n]*)"),  # PoCL
)
_ARGUMENT_INFO = "-cl-kernel-arg-info"  # names and types of arguments, for kernels whose heads are not plain
# What NVIDIA's compiler says with that option of a kernel without arguments: the code it wrote itself is wrong.
_ARGUMENTLESS = "Parsing error near '}'"
_PATTERN_BYTES = (1, 2, 4, 8, 16)  # that OpenCL fills memory with
_LONGEST_POCL_NAME = 240  # file systems take 255, and PoCL appends to it


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> OpenCLDevice:
    """Open a device by its place in `list_devices()`, by default the first GPU, else the first.

    PoCL works in a folder under `cache_dir`. No driver has a cache of its own that `driver_cache_dir` could place.
    """
    devices = find_devices(cache_dir)
    if index is None:
        gpus = [i for i, device in enumerate(devices) if device.type & load_pyopencl().device_type.GPU]
        index = gpus[0] if gpus else 0
    if index >= len(devices):
        from ..spec_hint import count_and_use

        here = count_and_use("opencl", len(devices))
        raise DeviceError(f"there is no device opencl:{index}; OpenCL has {here}")
    return OpenCLDevice(info_of(index, devices[index]), devices[index])


class OpenCLDevice(Device):
    """One OpenCL device with a context and an in-order queue of its own."""

    backend = "opencl"
    language = "opencl"
    timer_class, lanes_class, queue_class = OpenCLTimer, OpenCLLanes, OpenCLQueue

    def __init__(self, info: DeviceInfo, device: Any) -> None:
        cl = self.cl = load_pyopencl()
        self._ignores_line_markers = "nvidia" in device.platform.name.lower()
        self.is_pocl = is_pocl(device.platform)
        compiler = device.platform.version
        if self.is_pocl:
            compiler += f" work-group method {choose_method(compiler)}"
        fingerprint = Fingerprint(
            backend="opencl",
            vendor=device.vendor,
            model=device.name,
            driver=f"{device.platform.name} {device.driver_version}",
            compiler=compiler,
            architecture=_architecture(cl, device),
        )
        super().__init__(info, fingerprint, self._read_capabilities(device))
        self.cl_device = device
        try:
            self.cl_context = cl.Context([device])
            # On a GPU profiling makes a launch a third slower (NVIDIA's driver), so there timers have a queue of their own.
            profiling = 0 if info.is_gpu else cl.command_queue_properties.PROFILING_ENABLE
            self.own_queue = cl.CommandQueue(self.cl_context, properties=profiling)
        except cl.Error as error:
            raise DeviceError(f"cannot open {info.spec} ({info.name}): {error}") from None
        self.launch_target = new_target(self, self.own_queue)
        self._memory = buffer_class()
        self.max_allocation_bytes = int(device.max_mem_alloc_size)
        self.profiling_queue: Any = self.own_queue if profiling else None
        self.timing_thread: int | None = None  # the one inside a timer's block
        install_fast_kernel_lookup()
        silence_in_forked_child(device.platform)

    def _read_capabilities(self, device: Any) -> Capabilities:
        extensions = device.extensions.split()
        x, y, z = (*device.max_work_item_sizes, 1, 1)[:3]
        is_gpu = bool(device.type & self.cl.device_type.GPU)
        return Capabilities(
            float_atomics=True,  # by compare-and-swap, which every OpenCL has
            float64="cl_khr_fp64" in extensions,
            int64=True,
            int8=True,
            queues=True,
            pinned_memory=is_gpu,
            timestamps=True,
            cheap_polling=is_gpu,
            wide_vectors=not is_gpu,
            view_alignment=max(1, int(device.mem_base_addr_align) // 8),
            ripening_binaries=self.is_pocl,
            max_group_items=int(device.max_work_group_size),
            max_group=(int(x), int(y), int(z)),
            max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
            shared_bytes=int(device.local_mem_size),
        )

    def vectors_used(self) -> str:
        found = super().vectors_used()
        return vectors_used(compiled_for(self.cl_device), found) if self.is_pocl else found

    def count_processors(self) -> int:
        return int(self.cl_device.max_compute_units)

    # --- programs

    def compile_program(self, source: Source) -> bytes:
        with self.build_program(source) as program:
            return program.binary()

    def build_program(self, source: Source) -> OpenCLProgram:
        cl = self.cl
        self.require_tools()
        recipe = (translation_unit(source), " ".join((*source.options, _ARGUMENT_INFO)))
        program = self.new_program(recipe[0])
        try:
            try:
                self.build_native(program, recipe[1])
            except cl.Error:
                if _ARGUMENTLESS not in self._log_of(program):
                    raise
                program = self.new_program(recipe[0])
                self.build_native(program, " ".join(source.options))
        except cl.Error as error:
            log = self._log_of(program)
            self.require_tools()  # a full disk is not in PoCL's message
            if (
                error.code in (cl.status_code.BUILD_PROGRAM_FAILURE, cl.status_code.INVALID_BUILD_OPTIONS)
                or log.strip()
            ):
                # NVIDIA's compiler counts physical lines, whatever #line says.
                locate = (lambda line: user_line(recipe[0], line)) if self._ignores_line_markers else None
                raise compile_error(source, log or str(error), *_COMPLAINTS, locate=locate) from None
            raise self.translated(error) from None
        symbols = self.call(lambda: kernel_symbols(cl, program))
        if self.is_pocl and not symbols and remove_damaged():
            return self.build_program(source)
        self._check_names(symbols)
        signatures = self.call(lambda: reflect(self, program, symbols, source))
        form = "poclbin" if self.is_pocl else "binary"
        compiled = Binary("opencl", form, signatures, b"", source.name, recipe=recipe if self.is_pocl else None)
        return OpenCLProgram(self, compiled, program)

    def _log_of(self, program: Any) -> str:
        log: str = program.get_build_info(self.cl_device, self.cl.program_build_info.LOG)
        return log

    def _check_names(self, names: list[str]) -> None:
        """PoCL names files after kernels, and ends the process if a name is too long for the file system."""
        too_long = [name for name in names if len(name) > _LONGEST_POCL_NAME]
        if self.is_pocl and too_long:
            raise Unsupported(
                "long kernel names",
                f"kernel {too_long[0][:40]}… has a name of {len(too_long[0])} characters, and PoCL takes at most "
                f"{_LONGEST_POCL_NAME}: give it a shorter one",
            )

    def new_program(self, *content: Any) -> Any:
        """A program of the driver's, not built yet: from a text, or from devices and binaries."""
        # Not pyopencl.Program, which has a cache of its own.
        return self.cl._cl._Program(self.cl_context, *content)

    def build_native(self, program: Any, options: str) -> None:
        """Have the driver compile or load a program of its own."""
        # Not _Program.build, which warns whenever the compiler writes a message, as NVIDIA's always does.
        program._build(options=options.encode(), devices=[self.cl_device])

    def load_program(self, binary: bytes, *, eager: bool = True) -> OpenCLProgram:
        compiled = Binary.decode(binary, "opencl")
        if self.is_pocl and lacks_program(compiled.payload):
            raise BinaryRejected(f"the binary of {compiled.name} is incomplete: PoCL's files had been removed")
        self.require_tools(to_build=False)
        try:
            program = self.new_program([self.cl_device], [compiled.payload])
            self.build_native(program, "")
        except (self.cl.Error, ValueError) as error:
            self.require_tools(to_build=False)  # PoCL refuses a good binary too if space or descriptors run out
            raise BinaryRejected(f"{self.spec} refuses the binary of {compiled.name}: {error}") from None
        return OpenCLProgram(self, compiled, program)

    def require_tools(self, *, to_build: bool = True) -> None:
        """Raise `DeviceError` where PoCL would end the process: no linker, disk space or descriptors."""
        if self.is_pocl:
            if to_build:
                from . import linker  # a program that is found in a cache needs none

                missing = linker.missing_part()
                if missing is not None:
                    raise DeviceError(
                        f"PoCL cannot link the kernels it compiles: {missing}; install it with: {linker.ADVICE}"
                    )
            require_folder(to_build=to_build)

    # --- memory

    def allocate(self, nbytes: int) -> Any:
        # Some drivers allocate at the first use and fail only then, so the stated limit is checked here.
        if nbytes > self.max_allocation_bytes:
            most = f"{self.max_allocation_bytes:,} bytes at once"
            raise OutOfMemory(f"{self.spec} cannot allocate {nbytes:,} bytes (at most {most})")
        try:
            return self._memory(self.cl_context, self.cl.mem_flags.READ_WRITE, nbytes)
        except self.cl.Error as error:
            raise self.translated(error, f"allocating {nbytes:,} bytes") from None

    def upload(self, handle: Any, host: np.ndarray[Any, Any]) -> None:
        self.call(lambda: self.cl.enqueue_copy(self.cl_queue, handle, host, is_blocking=True))

    def download(self, handle: Any, out: np.ndarray[Any, Any]) -> None:
        self.call(lambda: self.cl.enqueue_copy(self.cl_queue, out, handle, is_blocking=True))

    def copy(self, target: Any, origin: Any, nbytes: int) -> None:
        self.call(lambda: self.cl.enqueue_copy(self.cl_queue, target, origin, byte_count=nbytes))

    def part_of(self, handle: Any, offset: int, nbytes: int) -> Any:
        return self.call(lambda: part_of_buffer(handle, offset, nbytes))

    def upload_at(self, handle: Any, offset: int, host: np.ndarray[Any, Any]) -> None:
        self.call(lambda: self.cl.enqueue_copy(self.cl_queue, handle, host, dst_offset=offset, is_blocking=True))

    def download_at(self, handle: Any, offset: int, out: np.ndarray[Any, Any]) -> None:
        self.call(lambda: self.cl.enqueue_copy(self.cl_queue, out, handle, src_offset=offset, is_blocking=True))

    def fill(self, handle: Any, value: np.ndarray[Any, Any], count: int) -> None:
        if value.itemsize not in _PATTERN_BYTES:
            super().fill(handle, value, count)
        else:
            nbytes = value.itemsize * count
            self.call(lambda: self.cl.enqueue_fill_buffer(self.cl_queue, handle, value, 0, nbytes))

    def pinned_empty(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        if not self.capabilities.pinned_memory:
            return super().pinned_empty(shape, dtype)
        self.check_open()
        cl, flags = self.cl, self.cl.mem_flags
        parsed_shape, parsed_dtype = parse_shape(shape), parse_dtype(dtype)
        nbytes = max(16, int(np.prod(parsed_shape, dtype=np.int64)) * parsed_dtype.itemsize)
        both = cl.map_flags.READ | cl.map_flags.WRITE

        def pin() -> Any:
            buffer = cl.Buffer(self.cl_context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, nbytes)
            return cl.enqueue_map_buffer(self.cl_queue, buffer, both, 0, parsed_shape, parsed_dtype)[0]

        result: np.ndarray[Any, Any] = self.call(pin)
        return result

    def memory_info(self) -> MemoryInfo:
        self.check_open()
        return MemoryInfo(int(self.cl_device.global_mem_size), None)

    # --- order and time

    def fence(self) -> OpenCLFence:
        self.check_open()
        return OpenCLFence(self, self.cl_queue)

    def time_work(self, work: Callable[[], Any]) -> float:
        timer = OpenCLTimer(self, held_back=self.info.is_gpu)
        with timer:
            work()
        return timer.seconds

    def new_replay(self, steps: Sequence[Step], queue: Queue | None = None) -> Replay:
        return new_replay(self, steps)

    @property
    def cl_queue(self) -> Any:
        """The queue that this thread's work goes to: the device's own, inside a timer's block the timer's."""
        thread = self.timing_thread
        return self.own_queue if thread is None or thread != threading.get_ident() else self.profiling_queue

    def synchronize(self) -> None:
        self.check_open()
        self._finish()

    def shut_down(self) -> None:
        self._finish()

    def _finish(self) -> None:
        self.call(self.own_queue.finish)
        if self.profiling_queue not in (None, self.own_queue):
            self.call(self.profiling_queue.finish)

    # --- errors

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function of pyopencl; its errors are raised as ours."""
        self.check_not_lost()
        try:
            return function()
        except self.cl.Error as error:
            raise self.translated(error) from None

    def translated(self, error: Any, doing: str = "") -> KernelKeepError:
        """An error of pyopencl as one of ours; `doing` says during what."""
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
