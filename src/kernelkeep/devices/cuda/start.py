"""Starts the driver and a device's context in a thread, while the thread that opens the device imports what it needs for it.

Making a context takes the driver a tenth of a second and needs no Python, so the imports come for nothing. `cuInit` before it
takes a fifth longer while another thread of the process runs, whatever that does (on an H200 127 ms in place of 107 beside the
imports, 125 beside an empty loop): the imports wait until it is done. Whatever goes wrong here is said by the calls that follow
in the opening thread: they ask the driver for the same again.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

from .. import forks

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_begun: set[bool] = set()  # each once in a process: starting the driver alone, and with a context


class DriverStart:
    """`with DriverStart(index):` has the driver start; the context it made is the device's, or is given back, at the end.

    The block begins when the driver has only the context left to make. Without an index it makes none, and the block begins at
    once.
    """

    def __init__(self, index: int | None) -> None:
        self._index = index
        self._thread: threading.Thread | None = None
        self._initialised = False
        self._begins_context = threading.Event()
        self._release: Any = None

    def __enter__(self) -> None:
        with_context = self._index is not None
        if with_context in _begun or True in _begun:
            return
        _begun.add(with_context)
        forks.before_driver("cuda")
        self._thread = threading.Thread(target=self._run, name="kernelkeep-cuda-start")
        self._thread.start()
        if with_context:
            self._begins_context.wait()

    def _run(self) -> None:
        try:
            self._start()
        finally:
            self._begins_context.set()

    def _start(self) -> None:
        try:
            driver = ctypes.CDLL(_LIBRARY)
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._initialised = not driver.cuInit(0)
            self._begins_context.set()
            if not self._initialised or self._index is None or driver.cuDeviceGet(ctypes.byref(device), self._index):
                return
            if not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
                release = getattr(driver, "cuDevicePrimaryCtxRelease_v2", driver.cuDevicePrimaryCtxRelease)
                self._release = lambda: release(device)
        except (OSError, AttributeError):  # there is no driver, or an old one
            return

    def __exit__(self, *exc: object) -> None:
        if self._thread is None:
            return
        self._thread.join()
        if not self._initialised:
            forks.no_driver("cuda")
        if self._release is not None:
            self._release()  # the opened device holds the context itself
