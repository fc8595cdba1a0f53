"""Putting code on the device: libraries, the functions of their kernels, and the local memory their launches need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import BinaryRejected
from ..binary import Binary

if TYPE_CHECKING:
    from .device import CudaDevice


def load_library(device: CudaDevice, compiled: Binary) -> Any:
    """A library in host memory; its code comes to the device with `load_function` or the first launch."""
    driver = device.driver
    # CUDA_MODULE_LOADING=EAGER has the driver load the code with the library.
    eagerly = (device.success, driver.CUmoduleLoadingMode.CU_MODULE_EAGER_LOADING)
    if device.residents.grids and driver.cuModuleGetLoadingMode() == eagerly:
        with device.residents.out_of_the_way(), device.current:
            status, library = driver.cuLibraryLoadData(compiled.payload, [], [], 0, [], [], 0)
    else:
        with device.current:
            status, library = driver.cuLibraryLoadData(compiled.payload, [], [], 0, [], [], 0)
    if status is not device.success:
        if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise device.translated(status, f"loading {compiled.name}")
        raise BinaryRejected(f"{device.spec} refuses the binary of {compiled.name}: {status.name}")
    return library


def load_function(device: CudaDevice, kernel: Any, name: str, program_name: str) -> Any:
    """The function of a kernel; its code is on the device from now on."""
    driver = device.driver
    with device.residents.out_of_the_way(), device.current:
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

    No resident grid runs meanwhile.
    """
    driver, call = device.driver, device.call
    which, stack = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, driver.CUlimit.CU_LIMIT_STACK_SIZE
    with device.current:
        needed = int(call(driver.cuKernelGetAttribute, which, kernel, device.cu_device))
        if needed > int(call(driver.cuCtxGetLimit, stack)):
            call(driver.cuCtxSetLimit, stack, needed, doing="reserving local memory")
