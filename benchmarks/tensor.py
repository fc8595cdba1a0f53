"""gemm on tensor cores beside cuBLAS: half, bfloat16, TF32, and float32 in its full precision.

    python benchmarks/tensor.py [bfloat16] [float16] [tf32] [float32] [--sizes 2048,4096] [--tune SECONDS] [--json FILE]

Both sides compute into an output that is there, many times as a graph, by the GPU's clock: `gemm.plan(cache, a, b).launch`, and
`torch.mm(a, b, out=c)`. They take turns, and a figure is the median of the rounds. The notes have the largest errors, relative to
the largest element, against a product in float64: ours and theirs. Operands are random: zeros would be faster. Needs a GPU with
tile products (Hopper) and PyTorch; without them there are no rows.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import kernelkeep as kk
from common import chosen_devices, row
from kernelkeep.kernels import gemm
from kernelkeep.kernels.catalogue import find_kernel
from kernelkeep.kernels.gemm.elements import from_words, words_of

GOALS = {"bfloat16": "≥ 0.8", "float16": "≥ 0.8", "tf32": "≥ 0.8", "float32": "≥ 1.0"}
SIZES = {"bfloat16": (1024, 2048, 4096, 8192), "float16": (4096, 8192), "tf32": (2048, 4096), "float32": (2048, 4096)}
ROUNDS = 7
ROUND_SECONDS = 0.02
Rounds = Callable[[int], Callable[[], float]]  # so many products, as something that says the seconds of one


def main() -> None:
    parser = argparse.ArgumentParser(description="gemm on tensor cores beside cuBLAS")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(GOALS)}; by default all")
    parser.add_argument("--device", metavar="SPEC", help="the device; by default all that have tile products")
    parser.add_argument("--sizes", metavar="N,N", help="square sizes, instead of the usual ones")
    parser.add_argument("--tune", type=float, metavar="SECONDS", help="tune each problem first")
    parser.add_argument("--json", nargs="?", metavar="FILE", help="append the rows to FILE")
    parser.add_argument("--long", action="store_true", help="accepted, and changes nothing")
    options = parser.parse_args()
    wrong = [kind for kind in options.kinds if kind not in GOALS]
    if wrong:
        parser.error(f"KIND must be one of {', '.join(GOALS)}, got {wrong[0]}")
    try:
        import torch
    except ImportError:
        print("PyTorch, which has cuBLAS, is not installed")
        return
    for info in chosen_devices():
        with kk.open_device(info.spec) as device, kk.ProgramCache(device) as cache:
            if not device.capabilities.tile_products:
                continue
            for kind in options.kinds or GOALS:
                sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else SIZES[kind]
                for size in sizes:
                    measure(torch, cache, kind, size, options.tune)


def measure(torch: Any, cache: kk.ProgramCache, kind: str, size: int, tune: float | None) -> None:
    """One row."""
    device = cache.device
    torch.manual_seed(size)
    number_type = getattr(torch, "float32" if kind == "tf32" else kind)
    theirs = [torch.randn((size, size), device="cuda").to(number_type) for _ in range(2)]
    torch.cuda.synchronize()
    # The same memory, in an order of its own: the sides take turns, and each waits for itself.
    ours = [device.array(words_of(one), ordered=False) for one in theirs]
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    given = None if kind == "tf32" else kind
    if tune:
        problem = {"m": size, "n": size, "k": size}
        tuned = find_kernel("gemm" if kind == "float32" else f"gemm-{kind}").tuned_for(device, problem)
        tuned.tune(cache, problem, budget_seconds=tune)
    out = torch.empty((size, size), dtype=theirs[0].dtype, device="cuda")
    torch.mm(theirs[0], theirs[1], out=out)
    result = from_words(torch.from_dlpack(gemm(cache, ours[0], ours[1], dtype=given, tf32=kind == "tf32")), theirs[0])
    exact = theirs[0].double() @ theirs[1].double()
    errors = [float((found.double() - exact).abs().max() / exact.abs().max()) for found in (result, out)]
    del exact, result
    with gemm.plan(cache, ours[0], ours[1], dtype=given, tf32=kind == "tf32") as plan:
        mine, its, ratio = in_turn(our_rounds(device, plan.launch), their_rounds(torch, theirs, out))
        row(
            f"gemm {kind} {size}",
            mine * 1e6,
            "µs",
            peer="cuBLAS with TF32" if kind == "tf32" else "cuBLAS, TF32 off" if kind == "float32" else "cuBLAS",
            its=its * 1e6,
            ratio=ratio,
            goal=GOALS[kind],
            device=device.info,
            note=f"{2e-12 * size**3 / mine:.0f} TFLOP/s; errors {errors[0]:.1e} and {errors[1]:.1e}",
        )


def our_rounds(device: kk.Device, launch: Any) -> Rounds:
    """Many launches as a graph."""

    def many(count: int) -> Callable[[], float]:
        graph = kk.Graph(device)
        for _ in range(count):
            graph.add(launch)

        def timed() -> float:
            timer = device.timer()
            with timer:
                graph.launch()
            return timer.seconds / count

        return timed

    return many


def their_rounds(torch: Any, operands: Sequence[Any], out: Any) -> Rounds:
    """The same with PyTorch."""

    def many(count: int) -> Callable[[], float]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                torch.mm(*operands, out=out)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def timed() -> float:
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3 / count

        return timed

    return many


def in_turn(we: Rounds, they: Rounds) -> tuple[float, float, float]:
    """Our time, theirs, and the median of the rounds' ratios, theirs to ours."""
    sides = []
    for many in (we, they):
        few = many(3)
        few()
        sides.append(many(max(2, min(200, int(ROUND_SECONDS / few())))))
        sides[-1]()
    rounds = [[side() for side in sides] for _ in range(ROUNDS)]
    mine, its = (statistics.median(one[i] for one in rounds) for i in range(2))
    return mine, its, statistics.median(one[1] / one[0] for one in rounds)


if __name__ == "__main__":
    main()
