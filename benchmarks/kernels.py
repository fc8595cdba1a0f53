"""The kernels that come with kernelkeep beside cuBLAS and cuDNN, or PyTorch on the CPU, in the same process and rounds.

    python benchmarks/kernels.py [gemm] [conv2d] [--device SPEC] [--tune SECONDS] [--cache-dir DIR] [--json FILE]

Float32 without TF32; PyTorch may choose its fastest algorithm (`cudnn.benchmark`). Two figures for each problem:

- *device*: one of many launches into the same output, by the device's clock. PyTorch's are a CUDA graph; ours are one
  where the device can, else launched one by one, so that small ones take the time of a launch. Where the device is
  the CPU both are loops, timed from the first launch to the end of the last; for small problems the same loop is
  timed with an empty kernel, which shows what the driver takes for itself.
- *call*: what a person writes, `gemm(cache, a, b)` and `torch.mm(a, b)`, back to back with one wait at the end. Each
  call makes its output.

All launches of a side use the same arrays, so they find them in the caches if they fit. The sides take turns; a figure
is the median of the rounds, ± is how far they typically lie from it, and the ratio is the median of the ratios of the
rounds. The results are compared with each other, relative to the largest element. OpenCL and OpenGL on an NVIDIA GPU
are beside PyTorch on CUDA: another API, the same chip. With --tune each problem is tuned first; otherwise what was
tuned earlier in this cache folder, or what is shipped, decides.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import kernelkeep as kk
from common import chosen_devices, row, show
from kernelkeep.kernels import conv2d, gemm
from kernelkeep.kernels.catalogue import find_kernel
from kernelkeep.variants.measure import spread
from kernelkeep.variants.tuned import Tuned

GOAL, FLOOR = 1.0, 0.7  # peer's time ÷ ours
CPU_THREADS = 2
WAKING_SECONDS = 0.06
SMALL_FLOP = 1e6  # where a driver's launch is a part of the time that one sees
OURS = "kernelkeep"
Host = np.ndarray[Any, Any]


class Problem(NamedTuple):
    """A problem, as a person says it and as it is tuned."""

    title: str
    kernel: str  # "gemm" or "conv2d"
    sizes: dict[str, int]

    @property
    def flop(self) -> float:
        """Multiplications and additions."""
        s = self.sizes
        if self.kernel == "gemm":
            return 2.0 * s["m"] * s["n"] * s["k"]
        height = (s["h"] + 2 * s["pad_y"] - s["r"]) // s["stride_y"] + 1
        width = (s["w"] + 2 * s["pad_x"] - s["s"]) // s["stride_x"] + 1
        return 2.0 * s["n"] * s["k"] * height * width * s["c"] * s["r"] * s["s"]

    def operands(self) -> tuple[Host, Host]:
        """Random numbers, the same each time."""
        s, random = self.sizes, np.random.default_rng(1)
        if self.kernel == "gemm":
            shapes: tuple[tuple[int, ...], ...] = ((s["m"], s["k"]), (s["k"], s["n"]))
        else:
            shapes = ((s["n"], s["c"], s["h"], s["w"]), (s["k"], s["c"], s["r"], s["s"]))
        return random.standard_normal(shapes[0], dtype="f4"), random.standard_normal(shapes[1], dtype="f4")

    def tuned(self, device: kk.Device) -> Tuned:
        """The kernel's variants for a device and this problem."""
        return find_kernel(self.kernel).tuned_for(device, self.sizes)


def gemm_of(m: int, n: int, k: int) -> Problem:
    """m × k times k × n."""
    title = f"gemm {m}" if m == n == k else f"gemm {m}×{n}×{k}"
    return Problem(title, "gemm", {"m": m, "n": n, "k": k})


def conv2d_of(n: int, c: int, k: int, size: int, taps: int, stride: int = 1, pad: int = 0) -> Problem:
    """n square images of c channels, k square filters."""
    options = "".join(
        f" {name} {value}" for name, value, usual in (("stride", stride, 1), ("pad", pad, 0)) if value != usual
    )
    sizes = {"n": n, "c": c, "h": size, "w": size, "k": k, "r": taps, "s": taps}
    more = {"stride_y": stride, "stride_x": stride, "pad_y": pad, "pad_x": pad}
    return Problem(f"conv2d {n}×{c}→{k}×{size}² {taps}×{taps}{options}", "conv2d", sizes | more)


PROBLEMS = [
    *(gemm_of(size, size, size) for size in (64, 256, 1024)),
    conv2d_of(1, 64, 128, 56, 3, pad=1),
    conv2d_of(1, 64, 64, 256, 3, pad=1),
    conv2d_of(1, 64, 64, 256, 5, pad=2),
    conv2d_of(8, 64, 128, 56, 3, pad=1),
]


class Side(NamedTuple):
    """One of those who compute the same."""

    name: str
    launch: Callable[[], Any]  # into an output that is there
    call: Callable[[], Any]  # as a person calls it; gives the result
    wait: Callable[[], Any]
    many: Callable[[int], Callable[[], float]]  # so many launches, as something that says the seconds of one
    host: Callable[[Any], Host]  # a result as a NumPy array


def looped(run: Callable[[], Any], wait: Callable[[], Any], count: int) -> Callable[[], float]:
    """Seconds of one, by the clock on the wall."""

    def timed() -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        return (time.perf_counter() - start) / count

    return timed


# --- kernelkeep


def our_side(cache: kk.ProgramCache, problem: Problem, operands: tuple[Host, Host], stack: ExitStack) -> Side:
    device = cache.device
    a, b = (device.array(host) for host in operands)
    s = problem.sizes
    if problem.kernel == "gemm":
        call: Callable[[], Any] = partial(gemm, cache, a, b)
        plan = gemm.plan(cache, a, b)
    else:
        sides: dict[str, Any] = {"padding": (s["pad_y"], s["pad_x"]), "stride": (s["stride_y"], s["stride_x"])}
        call = partial(conv2d, cache, a, b, **sides)
        plan = conv2d.plan(cache, a, b, **sides)
    prepared = stack.enter_context(plan).launch
    for array in (a, b, plan.out):
        stack.callback(array.close)

    def as_graph(count: int) -> Callable[[], float]:
        graph = kk.Graph(device)
        stack.callback(graph.close)
        for _ in range(count):
            graph.add(prepared)

        def timed() -> float:
            timer = device.timer()
            with timer:
                graph.launch()
            return timer.seconds / count

        return timed

    many = as_graph if device.info.is_gpu else partial(looped, prepared, device.synchronize)
    return Side(OURS, prepared, call, device.synchronize, many, lambda result: result.numpy())


EMPTY = kk.PortableKernel("empty", params=[kk.Buffer("y", "f4")], body="if (y[0] != 0.0f) y[0] = 0.0f;", group=1)


def empty_launch(cache: kk.ProgramCache, stack: ExitStack) -> Callable[[], Any]:
    """A launch that computes nothing: the least that a small product can take with this driver."""
    array = cache.device.array(np.zeros(1, "f4"))
    stack.callback(array.close)
    prepared: kk.Prepared = stack.enter_context(cache.get(EMPTY)).kernel().prepare(1, (array,))
    return prepared


# --- the peers


def peer_versions() -> str:
    """What stands beside us, for the record."""
    try:
        import torch
    except ImportError:
        return f"NumPy {np.__version__}; PyTorch is not installed"
    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return f"PyTorch {torch.__version__}" + (f", CUDA {torch.version.cuda}, cuDNN {cudnn}" if cudnn else "")


def peer_side(device: kk.Device, problem: Problem, operands: tuple[Host, Host]) -> Side | None:
    """PyTorch where it is installed; else NumPy, which has no convolution."""
    try:
        import torch
    except ImportError:
        return numpy_side(operands) if problem.kernel == "gemm" else None
    if not device.info.is_gpu:
        return torch_on_cpu(torch, problem, operands)
    return torch_on_cuda(torch, problem, operands) if torch.cuda.is_available() else None


def numpy_side(operands: tuple[Host, Host]) -> Side:
    a, b = operands
    out = a @ b
    launch = partial(np.matmul, a, b, out=out)
    nothing: Callable[[], Any] = lambda: None  # noqa: E731
    name = "NumPy"
    return Side(name, launch, lambda: a @ b, nothing, partial(looped, launch, nothing), np.asarray)


def torch_calls(torch: Any, problem: Problem, a: Any, b: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A launch and a call. A convolution takes no output; in a graph, or a loop, its memory is used again."""
    s = problem.sizes
    if problem.kernel == "gemm":
        return partial(torch.mm, a, b, out=torch.mm(a, b)), partial(torch.mm, a, b)
    sides = {"padding": (s["pad_y"], s["pad_x"]), "stride": (s["stride_y"], s["stride_x"])}
    call = partial(torch.nn.functional.conv2d, a, b, **sides)
    return call, call


def torch_on_cpu(torch: Any, problem: Problem, operands: tuple[Host, Host]) -> Side:
    torch.set_grad_enabled(False)
    torch.set_num_threads(CPU_THREADS)
    a, b = (torch.from_numpy(host) for host in operands)
    launch, call = torch_calls(torch, problem, a, b)
    nothing: Callable[[], Any] = lambda: None  # noqa: E731
    name = f"PyTorch, {CPU_THREADS} threads"
    return Side(name, launch, call, nothing, partial(looped, launch, nothing), lambda result: result.numpy())


def torch_on_cuda(torch: Any, problem: Problem, operands: tuple[Host, Host]) -> Side:
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    a, b = (torch.from_numpy(host).cuda() for host in operands)
    launch, call = torch_calls(torch, problem, a, b)

    def as_graph(count: int) -> Callable[[], float]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # algorithms are chosen now: a capture takes no such thing
                launch()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(count):
                launch()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def timed() -> float:
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3 / count

        return timed

    name = "cuBLAS" if problem.kernel == "gemm" else "cuDNN"
    return Side(name, launch, call, torch.cuda.synchronize, as_graph, lambda result: result.cpu().numpy())


# --- measuring


class Figures(NamedTuple):
    """Seconds of one launch or call, round by round, for each side."""

    samples: list[list[float]]

    def median(self, side: int) -> float:
        return statistics.median(self.samples[side])

    def share(self, side: int) -> float:
        """How far samples lie from the median, in percent of it."""
        return 100 * spread(self.samples[side])

    @property
    def ratio(self) -> float:
        """The second side's time ÷ the first's, of neighbours in time."""
        ours, its = self.samples[:2]
        return statistics.median(b / a for a, b in zip(ours, its, strict=True))


def how_many(sides: Sequence[Side], seconds: float, most: int) -> int:
    """Launches that take about so long, for the slowest of the sides."""
    once = 0.0
    for side in sides:
        timed = looped(side.launch, side.wait, 1)
        first = timed()
        once = max(once, first if first > 1.0 else min(timed() for _ in range(3)))
    return max(1, min(most, round(seconds / max(once, 1e-6))))


def in_turn(
    blocks: Sequence[Callable[[], float]], rounds: int, seconds: float, pause: float, warm_seconds: float
) -> Figures:
    """So many rounds, fewer where they take longer than `seconds`: three at least, one where each takes that long.

    After a pause a block is run for a while before it is timed: threads that slept wake slowly for the first 50 ms.
    """
    samples: list[list[float]] = [[] for _ in blocks]
    began = time.perf_counter()
    for block in blocks:
        block()
    while time.perf_counter() - began < warm_seconds:
        for block in blocks:
            block()
    least = 3 if time.perf_counter() - began < seconds else 1
    for done in range(rounds):
        if done >= least and time.perf_counter() - began > seconds:
            break
        for taken, block in zip(samples, blocks, strict=True):
            if pause:
                time.sleep(pause)
                awake = time.perf_counter() + WAKING_SECONDS
                while time.perf_counter() < awake:
                    block()
            taken.append(block())
    return Figures(samples)


def verdict(ratio: float) -> str:
    return "yes" if ratio >= GOAL else f"no, ≥ {FLOOR}" if ratio >= FLOOR else "NO"


def measured(cache: kk.ProgramCache, problem: Problem, options: argparse.Namespace, alone: bool) -> list[list[Any]]:
    """The rows of one problem: device and call. They go with `COLUMNS`."""
    on_gpu = cache.device.info.is_gpu
    operands = problem.operands()
    rows = []
    with ExitStack() as stack:
        ours = our_side(cache, problem, operands, stack)
        peer = None if alone else peer_side(cache.device, problem, operands)
        sides = [ours] if peer is None else [ours, peer]
        results = [side.host(side.call()) for side in sides]
        error = relative_error(*results) if peer is not None else None
        del results
        count = how_many(sides, 5e-3 if on_gpu else 0.1, 200)
        # OpenBLAS's threads keep a core busy for 0.11 s after a product, PyTorch's for less; the next one is not to pay for that.
        pause = 0.0 if on_gpu else 0.15
        for figure in ("device", "call"):
            if figure == "device":
                blocks = [side.many(count) for side in sides]
            else:
                blocks = [looped(side.call, side.wait, count) for side in sides]
            is_small = not on_gpu and problem.flop < SMALL_FLOP
            if is_small:
                blocks.append(looped(empty_launch(cache, stack), ours.wait, count))
            # A GPU that was idle takes a while to reach its clock.
            figures = in_turn(blocks, options.rounds, options.seconds, pause, warm_seconds=0.3 if on_gpu else 0.0)
            made: list[Any] = [cache.device.spec, problem.title, figure, figures.median(0) * 1e6, figures.share(0)]
            made += [problem.flop / figures.median(0) * 1e-9]
            if peer is None:
                made += ["none", "", "", "", "", ""]
            else:
                made += [peer.name, figures.median(1) * 1e6, figures.share(1), figures.ratio, verdict(figures.ratio)]
                made += [f"{error:.1e}" + ("" if error is not None and error < 2e-5 else " WRONG")]
                work = problem.title if figure == "device" else f"{problem.title} as a call"
                note = "" if error is not None and error < 2e-5 else f"WRONG: the results differ by {error:.1e}"
                if is_small and peer is not None and not note:
                    note = f"an empty kernel takes the driver {min(figures.samples[2]) * 1e6:.1f} µs at least in the same loop"
                row(work, made[3], "µs", peer=peer.name, its=made[7], goal=f"≥ {GOAL}", ratio=figures.ratio,
                    device=cache.device.info, note=note)  # fmt: skip
            rows.append(made)
            beside = "" if peer is None else f"; {peer.name} {made[7]:.2f} µs, {made[9]:.2f} × ours"
            print(f"  {figure}: {made[3]:.2f} µs{beside}", file=sys.stderr, flush=True)
    return rows


def attempted(cache: kk.ProgramCache, problem: Problem, options: argparse.Namespace) -> list[list[Any]]:
    """The rows of one problem: without the peer where that fails, and a word where ours fails too."""
    said = ""
    for alone in (False, True):
        try:
            return measured(cache, problem, options, alone)
        except Exception as error:  # one that fails is not to lose the others
            said = said_by(error)
            print(f"  {'alone' if alone else 'beside the peer'}: {said}", file=sys.stderr, flush=True)
    return [[cache.device.spec, problem.title, f"failed: {said}", *[""] * (len(COLUMNS) - 3)]]


def said_by(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def with_the_best_openblas() -> None:
    """Start again where the environment makes OpenBLAS use the kernels of another processor: the peer is to be at its best."""
    named = [name for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ]
    if named:
        environment = {name: value for name, value in os.environ.items() if name not in named}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # it was read when NumPy was imported


def relative_error(one: Host, other: Host) -> float:
    return float(np.max(np.abs(one - other)) / np.max(np.abs(other)))


def tuning(cache: kk.ProgramCache, problem: Problem, seconds: float) -> None:
    report = problem.tuned(cache.device).tune(cache, problem.sizes, budget_seconds=seconds)
    found = f"{report.best_ms * 1e3:.4g} µs with {report.best}" if report.best_ms is not None else "none"
    known = f"{len(report.attempts)} variants, {report.remembered} of them known before"
    print(
        f"  tuned in {report.seconds:.1f} s: {known}; {found}; failures: {report.failures or 'none'}", file=sys.stderr
    )


COLUMNS = ["device", "problem", "figure", "µs", "± %", "GFLOP/s", "peer", "its µs", "its ± %", "peer ÷ ours"]
COLUMNS += [f"≥ {GOAL}", "error"]


def select_seconds(cache: kk.ProgramCache, problem: Problem, asks: int = 10_000) -> float:
    """How long it takes to ask which variant runs, once that is known; the best of five."""
    tuned, sizes = problem.tuned(cache.device), problem.sizes
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(asks):
            tuned.select(cache, sizes)
        times.append((time.perf_counter() - start) / asks)
    return min(times)


def main() -> None:
    with_the_best_openblas()
    parser = argparse.ArgumentParser(description="gemm and conv2d beside cuBLAS, cuDNN and PyTorch on the CPU.")
    parser.add_argument("kernels", nargs="*", help="gemm, conv2d, or a part of a problem's title")
    parser.add_argument("--device", help="such as cuda, opencl or opengl:0; all of them by default")
    parser.add_argument("--tune", type=float, default=0.0, metavar="SECONDS", help="tune each problem first")
    parser.add_argument("--rounds", type=int, help="of each figure, instead of 7, or 15 with --long")
    parser.add_argument(
        "--seconds", type=float, help="after which there are no more rounds, instead of 2 at most, or 6 with --long"
    )
    parser.add_argument("--cache-dir", help="where tuning results are; the user's own by default")
    parser.add_argument("--long", action="store_true", help="15 rounds of each, in place of 7 or 2 seconds at most")
    parser.add_argument(
        "--json", nargs="?", const="", metavar="FILE", help="append the rows there; JSON lines without FILE"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (15 if options.long else 7)
    problems = [p for p in PROBLEMS if not options.kernels or any(name in p.title for name in options.kernels)]
    devices = chosen_devices()
    if not devices or not problems:
        parser.error("there is no such device" if not devices else "there is no such problem")
    # Two figures of each problem on each device: together they end within a minute, however many devices there are.
    options.seconds = options.seconds or (6.0 if options.long else min(2.0, 8.0 / (len(devices) * len(problems))))
    if not all(info.is_gpu for info in devices) and (load := os.getloadavg()[0]) > 0.5:
        print(f"other work is running (load {load:.1f}): figures of the CPU will be far off", file=sys.stderr)
    rows: list[list[Any]] = []
    choices: list[list[Any]] = []
    for info in devices:
        with (
            kk.open_device(info.spec, cache_dir=options.cache_dir) as device,
            kk.ProgramCache(device, options.cache_dir) as cache,
        ):
            for problem in problems:
                print(f"{info.spec}: {problem.title}", file=sys.stderr, flush=True)
                try:
                    if options.tune:
                        tuning(cache, problem, options.tune)
                    chosen = problem.tuned(device).select(cache, problem.sizes)
                    expected = "" if chosen.expected_ms is None else chosen.expected_ms * 1e3
                    asking = select_seconds(cache, problem) * 1e6
                    if not choices or choices[-1][0] != info.spec:
                        row("choosing a known variant", asking, "µs", goal="≤ 2", device=info)
                    choices.append([info.spec, problem.title, chosen.basis, asking, expected, str(chosen.variant)])
                except Exception as error:
                    print(f"  not tuned: {said_by(error)}", file=sys.stderr)
                rows += attempted(cache, problem, options)
                gc.collect()
    show("Which variant runs", ["device", "problem", "basis", "select µs", "expected µs", "variant"], choices)
    show(f"gemm and conv2d, float32 without TF32, beside {peer_versions()}", COLUMNS, rows)


if __name__ == "__main__":
    main()
