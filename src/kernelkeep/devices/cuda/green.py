"""Green contexts: a stream whose kernels run on some of the GPU's multiprocessors only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, Unsupported

if TYPE_CHECKING:
    from .device import CudaDevice

_NEEDED = (
    "CUgreenCtxCreate_flags",
    "cuDeviceGetDevResource",
    "cuDevSmResourceSplitByCount",
    "cuDevResourceGenerateDesc",
    "cuGreenCtxCreate",
    "cuGreenCtxStreamCreate",
    "cuGreenCtxDestroy",
)


class GreenContext:
    """Some multiprocessors of a GPU, in its primary context's memory.

    The driver rounds their number up: on an H200 to multiples of 8. `sms` is how many there are. Kernels of other streams run
    on them too, where they find room.
    """

    def __init__(self, device: CudaDevice, sms: int) -> None:
        self._device = device
        driver = device.driver
        _check(device, sms)
        try:
            with device.current:
                kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
                whole = device.call(driver.cuDeviceGetDevResource, device.cu_device, kind)
                part = _part_of(device, whole, sms)
                description = device.call(driver.cuDevResourceGenerateDesc, [part], 1)
                flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
                self.handle = device.call(
                    driver.cuGreenCtxCreate, description, device.cu_device, flags, doing="creating a green context"
                )
        except RuntimeError as error:  # the bindings do not find a function in the driver
            raise Unsupported("green contexts", f"{device.spec}: the driver has no green contexts ({error})") from None
        self.sms = int(part.sm.smCount)

    def create_stream(self, flags: int, priority: int) -> Any:
        """A stream of this context; it must be destroyed before the context is."""
        return self._device.call(self._device.driver.cuGreenCtxStreamCreate, self.handle, flags, priority)

    def destroy(self) -> None:
        """Its streams are destroyed."""
        self._device.driver.cuGreenCtxDestroy(self.handle)


def _check(device: CudaDevice, sms: int) -> None:
    most = device.count_sms()
    if not isinstance(sms, int) or isinstance(sms, bool) or sms < 1:
        raise ArgumentError(f"sms must be a positive integer, got {sms!r}")
    if sms > most:
        raise ArgumentError(f"sms must be at most {most}, the number of multiprocessors of {device.spec}, got {sms}")
    if missing := [name for name in _NEEDED if not hasattr(device.driver, name)]:
        raise Unsupported(
            "green contexts", f"green contexts need newer cuda-bindings, which have {missing[0]}: upgrade cuda-bindings"
        )


def _part_of(device: CudaDevice, whole: Any, sms: int) -> Any:
    """At least `sms` multiprocessors; all of them where rounding up would leave no rest."""
    step = int(whole.sm.smCoscheduledAlignment) or 1  # 0: a driver that does not tell
    rounded = max(-(-sms // step) * step, int(whole.sm.minSmPartitionSize))
    if rounded >= int(whole.sm.smCount):
        return whole
    parts, count, _rest = device.call(device.driver.cuDevSmResourceSplitByCount, 1, whole, 0, rounded)
    return parts[0] if count else whole
