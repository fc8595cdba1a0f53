"""Continuous execution, measured: what a dispatch costs, and where persistence does not pay.

    python benchmarks/continuous.py [section …] [--device SPEC] [--json FILE] [--long]      sections: gaps sizes l2 keep

- *gaps*: the gap between two dispatches of about 100 µs on the device's own clock, p50 and p99, how busy the device was, and
  what giving it one dispatch costs the host, for each strategy.
- *sizes*: microseconds an iteration by the number of items, for each strategy; on CUDA beside a plain CuPy loop and a loop
  over a CuPy graph of 100 iterations that run the same kernel.
- *l2*: device time of one dispatch over a state that fits the L2 cache and over one that does not, right after the last one,
  after a pause of 2 ms, and after something else ran through the cache: do its contents survive the gap?
- *keep*: device time of an iteration of a body that always writes, of one that may skip its own element, and of one that may
  write anywhere: what carrying the old values over costs.

The program is heat diffusion on a line, float32, two copies: an iteration reads 4 and writes 4 bytes an item.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_devices, chosen_sections, long_run, row, show
from kernelkeep.continuous.initial_state import InitialState
from kernelkeep.continuous.run_options import RunOptions
from kernelkeep.continuous.session import Session
from kernelkeep.words import StrategyName

BODY = """int i = kk_item();
if (i > 0 && i < kk_items() - 1) u_next[i] = u[i] + k * (u[i-1] - 2 * u[i] + u[i+1]);
else u_next[i] = u[i];"""
STRATEGIES: tuple[StrategyName, ...] = ("redispatch", "buffered", "mega", "checkpointed", "supervised")
# The same results; only what can be read from the text differs.
SKIPS_OWN = BODY.rsplit("\n", 1)[0]
SKIPS_ANY = SKIPS_OWN.replace("u_next[i]", "u_next[i + 0]")
Rows = list[list[Any]]


def heat(items: int, body: str = BODY) -> kk.StateProgram:
    u = np.random.default_rng(0).random(items, dtype="f4")
    return kk.StateProgram(
        "heat", coupling="neighbours", items=items, state={"u": u}, scalars={"k": np.float32(0.1)}, body=body, group=256
    )


def items_for(cache: kk.ProgramCache, seconds: float) -> int:
    """How many items make an iteration of about so many seconds."""
    items = 1 << 16
    while items < 1 << 28:
        taken = device_seconds(cache, heat(items), 3)
        if taken >= seconds:
            return max(1 << 12, int(items * seconds / taken) // 256 * 256)
        items *= 2 if taken > seconds / 4 else 4
    return items


def device_seconds(cache: kk.ProgramCache, program: kk.StateProgram, rounds: int, before: Any = None) -> float:
    """The device's own time of one iteration, the median. Something always runs right before it, so that the device is
    awake and the launch is there when its turn comes: the iteration before, or what `before` gives it."""
    session = Session(cache, program, InitialState.of(program), RunOptions())
    try:
        lane = session.lanes.compute
        session.slice("step")
        session.synchronize()
        marks = []
        for _ in range(rounds):
            if before is not None:
                before(session)
            else:
                session.slice("step")
            start = lane.mark()
            session.slice("step")
            end = session.mark()
            session.wait(end)
            marks += [start, end]
        times = session.lanes.times(marks)
        floor = session.mark_seconds()
    finally:
        session.close()
    return statistics.median(end - start for start, end in zip(times[::2], times[1::2], strict=True)) - floor


def gaps(cache: kk.ProgramCache) -> None:
    program = heat(items_for(cache, 100e-6))
    rows: Rows = []
    for strategy in STRATEGIES:
        per_dispatch = 101 if strategy == "mega" else None
        try:
            # Once before it counts: the first run of a strategy compiles its kernels.
            kk.run(cache, program, 101, strategy, iterations_per_dispatch=per_dispatch, deadline_seconds=0.5).close()
            run = kk.run(cache, program, 3000, strategy, iterations_per_dispatch=per_dispatch, deadline_seconds=0.5)
        except kk.Unsupported as error:
            rows.append([cache.device.spec, strategy, "-", "-", "-", "-", "-", "-", f"not here: {error.capability}"])
            continue
        report = run.report
        run.close()
        if strategy == "redispatch" and report.gap_p50_seconds is not None:
            row(
                "gap between two dispatches, p50",
                report.gap_p50_seconds * 1e6,
                "µs",
                goal="≤ 15",
                device=cache.device.info,
            )
        if strategy == "redispatch" and report.host_seconds_per_dispatch is not None:
            host = report.host_seconds_per_dispatch * 1e6
            row("host's time for one continuous dispatch", host, "µs", goal="≤ 6", device=cache.device.info)
        rows.append(
            [
                cache.device.spec,
                strategy,
                report.iterations / report.dispatches,
                micro(report.seconds / report.iterations),
                micro(report.gap_p50_seconds),
                micro(report.gap_p99_seconds),
                "-" if report.busy_share is None else f"{report.busy_share:.2%}",
                micro(report.host_seconds_per_dispatch),
                "",
            ]
        )
    columns = ["device", "strategy", "iterations a dispatch", "µs an iteration", "gap p50 µs", "gap p99 µs", "busy"]
    show(f"Gaps between dispatches of {program.items:,} items", [*columns, "host µs a dispatch", ""], rows)


def sizes(cache: kk.ProgramCache) -> None:
    gpu = cache.device.info.is_gpu
    rows: Rows = []
    powers = ((8, 10, 12, 14, 16, 18, 22, 26) if gpu else (8, 12, 16, 20)) if long_run() else (10, 14, 18)
    strategies: tuple[StrategyName, ...] = ("redispatch", "buffered", "mega", "auto") if long_run() else ("auto",)
    names = (*strategies, "CuPy loop", "CuPy graph loop")
    for power in powers:
        program = heat(1 << power)
        made: list[Any] = [cache.device.spec, f"2^{power}"]
        for strategy in strategies:
            made.append(per_iteration(cache, program, strategy))
        made += cupy_loops(cache, program) if cache.device.backend == "cuda" else ["-", "-"]
        numbers = [(value, name) for value, name in zip(made[2:], names, strict=True) if isinstance(value, float)]
        rows.append([*made, min(numbers)[1]])
        mine = next(value for value, name in numbers if name == "auto")
        for value, name in numbers:
            if name.startswith("CuPy"):
                work = f"an iteration over 2^{power} items, strategy auto"
                row(work, mine, "µs", peer=name, its=value, goal="≤ 1.0", device=cache.device.info)
    show("Microseconds an iteration, by items", ["device", "items", *names, "fastest"], rows)


def per_iteration(cache: kk.ProgramCache, program: kk.StateProgram, strategy: StrategyName) -> float | str:
    if strategy == "mega" and not cache.device.capabilities.cooperative and program.items > 1 << 16:
        return "one group"  # would take minutes
    size = 101 if strategy == "mega" else None
    samples = []
    iterations = 6060 if cache.device.info.is_gpu and program.items < 1 << 20 else 606
    for attempt in range(4):
        seen: list[tuple[float, int]] = []

        def note(progress: kk.Progress, seen: list[tuple[float, int]] = seen) -> None:
            seen.append((time.perf_counter(), progress.iteration))

        kk.run(cache, program, iterations, strategy, iterations_per_dispatch=size, on_progress=note).close()
        # From the second turn to the last: what comes before the first is setting up, and the first finds its pace.
        at = min(len(seen) - 2, len(seen) // 4)
        each = (seen[-1][0] - seen[at][0]) / (seen[-1][1] - seen[at][1])
        if attempt:
            samples.append(each)
        else:
            iterations = max(606, min(1_010_000, int(0.2 / each)))
    return statistics.median(samples) * 1e6


def cupy_loops(cache: kk.ProgramCache, program: kk.StateProgram) -> list[Any]:
    try:
        import cupy
    except ImportError:
        return ["-", "-"]
    kernel = cupy.RawKernel(
        """extern "C" __global__ void heat(const float* u, float* u_next, float k, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
        if (i > 0 && i < n - 1) u_next[i] = u[i] + k * (u[i-1] - 2 * u[i] + u[i+1]); else u_next[i] = u[i]; }""",
        "heat",
    )
    a, b = cupy.asarray(program.state["u"]), cupy.asarray(program.state["u"])
    grid, k, n = (-(-program.items // 256),), np.float32(0.1), np.int32(program.items)
    stream = cupy.cuda.Stream(non_blocking=True)

    def pair() -> None:
        kernel(grid, (256,), (a, b, k, n))
        kernel(grid, (256,), (b, a, k, n))

    with stream:
        pair()
        stream.begin_capture()
        for _ in range(50):
            pair()
        graph = stream.end_capture()
        found = []
        for step, iterations in ((pair, 2), (lambda: graph.launch(stream=stream), 100)):
            step()
            stream.synchronize()
            begun = time.perf_counter()
            step()
            stream.synchronize()
            rounds = max(3, int(0.2 / (time.perf_counter() - begun)))
            samples = []
            for _ in range(3):
                begun = time.perf_counter()
                for _ in range(rounds):
                    step()
                stream.synchronize()
                samples.append((time.perf_counter() - begun) / rounds / iterations)
            found.append(micro(statistics.median(samples)))
    return found


def l2(cache: kk.ProgramCache) -> None:
    if not cache.device.info.is_gpu:
        return
    other = cache.device.empty(1 << 27)  # 512 MiB
    spare = cache.device.empty(1 << 27)

    def pause(session: Session) -> None:
        time.sleep(0.002)
        session.lanes.compute.clear(spare.handle, 64)

    def flush(session: Session) -> None:
        session.lanes.compute.copy(spare.handle, other.handle, other.nbytes)

    rows: Rows = []
    for mebibytes in (4, 16, 32, 256, 1024):
        program = heat(mebibytes * 2**20 // 8)  # both copies together
        cases = [device_seconds(cache, program, 30, before) for before in (None, pause, flush)]
        moved = program.items * 8
        rates = [moved / seconds / 1e9 for seconds in cases]
        rows.append([cache.device.spec, f"{mebibytes} MiB", *(micro(c) for c in cases), *rates])
    columns = ["device", "both copies", "at once µs", "after 2 ms pause", "after a flush", "GB/s", "GB/s ", "GB/s  "]
    show("One dispatch: does the L2 cache survive the gap?", columns, rows)


def keep(cache: kk.ProgramCache) -> None:
    rows: Rows = []
    for power in (14, 20, 24) if cache.device.info.is_gpu else (12, 16, 20):
        programs = [heat(1 << power, body) for body in (BODY, SKIPS_OWN, SKIPS_ANY)]
        # By turns, and the best of each: what else the machine does then disturbs all alike.
        turns = [[device_seconds(cache, program, 40) for program in programs] for _ in range(7)]
        best = [min(second for second in column if second > 0) for column in zip(*turns, strict=True)]
        rows.append([cache.device.spec, f"2^{power}", *(micro(seconds) for seconds in best)])
    columns = ["device", "items", "always writes", "may skip its own", "may write anywhere"]
    show("Microseconds of the device an iteration: carrying old values over", columns, rows)


def micro(seconds: float | None) -> Any:
    return "-" if seconds is None else float(seconds) * 1e6


SECTIONS = {"gaps": gaps, "sizes": sizes, "l2": l2, "keep": keep}


def main() -> None:
    for info in chosen_devices():
        with kk.open_device(info.spec) as device, kk.ProgramCache(device) as cache:
            for name in chosen_sections(SECTIONS):
                SECTIONS[name](cache)


if __name__ == "__main__":
    main()
