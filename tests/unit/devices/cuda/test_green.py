"""How many multiprocessors a green context gets, with the driver's part played by a few lines."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.green import GreenContext


class _Driver:
    """132 multiprocessors in steps of 8, as on an H200."""

    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM=1)
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)

    def cuDeviceGetDevResource(self, device: int, kind: int) -> Any:
        return _resource(132)

    def cuDevSmResourceSplitByCount(self, groups: int, whole: Any, flags: int, least: int) -> Any:
        assert least < whole.sm.smCount
        return [_resource(-(-least // 8) * 8)], 1, None

    def cuDevResourceGenerateDesc(self, resources: list[Any], count: int) -> Any:
        return resources[0]

    def cuGreenCtxCreate(self, description: Any, device: int, flags: int) -> Any:
        return description

    def cuGreenCtxStreamCreate(self, *arguments: Any) -> Any: ...

    def cuGreenCtxDestroy(self, context: Any) -> Any: ...


def _resource(sms: int) -> Any:
    return SimpleNamespace(sm=SimpleNamespace(smCount=sms, smCoscheduledAlignment=8, minSmPartitionSize=8))


def _device(driver: Any) -> Any:
    return SimpleNamespace(
        driver=driver,
        spec="cuda:0",
        cu_device=0,
        current=contextlib.nullcontext(),
        count_sms=lambda: 132,
        call=lambda function, *args, doing="": function(*args),
    )


@pytest.mark.parametrize(("wanted", "given"), [(1, 8), (8, 8), (9, 16), (124, 128), (128, 128), (129, 132), (132, 132)])
def test_multiprocessors_are_rounded_up(wanted: int, given: int) -> None:
    context = GreenContext(_device(_Driver()), wanted)
    assert context.sms == given
    assert context.handle.sm.smCount == given


@pytest.mark.parametrize("wanted", [0, -8, 2.0, True, "8"])
def test_sms_must_be_a_positive_integer(wanted: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="sms must be a positive integer"):
        GreenContext(_device(_Driver()), wanted)


def test_no_more_multiprocessors_than_there_are() -> None:
    with pytest.raises(kk.ArgumentError, match="at most 132"):
        GreenContext(_device(_Driver()), 133)


def test_bindings_without_green_contexts_are_unsupported() -> None:
    with pytest.raises(kk.Unsupported, match="cuda-bindings") as caught:
        GreenContext(_device(SimpleNamespace()), 8)
    assert caught.value.capability == "green contexts"


def test_a_driver_without_green_contexts_is_unsupported() -> None:
    class Old(_Driver):
        def cuDeviceGetDevResource(self, device: int, kind: int) -> Any:
            raise RuntimeError("function cuDeviceGetDevResource is not found")  # as the bindings do

    with pytest.raises(kk.Unsupported, match="cuDeviceGetDevResource"):
        GreenContext(_device(Old()), 8)
