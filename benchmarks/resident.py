"""Tasks through a resident grid, against launches of the same work.

    python benchmarks/resident.py [round_trip] [many] [threads] [add] [beside] [timeline] [--json]

Needs CUDA. Each section has its peer in the same run:

- *round trip*: one tiny task from Python and the wait for it; beside CuPy's and our own launch and wait of the same kernel.
- *many*: tiny tasks a second through `submit_many`, one block and all.
- *threads*: 1,000,000 mixed tasks from 8 threads, 20 times: sums exact, every future done.
- *add*: a task added from the cache while tasks run: how long the grid stood still, and whether any task was lost.
- *beside*: the round trip in a green context while PyTorch multiplies matrices all the time.
- *timeline*: tasks a second with and without traces from inside.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_sections, open_cuda, row, show
from kernelkeep.resident.resident import Resident
from kernelkeep.resident.task import Task

TINY = "(int i, float a) { if (kk_local_id(0) == 0) y[i] += a; }"
ADD = Task("if (kk_local_id(0) == 0) { kk_atomic_add(total[0], v); kk_result(v); }", args={"v": "i4"}, result="i4")
TWICE = Task("if (kk_local_id(0) == 0) kk_atomic_add(total[0], 2 * v);", args={"v": "i4"})
ROUNDS = 20_000


def percentiles(work: Any, rounds: int, *given: Any) -> tuple[float, float]:
    """p50 and p99 of a call, in microseconds; with `given`, of a task that is submitted with it and waited for."""
    times = np.empty(rounds)
    clock = time.perf_counter_ns
    for i in range(rounds):
        start = clock()
        if given:
            work(*given).result()
        else:
            work()
        times[i] = clock() - start
    return float(np.percentile(times, 50)) * 1e-3, float(np.percentile(times, 99)) * 1e-3


def round_trip(cache: kk.ProgramCache) -> None:
    rows: list[list[Any]] = []
    device = cache.device
    kernel = kk.PortableKernel(
        "tiny",
        params=[kk.Buffer("y", "f4", "rw"), kk.Scalar("i", "i4"), kk.Scalar("a", "f4")],
        body="if (kk_local_id(0) == 0) y[i] += a;",
        group=128,
    )
    y = device.array(np.zeros(1024, "f4"))
    launched = cache.get(kernel)
    launch = launched.kernel("tiny")

    def launch_and_wait() -> None:
        launch.launch(1, (y, 5, 1.0))
        device.synchronize()

    launch_and_wait()
    rows.append(["kernelkeep launch and wait", *percentiles(launch_and_wait, ROUNDS // 4)])
    try:
        import cupy

        from kernelkeep.programs.signature import entry_symbol

        raw = cupy.RawKernel(kernel.source(device).text, entry_symbol("tiny"))
        theirs = cupy.zeros(1024, "f4")
        stream = cupy.cuda.Stream(non_blocking=True)

        def cupy_launch() -> None:
            with stream:
                raw((1,), (128,), (theirs, np.int32(5), np.float32(1.0)))
            stream.synchronize()

        cupy_launch()
        rows.append(["CuPy launch and wait", *percentiles(cupy_launch, ROUNDS // 4)])
    except ImportError:
        pass
    for blocks in (1, None):
        with Resident(
            cache, {"tiny": TINY, "add": ADD}, {"y": y, "total": np.zeros(1, "i4")}, blocks=blocks
        ) as resident:
            submit = resident.submit
            submit("tiny", 5, 1.0).result()
            name = f"resident, {resident.blocks} block{'s' if resident.blocks > 1 else ''}"
            rows.append([name, *percentiles(submit, ROUNDS, "tiny", 5, 1.0)])
            rows.append([f"{name}, with a result", *percentiles(submit, ROUNDS, "add", 1)])
    launched.release()
    times = {name: p50 for name, p50, _ in rows}
    for name, own in times.items():
        if name.startswith("resident") and not name.endswith("result") and "CuPy launch and wait" in times:
            its = times["CuPy launch and wait"]
            row(
                f"a tiny task and the wait for it, {name}",
                own,
                "µs",
                peer="CuPy launch and wait",
                its=its,
                device=device.info,
            )
    row("a tiny task and the wait for it, resident", times["resident, 1 block"], "µs", goal="≤ 3.5", device=device.info)
    show("round trip", ["what", "p50 µs", "p99 µs"], rows)


def many(cache: kk.ProgramCache, timeline: int = 0) -> list[list[Any]]:
    rows = []
    for blocks, count in ((1, 400_000), (None, 4_000_000)):
        arrays = {"y": np.zeros(1024, "f4")}
        with Resident(cache, {"tiny": TINY}, arrays, blocks=blocks, capacity=8192, timeline=timeline) as resident:
            given = np.zeros(count, resident.rows_dtype("tiny"))
            given["i"], given["a"] = np.arange(count) % 1024, 1.0
            resident.submit_many("tiny", given[:1000]).result()
            times = []
            for _ in range(5):
                start = time.perf_counter()
                resident.submit_many("tiny", given, ordered=blocks == 1).result()
                times.append(time.perf_counter() - start)
            total = float(resident.arrays["y"].numpy().sum())
            exact = blocks != 1 or total == 1000 + 5 * count  # spread tasks add to one element without atomics
            rows.append(
                [f"{resident.blocks} blocks", count / statistics.median(times) * 1e-6, "yes" if exact else "NO"]
            )
    return rows


def show_many(cache: kk.ProgramCache) -> None:
    rows = many(cache)
    for (where, rate, _), goal in zip(rows, ("≥ 10", "≥ 50"), strict=True):
        row(f"submit_many of tiny tasks, {where}", rate, "million/s", goal=goal, device=cache.device.info)
    show("submit_many, tiny tasks", ["where", "million tasks/s", "exact"], rows)


def show_timeline(cache: kk.ProgramCache) -> None:
    rows = []
    for _ in range(3):
        without, traced = many(cache), many(cache, 4096)
        rows += [[a[0], a[1], b[1], b[1] / a[1]] for a, b in zip(without, traced, strict=True)]
    show("timeline", ["where", "million/s without", "with traces", "ratio"], rows)


def threads(cache: kk.ProgramCache, repetitions: int = 20, count: int = 1_000_000) -> None:
    rows = []
    for repetition in range(repetitions):
        with Resident(cache, {"add": ADD, "twice": TWICE}, {"total": np.zeros(1, "i4")}) as resident:
            wrong: list[str] = []

            def produce(number: int, resident: Any = resident, wrong: list[str] = wrong) -> None:
                each = count // 8
                batch = np.full(each // 2, 1, resident.rows_dtype("add"))
                batch["v"] = 1
                futures = [resident.submit_many("add", batch, ordered=number % 2 == 0)]
                singles = [resident.submit("twice", 1) for _ in range(each // 4)]
                futures.append(resident.submit_many("twice", batch[: each - each // 2 - each // 4]))
                if int(futures[0].result().sum()) != each // 2:
                    wrong.append(f"thread {number}: a wrong sum of results")
                for one in singles:
                    one.result()
                futures[1].result()

            start = time.perf_counter()
            workers = [threading.Thread(target=produce, args=(number,)) for number in range(8)]
            for one in workers:
                one.start()
            for one in workers:
                one.join()
            seconds = time.perf_counter() - start
            total = int(resident.arrays["total"].numpy()[0])
            each = count // 8
            expected = 8 * (each // 2 + 2 * (each - each // 2))
            if total != expected or wrong:
                rows.append([repetition, f"{total} instead of {expected} {wrong}", seconds])
            elif repetition in (0, repetitions - 1):
                rows.append([repetition, "exact", seconds])
    show(f"{count:,} mixed tasks from 8 threads", ["repetition", "sum", "s"], rows)


def add(cache: kk.ProgramCache) -> None:
    rows = []
    with Resident(cache, {"add": ADD}, {"total": np.zeros(1, "i4")}) as resident:
        resident.add("other0", "(int v) { if (kk_local_id(0) == 0) kk_atomic_add(total[0], v); }")
        stop = threading.Event()
        sent = [0]

        def produce() -> None:
            batch = np.ones(1000, resident.rows_dtype("add"))
            while not stop.is_set() or sent[0] < 1_000_000:
                resident.submit_many("add", batch, ordered=False)
                sent[0] += 1000
            resident.drain()

        worker = threading.Thread(target=produce)
        worker.start()
        time.sleep(0.05)
        compiled, found = [], []
        for k in range(5):
            body = f"(int v) {{ if (kk_local_id(0) == 0) kk_atomic_add(total[0], v * {k + 1}); }}"
            compiled.append(resident.add("other0", body))
        for _ in range(2):
            for k in range(5):
                body = f"(int v) {{ if (kk_local_id(0) == 0) kk_atomic_add(total[0], v * {k + 1}); }}"
                found.append(resident.add("other0", body))
        stop.set()
        worker.join()
        lost = sent[0] - int(resident.arrays["total"].numpy()[0])
        rows.append(["compiled first", statistics.median(compiled) * 1e3, max(compiled) * 1e3, ""])
        rows.append(["found in the cache", statistics.median(found) * 1e3, max(found) * 1e3, f"{lost} of {sent[0]:,}"])
    show("a task added while others run", ["program", "pause ms, median", "longest", "lost or twice"], rows)


def beside(cache: kk.ProgramCache) -> None:
    try:
        import torch
    except ImportError:
        print("beside: PyTorch is not here")
        return
    rows: list[list[Any]] = []
    busy, over = threading.Event(), threading.Event()
    ready = threading.Barrier(2)

    def multiply() -> None:
        """Matrix products, one after the other, while it is busy. The first ones, which load code, come before any grid."""
        a = torch.randn(4096, 4096, device="cuda")
        for _ in range(3):
            torch.mm(a, a)
        torch.cuda.synchronize()
        ready.wait()
        pending: list[Any] = []
        while not over.is_set():
            if not busy.wait(0.01):
                continue
            torch.mm(a, a)
            event = torch.cuda.Event()
            event.record()
            pending.append(event)
            if len(pending) > 8:
                pending.pop(0).synchronize()

    worker = threading.Thread(target=multiply, daemon=True)
    worker.start()
    ready.wait()
    for sms in (None, 8):
        with Resident(cache, {"tiny": TINY}, {"y": np.zeros(1024, "f4")}, blocks=1, sms=sms) as resident:
            for work in (False, True):
                if work:
                    busy.set()
                    time.sleep(0.2)
                p50, p99 = percentiles(resident.submit, ROUNDS // 2, "tiny", 5, 1.0)
                busy.clear()
                where = "anywhere" if sms is None else f"green context of {sms} SMs"
                rows.append([where, "busy" if work else "idle", p50, p99])
    over.set()
    worker.join()
    show("beside PyTorch's matrix product", ["where", "GPU", "p50 µs", "p99 µs"], rows)


SECTIONS = {
    "round_trip": round_trip,
    "many": show_many,
    "threads": threads,
    "add": add,
    "beside": beside,
    "timeline": show_timeline,
}

if __name__ == "__main__":
    with kk.ProgramCache(open_cuda()) as opened:
        for section in chosen_sections(SECTIONS):
            SECTIONS[section](opened)
