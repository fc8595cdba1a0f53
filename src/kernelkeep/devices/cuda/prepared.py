"""A prepared launch on CUDA: packed arguments and one driver call.

There are two implementations: with the C module a call goes straight into the driver; without it, it goes through NVIDIA's
Python bindings, which costs about a microsecond more. With the C module a launch that is called again and again becomes a graph
of one kernel, which the driver launches in less time (`launch_graph.py`).
"""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ..prepared import LaunchOptions, Prepared
from .guests import guests_wait, wait_for_guests
from .launch_graph import LaunchGraph
from .native import launch_addresses
from .packing import as_bytes, code_of, layout_of
from .synchronization import stream_of

if TYPE_CHECKING:
    from .program import CudaKernel

_CALLS_BEFORE_GRAPH = 16  # with the same arguments: making a graph takes as long as some twenty launches
_CLOSE_TIMEOUT_SECONDS = 10.0  # for a call under way: it may be this thread's own, which never ends
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE


class CudaPrepared(Prepared):
    """The arguments lie in one buffer that the driver reads during the call; `update` writes into it."""

    kernel: CudaKernel

    def __init__(
        self, kernel: CudaKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        super().__init__(kernel, args, values, shape, options)  # the buffer has addresses; `values` keeps them alive
        self._device = kernel.device
        self._library = kernel.program.hold()  # held for calls of other threads
        # A function of the context: the driver would look it up for a kernel, which belongs to no context, at each launch.
        self._function = kernel.program.load_kernel(kernel.cu_kernel, kernel.name)
        self._stream = stream_of(options.queue, kernel.device)
        self._fields = [(struct.Struct("<" + code_of(p)), p.slot) for p in kernel.params]
        nbytes = struct.calcsize(layout_of(kernel.params))
        self._buffer = ctypes.create_string_buffer(max(nbytes, 8))
        for index, value in enumerate(values):
            self.bind(index, value)
        address = ctypes.addressof(self._buffer)
        # One pointer to each argument, as the driver takes them for graphs and cooperative launches …
        self._pointers = (ctypes.c_void_p * max(len(self._fields), 1))(*(address + at for _, at in self._fields))
        self.pointers = ctypes.addressof(self._pointers)
        # … and the whole buffer at once, which is faster.
        self._size = ctypes.c_size_t(nbytes)
        self._extra = (ctypes.c_void_p * 5)(_BUFFER_POINTER, address, _BUFFER_SIZE, ctypes.addressof(self._size), None)
        self.arm()

    def bind(self, index: int, value: Any) -> None:
        field, at = self._fields[index]
        field.pack_into(self._buffer, at, as_bytes(value) if field.format.endswith("s") else value)
        self.values[index] = value

    def _call(self) -> tuple[Any, tuple[Any, ...]]:
        """The driver's function by name, and everything it takes."""
        common = (self._function, *self.shape, self.options.shared_bytes, self._stream)
        if self.options.cooperative:
            return "cuLaunchCooperativeKernel", (*common, self.pointers)
        return "cuLaunchKernel", (*common, 0, ctypes.addressof(self._extra))

    def _bind_to_driver(self) -> bool:
        """Bind the driver call; returns whether it must be ordered with other libraries' work."""
        name, arguments = self._call()
        self._driver_launch = partial(getattr(self._device.driver, name), *arguments)
        self._shared = self.shared
        return bool(self._shared)

    def _launch_again(self) -> None:
        """Launch again with our context current: the driver may have refused because of the thread's context."""
        name, arguments = self._call()
        with self._device.current:
            (status,) = getattr(self._device.driver, name)(*arguments)
        if status != self._device.success:
            self.kernel.refuse(status)

    def _launch_in_order(self) -> None:
        """Launch after other libraries' work on the shared arrays, and before what they do next."""
        device, stream = self._device, self._stream
        streams = wait_for_guests(device, self._shared, stream)
        status = self._driver_launch()[0]
        if status is not device.success:
            self._launch_again()
        guests_wait(device, streams, stream)


class PlainPrepared(CudaPrepared):
    """A call through NVIDIA's Python bindings."""

    _launch: Callable[[], tuple[Any, ...]]

    def __call__(self) -> None:
        with self._lock:
            if self._launch()[0] is not self._success:
                self._launch_again()

    def arm(self) -> None:
        self._lock = self.__dict__.get("_lock") or threading.RLock()
        self._success = self._device.success
        self._launch = self._launch_shared if self._bind_to_driver() else self._driver_launch

    def _launch_shared(self) -> tuple[Any]:
        self._launch_in_order()
        return (self._success,)

    def disarm(self) -> None:
        self._launch = self.refuse
        if not self._device.lost:
            with self._lock:  # wait for a call under way in another thread before anything is freed
                pass
        self.values = self.open_values()


@cache
def _native_prepared() -> type[CudaPrepared] | None:
    """The class that uses the C module, or None if that was not built."""
    found = launch_addresses()
    if found is None:
        return None
    addresses = found
    from ..._native import BoundCall

    class NativePrepared(BoundCall, CudaPrepared):
        """A call in C. `BoundCall` comes first among the bases, so that a call runs no Python code."""

        _graph: LaunchGraph | None = None
        launches_graph = False  # else the kernel
        _graph_refused = False
        _calls_before_graph = _CALLS_BEFORE_GRAPH
        _changed = False  # since the calls are counted

        def arm(self) -> None:
            self.launches_graph = self._changed = False
            if self._bind_to_driver():
                self.bind_function(0, ())  # `call_failed` is called instead
                return
            name, arguments = self._call()
            often = 0 if self.options.cooperative or self._graph_refused else self._calls_before_graph
            self.bind_function(addresses[name], tuple(int(value) for value in arguments), often)

        def bind(self, index: int, value: Any) -> None:
            super().bind(index, value)
            self._changed = True
            if self.launches_graph:
                self.arm()  # the graph has the old value
                self._stay_revoked()  # another argument may be closed still

        def called_often(self) -> None:
            """Have calls launch a graph from now on, if nothing was changed while they were counted."""
            try:
                if self._changed or self.calls_under_way > 1 or not self._make_graph():
                    self.arm()
                else:
                    assert self._graph is not None
                    graph = (int(self._graph.executable), int(self._stream))
                    self.launches_graph = True
                    self.bind_function(addresses["cuGraphLaunch"], graph, 0, True)
            finally:
                self._stay_revoked()

        def _make_graph(self) -> bool:
            """Make the graph, or give it the new arguments; False if that cannot be done now."""
            try:
                if self._graph is not None:
                    self._graph.refresh(self)
                    return True
                self._graph = LaunchGraph.of(self)
            except DeviceError:  # the launch itself is not to fail because of it
                self._graph_refused = True
                return False
            if self._graph is None:
                self._calls_before_graph *= 2  # asking costs more than a launch
            return self._graph is not None

        def _stay_revoked(self) -> None:
            """Unbind again what another thread revoked meanwhile; it waits for this call before anything is freed."""
            if self.revoked:
                self.bind_function(0, ())

        def disarm(self) -> None:
            self.bind_function(0, ())
            deadline = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
            while self.calls_under_way and not self._device.lost and time.monotonic() < deadline:
                time.sleep(10e-6)  # wait for calls of other threads before anything is freed
            self.values = self.open_values()

        def call_failed(self, status: int) -> None:
            if self.revoked:
                self.refuse()
            if self._shared:
                self._launch_in_order()
                return
            if self.launches_graph:
                self._graph_refused = True
                self.arm()
                self._stay_revoked()
            self._launch_again()

    return NativePrepared


def new_prepared(*arguments: Any) -> CudaPrepared:
    return (_native_prepared() or PlainPrepared)(*arguments)
