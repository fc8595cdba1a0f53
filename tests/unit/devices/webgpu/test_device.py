"""WebGPU beyond the conformance suite: odd sizes, one array twice, several uniforms, a lost device, specs with a word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.webgpu.device import WebGPUDevice
from kernelkeep.testing import open_or_skip

pytestmark = pytest.mark.webgpu

ADD = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4"), kk.Scalar("a", "i4")],
    body="int i = kk_global_id(0); y[i] = x[i] + a;",
    group=4,
)


@pytest.fixture(scope="module")
def device() -> Iterator[WebGPUDevice]:
    with open_or_skip("webgpu") as opened:
        assert isinstance(opened, WebGPUDevice)
        yield opened


@pytest.mark.parametrize("nbytes", [1, 2, 3, 4, 5, 17, 1023])
def test_arrays_of_any_size_come_back(device: WebGPUDevice, nbytes: int) -> None:
    host = np.arange(nbytes, dtype="u1")
    array = device.array(host)
    np.testing.assert_array_equal(array.numpy(), host)
    np.testing.assert_array_equal(device.empty(nbytes, "u1").copy_from(array).numpy(), host)


def test_a_part_that_is_no_whole_word_leaves_the_rest(device: WebGPUDevice) -> None:
    array, other = device.array(np.full(12, 9, "u1")), device.array(np.arange(12, dtype="u1"))
    device.upload(array.handle, np.array([1, 2, 3, 4, 5], "u1"))
    assert array.numpy().tolist() == [1, 2, 3, 4, 5, *[9] * 7]
    device.copy(array.handle, other.handle, 3)
    assert array.numpy().tolist() == [0, 1, 2, 4, 5, *[9] * 7]


@pytest.mark.parametrize("writable", [True, False])
def test_one_array_may_be_passed_twice(device: WebGPUDevice, writable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "buffers_are_writable", writable)
    with device.build(ADD.source(device)) as program:
        x, y = device.array(np.arange(4, dtype="i4")), device.array(np.zeros(4, "i4"))
        program.kernel().launch(1, (x, y, 5))
        program.kernel().launch(1, (y, y, 5))
        assert y.numpy().tolist() == [10, 11, 12, 13]


def test_several_uniforms_are_passed(device: WebGPUDevice) -> None:
    text = """
        struct Pair { a: i32, b: f32 }
        @group(0) @binding(1) var<uniform> pair: Pair;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @group(0) @binding(2) var<uniform> c: u32;
        @compute @workgroup_size(1) fn all() { y[0] = f32(pair.a); y[1] = pair.b; y[2] = f32(c); }
    """
    with device.build(kk.Source(text, name="all", language="wgsl")) as program:
        y = device.array(np.zeros(3, "f4"))
        for a, b, c in ((-3, 0.5, 7), (4, 1.5, 8)):
            program.kernel().launch(1, (y, a, b, c))
            assert y.numpy().tolist() == [a, b, c]


def test_more_blocks_of_scalars_than_the_buffer_holds(device: WebGPUDevice) -> None:
    body = "kk_atomic_add(y[0], a);"
    kernel = kk.PortableKernel("sum", params=[kk.Buffer("y", "i4"), kk.Scalar("a", "i4")], body=body, group=1)
    with device.build(kernel.source(device)) as program:
        y = device.array(np.zeros(1, "i4"))
        count = (1 << 18) // device.blocks.alignment + 100
        prepared = [program.kernel().prepare(1, (y, a)) for a in range(count)]
        for launch in prepared:
            launch()
        assert y.numpy()[0] == count * (count - 1) // 2


def test_closing_arrays_forgets_their_bind_groups(device: WebGPUDevice) -> None:
    with device.build(ADD.source(device)) as program:
        x = device.array(np.zeros(4, "i4"))
        before = len(device.groups.found), len(device.memory)
        for _ in range(50):
            y = device.array(np.zeros(4, "i4"))
            program.kernel().launch(1, (x, y, 1))
            device.synchronize()
            y.close()
        device.synchronize()
        assert len(device.groups.found) <= before[0] + 1
        assert len(device.memory) <= before[1] + 1


def test_an_array_beyond_the_limit_of_the_adapter_is_refused_with_the_limit(device: WebGPUDevice) -> None:
    most = int(device.context.limits.maxStorageBufferBindingSize)
    with pytest.raises(kk.OutOfMemory, match=f"at most {most & ~3:,} in a storage buffer"):
        device.empty(most + 4, "u1")


def test_what_is_kept_is_a_text(device: WebGPUDevice) -> None:
    assert device.capabilities.program_binaries and not device.capabilities.native_binaries
    assert b"@compute" in device.compile(ADD.source(device))


def test_a_lost_device_says_so_and_can_be_closed() -> None:
    from kernelkeep.devices.webgpu.native import native

    opened: Any = open_or_skip("webgpu")
    kernel = opened.build(ADD.source(opened)).kernel()
    y = opened.array(np.zeros(4, "i4"))
    prepared = kernel.prepare(1, (y, y, 1))
    prepared()
    opened.synchronize()
    native().lib.wgpuDeviceDestroy(opened.context.raw)
    calls: list[Callable[[], Any]] = [
        prepared,
        lambda: kernel.launch(1, (y, y, 1)),
        y.numpy,
        opened.synchronize,
        opened.fence,
        lambda: opened.array(np.zeros(4, "i4")),
        lambda: opened.build(ADD.source(opened)),
    ]
    for call in calls:
        with pytest.raises(kk.DeviceError, match="is lost"):
            call()
    opened.close()
    with pytest.raises(kk.DeviceError, match="closed"):
        opened.synchronize()


def test_a_spec_may_name_the_interface(device: WebGPUDevice) -> None:
    interface = device.info.driver.rpartition("(")[2].rstrip(")")
    with kk.open_device(f"webgpu:{interface}") as again:
        assert again.info == device.info
    with pytest.raises(kk.ArgumentError, match="vulkan, metal, d3d12"):
        kk.open_device("webgpu:quartz")
