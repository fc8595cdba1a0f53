"""A built program, its kernels, and how its binary ripens.

PoCL compiles a kernel again for each group size, and once more for large grids, at the first launch of that kind. A binary
read back afterwards holds that native code (it is "ripe") and runs without compiling in the next process. But PoCL fixes a
program's binary when it is first read, or when the program was loaded from one; `OpenCLProgram` works around that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ...errors import ArgumentError, DeviceError
from ...programs.signature import KernelSignature
from ..base import Binary, FastLaunch, Kernel, LaunchOptions, Program
from .library import new_kernel
from .native import new_prepared, packed_launch
from .pocl import finish_binary, lacks_program
from .pocl_folder import folder_in_use
from .prepared import OpenCLPrepared, set_argument
from .signals import link_undisturbed
from .synchronization import queue_of

if TYPE_CHECKING:
    from .device import OpenCLDevice

# Where PoCL switches from its small-grid code to its general code: the widest dimension, in work-items.
_SMALL_GRID_ITEMS = 65535
_NO_SHARED_BYTES = "shared_bytes must be 0: OpenCL takes group-local memory as arguments, kk.LocalMemory(nbytes)"


class OpenCLProgram(Program):
    """A built program.

    With PoCL the binary of a program built from source can be read once, and holds the kinds of launches made until then.
    A program loaded from a binary returns that same binary. For a riper one the source is built again: PoCL's own kernel
    cache then adds every kind launched so far. If that cache is off, the one read is saved until after the first launch,
    and a binary asked for earlier comes from a second build.
    """

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, compiled: Binary, program: Any) -> None:
        super().__init__(device, compiled)
        self.cl_program = program
        self._lock = threading.Lock()
        self._unread = not compiled.payload  # the binary was not read from the driver yet
        self._launched: set[bytes] = set()
        self._kinds: set[bytes] = set()  # the kinds of launches made that the binary does not hold

    def make_kernel(self, signature: KernelSignature) -> Kernel:
        return OpenCLKernel(self, signature)

    def unload(self, *, collected: bool = False) -> None:
        self.cl_program = None

    @property
    def ripeness(self) -> int:
        return len(self._kinds)

    def binary(self) -> bytes:
        with self._lock:
            if not self.compiled.payload or self._kinds:
                payload = self._read_payload()
                missing = {kind for kind in self._kinds if kind not in payload}
                if not self.compiled.payload or len(missing) < len(self._kinds):
                    self.compiled = msgspec.structs.replace(self.compiled, payload=payload)
                    self._kinds = missing
                    self.nbytes = len(payload)
            return self.compiled.encode()

    def _read_payload(self) -> bytes:
        """The driver's binary, as ripe as it can be."""
        device = self.device
        program, recipe = self.cl_program, self.compiled.recipe
        if program is None:
            raise DeviceError(f"program {self.name} is closed")
        if device.is_pocl and not _pocl_caches() and not self._unread:
            return self.compiled.payload  # PoCL has nothing riper
        keep_unread = device.is_pocl and not _pocl_caches() and not self._kinds
        if recipe is None or (self._unread and not keep_unread):
            self._unread = False
            payload = self._read_binary(program)
            if recipe is None or not lacks_program(payload):
                return payload
        device.require_tools()
        again = device.new_program(recipe[0])
        device.call(lambda: device.build_native(again, recipe[1]))
        payload = self._read_binary(again)
        if lacks_program(payload):
            raise DeviceError(f"PoCL gives no binary of {self.name}: its files were removed from {folder_in_use()}")
        return payload

    def _read_binary(self, program: Any) -> bytes:
        device, what = self.device, self.device.cl.program_info.BINARIES

        def read() -> bytes:
            if device.is_pocl:
                finish_binary(device.cl, program)
            return program.get_info(what)[0]  # type: ignore[no-any-return]

        payload: bytes = device.call(lambda: link_undisturbed(read))
        return payload

    def note_launch(self, kernel: str, group: tuple[int, int, int], small: bool) -> None:
        """Note a launch that is about to be made: the first of a kind that is not in the binary lets the binary ripen."""
        kind = "/{}/{}-{}-{}-goffs0{}/".format(kernel, *group, "-smallgrid" if small else "").encode()
        if kind in self._launched:
            return
        ripe = kind in self.compiled.payload
        self.device.require_tools(to_build=not ripe)  # PoCL loads native code at the first launch
        self._launched.add(kind)
        if not ripe:
            self._kinds.add(kind)
            if self.on_ripening is not None:
                self.on_ripening()


def _pocl_caches() -> bool:
    return os.environ.get("POCL_KERNEL_CACHE", "1") != "0"


class OpenCLKernel(Kernel):
    """A kernel. OpenCL keeps arguments in the kernel object, so setting them and launching is one locked step."""

    program: OpenCLProgram
    device: OpenCLDevice

    def __init__(self, program: OpenCLProgram, signature: KernelSignature) -> None:
        super().__init__(program, signature)
        self._cl = program.device.cl
        self._symbol = signature.symbol or signature.name
        self._lock = threading.Lock()
        self._kernel = self.new_native()
        self._set: list[Any] = [None] * len(
            signature.params or ()
        )  # tokens and values that are set in the kernel object

    def new_native(self) -> Any:
        """An object of the driver's for this kernel, with arguments of its own."""
        program = self.program.cl_program
        if program is None:  # closed by another thread
            self.raise_closed()
        return self.device.call(lambda: new_kernel(self._cl, program, self._symbol))

    def _native_kernel(self) -> Any:
        kernel = self._kernel
        if kernel is None:  # closed by another thread
            self.raise_closed()
        return kernel

    def fast_launch(self) -> FastLaunch:
        params = self.params or ()
        kernel = self._native_kernel()
        names = {
            "lock": self._lock,
            "native": kernel,
            "enqueue": self._cl.enqueue_nd_range_kernel,
            # What pyopencl's own generated code calls; its public set_arg tries every kind of argument in turn.
            "set_buffers": kernel._set_arg_multi,
            "set_scalars": kernel._set_arg_buf_multi,
            "set_argument": partial(set_argument, self._cl, kernel),
            "now": self._set,
            "error": self._cl.Error,
            "refuse": self._refuse,
        }
        lines = ["try:", "    with lock:"]
        # A buffer is recognised by its token: keeping the buffer itself would keep its memory alive.
        for kind, call, same in (("buffer", "set_buffers", "v{}.token"), ("scalar", "set_scalars", "v{}")):
            places = [i for i, p in enumerate(params) if p.kind == kind]
            if places:
                # The kernel object keeps its arguments, so a loop on the same arrays sets them once.
                changed = " or ".join(f"{same.format(i)} is not now[{i}]" for i in places)
                pairs = "".join(f"{i}, v{i}, " for i in places)
                noted = "; ".join(f"now[{i}] = {same.format(i)}" for i in places)
                lines += [f"        if {changed}:", f"            {call}(({pairs})); {noted}"]
        others = (i for i, p in enumerate(params) if p.kind not in ("buffer", "scalar"))
        lines += [f"        set_argument({i}, v{i})" for i in others]
        if self.device.launch_target is None:
            lines += ["        enqueue(device.cl_queue, native, shape[0], shape[1])"]
        else:
            names["launch"] = self.device.launch_target.enqueue
            lines += ["        if launch(shape[2]) is not None:"]
            lines += ["            enqueue(device.cl_queue, native, shape[0], shape[1])"]  # it has the better error
        lines += ["except error as problem:", "    refuse(problem)"]
        return FastLaunch(lines, names)

    def check_options(self, options: LaunchOptions) -> None:
        if options.shared_bytes:
            raise ArgumentError(_NO_SHARED_BYTES)
        super().check_options(options)

    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        queue, kernel = queue_of(options.queue, self.device), self._native_kernel()
        try:
            with self._lock:
                self._set[:] = [None] * len(self._set)
                for index, value in enumerate(values):
                    set_argument(self._cl, kernel, index, value)
                self._cl.enqueue_nd_range_kernel(queue, kernel, shape[0], shape[1])
        except self._cl.Error as error:
            self._refuse(error)

    def bind_launch(
        self, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> OpenCLPrepared:
        return new_prepared(self.device, self, args, values, shape, options)

    def native_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> Any:
        items = tuple(count * size for count, size in zip(grid, group, strict=True))
        shape = (items[:1], group[:1]) if items[1:] == (1, 1) else (items, group)
        return shape if self.device.launch_target is None else (*shape, packed_launch(self._native_kernel(), *shape))

    def note_new_shape(self, grid: tuple[int, int, int], group: tuple[int, int, int]) -> None:
        if self.device.capabilities.ripening_binaries:
            widest = max(count * size for count, size in zip(grid, group, strict=True))
            self.program.note_launch(self._symbol, group, small=widest < _SMALL_GRID_ITEMS)

    def release(self) -> None:
        self._kernel = None  # it keeps the whole program alive

    def _refuse(self, error: Any) -> NoReturn:
        self._set[:] = [None] * len(self._set)
        raise self.device.translated(error, f"launching {self.name}") from None
