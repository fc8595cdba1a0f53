"""Pushing and popping a CUDA context, with the driver's stack of contexts played by a list."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from kernelkeep.devices.cuda.context import Current


class _Driver:
    class CUresult(IntEnum):
        CUDA_SUCCESS = 0
        CUDA_ERROR_INVALID_CONTEXT = 201

    def __init__(self) -> None:
        self.stack: list[str] = ["the thread's own"]
        self.destroyed = False

    def cuCtxPushCurrent(self, context: str) -> tuple[Any]:
        if self.destroyed:
            return (self.CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        self.stack.append(context)
        return (self.CUresult.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Any, str]:
        return self.CUresult.CUDA_SUCCESS, self.stack.pop()


def test_a_context_that_cannot_be_pushed_is_not_popped() -> None:
    """It was destroyed, by `cuDevicePrimaryCtxReset` of another library: the thread's own one must stay."""
    driver = _Driver()
    current = Current(driver, "ours")
    with current, current:
        assert driver.stack == ["the thread's own", "ours", "ours"]
        driver.destroyed = True
        with current:
            assert driver.stack == ["the thread's own", "ours", "ours"]
    assert driver.stack == ["the thread's own"]
    with current, current:
        assert driver.stack == ["the thread's own"]
    assert driver.stack == ["the thread's own"]
