"""gemm on tensor cores beside cuBLAS: half, bfloat16, TF32, and float32 in its full precision.

    python benchmarks/tensor.py [bfloat16] [float16] [tf32] [float32] [--sizes 2048,4096] [--tune SECONDS] [--json FILE]

Both sides compute into an output that is there, many times, by the device's clock; they take turns, and a figure is the median
of the rounds. Each is called as a person would: a plan, and `torch.mm(a, b, out=c)`. The notes have the largest errors relative
to the largest element of a product in float64. Operands are random: zeros would be faster. Needs a GPU with tile products
(Hopper) and PyTorch; without them there are no rows.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
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
    with gemm.plan(cache, ours[0], ours[1], dtype=given, tf32=kind == "tf32") as plan:
        exact = theirs[0].double() @ theirs[1].double()
        torch.mm(theirs[0], theirs[1], out=out)
        result = from_words(torch.from_dlpack(plan()), theirs[0])
        errors = [float((found.double() - exact).abs().max() / exact.abs().max()) for found in (result, out)]
        del exact

        def we(count: int) -> float:
            timer = device.timer()
            with timer:
                for _ in range(count):
                    plan.launch()
            return timer.seconds / count

        def they(count: int) -> float:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                torch.mm(theirs[0], theirs[1], out=out)
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3 / count

        mine, its, ratio = in_turn(we, they)
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


def in_turn(we: Callable[[int], float], they: Callable[[int], float]) -> tuple[float, float, float]:
    """Our time, theirs, and the median of the rounds' ratios, theirs to ours."""
    sides = [we, they]
    counts = []
    for side in sides:
        side(2)
        counts.append(max(2, min(500, int(ROUND_SECONDS / side(3)))))
    rounds = [[side(count) for side, count in zip(sides, counts, strict=True)] for _ in range(ROUNDS)]
    mine, its = (statistics.median(one[i] for one in rounds) for i in range(2))
    return mine, its, statistics.median(one[1] / one[0] for one in rounds)


if __name__ == "__main__":
    main()
