"""Tasks through a resident grid, against launches of the same work.

    python benchmarks/resident.py [round_trip] [many] [threads] [add] [beside] [timeline] [--long] [--json]

Needs CUDA; takes about 40 seconds. Each section has its peer in the same run:

- *round trip*: one tiny task from Python and the wait for it; beside CuPy's and our own launch and wait of the same kernel.
- *many*: tiny tasks a second through `submit_many`, one block and all; beside a kernel of one block that loops over the same
  statement and a barrier, which is the most that one block can do in order.
- *threads*: 1,000,000 mixed tasks from 8 threads, 3 times, with `--long` 20 times: sums exact, every future done.
- *add*: a task added while tasks run, its program on disk or in memory: how long the grid stood still, and whether any was lost.
- *beside*: the round trip in a green context while PyTorch multiplies matrices all the time.
- *timeline*: tasks a second with and without traces from inside.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_sections, long_run, open_cuda, row, show
from kernelkeep.resident.resident import Resident
from kernelkeep.resident.task import Task

TINY = "(int i, float a) { if (kk_local_id(0) == 0) y[i] += a; }"
STORE = "(int i, float a) { if (kk_local_id(0) == 0) y[i] = a; }"
COUNT = "(int i, float a) { if (kk_local_id(0) == 0) kk_atomic_add(y[i], a); }"
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
        its_y = cupy.zeros(1024, "f4")
        stream = cupy.cuda.Stream(non_blocking=True)

        def cupy_launch() -> None:
            with stream:
                raw((1,), (128,), (its_y, np.int32(5), np.float32(1.0)))
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
    times = {name: (p50, p99) for name, p50, p99 in rows}
    theirs = times.get("CuPy launch and wait")
    for name, (p50, p99) in times.items():
        if not name.startswith("resident"):
            continue
        work = f"a tiny task and the wait for it, {name}"
        is_main = name == "resident, 1 block"
        row(f"{work}, p50", p50, "µs", goal="≤ 3.5" if is_main else "", device=device.info)
        row(f"{work}, p99", p99, "µs", goal="≤ 6" if is_main else "", device=device.info)
        if theirs is not None:
            goal = "≥ 3" if is_main else ""
            row(work, p50, "µs", peer="CuPy launch and wait", its=theirs[0], goal=goal, device=device.info)
    show("round trip", ["what", "p50 µs", "p99 µs"], rows)


def rate_of(cache: kk.ProgramCache, body: str, blocks: int | None, threads: int, timeline: int = 0) -> tuple[Any, ...]:
    """(blocks, million tasks a second, whether what they did is exact) of tiny tasks for one block or for all."""
    count = 400_000 if blocks == 1 else 4_000_000
    arrays = {"y": np.zeros(1024, "f4")}
    options = dict(blocks=blocks, threads=threads, capacity=8192, timeline=timeline)
    with Resident(cache, {"tiny": body}, arrays, **options) as resident:  # type: ignore[arg-type]
        given = np.zeros(count, resident.rows_dtype("tiny"))
        given["i"], given["a"] = np.arange(count) % 1024, 1.0
        resident.submit_many("tiny", given[:1024]).result()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            resident.submit_many("tiny", given, ordered=blocks == 1).result()
            times.append(time.perf_counter() - start)
        found = float(resident.arrays["y"].numpy().sum())
        expected = 1024 if body == STORE else 1024 + 5 * count
        exact = found == expected or (blocks != 1 and body == TINY)  # blocks add to one element without atomics
        return resident.blocks, count / statistics.median(times) * 1e-6, exact


def rate_of_loop(cache: kk.ProgramCache, statement: str, threads: int) -> float:
    """Million turns a second of a kernel of one block that loops over the statement and a barrier: the most there is."""
    count = 400_000
    kernel = kk.PortableKernel(
        "own_loop",
        params=[kk.Buffer("y", "f4", "rw"), kk.Scalar("n", "i4"), kk.Scalar("a", "f4")],
        body=f"for (int k = 0; k < n; k++) {{ int i = k % 1024; {statement} kk_barrier(); }}",
        group=threads,
    )
    y = cache.device.array(np.zeros(1024, "f4"))
    times = []
    with cache.get(kernel) as lease:
        launch = lease.kernel("own_loop")
        for _ in range(6):
            start = time.perf_counter()
            launch.launch(1, (y, count, 1.0))
            cache.device.synchronize()
            times.append(time.perf_counter() - start)
    return count / statistics.median(times[1:]) * 1e-6


def many(cache: kk.ProgramCache) -> None:
    rows = []
    for what, body in (("y[i] += a", TINY), ("y[i] = a", STORE), ("an atomic sum", COUNT)):
        for threads in (32, 128):
            _, rate, exact = rate_of(cache, body, 1, threads)
            limit = rate_of_loop(cache, body[body.index("{") + 1 : body.rindex("}")], threads)
            work = f"submit_many of tiny tasks, {what}, 1 block of {threads} work-items"
            note = "" if exact else "WRONG SUM"
            info = cache.device.info
            row(work, rate, "million/s", goal="≥ 10" if body is TINY else "", device=info, note=note)
            row(
                f"{work}, beside", rate, "million/s", peer="a block's own loop of it", its=limit, device=info, note=note
            )
            rows.append([f"1 block of {threads}", what, rate, limit, "yes" if exact else "NO"])
    blocks, rate, _ = rate_of(cache, TINY, None, 128)
    row(f"submit_many of tiny tasks, {blocks} blocks", rate, "million/s", goal="≥ 50", device=cache.device.info)
    rows.append([f"{blocks} blocks of 128", "y[i] += a", rate, "", "yes"])
    show("submit_many, tiny tasks", ["where", "task", "million/s", "a block's own loop", "exact"], rows)


def show_timeline(cache: kk.ProgramCache) -> None:
    rows = []
    for _ in range(3):
        for blocks in (1, None):
            (count, without, _), (_, traced, _) = (rate_of(cache, TINY, blocks, 128, kept) for kept in (0, 4096))
            rows.append([f"{count} blocks", without, traced, traced / without])
    for where in dict.fromkeys(one[0] for one in rows):
        plain, traced = (statistics.median(one[i] for one in rows if one[0] == where) for i in (1, 2))
        work = f"submit_many of tiny tasks with timeline=4096, {where}"
        row(
            work,
            traced,
            "million/s",
            peer="without",
            its=plain,
            note="on by default it would have to be 0.98 at least; it is off",
            device=cache.device.info,
        )
    show("timeline", ["where", "million/s without", "with traces", "ratio"], rows)


def threads(cache: kk.ProgramCache, count: int = 1_000_000) -> None:
    repetitions = 20 if long_run() else 3
    rows = []
    failed = 0
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
                failed += 1
                rows.append([repetition, f"{total} instead of {expected} {wrong}", seconds])
            elif repetition in (0, repetitions - 1):
                rows.append([repetition, "exact", seconds])
    work = f"{count:,} mixed tasks from 8 threads, {repetitions} times: wrong"
    row(work, failed, "runs", goal="≤ 0", device=cache.device.info)
    show(f"{count:,} mixed tasks from 8 threads", ["repetition", "sum", "s"], rows)


def added(number: int) -> str:
    return f"(int v) {{ if (kk_local_id(0) == 0) kk_atomic_add(total[0], v * {number + 1}); }}"


def add(cache: kk.ProgramCache) -> None:
    device = cache.device
    bodies = [added(number) for number in range(10)]
    arrays = {"total": np.zeros(1, "i4")}
    with tempfile.TemporaryDirectory() as folder:
        with kk.ProgramCache(device, folder) as first, Resident(first, {"add": ADD}, arrays) as resident:
            for body in bodies:
                resident.add("other", body)
        with kk.ProgramCache(device, folder) as second, Resident(second, {"add": ADD}, arrays) as resident:
            pauses, sent, lost = add_under_load(resident, bodies)
            if second.stats().compiles:
                raise SystemExit(f"nothing must be compiled, got {second.stats().compiles} programs")
    for where, found in pauses.items():
        work = f"a task added under load, its program {where}: pause, longest"
        row(work, max(found), "ms", goal="≤ 1", device=device.info)
    work, note = "a task added under load: tasks lost or run twice", f"of {sent:,}"
    row(work, abs(lost), "tasks", goal="≤ 0", device=device.info, note=note)
    rows = [[where, statistics.median(found), max(found), f"{lost} of {sent:,}"] for where, found in pauses.items()]
    show("a task added while others run", ["its program", "pause ms, median", "longest", "lost or twice"], rows)


def add_under_load(resident: Resident, bodies: list[str]) -> tuple[dict[str, list[float]], int, int]:
    """(the pauses in milliseconds by where the program was, tasks sent meanwhile, how many of them are missing)."""
    stop = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        batch = np.ones(1000, resident.rows_dtype("add"))
        while not stop.is_set() or sent < 1_000_000:
            resident.submit_many("add", batch, ordered=False)
            sent += 1000
        resident.drain()

    worker = threading.Thread(target=produce)
    worker.start()
    time.sleep(0.05)
    pauses = {
        where: [resident.add("other", body) * 1e3 for _ in range(times) for body in bodies]
        for where, times in (("on disk", 1), ("in memory", 2))
    }
    stop.set()
    worker.join()
    return pauses, sent, sent - int(resident.arrays["total"].numpy()[0])


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
                if work and sms is not None:
                    what = f"a tiny task and the wait for it beside PyTorch's matrix products, {where}, p99"
                    row(what, p99, "µs", goal="≤ 10", device=cache.device.info)
    over.set()
    worker.join()
    show("beside PyTorch's matrix product", ["where", "GPU", "p50 µs", "p99 µs"], rows)


SECTIONS = {
    "round_trip": round_trip,
    "many": many,
    "threads": threads,
    "add": add,
    "beside": beside,
    "timeline": show_timeline,
}

if __name__ == "__main__":
    with kk.ProgramCache(open_cuda()) as opened:
        for section in chosen_sections(SECTIONS):
            SECTIONS[section](opened)
