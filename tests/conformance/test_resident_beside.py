"""Life beside a CUDA kernel that never exits: what blocks there is postponed, or done while the kernel is out of the way.

The kernel spins until a word in host memory tells it to stop. Nothing here waits for it without end: after `RESCUE_SECONDS` a
thread of the test stops it, and the test fails, because the kernel did not run to the end of the test.
"""

from __future__ import annotations

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
from kernelkeep.devices.cuda.resident_queue import ResidentQueue
from kernelkeep.testing import CacheTests, DeviceTests, DispatchTests, ExecutorTests, note_skipped, open_or_skip

pytestmark = pytest.mark.cuda

RESCUE_SECONDS = 20.0
N = 1 << 12
ENDLESS = kk.Source(
    """extern "C" __global__ void endless(unsigned long long address) {
    volatile unsigned* word = (volatile unsigned*)address;
    unsigned laps = 0;
    while (word[0] == 0) word[32] = ++laps;
}
""",
    name="endless",
    language="cuda",
)


def adding(number: int, *, before: str = "", name: str = "") -> kk.Source:
    """A source that adds a number to each element; each number is a program of its own."""
    name = name or f"add{number}"
    text = f"""extern "C" __global__ void {name}(float* x, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {before}
    if (i < n) x[i] += {number}.0f;
}}
"""
    return kk.Source(text, name=name, language="cuda")


class Endless:
    """A resident grid without tasks, as `Residents` sees it."""

    def __init__(self, device: Any, sms: int | None = None) -> None:
        self.device = device
        self.queue = ResidentQueue(device, sms)
        self.word = device.pinned_empty(64, "u4")
        self.word[:] = 0
        self.kernel = device.build(ENDLESS).kernel("endless")
        self.suspensions = 0
        self.rescued = False
        self._stopped = self._runs = False
        self._lock = threading.Lock()
        self._rescue: threading.Timer | None = None
        self.watch()
        device.add_tenant(self)
        device.residents.add(self)

    def watch(self, seconds: float = RESCUE_SECONDS) -> None:
        """Stop it after some time, counted from now: whatever waits for it goes on then."""
        if self._rescue is not None:
            self._rescue.cancel()
        self._rescue = threading.Timer(seconds, self._stop_it)
        self._rescue.daemon = True
        self._rescue.start()

    def _stop_it(self) -> None:
        self.rescued = True
        self._stopped = True
        self.word[0] = 1

    @property
    def runs(self) -> bool:
        return not self.queue.idle

    def suspend(self) -> None:
        with self._lock:
            if self._runs:
                self._end()
                self.suspensions += 1

    def _end(self) -> None:
        self.word[0] = 1
        if not self.queue.wait(RESCUE_SECONDS):
            raise kk.DeviceError("the endless kernel does not end")
        self._runs = False

    def resume(self) -> None:
        with self._lock:
            if self._runs or self._stopped:
                return
            self.word[0] = 0
            self.kernel.launch(grid=1, group=1, args=(np.uint64(self.word.ctypes.data),), queue=self.queue)
            self._runs = True

    def close(self) -> None:
        with self._lock:
            self._stopped = True
            if self._runs:
                self._end()
        if self._rescue is not None:
            self._rescue.cancel()
        self.device.residents.remove(self)
        self.queue.close()

    def mark_lost(self, reason: str) -> None: ...


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    with open_or_skip("cuda") as opened:
        yield opened


@contextlib.contextmanager
def endless_kernel(device: Any, sms: int | None = None) -> Iterator[Endless]:
    grid = Endless(device, sms)
    try:
        yield grid
        assert grid.runs, "the endless kernel had to be stopped" if grid.rescued else "the endless kernel ended"
    finally:
        grid.close()


@pytest.fixture
def beside(device: Any) -> Iterator[Endless]:
    """An endless kernel that runs from the beginning to the end of the test, but for the moments it is suspended."""
    with endless_kernel(device) as grid:
        yield grid


def run(kernel: Any, x: Any, **options: Any) -> None:
    kernel.launch(grid=-(-x.size // 256), group=256, args=(x, np.int32(x.size)), **options)


def test_work_goes_on(device: Any) -> None:
    kernel = device.build(adding(1)).kernel()
    with endless_kernel(device) as beside:
        laps = int(beside.word[32])
        x = device.array(np.zeros(N, "f4"))
        for _ in range(100):
            run(kernel, x)
        queue = device.queue()
        queue.wait_for(device.fence())
        run(kernel, x, queue=queue)
        queue.synchronize()
        device.synchronize()
        device.settle()
        assert x.numpy().max() == 101
        with device.timer() as timer:
            run(kernel, x)
        assert timer.seconds > 0
        assert device.memory_info().total_bytes > 0
        assert beside.suspensions == 0
        while int(beside.word[32]) == laps and not beside.rescued:
            pass  # it really runs


def test_arrays_are_freed_when_the_kernel_has_ended(device: Any) -> None:
    waiting = device.discarded.waiting
    with endless_kernel(device) as beside:
        free = device.memory_info().free_bytes
        closed = device.array(np.zeros(1 << 20, "f4"))
        collected = device.empty((1 << 20,), "f4")
        pinned = device.pinned_empty(1 << 20, "u1")
        closed.close()
        del collected, pinned
        gc.collect()
        device.synchronize()
        device.empty((16,), "f4").close()
        assert device.discarded.waiting >= waiting + 4
        assert beside.suspensions == 0
    assert device.discarded.waiting == 0
    assert device.memory_info().free_bytes >= free


def test_programs_graphs_launches_and_executors_are_closed_beside_it(device: Any, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        job = kk.Job(cache, adding(2), grid=N // 256, group=256, outputs={"x": ((N,), "f4")})
        executor = kk.Executor(device, depth=2)
        executor.submit(job, x=np.zeros(N, "f4"), n=N).result()
        x = device.array(np.zeros(N, "f4"))
        kernel = device.build(adding(3)).kernel()
        prepared = kernel.prepare(grid=N // 256, group=256, args=(x, np.int32(N)))
        graph = kk.Graph(device)
        graph.add(prepared)
        graph.launch()
        collected = kk.Graph(device)
        collected.add(prepared)
        collected.launch()
        with endless_kernel(device) as beside:
            assert executor.submit(job, x=np.zeros(N, "f4"), n=N).result()["x"].max() == 2
            executor.close()
            graph.launch()
            prepared()
            assert x.numpy().max() == 12
            graph.close()
            del collected
            kernel.program.close()
            with pytest.raises(kk.DeviceError):
                prepared()
            queue = device.queue()
            del queue, prepared
            cache.trim(0)
            gc.collect()
            device.synchronize()
            assert beside.suspensions == 0
        assert device.discarded.waiting == 0


def test_code_is_loaded_with_the_kernel_out_of_the_way(device: Any, beside: Endless) -> None:
    x = device.array(np.zeros(N, "f4"))
    kernel = device.build(adding(4)).kernel()
    assert beside.suspensions == 1
    for _ in range(10):
        run(kernel, x)
    assert x.numpy().max() == 40
    assert beside.suspensions == 1
    x.close()
    assert device.discarded.waiting
    program = device.build(adding(5))
    assert beside.suspensions == 2
    assert device.discarded.waiting == 0  # freed on the way
    program.close()


def test_a_program_loaded_lazily_is_launched_beside_it(device: Any) -> None:
    before, later = (device.compile(adding(number)) for number in (6, 7))
    lazy = device.load(before, eager=False).kernel()
    with endless_kernel(device) as beside:
        x = device.array(np.zeros(N, "f4"))
        run(lazy, x)
        assert x.numpy().max() == 6
        assert beside.suspensions == 0
        program = device.load(later, eager=False)
        assert beside.suspensions == 0
        kernel = program.kernel()
        assert beside.suspensions == 1
        run(kernel, x)
        assert x.numpy().max() == 13


def test_a_kernel_with_much_local_memory_is_launched_beside_it(device: Any) -> None:
    """A launch that needs more local memory than any before would wait for all kernels."""

    def spilling(number: int, words: int) -> kk.Source:
        before = f"""float local[{words}];
    for (int k = 0; k < {words}; k++) local[k] = (float)(k + i + n);
    for (int k = 0; k < n % 7; k++) local[(k * 31 + i) % {words}] += local[(k * 17 + n) % {words}];
    if (local[(i * 13 + n) % {words}] < 0) return;"""
        return adding(number, before=before)

    earlier = device.load(device.compile(spilling(8, 1000)), eager=False).kernel()
    with endless_kernel(device) as beside:
        x = device.array(np.zeros(N, "f4"))
        run(earlier, x)
        assert x.numpy().max() == 8
        assert beside.suspensions == 0
        kernel = device.build(spilling(9, 4000)).kernel()
        run(kernel, x)
        assert x.numpy().max() == 17


def test_more_shared_memory_is_allowed_beside_it(device: Any, beside: Endless) -> None:
    kernel = device.build(adding(10)).kernel()
    x = device.array(np.zeros(N, "f4"))
    for _ in range(3):
        run(kernel, x, shared_bytes=64 * 1024)
    assert x.numpy().max() == 30
    assert kernel.count_resident_groups(256, 64 * 1024) > 0
    assert beside.suspensions == 2  # the code, and the first launch with so much


def test_a_graph_is_made_changed_and_launched_beside_it(device: Any, beside: Endless) -> None:
    kernel = device.build(adding(11)).kernel()
    x, y = (device.array(np.zeros(N, "f4")) for _ in range(2))
    prepared = kernel.prepare(grid=N // 256, group=256, args=(x, np.int32(N)))
    graph = kk.Graph(device)
    for _ in range(20):
        graph.add(prepared)
    graph.launch()
    suspensions = beside.suspensions
    graph.launch()
    prepared.update(0, y)
    graph.launch()
    assert (x.numpy().max(), y.numpy().max()) == (440, 220)
    assert beside.suspensions == suspensions
    graph.close()


def test_out_of_memory_makes_the_postponed_frees(device: Any, beside: Endless) -> None:
    most = device.memory_info().free_bytes * 6 // 10
    first = device.empty((most,), "u1")
    first.close()
    assert beside.suspensions == 0
    second = device.empty((most,), "u1")  # only one of them fits
    assert beside.suspensions == 1
    with pytest.raises(kk.OutOfMemory):
        device.empty((most,), "u1")
    second.close()


def test_what_waits_to_be_freed_does_not_fill_the_device(device: Any, beside: Endless) -> None:
    most = device.memory_info().free_bytes // 20
    for _ in range(40):
        device.empty((most,), "u1").close()
    assert 1 <= beside.suspensions < 40
    assert device.memory_info().free_bytes > 10 * most


def test_another_device_of_the_gpu_is_opened_used_and_closed(device: Any) -> None:
    with endless_kernel(device) as beside:
        other = kk.open_device(device.spec)
        x = other.array(np.zeros(N, "f4"))
        run(other.build(adding(12)).kernel(), x)
        assert x.numpy().max() == 12
        pinned = other.pinned_empty(N, "f4")
        other.close()
        del pinned, x
        gc.collect()
        assert beside.suspensions == 1  # for the code only
        run(device.build(adding(13)).kernel(), device.array(np.zeros(N, "f4")))
    assert device.discarded.waiting == 0


def test_closing_a_device_stops_its_grids_first() -> None:
    with open_or_skip("cuda") as opened:
        device: Any = opened
        grid = Endless(device)
        device.array(np.zeros(N, "f4"))
        device.close()
    assert not grid.rescued
    assert not device.residents.grids
    assert not device.discarded.held


def test_executors_come_and_go(device: Any, tmp_path: Path) -> None:
    """Each has streams of its own, and the driver makes only so many beside the kernel."""
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        job = kk.Job(cache, adding(17), grid=N // 256, group=256, outputs={"x": ((N,), "f4")})
        with kk.Executor(device) as executor:
            executor.submit(job, x=np.zeros(N, "f4"), n=N).result()
        with endless_kernel(device) as beside:
            for _ in range(20):
                with kk.Executor(device) as executor:
                    assert executor.submit(job, x=np.zeros(N, "f4"), n=N).result()["x"].max() == 17
            kept = [kk.Executor(device) for _ in range(12)]
            for executor in kept:
                assert executor.submit(job, x=np.zeros(N, "f4"), n=N).result()["x"].max() == 17
            for executor in kept:
                executor.close()
            assert not beside.rescued


def test_a_few_streams_go_on_together(device: Any) -> None:
    """As few as these get hardware queues of their own. Many streams share them, and may wait for the endless kernel."""
    kernel = device.build(adding(14)).kernel()
    with endless_kernel(device) as beside:
        rows = [device.array(np.zeros(N, "f4")) for _ in range(4)]
        queues = [device.queue() for _ in rows]
        for _ in range(20):
            for queue, row in zip(queues, rows, strict=True):
                queue.wait_for(device.fence())
                run(kernel, row, queue=queue)
                run(kernel, row, queue=queue)
        for queue in queues:
            queue.synchronize()
        assert [row.numpy().max() for row in rows] == [560] * 4
        assert beside.suspensions == 0


def test_threads_load_launch_and_free_beside_it(device: Any, beside: Endless) -> None:
    wrong: list[Any] = []

    def work(thread: int) -> None:
        try:
            for turn in range(3):
                number = 100 + 10 * thread + turn
                program = device.build(adding(number))
                x = device.array(np.zeros(N, "f4"))
                for _ in range(20):
                    run(program.kernel(), x)
                if x.numpy().max() != 20 * number:
                    wrong.append(number)
                x.close()
                program.close()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 1 <= beside.suspensions <= 12


def test_launches_that_wait_for_their_kernel_are_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(kk.Unsupported, match="CUDA_LAUNCH_BLOCKING"):
        ResidentQueue(device)


def test_two_endless_kernels(device: Any, beside: Endless) -> None:
    with endless_kernel(device) as second:
        suspensions = beside.suspensions
        device.build(adding(15)).close()
        assert (beside.suspensions, second.suspensions) == (suspensions + 1, 1)
    device.array(np.zeros(N, "f4")).close()
    assert device.discarded.waiting


@pytest.fixture
def green(device: Any) -> int:
    """How many multiprocessors the smallest green context has."""
    try:
        queue = ResidentQueue(device, 1)
    except kk.Unsupported as missing:
        pytest.skip(str(missing))
    except kk.ArgumentError:
        pytest.skip("the device has too few multiprocessors")
    queue.close()
    return queue.sms


def test_a_green_context_has_its_own_multiprocessors(device: Any, green: int) -> None:
    """The kernels of its stream run on no more multiprocessors than it has."""
    text = """extern "C" __global__ void where(int* seen) {
    int here;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
    for (int k = 0; k < 100; k++) __nanosleep(1000);
    if (threadIdx.x == 0) atomicAdd(&seen[here], 1);
}
"""
    kernel = device.build(kk.Source(text, name="where", language="cuda")).kernel()
    queue = ResidentQueue(device, green + 1)
    assert green < queue.sms <= 2 * green
    seen = device.array(np.zeros(1024, "i4"))
    groups = queue.count_groups(kernel, 64)
    assert groups == kernel.count_groups_each(64, 0) * queue.sms
    kernel.launch(grid=groups, group=64, args=(seen,), queue=queue, cooperative=True)
    assert queue.wait(RESCUE_SECONDS)
    assert 1 <= np.count_nonzero(seen.numpy()) <= queue.sms
    assert seen.numpy().sum() == groups
    with pytest.raises(kk.ArgumentError):
        kernel.launch(grid=groups + 1, group=64, args=(seen,), queue=queue, cooperative=True)
    queue.close()


def test_more_multiprocessors_than_there_are(device: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="at most"):
        ResidentQueue(device, device.count_sms() + 1)


def test_life_beside_a_kernel_in_a_green_context(device: Any, green: int) -> None:
    with endless_kernel(device, green) as beside:
        assert beside.queue.sms == green
        x = device.array(np.zeros(N, "f4"))
        run(device.build(adding(16)).kernel(), x)
        assert x.numpy().max() == 16
        assert beside.suspensions == 1
        x.close()
    assert device.discarded.waiting == 0


class _Beside:
    """For a suite that runs as usual, but for the endless kernel beside it."""

    backend = "cuda"

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls) -> Iterator[kk.Device]:
        with open_or_skip("cuda") as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def endless(cls, device: kk.Device) -> Iterator[Endless]:
        grid = Endless(device)
        yield grid
        grid.close()

    @pytest.fixture(autouse=True)
    def _beside_it(self, endless: Endless) -> Iterator[None]:
        if endless.rescued:
            pytest.skip("an earlier test had the endless kernel stopped")
        endless.watch(6 * RESCUE_SECONDS)  # some start processes, and share the machine with others
        yield
        assert endless.runs, "the endless kernel had to be stopped" if endless.rescued else "the endless kernel ended"


class TestDeviceBeside(_Beside, DeviceTests):
    pass


class TestDispatchBeside(_Beside, DispatchTests):
    turn_in_shared_memory = kk.Source(
        """extern "C" __global__ void turn(int* y) {
    extern __shared__ int part[];
    int l = threadIdx.x, last = blockDim.x - 1;
    part[last - l] = y[blockIdx.x * blockDim.x + l];
    __syncthreads();
    y[blockIdx.x * blockDim.x + l] = part[l];
}
""",
        name="turn",
        language="cuda",
    )


class TestExecutorBeside(_Beside, ExecutorTests):
    pass


class TestCacheBeside(_Beside, CacheTests):
    pass


def guest(name: str) -> Any:
    try:
        module = importlib.import_module(name)
        works = module.cuda.is_available()
    except Exception as error:
        note_skipped(name, str(error))
        pytest.skip(f"{name} is not installed")
    if not works:
        pytest.skip(f"{name} finds no GPU")
    return module


def with_torch(torch: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x = torch.zeros(N, device="cuda")
    return (lambda: float((x + 1).cpu().max())), (lambda: float(torch.erfinv(x).cpu().max()))


def with_cupy(cupy: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x = cupy.zeros(N, "f4")
    return (lambda: float(cupy.asnumpy(x + 1).max())), (lambda: float(cupy.asnumpy(cupy.cbrt(x)).max()))


@pytest.mark.parametrize(("name", "start"), [("torch", with_torch), ("cupy", with_cupy)])
def test_another_library_goes_on_beside_it(device: Any, name: str, start: Any) -> None:
    """What it has used before goes on; a kernel it has not used yet is loaded with ours out of the way."""
    known, new = start(guest(name))
    assert known() == 1
    with endless_kernel(device) as beside:
        for _ in range(20):
            assert known() == 1
        assert beside.suspensions == 0
        with device.residents.out_of_the_way():
            assert new() == 0
        assert beside.suspensions == 1
        for _ in range(20):
            assert (known(), new()) == (1, 0)
        assert beside.suspensions == 1
