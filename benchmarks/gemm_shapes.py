"""gemm where nothing was tuned: narrow matrices, and 200 shapes that no record knows, beside cuBLAS; and small calls.

    python benchmarks/gemm_shapes.py [calls] [narrow] [sample] [--device SPEC] [--count N] [--json FILE]

- *calls*: `gemm(cache, a, b)`, `conv2d(cache, x, w)` and their plans on small problems, beside `torch.mm` and PyTorch's conv2d:
  the host's time of a call, back to back, with one wait at the end.
- *narrow*: one row and a few rows times a large matrix, by the device's clock, and the time that was expected beforehand.
- *sample*: m, n and k drawn evenly by their logarithms from 8 to 2048 (k to 4096), always the same ones; the geometric mean
  of cuBLAS's time ÷ ours by the device's clock, and the worst of them.

The cache folder is a new one, so only what is shipped is known. Float32 without TF32. Needs PyTorch with CUDA.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import kernelkeep as kk
from common import chosen_devices, chosen_sections, end_unmeasured, row, show
from kernelkeep.kernels.gemm.operation import GEMM
from kernels import Problem, conv2d_of, gemm_of, in_turn, looped, our_side, peer_side, relative_error

SMALL = [gemm_of(64, 64, 64), gemm_of(100, 100, 100), conv2d_of(1, 8, 8, 16, 3, pad=1)]
NARROW = [gemm_of(1, 4096, 4096), gemm_of(16, 4096, 4096), gemm_of(4096, 1, 4096), gemm_of(4096, 16, 4096)]
SEED, COUNT = 18, 200
LARGEST = 2048, 2048, 4096
SMALLEST = 8


def sample(count: int) -> list[Problem]:
    """Shapes that are the same each time."""
    random_ = random.Random(SEED)
    return [
        gemm_of(*(round(2 ** random_.uniform(math.log2(SMALLEST), math.log2(most))) for most in LARGEST))
        for _ in range(count)
    ]


def section_calls(cache: kk.ProgramCache) -> None:
    """Calls and plans of small problems."""
    for problem in SMALL:
        with ExitStack() as stack:
            operands = problem.operands()
            ours = our_side(cache, problem, operands, stack)
            peer = peer_side(cache.device, problem, operands)
            if peer is None:
                return
            ours.call()
            blocks = [
                looped(run, wait, 200)
                for run, wait in ((ours.call, ours.wait), (ours.launch, ours.wait), (peer.call, peer.wait))
            ]
            figures = in_turn(blocks, 15, 3.0, 0.0, 0.3)
            its = figures.median(2) * 1e6
            for side, what in ((0, "as a call"), (1, "as a plan")):
                row(f"{problem.title} {what}", figures.median(side) * 1e6, "µs", peer="PyTorch's call", its=its, goal="≤ 1.0",
                    device=cache.device.info)  # fmt: skip


def section_narrow(cache: kk.ProgramCache) -> None:
    """A few rows or columns times a large matrix."""
    speed = cache.device.memory_bytes_per_second()
    for problem in NARROW:
        ours, its, error, expected = beside_cublas(cache, problem, launches=20, rounds=15)
        s = problem.sizes
        least = 4e6 * (s["m"] * s["k"] + s["k"] * s["n"] + s["m"] * s["n"]) / speed if speed else 0.0
        told = "no time was expected" if expected is None else f"expected {expected:.1f} µs"
        said = f"{told}; the memory needs {least:.1f} µs at least"
        row(problem.title, ours, "µs", peer="cuBLAS", its=its, goal="≥ 0.9", device=cache.device.info,
            note=said if error < 2e-5 else f"WRONG by {error:.1e}; {said}")  # fmt: skip


def section_sample(cache: kk.ProgramCache) -> None:
    """Shapes that no record knows."""
    problems = sample(int(sys.argv[sys.argv.index("--count") + 1]) if "--count" in sys.argv else COUNT)
    cache.preload([GEMM.find(cache, problem.sizes, None)[0].launch.source for problem in problems])
    ratios, wrong = [], []
    for problem in problems:
        ours, its, error, expected = beside_cublas(cache, problem, launches=10, rounds=5)
        ratios.append((its / ours, problem.title, ours, its, expected))
        if not error < 2e-5:
            wrong.append(problem.title)
    ratios.sort()
    columns = ["shape", "µs", "expected", "cuBLAS", "cuBLAS ÷ ours"]
    shown = [*ratios[:10], *ratios[-3:]]
    show(
        "The worst ten and the best three",
        columns,
        [[title, ours, "–" if told is None else told, its, r] for r, title, ours, its, told in shown],
    )
    mean = statistics.geometric_mean(ratio for ratio, *_ in ratios)
    note = f"WRONG: {', '.join(wrong)}" if wrong else ""
    title = f"gemm, {len(problems)} shapes nobody tuned"
    info = cache.device.info
    ours = statistics.geometric_mean(one[2] for one in ratios)
    its = statistics.geometric_mean(one[3] for one in ratios)
    row(
        f"{title}, geometric mean", ours, "µs", peer="cuBLAS", its=its, goal="≥ 1.0", ratio=mean, device=info, note=note
    )
    worst = ratios[0]
    row(f"{title}, the worst: {worst[1]}", worst[2], "µs", peer="cuBLAS", its=worst[3], goal="≥ 0.7", device=info)


def beside_cublas(
    cache: kk.ProgramCache, problem: Problem, launches: int, rounds: int
) -> tuple[float, float, float, float | None]:
    """Our time, cuBLAS's, how far the results differ, and the time that was expected, if any; in microseconds."""
    with ExitStack() as stack:
        operands = problem.operands()
        ours, peer = our_side(cache, problem, operands, stack), peer_side(cache.device, problem, operands)
        assert peer is not None
        error = relative_error(ours.host(ours.call()), peer.host(peer.call()))
        blocks: list[Callable[[], Any]] = [side.many(launches) for side in (ours, peer)]
        figures = in_turn(blocks, rounds, 2.0, 0.0, 0.0)
        told = GEMM.find(cache, problem.sizes, None)[0].selection.expected_ms
    return figures.median(0) * 1e6, figures.median(1) * 1e6, error, None if told is None else told * 1e3


SECTIONS = {"calls": section_calls, "narrow": section_narrow, "sample": section_sample}


def main() -> None:
    try:
        import torch
    except ImportError:
        end_unmeasured("PyTorch is not installed")
    for info in chosen_devices():
        if info.is_gpu and torch.cuda.is_available():
            with tempfile.TemporaryDirectory() as folder, kk.open_device(info.spec, cache_dir=folder) as device:
                with kk.ProgramCache(device, folder, max_programs=1000) as cache:
                    for name in chosen_sections(SECTIONS):
                        SECTIONS[name](cache)


if __name__ == "__main__":
    main()
