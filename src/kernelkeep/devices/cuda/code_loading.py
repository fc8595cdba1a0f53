"""Putting code on the device: libraries, the functions of their kernels, and the local memory their launches need."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import BinaryRejected, DeviceError, OutOfMemory
from ..binary import Binary

if TYPE_CHECKING:
    from .device import CudaDevice
    from .program import CudaProgram


@cache
def _loads_eagerly() -> bool:
    """With this setting, which the driver reads when it starts, the code comes to the device with the library."""
    return os.environ.get("CUDA_MODULE_LOADING", "").upper() == "EAGER"


@cache
def _options(driver: Any) -> tuple[Any, ...]:
    """The binary stays where it is, so the driver makes no copy of it. (Options for compiling come before: there are none.)"""
    return None, None, 0, [driver.CUlibraryOption.CU_LIBRARY_BINARY_IS_PRESERVED], [1], 1


def load_library(device: CudaDevice, compiled: Binary) -> Any:
    """A library in host memory; its code comes to the device with `load_function` or the first launch.

    The driver reads `compiled.payload` where it is. So it gets a reference of its own, which `unload_library` gives back: nothing
    else frees these bytes, neither an error, nor an interruption, nor the interpreter's end.
    """
    driver = device.driver
    if _loads_eagerly():
        with device.residents.out_of_the_way(), device.current:
            status, library = _load_data(device, compiled.payload)
    else:  # a library belongs to no context
        status, library = _load_data(device, compiled.payload)
    if status is not device.success:
        if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise device.translated(status, f"loading {compiled.name}")
        raise BinaryRejected(f"{device.spec} refuses the binary of {compiled.name}: {status.name}")
    return library


def _load_data(device: CudaDevice, payload: bytes) -> tuple[Any, Any]:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(payload))
    status, library = device.driver.cuLibraryLoadData(payload, *_options(device.driver))
    if status is not device.success:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(payload))
    return status, library


def unload_library(device: CudaDevice, library: Any, payload: bytes) -> None:
    """Unload what `load_library` loaded from `payload`, when all launches have ended: unloading does not wait for them."""
    unload = device.driver.cuLibraryUnload
    try:
        device.settle()
    except BaseException:
        device.discarded.add(unload_library, device, library, payload)  # for the next call that makes postponed ones
        raise
    (status,) = unload(library)
    if status == device.success:  # else it may still be loaded
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(payload))


def load_function(device: CudaDevice, kernel: Any, name: str, program_name: str) -> Any:
    """The function of a kernel; its code is on the device from now on."""
    driver = device.driver
    with device.residents.out_of_the_way(), device.current:
        status, function = driver.cuKernelGetFunction(kernel)
        if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY and device.discarded.waiting:
            device.discarded.clear()
            status, function = driver.cuKernelGetFunction(kernel)
        if status is not device.success:
            if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise device.translated(status, f"loading {program_name}")
            raise BinaryRejected(f"{device.spec} refuses kernel {name} of {program_name}: {status.name}")
        if device.residents.grids:
            reserve_local_memory(device, kernel)
    return function


def reserve_local_memory(device: CudaDevice, kernel: Any) -> None:
    """Have local memory for all threads of a kernel: a launch that needs more than any before waits for every kernel.

    No resident grid runs meanwhile. The device's context must be current.
    """
    driver, call = device.driver, device.call
    which, stack = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, driver.CUlimit.CU_LIMIT_STACK_SIZE
    needed = int(call(driver.cuKernelGetAttribute, which, kernel, device.cu_device))
    if needed > int(call(driver.cuCtxGetLimit, stack)):
        device.call_freeing(driver.cuCtxSetLimit, stack, needed, doing="reserving local memory")


def prepare_for_residents(programs: Iterable[CudaProgram]) -> None:
    """Have every launch of these programs work beside a kernel that never exits, which does not run yet."""
    for program in programs:
        try:
            program.make_resident()
            with program.device.current:
                for kernel in program.find_kernels():
                    reserve_local_memory(program.device, kernel)
        except OutOfMemory:
            raise
        except DeviceError:  # it was closed meanwhile, or the driver refuses its launches too
            continue
