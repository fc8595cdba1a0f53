"""A stream of batches through upload, kernel and download: the executor against loops by hand and against PyTorch.

    python benchmarks/executor.py [section …] [--device SPEC] [--json FILE] [--long]
        sections: stream sizes latency

- *stream* (CUDA): batches of 6.4 MB in and 12.8 MB out, the shapes of a convolution 8×64→128×56², with a kernel that takes
  about as long as that convolution does. Beside it each stage alone, all three with no order between them, which is what
  the bus allows, the loop without an executor, and PyTorch with the convolution itself: naive, and with a triple buffer
  written by hand. Then some of it again on a host whose cores all have other work: there the figure is the mean of the rounds,
  because a thread has a core to itself in one round and shares it in the next.
- *sizes* (every device): small, middle and large batches with a light and a heavy kernel, against the loop without an
  executor. The ratio is the median over rounds in which the two took turns.
- *latency* (every device): one small batch at a time, from its submission to its result.

Results are compared with NumPy's. A figure is the time of a whole run, filling and draining included, per batch.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_devices, chosen_sections, interleaved, long_run, rounds_of, row, show

GROUP = 256
# One item gives one element: `rounds` of multiplying and adding, which lead to 0.5 ever more closely.
WORK = kk.PortableKernel(
    "work",
    params=[
        kk.Buffer("x", "f4", "r"),
        kk.Buffer("y", "f4", "w"),
        kk.Scalar("rounds", "i4"),
        kk.Scalar("halvings", "i4"),
        kk.Scalar("n", "i4"),
    ],
    body="""int i = kk_global_id(0);
if (i >= n) return;
float v = x[i >> halvings];
for (int r = 0; r < rounds; r++) v = v * 0.999f + 0.0005f;
y[i] = v;""",
    group=GROUP,
)
Host = np.ndarray[Any, Any]
Run = Callable[[], Any]  # one run of many batches; gives the last result


def expected(x: Host, rounds: int, halvings: int) -> Host:
    result: Host = 0.5 + (np.repeat(x.ravel(), 1 << halvings).astype("f8") - 0.5) * float(np.float32(0.999)) ** rounds
    return result


def check(result: Host, x: Host, rounds: int, halvings: int = 0) -> None:
    np.testing.assert_allclose(result.ravel(), expected(x, rounds, halvings), atol=1e-4)


class Workload:
    """A job and the batches for it, which go through an executor or through the loop that does without one."""

    def __init__(
        self, cache: kk.ProgramCache, kernel: kk.Kernel, shape: tuple[int, ...], rounds: int, halvings: int = 0
    ) -> None:
        self.device = cache.device
        self.cache = cache
        self.kernel = kernel
        self.shape = shape
        self.n = int(np.prod(shape)) << halvings
        self.grid = -(-self.n // GROUP)
        self.scalars: dict[str, Any] = {
            "rounds": np.int32(rounds),
            "halvings": np.int32(halvings),
            "n": np.int32(self.n),
        }

    def job(self, copy: bool = True) -> kk.Job:
        return kk.Job(self.cache, WORK, grid=self.grid, outputs={"y": (self.n, "f4")}, copy=copy)

    def hosts(self, count: int, pinned: bool = False) -> list[Host]:
        random, made = np.random.default_rng(1), []
        for _ in range(count):
            host = random.random(self.shape, dtype="f4")
            if pinned:
                host, ordinary = self.device.pinned_empty(self.shape), host
                host[:] = ordinary
            made.append(host)
        return made

    def executed(self, executor: kk.Executor, job: kk.Job, hosts: list[Host], batches: int) -> Run:
        def run() -> Any:
            last = None
            for result in executor.map(job, ({"x": hosts[i % len(hosts)]} for i in range(batches)), **self.scalars):
                last = result["y"]
            return last

        return run

    def in_a_loop(self, hosts: list[Host], batches: int, pinned: bool = False) -> Run:
        kernel, x, y = self.kernel, self.device.empty(self.shape), self.device.empty(self.n)
        out = self.device.pinned_empty(self.n) if pinned else None

        def run() -> Any:
            result = None
            for i in range(batches):
                x.copy_from(hosts[i % len(hosts)])
                kernel.launch(self.grid, (x, y, *self.scalars.values()))
                result = y.numpy(out=out)
            return result

        return run


# --- stream: the batches of a convolution, on CUDA

CHANNELS, IMAGE = (64, 128), (8, 56, 56)
BATCHES, RING, ROUNDS, BUSY_ROUNDS = 200, 8, 5, 9
DEPTHS = (1, 2, 3, 4) if long_run() else (3,)
PINNED, ORDINARY = "kernelkeep executor, pinned, copy=False", "kernelkeep executor, ordinary memory"
LOCKED = f"{ORDINARY}, page_lock=True"
LOOP, LOOP_PINNED = "kernelkeep loop, ordinary memory", "kernelkeep loop, pinned"
NAIVE, TRIPLE = "PyTorch loop", "PyTorch triple buffer"
AT_ONCE = "all three at once: the bus's limit"
STAGES = ("upload alone", "compute alone", "download alone")


def section_stream(device: Any, rows: list[list[Any]]) -> None:
    if device.backend != "cuda":
        return
    with kk.ProgramCache(device) as cache, cache.get(WORK) as lease:
        torch_runs, conv_seconds = torch_contenders()
        shape = (IMAGE[0], CHANNELS[0], *IMAGE[1:])
        rounds = calibrated(partial(Workload, cache, lease.kernel(), shape, halvings=1), conv_seconds or 1e-4)
        work = Workload(cache, lease.kernel(), shape, rounds, halvings=1)
        pinned, ordinary = work.hosts(RING, pinned=True), work.hosts(RING)
        executors = {depth: kk.Executor(device, depth=depth) for depth in DEPTHS}
        untraced, locking = kk.Executor(device, trace=False), kk.Executor(device, page_lock=True)
        contenders = stages(device, work, pinned[0])
        for depth, executor in executors.items():
            contenders[f"{PINNED}, depth {depth}"] = work.executed(executor, work.job(copy=False), pinned, BATCHES)
            contenders[f"{ORDINARY}, depth {depth}"] = work.executed(executor, work.job(), ordinary, BATCHES)
        contenders[f"{PINNED}, depth 3, trace=False"] = work.executed(untraced, work.job(False), pinned, BATCHES)
        contenders[LOCKED] = work.executed(locking, work.job(), work.hosts(RING), BATCHES)
        contenders[LOOP] = work.in_a_loop(ordinary, BATCHES)
        contenders[LOOP_PINNED] = work.in_a_loop(pinned, BATCHES, pinned=True)
        for name, run in contenders.items():
            if name.startswith("kernelkeep"):
                check(run(), pinned[(BATCHES - 1) % RING], int(work.scalars["rounds"]), 1)
        contenders |= torch_runs
        seconds = {name: time / BATCHES for name, time in interleaved(contenders, ROUNDS).items()}
        report_stream(device.info, seconds, conv_seconds, rows)
        with busy_host():
            names = (
                TRIPLE, AT_ONCE, f"{PINNED}, depth 3", f"{ORDINARY}, depth 3", LOCKED, f"{PINNED}, depth 3, trace=False", LOOP,
            )  # fmt: skip
            chosen = {name: contenders[name] for name in names if name in contenders}
            taken = rounds_of(chosen, BUSY_ROUNDS)
        seconds = {name: statistics.mean(times) / BATCHES for name, times in taken.items()}
        report_busy(device.info, seconds, rows)
        for executor in (*executors.values(), untraced, locking):
            executor.close()


@contextlib.contextmanager
def busy_host() -> Iterator[None]:
    """For a block in which every core has something else to do as well."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def report_busy(info: kk.DeviceInfo, seconds: dict[str, float], rows: list[list[Any]]) -> None:
    triple = seconds.get(TRIPLE)
    for name, time_of in seconds.items():
        rows.append([info.spec, f"{name}, busy host", time_of * 1e3, "-", time_of / triple if triple else "-"])
    pinned, ordinary, locked = (seconds[name] * 1e3 for name in (f"{PINNED}, depth 3", f"{ORDINARY}, depth 3", LOCKED))
    compared = partial(row, unit="ms", device=info)
    if triple:
        compared("executor, pinned, timeline on, a busy host", pinned, peer=TRIPLE, its=triple * 1e3, goal="≤ 1.0")
    against_loop = partial(
        compared, peer=LOOP, its=seconds[LOOP] * 1e3, goal="≥ 6.5", note=bus_note(seconds, seconds[LOOP])
    )
    against_loop("executor, ordinary arrays, a busy host", ordinary)
    against_loop("executor, ordinary arrays, page_lock=True, a busy host", locked)


def bus_note(seconds: dict[str, float], its: float) -> str:
    """What the bus allows at most beside a peer's time."""
    bus = seconds[AT_ONCE]
    return f"the three stages at once, with no order between them, take {bus * 1e3:.4f} ms: the bus allows {its / bus:.3g} times"


def report_stream(info: kk.DeviceInfo, seconds: dict[str, float], conv: float | None, rows: list[list[Any]]) -> None:
    spec = info.spec
    slowest = max(seconds[name] for name in STAGES)
    triple = seconds.get(TRIPLE)
    if conv is not None:
        rows.append([spec, "conv2d by PyTorch, alone", conv * 1e3, conv / slowest, "-"])
    for name, time_of in seconds.items():
        rows.append([spec, name, time_of * 1e3, time_of / slowest, time_of / triple if triple else "-"])
    mine, ordinary, locked = (seconds[name] * 1e3 for name in (f"{PINNED}, depth 3", f"{ORDINARY}, depth 3", LOCKED))
    compared = partial(row, unit="ms", device=info)
    note = bus_note(seconds, slowest)
    compared("executor, pinned", mine, peer="the slowest stage alone", its=slowest * 1e3, goal="≥ 0.95", note=note)
    kinds = {"pinned": mine, "ordinary arrays": ordinary, "ordinary arrays, page_lock=True": locked}
    for kind, figure in kinds.items():
        compared(f"executor, {kind}", figure, peer=AT_ONCE, its=seconds[AT_ONCE] * 1e3)
    if triple:
        note = bus_note(seconds, triple)
        compared("executor, pinned", mine, peer=TRIPLE, its=triple * 1e3, goal="≤ 1.0", note=note)
        compared("executor, ordinary arrays", ordinary, peer=TRIPLE, its=triple * 1e3)
        compared("executor, ordinary arrays, page_lock=True", locked, peer=TRIPLE, its=triple * 1e3)
    for kind, figure in kinds.items():
        its, note = seconds[LOOP] * 1e3, bus_note(seconds, seconds[LOOP])
        compared(f"executor, {kind}", figure, peer=LOOP, its=its, goal="≥ 6.5", note=note)
        if NAIVE in seconds:
            compared(f"executor, {kind}", figure, peer=NAIVE, its=seconds[NAIVE] * 1e3)


def calibrated(workload: Callable[..., Workload], target: float) -> int:
    """How many rounds make the kernel take so many seconds."""
    rounds = 1000
    for _ in range(4):
        work = workload(rounds=rounds)
        device = work.device
        x, y = device.array(work.hosts(1)[0]), device.empty(work.n)
        prepared = work.kernel.prepare(work.grid, (x, y, *work.scalars.values()))
        times = []
        for _ in range(20):
            with device.timer() as timer:
                prepared()
            times.append(timer.seconds)
        taken = statistics.median(times)
        print(f"{rounds} rounds take {taken * 1e3:.3f} ms, wanted are {target * 1e3:.3f} ms", file=sys.stderr)
        if 0.9 < taken / target < 1.1:
            break
        rounds = max(1, min(60_000, int(rounds * target / taken)))
    return rounds


def stages(device: Any, work: Workload, pinned: Host) -> dict[str, Run]:
    """Each stage alone, back to back, and all three beside each other without waiting for one another."""
    driver = device.driver
    queues = [device.queue() for _ in range(3)]
    up, compute, down = queues
    x, y, out = device.empty(work.shape), device.empty(work.n), device.pinned_empty(work.n)
    prepared = work.kernel.prepare(work.grid, (x, y, *work.scalars.values()), queue=compute)

    def upload() -> None:
        driver.cuMemcpyHtoDAsync(x.handle, pinned.ctypes.data, pinned.nbytes, up.cu_stream)

    def download() -> None:
        driver.cuMemcpyDtoHAsync(out.ctypes.data, y.handle, out.nbytes, down.cu_stream)

    def many(*works: Callable[[], None]) -> None:
        for _ in range(BATCHES):
            for work in works:
                work()
        for queue in queues:
            queue.synchronize()

    each: tuple[Callable[[], None], ...] = (upload, prepared, download)
    found: dict[str, Run] = {name: partial(many, one) for name, one in zip(STAGES, each, strict=True)}
    return found | {AT_ONCE: partial(many, *each)}


def torch_contenders() -> tuple[dict[str, Run], float | None]:
    """PyTorch's loops over the convolution itself, and how long one takes; nothing where PyTorch or a GPU is missing."""
    try:
        import torch

        return torch_loops(torch)
    except Exception as error:
        print(f"PyTorch is left out: {type(error).__name__}: {error}", file=sys.stderr)
        return {}, None


def torch_loops(torch: Any) -> tuple[dict[str, Run], float]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    conv = partial(torch.nn.functional.conv2d, padding=1)
    random = np.random.default_rng(1)
    shape = (IMAGE[0], CHANNELS[0], *IMAGE[1:])
    hosts = [torch.from_numpy(random.random(shape, dtype="f4")) for _ in range(RING)]
    pinned = [host.pin_memory() for host in hosts]
    host_weights = random.random((CHANNELS[1], CHANNELS[0], 3, 3), dtype="f4") - np.float32(0.5)
    weights = torch.from_numpy(host_weights).cuda()

    def naive() -> Any:
        result = None
        for i in range(BATCHES):
            result = conv(hosts[i % RING].cuda(), weights).cpu()
        return result

    up, compute, down = (torch.cuda.Stream() for _ in range(3))
    slots = [TorchSlot(torch, shape, (IMAGE[0], CHANNELS[1], *IMAGE[1:])) for _ in range(3)]

    def triple_buffer() -> Any:
        for i in range(BATCHES):
            slot = slots[i % 3]
            if i >= 3:
                slot.downloaded.synchronize()  # the result of batch i - 3 is there, and the slot is free
            with torch.cuda.stream(up):
                slot.x.copy_(pinned[i % RING], non_blocking=True)
                slot.uploaded.record(up)
            with torch.cuda.stream(compute):
                compute.wait_event(slot.uploaded)
                slot.y = conv(slot.x, weights)
                slot.computed.record(compute)
            with torch.cuda.stream(down):
                down.wait_event(slot.computed)
                slot.out.copy_(slot.y, non_blocking=True)
                slot.downloaded.record(down)
        for slot in slots:
            slot.downloaded.synchronize()
        return slots[(BATCHES - 1) % 3].out

    for run in (naive, triple_buffer):
        check_conv(run().numpy(), hosts[(BATCHES - 1) % RING].numpy(), host_weights)
    on_device = hosts[0].cuda()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(BATCHES):
        conv(on_device, weights)
    end.record()
    end.synchronize()
    return {NAIVE: naive, TRIPLE: triple_buffer}, float(start.elapsed_time(end)) * 1e-3 / BATCHES


class TorchSlot:
    """One of the three buffers that a careful person writes."""

    def __init__(self, torch: Any, shape: tuple[int, ...], shape_out: tuple[int, ...]) -> None:
        self.x = torch.empty(shape, device="cuda")
        self.y: Any = None  # kept until its download is done
        self.out = torch.empty(shape_out, pin_memory=True)
        self.uploaded, self.computed, self.downloaded = (torch.cuda.Event() for _ in range(3))
        torch.cuda.synchronize()


def check_conv(result: Host, x: Host, weights: Host) -> None:
    """A few dozen elements of a 3×3 convolution, computed one by one."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for n, o, i, j in np.random.default_rng(2).integers(0, (IMAGE[0], CHANNELS[1], *IMAGE[1:]), (50, 4)):
        wanted = (padded[n, :, i : i + 3, j : j + 3].astype("f8") * weights[o]).sum()
        np.testing.assert_allclose(result[n, o, i, j], wanted, rtol=1e-3, atol=1e-3)


# --- sizes: against the loop, on every device

SIZES = {"64 KiB": 1 << 16, "1 MiB": 1 << 20, "8 MiB": 1 << 23}
KERNELS = {"light": 1, "heavy": 100}
RUN_SECONDS = 0.15 if long_run() else 0.06


def section_sizes(device: kk.Device, rows: list[list[Any]]) -> None:
    with kk.ProgramCache(device) as cache, cache.get(WORK) as lease, kk.Executor(device) as executor:
        for size, nbytes in SIZES.items():
            for kernel, rounds in KERNELS.items():
                if size == "8 MiB" and kernel == "heavy" and not device.info.is_gpu and not long_run():
                    continue  # takes a minute alone
                work = Workload(cache, lease.kernel(), (nbytes // 4,), rounds)
                hosts = work.hosts(4)
                batches = how_many(work.in_a_loop(hosts, 4), 4)
                runs: dict[str, Run] = {
                    "loop": work.in_a_loop(hosts, batches),
                    "executor": work.executed(executor, work.job(), hosts, batches),
                }
                for run in runs.values():
                    check(run(), hosts[(batches - 1) % 4], rounds)
                taken = rounds_of(runs, 11 if long_run() else 7)
                ratio = statistics.median(b / a for a, b in zip(taken["loop"], taken["executor"], strict=True))
                loop, executed = (statistics.median(times) / batches * 1e3 for times in taken.values())
                rows.append([device.spec, size, kernel, loop, executed, ratio])
                work_name, info = f"executor, batches of {size}, {kernel} kernel", device.info
                row(work_name, executed, "ms", peer="the plain loop", its=loop, goal="≤ 1.1", ratio=ratio, device=info)


def how_many(run: Run, batches: int) -> int:
    """How many batches make a run that is long enough to be measured."""
    run()
    start = time.perf_counter()
    run()
    return max(10, min(1000, int(RUN_SECONDS / (time.perf_counter() - start) * batches)))


# --- latency: one batch at a time


def section_latency(device: kk.Device, rows: list[list[Any]]) -> None:
    with kk.ProgramCache(device) as cache, cache.get(WORK) as lease, kk.Executor(device) as executor:
        work = Workload(cache, lease.kernel(), (1024,), 1)
        (host,), job = work.hosts(1), work.job()
        loop = work.in_a_loop([host], 1)

        def submitted() -> Any:
            return executor.submit(job, x=host, **work.scalars).result()["y"]

        runs: dict[str, Run] = {"loop": loop, "executor.submit(…).result()": submitted}
        for run in runs.values():
            check(run(), host, 1)
        taken = rounds_of(runs, 300)
        loop_time, its = (statistics.median(times) * 1e6 for times in taken.values())
        one = "one submit().result() of 4 KiB"
        row(one, its, "µs", peer="the plain loop", its=loop_time, goal="≤ 1.1", device=device.info)
        for name, times in taken.items():
            ranked = sorted(times)
            rows.append([device.spec, name, ranked[len(ranked) // 2] * 1e6, ranked[len(ranked) * 99 // 100] * 1e6])


TABLES: dict[str, tuple[str, list[str], Callable[[Any, list[list[Any]]], None]]] = {
    "stream": (
        "A stream of batches, 6.4 MB in and 12.8 MB out",
        ["device", "who", "ms per batch", "÷ slowest stage", "÷ PyTorch triple buffer"],
        section_stream,
    ),
    "sizes": (
        "The executor and the loop",
        ["device", "batch", "kernel", "loop ms", "executor ms", "executor ÷ loop"],
        section_sizes,
    ),
    "latency": ("One small batch at a time", ["device", "who", "median µs", "99 % within µs"], section_latency),
}


def tables() -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    for name in chosen_sections(TABLES):
        title, columns, section = TABLES[name]
        rows: list[list[Any]] = []
        for info in chosen_devices():
            with kk.open_device(info.spec) as device:
                section(device, rows)
        if rows:
            yield title, columns, rows


def main() -> None:
    for title, columns, rows in tables():
        show(title, columns, rows)


if __name__ == "__main__":
    main()
