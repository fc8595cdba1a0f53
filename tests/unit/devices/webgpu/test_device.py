"""WebGPU beyond the conformance suite: odd sizes, one array twice, scalars, launches encoded ahead, times, specs with a word."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.webgpu import context
from kernelkeep.devices.webgpu.device import WebGPUDevice
from kernelkeep.devices.webgpu.program import WebGPUProgram
from kernelkeep.devices.webgpu.types import address_of
from kernelkeep.execution.timeline import Timeline
from kernelkeep.testing import open_or_skip

pytestmark = pytest.mark.webgpu

ADD = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4"), kk.Scalar("a", "i4")],
    body="int i = kk_global_id(0); y[i] = x[i] + a;",
    group=4,
)

WRITE_SUM = kk.PortableKernel(
    "write_sum",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4", "w"), kk.Scalar("a", "i4")],
    body="int i = kk_global_id(0); y[i] = x[i] + a;",
    group=4,
)


@pytest.fixture(scope="module")
def device() -> Iterator[WebGPUDevice]:
    with open_or_skip("webgpu") as opened:
        assert isinstance(opened, WebGPUDevice)
        yield opened


@pytest.mark.parametrize("launched", [False, True])
def test_ctrl_c_inside_a_callback_reaches_who_waits(
    device: WebGPUDevice, monkeypatch: pytest.MonkeyPatch, launched: bool
) -> None:
    array = device.array(np.arange(100, dtype="i4"))
    frames = ("on_done",) if launched else ("on_mapped",)
    left = [1]

    def interrupted(value: Any) -> int:
        if left[0] and sys._getframe(1).f_code.co_name in frames:
            left[0] -= 1
            raise KeyboardInterrupt
        return address_of(value)

    monkeypatch.setattr(context, "address_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.fence().wait() if launched else array.numpy()
    assert not left[0]
    np.testing.assert_array_equal(array.numpy(), np.arange(100))


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


@pytest.fixture(params=["immediates", "uniforms"])
def scalars(request: pytest.FixtureRequest, device: WebGPUDevice, monkeypatch: pytest.MonkeyPatch) -> str:
    """Programs that are built in the test take their scalars in this way."""
    if request.param == "uniforms":
        monkeypatch.setattr(device.context, "max_immediate_bytes", 0)
    elif not device.context.max_immediate_bytes:
        pytest.skip("this adapter has no immediates")
    return str(request.param)


def test_scalars_are_passed_with_and_without_a_buffer(device: WebGPUDevice, scalars: str) -> None:
    kernel = kk.PortableKernel(
        "mixed",
        params=[
            kk.Buffer("y", "f4"),
            kk.Scalar("a", "i4"),
            kk.Scalar("b", "f4"),
            kk.Scalar("c", "u4"),
            kk.Scalar("d", "i2"),
        ],
        body="y[0] = a; y[1] = b; y[2] = c; y[3] = d;",
        group=1,
    )
    with device.build(kernel.source(device)) as program:
        assert isinstance(program, WebGPUProgram) and (program.immediate_bytes > 0) == (scalars == "immediates")
        y = device.array(np.zeros(4, "f4"))
        prepared = program.kernel().prepare(1, (y, -1, 0.5, 7, -8))
        prepared()
        assert y.numpy().tolist() == [-1, 0.5, 7, -8]
        prepared.update("b", 2.5)
        prepared()
        assert y.numpy().tolist() == [-1, 2.5, 7, -8]


def test_scalars_that_are_too_large_for_immediates_are_in_a_buffer(device: WebGPUDevice) -> None:
    names = [f"a{at}" for at in range(device.context.max_immediate_bytes // 4 + 1)]
    params: list[kk.Buffer | kk.Scalar] = [kk.Buffer("y", "i4"), *(kk.Scalar(name, "i4") for name in names)]
    kernel = kk.PortableKernel("many", params=params, body=f"y[0] = {' + '.join(names)};", group=1)
    with device.build(kernel.source(device)) as program:
        assert isinstance(program, WebGPUProgram) and program.immediate_bytes == 0
        y = device.array(np.zeros(1, "i4"))
        program.kernel().launch(1, (y, *range(len(names))))
        assert y.numpy()[0] == sum(range(len(names)))


def test_more_blocks_of_scalars_than_the_buffer_holds(device: WebGPUDevice, scalars: str) -> None:
    body = "kk_atomic_add(y[0], a);"
    kernel = kk.PortableKernel("sum", params=[kk.Buffer("y", "i4"), kk.Scalar("a", "i4")], body=body, group=1)
    with device.build(kernel.source(device)) as program:
        y = device.array(np.zeros(1, "i4"))
        count = (1 << 18) // device.blocks.alignment + 100
        prepared = [program.kernel().prepare(1, (y, a)) for a in range(count)]
        for launch in prepared:
            launch()
        assert y.numpy()[0] == count * (count - 1) // 2


@pytest.fixture
def steps(device: WebGPUDevice, scalars: str) -> Iterator[tuple[Any, list[kk.Prepared]]]:
    """y = 3 y + 1, then y = 2 y: an array, and two launches whose order is seen in it."""
    params: list[kk.Buffer | kk.Scalar] = [kk.Buffer("y", "i4"), kk.Scalar("a", "i4"), kk.Scalar("b", "i4")]
    kernel = kk.PortableKernel("affine", params=params, body="y[0] = a * y[0] + b;", group=1)
    with device.build(kernel.source(device)) as program:
        y = device.array(np.zeros(1, "i4"))
        yield y, [program.kernel().prepare(1, (y, a, b)) for a, b in ((3, 1), (2, 0))]


def test_launches_encoded_ahead_run_when_they_are_called(device: WebGPUDevice, steps: Any) -> None:
    y, (first, second) = steps
    ahead = device.encode_ahead([first, second])
    assert y.numpy()[0] == 0
    first()
    ahead()  # behind what waits
    second()  # and before what follows
    assert y.numpy()[0] == 2 * 2 * (3 * 1 + 1)
    ahead()  # the buffer is gone, the launches are made all the same
    assert y.numpy()[0] == 2 * (3 * 16 + 1)


def test_launches_encoded_ahead_see_what_was_bound_since(device: WebGPUDevice, steps: Any) -> None:
    y, (first, _) = steps
    ahead = device.encode_ahead([first])
    first.update("b", 5)
    ahead()
    assert y.numpy()[0] == 5
    ahead = device.encode_ahead([first])
    for b in range(9000):  # more than the buffer of scalars holds
        first.update("b", b)
        first()
    y.copy_from(np.array([1], "i4"))
    first.update("b", 5)
    ahead()
    assert y.numpy()[0] == 8


def test_launches_encoded_ahead_of_what_is_closed_are_refused(device: WebGPUDevice, steps: Any) -> None:
    y, launches = steps
    ahead, other = device.encode_ahead(launches), device.encode_ahead(launches)
    del other  # and is never called
    y.close()
    with pytest.raises(kk.DeviceError, match="closed"):
        ahead()


def test_marks_tell_the_device_s_time(device: WebGPUDevice, steps: Any) -> None:
    _, launches = steps
    lanes = device.open_lanes()
    assert lanes.timed and device.capabilities.timestamps
    start = time.perf_counter()
    marks = []
    for _ in range(100):  # more than come to the host at once
        launches[0]()
        marks.append(lanes.compute.mark())
    marks[-1].wait()
    end = time.perf_counter()
    times = lanes.times(marks)
    assert times == sorted(times) and start < times[0] < times[-1] < end
    assert lanes.times(marks[3:5]) == pytest.approx(times[3:5], abs=1e-3)


def executed(device: WebGPUDevice, folder: Path, batches: int, nbytes: int = 16) -> Timeline:
    """The timeline of batches whose results are right."""
    with kk.ProgramCache(device, folder) as cache, kk.Executor(device) as executor:
        job = kk.Job(cache, WRITE_SUM, grid=nbytes // 16, outputs={"y": (nbytes // 4, "i4")})
        hosts = [np.full(nbytes // 4, number, "i4") for number in range(batches)]
        for number, result in enumerate(executor.map(job, ({"x": host} for host in hosts), a=np.int32(7))):
            assert (result["y"] == number + 7).all()
        return executor.timeline


@pytest.mark.parametrize("nbytes", [16, 1 << 19])  # results that are copied, and results that are lent
def test_a_batch_like_the_ones_before_is_one_submission(
    device: WebGPUDevice, tmp_path: Path, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    submit = device.context.submit

    def count(commands: list[Any]) -> None:
        sent.append(len(commands))
        submit(commands)

    monkeypatch.setattr(device.context, "submit", count)
    executed(device, tmp_path, 10, nbytes)
    before = len(sent)
    timeline = executed(device, tmp_path, 50, nbytes)
    assert len(sent) - before < 80, "the first few are not known to be alike"
    for stages in [timeline.spans[at : at + 3] for at in range(0, 250, 5)]:
        assert [span.engine for span in stages] == ["upload", "compute", "download"]
        assert stages[0].end <= stages[1].end <= stages[2].end


def test_without_timestamps_the_host_tells_when_stages_ended(
    device: WebGPUDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "capabilities", msgspec.structs.replace(device.capabilities, timestamps=False))
    spans = executed(device, tmp_path, 10).spans
    assert len(spans) == 50 and all(span.start <= span.end for span in spans)


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


def hand(rows: int = 16, group: int = 1, value: str = "2") -> kk.Source:
    """A kernel by hand, with shared memory of 32 bytes a row."""
    text = f"""@group(0) @binding(0) var<storage, read_write> y: array<i32>;
var<workgroup> part: array<array<atomic<i32>, 8>, rows>;
const rows = {rows};
@compute @workgroup_size({group}) fn f() {{
    atomicStore(&part[0][0], 1);
    y[0] = {value};
}}
"""
    return kk.Source(text, name="hand", language="wgsl")


def test_a_mistake_is_shown_with_its_line(device: WebGPUDevice) -> None:
    for wrong, said in (("unknown", "unknown"), ("1.5", "AbstractFloat"), ("1 +", "expected expression")):
        with pytest.raises(kk.CompileError, match=said) as caught:
            device.build(hand(value=wrong))
        assert caught.value.line == 6 and f"y[0] = {wrong}" in str(caught.value)


def test_a_mistake_that_only_the_driver_finds_is_shown_with_the_line_of_the_body(
    device: WebGPUDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kk.PortableKernel(
        "k", params=[kk.Buffer("y", "i4")], body="int a = y[0];\ny[0] = a + 4321;\ny[1] = a;", group=1
    )
    source = kernel.source(device)
    text = source.text
    monkeypatch.setattr(type(source), "text", property(lambda self: text.replace("4321", "no_such_name")))
    with pytest.raises(kk.CompileError, match="no_such_name") as caught:
        device.build(source)
    assert caught.value.line == 2
    assert "k, line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (hand(rows=100_000), "hand declares 3,200,000 bytes of shared memory, and .* has"),
        (hand(group=2000), "refuses f: .*workgroup size"),
    ],
)
def test_what_is_beyond_a_limit_of_the_adapter_is_refused_in_one_sentence(
    device: WebGPUDevice, source: kk.Source, said: str
) -> None:
    with pytest.raises(kk.CompileError, match=said) as caught:
        device.build(source)
    assert "\n" not in str(caught.value)


def test_shared_memory_up_to_the_limit_is_used(device: WebGPUDevice) -> None:
    with device.build(hand(rows=device.capabilities.shared_bytes // 32)) as program:
        y = device.array(np.zeros(1, "i4"))
        program.kernel().launch(1, (y,))
        assert y.numpy()[0] == 2


def test_memory_info_says_what_is_known(device: WebGPUDevice) -> None:
    told = device.memory_info()
    assert told.total_bytes == device.info.memory_bytes > 0 and told.free_bytes is None


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
