"""The CUDA driver: loading it, and the devices it finds."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from .. import forks
from ..base import DeviceInfo
from .bindings import load_bindings


def load_driver() -> Any:
    """The driver, initialised once."""
    forks.check_driver("cuda")
    return _initialised_driver()


@cache
def _initialised_driver() -> Any:
    driver = load_bindings("driver")
    forks.before_driver("cuda")
    try:
        (status,) = driver.cuInit(0)
    except Exception:
        forks.no_driver("cuda")
        raise DeviceError("there is no CUDA device here: no NVIDIA driver is installed") from None
    if status != driver.CUresult.CUDA_SUCCESS:
        forks.no_driver("cuda")
        if status == driver.CUresult.CUDA_ERROR_NOT_INITIALIZED:  # another library loaded it before a fork
            raise DeviceError(f"the cuda driver does not work in this process, as after a fork: {forks.advice}")
        raise DeviceError(f"there is no CUDA device here: the driver says {status.name}")
    return driver


def count_devices(driver: Any) -> int:
    _, count = driver.cuDeviceGetCount()
    if not count:
        raise DeviceError("there is no CUDA device here: the driver finds none")
    return int(count)


@cache
def _driver_version() -> str:
    _, version = load_driver().cuDriverGetVersion()
    kernel_module = ""
    with contextlib.suppress(OSError):
        kernel_module = Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip() + " "
    return f"{kernel_module}cuda {version // 1000}.{version % 1000 // 10}"


def info_of(index: int) -> DeviceInfo:
    driver = load_driver()
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


def list_devices() -> list[DeviceInfo]:
    """Every CUDA device."""
    return [info_of(index) for index in range(count_devices(load_driver()))]
