"""Order with other libraries on CUDA: what we wrote is there when they read, and the reverse; threads keep their context.

Every kernel here waits a few milliseconds before it writes, and the other library's stream is kept busy before it does: work
in the wrong order gives wrong numbers every time, not now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.kernels import conv2d, gemm
from kernelkeep.testing import note_skipped, open_or_skip

pytestmark = pytest.mark.cuda

N = 1 << 16
GROUP = 256
GRID = N // GROUP
LATE = 4_000_000  # clock ticks, two to three milliseconds
SLOW = """extern "C" __global__ void add(const float* x, float* y, float a, int n, long long ticks) {
    long long begin = clock64();
    while (clock64() - begin < ticks) { }
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
SOURCE = kk.Source(SLOW, name="add", language="cuda")
Add = Callable[..., None]


@pytest.fixture(scope="module")
def device() -> Iterator[kk.Device]:
    with open_or_skip("cuda") as opened:
        yield opened


@pytest.fixture(scope="module")
def kernel(device: kk.Device) -> kk.Kernel:
    return device.build(SOURCE).kernel("add")


@pytest.fixture(scope="module")
def cache(device: kk.Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path_factory.mktemp("cache")) as cache:
        yield cache


class Torch:
    """PyTorch, as far as the tests need it."""

    def __init__(self) -> None:
        self.torch = _library("torch")

    def array(self, host: Any) -> Any:
        return self.torch.tensor(np.asarray(host), device="cuda")

    def busy(self) -> None:
        self.torch.cuda._sleep(10 * LATE)

    def numpy(self, array: Any) -> Any:
        return array.cpu().numpy()

    def stream(self) -> Any:
        return self.torch.cuda.stream(self.torch.cuda.Stream())

    def idle(self) -> bool:
        return bool(self.torch.cuda.current_stream().query())

    def from_dlpack(self, array: Any) -> Any:
        return self.torch.from_dlpack(array)

    def from_interface(self, array: Any) -> Any:
        return self.torch.as_tensor(array, device="cuda")


class Cupy:
    """CuPy, as far as the tests need it."""

    def __init__(self) -> None:
        self.cupy = _library("cupy")
        self._sleep = self.cupy.RawKernel(
            r'extern "C" __global__ void wait(long long t) { long long b = clock64(); while (clock64() - b < t) { } }',
            "wait",
        )

    def array(self, host: Any) -> Any:
        return self.cupy.asarray(np.asarray(host))

    def busy(self) -> None:
        self._sleep((1,), (1,), (np.int64(10 * LATE),))

    def numpy(self, array: Any) -> Any:
        return self.cupy.asnumpy(array)

    def stream(self) -> Any:
        return self.cupy.cuda.Stream(non_blocking=True)

    def idle(self) -> bool:
        return bool(self.cupy.cuda.get_current_stream().done)

    def from_dlpack(self, array: Any) -> Any:
        return self.cupy.from_dlpack(array)

    def from_interface(self, array: Any) -> Any:
        return self.cupy.asarray(array)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        note_skipped(name, str(error))
        pytest.skip(str(error))


@pytest.fixture(params=[Torch, Cupy], ids=["torch", "cupy"])
def guest(request: pytest.FixtureRequest, device: kk.Device) -> Any:
    return request.param()


@pytest.fixture(params=["default stream", "another stream"])
def stream(request: pytest.FixtureRequest, guest: Any) -> Iterator[None]:
    """What the guest does in the test, it does on this stream."""
    with contextlib.nullcontext() if request.param == "default stream" else guest.stream():
        yield


def _launched(kernel: kk.Kernel, x: Any, y: Any, **options: Any) -> None:
    kernel.launch(GRID, (x, y, np.float32(1), np.int32(N), np.int64(LATE)), GROUP, **options)


def _prepared(kernel: kk.Kernel, x: Any, y: Any) -> None:
    kernel.prepare(GRID, (x, y, np.float32(1), np.int32(N), np.int64(LATE)), GROUP)()


def _updated(kernel: kk.Kernel, x: Any, y: Any) -> None:
    own = kernel.device.array(np.zeros(N, "f4"))
    prepared = kernel.prepare(GRID, (own, own, np.float32(1), np.int32(N), np.int64(LATE)), GROUP)
    prepared.update(0, x)
    prepared.update("y", y)
    prepared()


def _graphed(kernel: kk.Kernel, x: Any, y: Any) -> None:
    graph = kk.Graph(kernel.device)
    graph.add(kernel.prepare(GRID, (x, y, np.float32(1), np.int32(N), np.int64(LATE)), GROUP))
    graph.launch()


def _as_arrays(kernel: kk.Kernel, x: Any, y: Any) -> None:
    _launched(kernel, kernel.device.array(x), kernel.device.array(y))


def _on_a_queue(kernel: kk.Kernel, x: Any, y: Any) -> None:
    _launched(kernel, x, y, queue=kernel.device.queue())


def _cooperative(kernel: kk.Kernel, x: Any, y: Any) -> None:
    _launched(kernel, x, y, cooperative=True)


WAYS = [_launched, _prepared, _updated, _graphed, _as_arrays, _on_a_queue, _cooperative]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__.strip("_"))
def launch(request: pytest.FixtureRequest, kernel: kk.Kernel) -> Add:
    return lambda x, y: request.param(kernel, x, y)


@pytest.mark.usefixtures("stream")
def test_a_library_reads_what_a_launch_wrote(guest: Any, launch: Add) -> None:
    x, y = guest.array(np.ones(N, "f4")), guest.array(np.full(N, 2, "f4"))
    for turn in range(1, 4):
        launch(x, y)
        after = guest.numpy(y + 1)
        np.testing.assert_array_equal(after, np.full(N, turn + 3, "f4"))


@pytest.mark.usefixtures("stream")
def test_a_launch_reads_what_a_library_wrote(device: kk.Device, guest: Any, launch: Add) -> None:
    x, y = guest.array(np.ones(N, "f4")), guest.array(np.zeros(N, "f4"))
    for turn in range(1, 4):
        guest.busy()
        x += 1
        launch(x, y)
        expected = sum(range(2, turn + 2))
        np.testing.assert_array_equal(guest.numpy(y), np.full(N, expected, "f4"))


@pytest.mark.usefixtures("stream")
def test_arrays_are_read_and_copied_in_order(device: kk.Device, guest: Any) -> None:
    theirs = guest.array(np.zeros(N, "f4"))
    shared = device.array(theirs)
    guest.busy()
    theirs += 5
    np.testing.assert_array_equal(shared.numpy(), np.full(N, 5, "f4"))
    guest.busy()
    theirs += 1
    own = device.empty(N).copy_from(shared)
    theirs += 1
    np.testing.assert_array_equal(own.numpy(), np.full(N, 6, "f4"))
    guest.busy()
    theirs += 1
    shared.copy_from(np.full(N, 9, "f4"))
    np.testing.assert_array_equal(guest.numpy(theirs + 1), np.full(N, 10, "f4"))


@pytest.mark.parametrize("how", ["from_dlpack", "from_interface"])
@pytest.mark.parametrize("first", ["exported", "prepared"])
@pytest.mark.usefixtures("stream")
def test_exported_arrays_stay_ordered_with_the_library(
    device: kk.Device, kernel: kk.Kernel, guest: Any, how: str, first: str
) -> None:
    x, y = device.array(np.ones(N, "f4")), device.array(np.zeros(N, "f4"))
    args = (x, y, np.float32(1), np.int32(N), np.int64(LATE))
    prepared = kernel.prepare(GRID, args, GROUP) if first == "prepared" else None
    _launched(kernel, x, y)
    theirs = getattr(guest, how)(y)
    np.testing.assert_array_equal(guest.numpy(theirs + 1), np.full(N, 2, "f4"))
    for turn in range(2, 5):
        if prepared is None:
            _launched(kernel, x, y)
        else:
            prepared()
        np.testing.assert_array_equal(guest.numpy(theirs + 1), np.full(N, turn + 1, "f4"))
    guest.busy()
    theirs += 10
    _launched(kernel, x, y)
    np.testing.assert_array_equal(y.numpy(), np.full(N, 15, "f4"))


@pytest.mark.usefixtures("stream")
def test_memory_dropped_at_once_is_not_reused_too_early(kernel: kk.Kernel, guest: Any) -> None:
    """The guest's allocator hands the memory of a dropped array to the next one while our kernel may still read it."""
    y = guest.array(np.zeros(N, "f4"))
    for turn in range(10):
        _launched(kernel, guest.array(np.full(N, turn, "f4")), y)
        guest.array(np.full(N, -1000, "f4"))
    np.testing.assert_array_equal(guest.numpy(y), np.full(N, sum(range(10)), "f4"))


@pytest.mark.usefixtures("stream")
def test_the_order_may_be_left_to_the_caller(device: kk.Device, kernel: kk.Kernel, guest: Any) -> None:
    theirs = guest.array(np.ones(N, "f4"))
    own = device.array(np.zeros(N, "f4"))
    unordered = device.array(theirs, ordered=False)
    args = (theirs, own, np.float32(1), np.int32(N), np.int64(0))
    ways: list[Callable[[], None]] = [
        lambda: kernel.launch(GRID, args, GROUP, ordered=False),
        lambda: kernel.launch(GRID, (unordered, *args[1:]), GROUP),
        kernel.prepare(GRID, args, GROUP, ordered=False),
    ]
    for way in ways:
        device.synchronize()
        for _ in range(20):
            guest.busy()
        way()
        device.synchronize()
        assert not guest.idle(), "it waited for the guest"
        guest.numpy(theirs)
    for _ in range(5):
        guest.busy()
    kernel.launch(GRID, args, GROUP)
    device.synchronize()
    assert guest.idle(), "it did not wait for the guest"


@pytest.mark.parametrize("aside", [False, True], ids=["submit", "run"])
@pytest.mark.usefixtures("stream")
def test_the_executor_waits_for_guests(cache: kk.ProgramCache, device: kk.Device, guest: Any, aside: bool) -> None:
    job = kk.Job(cache, SOURCE, grid=GRID, outputs=["y"], kernel="add", group=GROUP)
    theirs = guest.array(np.zeros(N, "f4"))
    with kk.Executor(device) as executor:
        for turn in range(1, 4):
            guest.busy()
            theirs += 1
            batch = {"x": theirs, "y": np.zeros(N, "f4"), "a": 1.0, "n": N, "ticks": LATE}
            if aside:
                result = asyncio.run(_awaited(executor, job, batch))
            else:
                result = executor.submit(job, **batch).result(60)
            np.testing.assert_array_equal(result["y"], np.full(N, turn, "f4"))
        result = executor.submit(job, x=theirs, y=theirs, a=1.0, n=N, ticks=LATE).result(60)
        np.testing.assert_array_equal(guest.numpy(theirs), result["y"])


async def _awaited(executor: kk.Executor, job: kk.Job, batch: dict[str, Any]) -> Any:
    return await executor.run(job, **batch)


@pytest.mark.usefixtures("stream")
def test_gemm_and_conv2d_are_ordered_with_the_library(cache: kk.ProgramCache, guest: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((128, 96), "f4"), rng.standard_normal((96, 64), "f4")
    theirs_a, theirs_b = guest.array(np.zeros_like(a)), guest.array(b)
    source = guest.array(a)
    gemm(cache, theirs_a, theirs_b)  # compiled and chosen
    for _ in range(3):
        guest.busy()
        theirs_a[...] = source
        found = gemm(cache, theirs_a, theirs_b)
        assert type(found) is type(theirs_a)
        np.testing.assert_allclose(guest.numpy(found * 2), 2 * (a @ b), rtol=1e-4, atol=1e-4)
        theirs_a[...] = 0
    image, weights = rng.standard_normal((1, 4, 16, 16), "f4"), np.zeros((4, 4, 3, 3), "f4")
    for channel in range(4):
        weights[channel, channel, 1, 1] = 2
    theirs_image, source = guest.array(np.zeros_like(image)), guest.array(image)
    theirs_weights = guest.array(weights)
    conv2d(cache, theirs_image, theirs_weights, padding=1)
    guest.busy()
    theirs_image[...] = source
    found = conv2d(cache, theirs_image, theirs_weights, padding=1)
    np.testing.assert_allclose(guest.numpy(found + 1), 2 * image + 1, rtol=1e-5, atol=1e-5)


class OnlyDLPack:
    """An array of a library that nobody knows: it makes a consumer's stream wait, and tells no stream of its own."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._tensor.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


class OnlyInterface:
    """An array of a library that nobody knows: it names the stream of its work, or None where that is done."""

    def __init__(self, tensor: Any, stream: int | None) -> None:
        self._tensor = tensor
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._tensor.__cuda_array_interface__, "version": 3, "stream": self._stream}


@pytest.mark.parametrize("kind", ["dlpack", "interface", "interface without a stream"])
def test_an_unknown_library_is_ordered_by_waiting(kernel: kk.Kernel, launch: Add, kind: str) -> None:
    guest = Torch()
    torch = guest.torch
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        stream = torch.cuda.current_stream()
        x, y = guest.array(np.ones(N, "f4")), guest.array(np.zeros(N, "f4"))

        def wrapped(tensor: Any) -> Any:
            if kind == "dlpack":
                return OnlyDLPack(tensor)
            if kind == "interface":
                return OnlyInterface(tensor, stream.cuda_stream)
            stream.synchronize()  # that is what the missing stream says
            return OnlyInterface(tensor, None)

        for turn in range(1, 4):
            guest.busy()
            x += 1
            launch(wrapped(x), wrapped(y))
            np.testing.assert_array_equal(guest.numpy(y + 1), np.full(N, sum(range(2, turn + 2)) + 1, "f4"))


@pytest.mark.parametrize("kind", ["dlpack", "interface without a stream"])
def test_one_launch_is_ordered_with_several_libraries(kernel: kk.Kernel, launch: Add, kind: str) -> None:
    """One array's stream is known and the other's is not: the known one is waited for all the same."""
    guest = Torch()
    torch = guest.torch
    y = guest.array(np.zeros(N, "f4"))
    unknown = OnlyDLPack(y) if kind == "dlpack" else OnlyInterface(y, None)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        x = guest.array(np.ones(N, "f4"))
        for turn in range(1, 4):
            guest.busy()
            x += 1
            launch(x, unknown)
            np.testing.assert_array_equal(guest.numpy(y + 1), np.full(N, sum(range(2, turn + 2)) + 1, "f4"))


def test_a_library_that_names_no_stream_is_waited_for_on_the_default_stream(kernel: kk.Kernel, launch: Add) -> None:
    guest = Torch()
    x, y = guest.array(np.ones(N, "f4")), guest.array(np.zeros(N, "f4"))
    for turn in range(1, 4):
        guest.busy()
        x += 1
        launch(OnlyInterface(x, None), OnlyInterface(y, None))
        np.testing.assert_array_equal(guest.numpy(y), np.full(N, sum(range(2, turn + 2)), "f4"))


def test_an_array_exported_to_two_libraries_is_ordered_with_both(device: kk.Device, kernel: kk.Kernel) -> None:
    first, second = Torch(), Cupy()
    x, y = device.array(np.ones(N, "f4")), device.array(np.zeros(N, "f4"))
    with first.stream(), second.stream():
        theirs, others = first.from_dlpack(y), second.from_dlpack(y)
        for turn in range(1, 4):
            _launched(kernel, x, y)
            np.testing.assert_array_equal(first.numpy(theirs + 1), np.full(N, turn + 1, "f4"))
        for turn in range(4, 7):
            _launched(kernel, x, y)
            np.testing.assert_array_equal(second.numpy(others + 1), np.full(N, turn + 1, "f4"))


def test_a_prepared_launch_keeps_its_queue(device: kk.Device, kernel: kk.Kernel) -> None:
    x, y = device.array(np.ones(N, "f4")), device.array(np.zeros(N, "f4"))
    prepared = kernel.prepare(GRID, (x, y, np.float32(1), np.int32(N), np.int64(0)), GROUP, queue=device.queue())
    for _ in range(3):
        gc.collect()
        device.synchronize()  # what was collected is given back
        device.queue().synchronize()
        prepared()
    assert prepared.options.queue is not None
    prepared.options.queue.synchronize()
    np.testing.assert_array_equal(y.numpy(), np.full(N, 3, "f4"))


def test_the_collector_frees_no_memory_itself(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where what is kept to be used again has become too much."""
    freed: list[int] = []
    free = device.driver.cuMemFree

    def note(handle: int) -> Any:
        freed.append(handle)
        return free(handle)

    monkeypatch.setattr(device.driver, "cuMemFree", note)
    device.synchronize()
    freed.clear()
    arrays = [device.recycled_empty((1000,)) for _ in range(100)]
    del arrays
    gc.collect()
    assert not freed
    device.synchronize()
    assert freed


def test_using_things_of_a_closed_device_raises() -> None:
    device = open_or_skip("cuda")
    queue, fence = device.queue(), device.fence()
    with device.timer() as timer:
        pass
    device.close()
    assert fence.done and fence.wait() and fence.wait(1)
    for use in (queue.synchronize, queue.fence, lambda: queue.wait_for(fence), lambda: timer.seconds):
        with pytest.raises(kk.DeviceError, match="closed"):
            use()


def test_each_thread_is_ordered_with_its_own_stream(kernel: kk.Kernel, guest: Any) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with guest.stream():
                x, y = guest.array(np.full(N, number, "f4")), guest.array(np.zeros(N, "f4"))
                for turn in range(1, 6):
                    guest.busy()
                    x += 0
                    kernel.launch(GRID, (x, y, np.float32(1), np.int32(N), np.int64(1000)), GROUP)
                    np.testing.assert_array_equal(guest.numpy(y + 1), np.full(N, turn * number + 1, "f4"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_a_launch_becomes_part_of_torchs_graph(device: kk.Device, kernel: kk.Kernel) -> None:
    torch = _library("torch")
    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    _launched(kernel, x, y)  # its code is on the device
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        _launched(kernel, x, y)
        y.mul_(2)
    x.fill_(1)
    y.zero_()
    graph.replay()
    graph.replay()
    np.testing.assert_array_equal(y.cpu().numpy(), np.full(N, 2 * (2 * 2 + 3), "f4"))
    _launched(kernel, x, y)
    np.testing.assert_array_equal(y.cpu().numpy(), np.full(N, 14 + 3, "f4"))


# --- what cannot be shared


def test_tensors_that_cannot_be_shared_are_rejected(device: kk.Device, kernel: kk.Kernel) -> None:
    torch = _library("torch")
    plain = torch.ones(N, device="cuda")
    wrong = {
        "detach": torch.ones(N, device="cuda", requires_grad=True),
        "contiguous": torch.ones(2 * N, device="cuda")[::2],
        "bfloat16": torch.ones(N, device="cuda", dtype=torch.bfloat16),
        "plain memory": torch.ones(N, device="cuda").to_sparse(),
    }
    for said, tensor in wrong.items():
        with pytest.raises(kk.ArgumentError, match=said):
            _launched(kernel, tensor, plain)
        if said != "bfloat16":  # where somebody taught NumPy that dtype, an array may have it
            with pytest.raises(kk.ArgumentError, match=said):
                device.array(tensor)
    assert device.array(torch.empty(0, device="cuda")).shape == (0,)
    assert device.array(torch.ones(3)).numpy().tolist() == [1, 1, 1], "host memory is copied"


def test_dlpack_follows_copy_device_and_stream_arguments(device: kk.Device) -> None:
    torch = _library("torch")
    x = device.array(np.arange(4, dtype="f4"))
    for stream in (0, -2, "1", 1.5, True):
        with pytest.raises(BufferError, match="stream"):
            x.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="dl_device"):
        x.__dlpack__(dl_device=(2, 99))
    with pytest.raises(BufferError, match="copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    copied = torch.from_dlpack(x.__dlpack__(stream=-1, copy=True))
    shared = torch.from_dlpack(x.__dlpack__(stream=-1))
    x.copy_from(np.zeros(4, "f4"))
    assert copied.tolist() == [0, 1, 2, 3] and shared.tolist() == [0, 0, 0, 0]
    x.copy_from(np.arange(4, dtype="f4"))
    on_host = torch.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
    assert on_host.device.type == "cpu" and on_host.tolist() == [0, 1, 2, 3]


# --- contexts


def _new_context(device: Any) -> Any:
    driver = device.driver
    try:
        status, made = driver.cuCtxCreate(None, 0, device.cu_device)
    except TypeError:
        status, made = driver.cuCtxCreate(0, device.cu_device)
    assert int(status) == 0
    driver.cuCtxPopCurrent()
    return made


def test_the_default_stream_of_the_arrays_device_is_used(device: Any, launch: Add) -> None:
    """Whichever context is current when we launch: another one has a default stream of its own."""
    guest, driver = Torch(), device.driver
    x, y = guest.array(np.ones(N, "f4")), guest.array(np.zeros(N, "f4"))
    other = _new_context(device)
    try:
        for turn in range(1, 4):
            guest.busy()
            x += 1
            driver.cuCtxPushCurrent(other)
            try:
                launch(x, y)
            finally:
                driver.cuCtxPopCurrent()
            np.testing.assert_array_equal(guest.numpy(y + 1), np.full(N, sum(range(2, turn + 2)) + 1, "f4"))
    finally:
        driver.cuCtxDestroy(other)


@pytest.fixture(params=["no context", "another context"])
def foreign(request: pytest.FixtureRequest, device: Any) -> Iterator[Callable[[], Any]]:
    """This thread has no context, or one that is not ours; gives a function that tells which is current."""
    driver = device.driver
    _, before = driver.cuCtxGetCurrent()
    made = _new_context(device) if request.param == "another context" else None
    driver.cuCtxSetCurrent(driver.CUcontext(0) if made is None else made)
    yield lambda: int(driver.cuCtxGetCurrent()[1])
    driver.cuCtxSetCurrent(before)
    if made is not None:
        driver.cuCtxDestroy(made)


def test_a_thread_keeps_its_context(device: kk.Device, foreign: Callable[[], Any], tmp_path: Path) -> None:
    at_first = foreign()

    def same(what: str) -> None:
        assert foreign() == at_first, f"{what} moved this thread to another context"

    x, y = device.array(np.ones(N, "f4")), device.array(np.zeros(N, "f4"))
    same("device.array")
    fresh = device.build(kk.Source(SLOW + f"// {at_first}", name="add", language="cuda"))
    same("device.build")
    kernel = fresh.kernel("add")
    args = (x, y, np.float32(1), np.int32(N), np.int64(0))
    kernel.launch(GRID, args, GROUP)
    same("launch")
    prepared = kernel.prepare(GRID, args, GROUP)
    prepared()
    same("a prepared launch")
    kernel.launch(GRID, args, GROUP, cooperative=True)
    same("a cooperative launch")
    queue = device.queue()
    device.synchronize()
    kernel.launch(GRID, args, GROUP, queue=queue)
    queue.synchronize()
    same("a queue")
    with kk.Graph(device) as graph:
        graph.add(prepared)
        graph.launch()
        same("a graph")
    assert device.fence().wait(10)
    same("a fence")
    with device.timer() as timer:
        prepared()
    assert timer.seconds >= 0
    same("a timer")
    pinned = device.pinned_empty(100)
    same("pinned memory")
    np.testing.assert_array_equal(y.numpy(), np.full(N, 6, "f4"))
    same("numpy()")
    with kk.ProgramCache(device, tmp_path) as cache:
        job = kk.Job(cache, SOURCE, grid=GRID, outputs=["y"], kernel="add", group=GROUP)
        with kk.Executor(device) as executor:
            result = executor.submit(job, x=x, y=np.zeros(N, "f4"), a=2.0, n=N, ticks=0).result(60)
            np.testing.assert_array_equal(result["y"], np.full(N, 2, "f4"))
        same("an executor")
        gemm(cache, np.ones((8, 8), "f4"), np.ones((8, 8), "f4"))
        same("gemm")
    with device.exclusive():
        pass
    same("exclusive")
    device.memory_info()
    same("memory_info")
    x.close()
    fresh.close()
    same("close")
    del pinned, prepared, graph, queue, y, job
    gc.collect()
    same("the garbage collector")
    device.synchronize()
    same("giving back what the collector left")
    with kk.open_device(device.spec) as other:
        other.array(np.ones(4, "f4")).numpy()
        same("a second device")
    same("closing a device")


def test_collected_memory_comes_back(device: kk.Device, foreign: Callable[[], Any]) -> None:
    at_first = foreign()
    nbytes = 256 << 20
    before = device.memory_info().free_bytes
    x = device.empty(nbytes // 4)
    held = device.memory_info().free_bytes
    assert before is not None and held is not None and before - held >= nbytes // 2
    del x
    gc.collect()
    assert foreign() == at_first
    after = device.memory_info().free_bytes
    assert after is not None and after - held >= nbytes // 2
    for _ in range(2000):  # more than the device has, were it not given back
        device.empty(nbytes // 4)
    assert foreign() == at_first


# --- first use


def test_the_first_use_may_come_from_many_threads(device: kk.Device) -> None:
    """The first `launch` and the first `prepare` of a kernel at the same time, from many threads."""
    for attempt in range(30):
        kernel = device.load(device.compile(SOURCE)).kernel("add")
        x = device.array(np.ones(N, "f4"))
        results = [device.array(np.zeros(N, "f4")) for _ in range(16)]
        gate = threading.Barrier(len(results))
        failures: list[BaseException] = []

        def work(number: int, y: kk.Array) -> None:
            args = (x, y, np.float32(number), np.int32(N), np.int64(0))  # noqa: B023
            try:
                gate.wait()  # noqa: B023
                if number % 3 == 0:
                    kernel.prepare(GRID, args, GROUP)()  # noqa: B023
                elif number % 3 == 1:
                    kernel.launch(GRID, args, GROUP)  # noqa: B023
                else:
                    kernel.launch(GRID, args, GROUP, cooperative=True)  # noqa: B023
                kernel.launch(GRID, args, GROUP)  # noqa: B023
            except BaseException as error:
                failures.append(error)  # noqa: B023

        threads = [threading.Thread(target=work, args=(number, y)) for number, y in enumerate(results)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        for number, y in enumerate(results):
            assert (y.numpy() == 2 * number).all(), f"attempt {attempt}, thread {number}"
