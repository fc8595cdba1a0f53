"""Measures gemm's variants on a GPU and fits the model that chooses among them where nothing was tuned. For maintainers.

    python benchmarks/gemm_costs.py measure FILE [--seconds N] [--device SPEC]
    python benchmarks/gemm_costs.py fit FILE [FILE …] [--out src/kernelkeep/kernels/gemm/costs.jsonl]

*measure* appends a line of JSON to FILE for each variant and shape: its time by the device's clock. *fit* reads such lines,
finds the figures of each variant (`kernelkeep.kernels.gemm.cost` says what they are), says how far the variant it chooses is
from the best one that was measured, on shapes that were not fitted too, and writes the figures to --out.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernelkeep as kk
from kernelkeep.kernels.gemm import cost
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.kernels.gemm.tensor_tiles import splits_in_clusters

SEED, SHAPES = 18, 400
LARGEST = 2304, 2304, 4096
PROCESSORS = 132  # of the GPU that was measured
STARTS = (
    (2.0, 0.6, 0.2, 1.0, 0.3),
    (1.5, 0.3, 0.3, 0.5, 0.5),
    (2.5, 1.0, 0.1, 2.0, 0.2),
)  # where searches for a variant's figures begin
Vector = np.ndarray[Any, Any]


class Sample(NamedTuple):
    """A variant's time for a shape, in microseconds."""

    kind: str
    variant: dict[str, int]
    resident: int
    shape: tuple[int, int, int]
    us: float


# --- measuring


def shapes() -> list[tuple[int, int, int]]:
    """Shapes drawn by their logarithms; of some, n and k are multiples of four, and some are narrow."""
    draw = random.Random(SEED)
    made: list[tuple[int, int, int]] = []
    while len(made) < SHAPES:
        m, n, k = (round(2 ** draw.uniform(0, math.log2(most))) for most in LARGEST)
        if m * n * k > 7e8:
            continue
        even = draw.random()
        if even < 0.4:
            n, k = -(-n // 4) * 4, -(-k // 4) * 4
        elif even < 0.8:
            n, k = n | 1, k | 1
        made.append((m, n, k))
    return made


def measure(options: argparse.Namespace) -> None:
    began = time.monotonic()
    with (
        kk.open_device(options.device) as device,
        kk.ProgramCache(device, max_programs=2000) as cache,
        ExitStack() as stack,
    ):
        largest = [max(one[i] * one[j] for one in shapes()) for i, j in ((0, 2), (2, 1), (0, 1))]
        numbers = np.random.default_rng(1)
        a, b = (device.array(numbers.standard_normal(size, dtype="f4")) for size in largest[:2])
        c = device.empty((largest[2],))
        kernels: dict[str, tuple[Any, int]] = {}
        with options.files[0].open("a") as lines:
            for m, n, k in shapes():
                if time.monotonic() - began > options.seconds:
                    break
                for kind, variant in known_variants():
                    if not cost.suits(kind, variant, m, n) or (kind == "warps" and not splits_in_clusters(device)):
                        continue
                    definition = GEMM.tuned(kind, device.capabilities.shared_bytes).definition
                    launch = definition.launch(device, definition.template.values({"m": m, "n": n, "k": k}), variant)
                    key = f"{kind} {variant} {math.gcd(n, 4)} {math.gcd(k, 4)}"
                    if key not in kernels:
                        kernel = stack.enter_context(cache.get(launch.source)).kernel(launch.kernel)
                        held = kernel.resident_groups(launch.group, launch.shared_bytes)
                        kernels[key] = kernel, held // max(device.count_processors(), 1)
                    kernel, resident = kernels[key]
                    args = (a[: m * k], b[: k * n], c[: m * n], np.float32(1), np.float32(0), m, n, k)
                    launched = kernel.prepare(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes)
                    taken = microseconds(device, launched)
                    made = Sample(kind, dict(variant), resident, (m, n, k), taken)
                    lines.write(json.dumps(made._asdict()) + "\n")


def microseconds(device: kk.Device, prepared: Callable[[], None]) -> float:
    """The best of four times ten launches."""
    graph, times = kk.Graph(device), []
    for _ in range(10):
        graph.add(prepared)  # type: ignore[arg-type]
    for _ in range(5):
        timer = device.timer()
        with timer:
            graph.launch()
        times.append(timer.seconds / 10 * 1e6)
    graph.close()
    return min(times[1:])


def known_variants() -> Iterable[tuple[str, dict[str, int]]]:
    """The variants that are worth measuring: those that have figures."""
    for kind in cost.MODELLED:
        for one in cost.costs(kind).values():
            yield kind, one.variant


# --- fitting


def read(files: Iterable[Path]) -> list[Sample]:
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [Sample(**{**line, "shape": tuple(line["shape"])}) for line in lines]


def by_shape(samples: Iterable[Sample]) -> dict[tuple[int, int, int], list[Sample]]:
    found: dict[tuple[int, int, int], list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.shape, []).append(sample)
    return found


def fit(samples: Sequence[Sample]) -> list[tuple[str, cost.Cost]]:
    """The figures of every variant. Samples near the best of their shape count most: the others are not chosen."""
    best = {shape: min(one.us for one in several) for shape, several in by_shape(samples).items()}
    alike: dict[str, list[Sample]] = {}
    for sample in samples:
        # Whether groups share the way along k or not, their steps are the same: variants that differ in that are fitted as one.
        tile = {name: value for name, value in sample.variant.items() if sample.kind != "warps" or name != "SLICES"}
        alike.setdefault(f"{sample.kind} {sorted(tile.items())}", []).append(sample)
    made = []
    for several in alike.values():
        halves = {
            even: [one for one in several if (one.shape[1] % 4 == 0 and one.shape[2] % 4 == 0) == even]
            for even in (True, False)
        }
        # Few samples of one half: the other half's count, too.
        even, odd = (figures(halves[which] if len(halves[which]) > 4 else several, best) for which in (True, False))
        kind, resident = several[0].kind, min(one.resident for one in several)
        for variant in {json.dumps(one.variant): one.variant for one in several}.values():
            times = (times_of(found, kind, variant) for found in (even, odd))
            made.append((kind, cost.Cost(variant, resident, *times)))
    return made


def times_of(found: Vector, kind: str, variant: Mapping[str, int]) -> cost.Times:
    """A variant's figures, of which `found` are those of all that were fitted as one."""
    launch, step, work, batch, doubling = found
    whole = launch + doubling * math.log2(cost.tile_of(kind, variant).shared_by)
    return cost.Times(*(float(f"{value:.4g}") for value in (whole, step, work, batch)))


def figures(samples: Sequence[Sample], best: Mapping[tuple[int, int, int], float]) -> Vector:
    """`cost.Times`, and what `launch` grows by as twice as many groups share the way along k."""
    each, steps, memory, doublings = [], [], [], []
    for one in samples:
        m, n, k = one.shape
        tile = cost.tile_of(one.kind, one.variant)
        each.append(cost.groups_each(tile, m, n, PROCESSORS))
        steps.append(cost.steps(tile, k))
        memory.append(sum(part**cost.OVERLAP for part in cost.memory_times(tile, m, n, k)))
        doublings.append(math.log2(tile.shared_by))
    logs = np.log([one.us for one in samples])
    weights = np.array([min(1.0, max(0.15, best[one.shape] / one.us)) ** 2 for one in samples])
    start, anchor = np.log(STARTS[0]), 3e-3 if len(samples) < 5 else 1e-4
    counts, rest_of_it, slicing = np.array(steps, float), np.array(memory), np.array(doublings)
    resident = np.array([one.resident for one in samples])
    whole, rest = np.divmod(np.array(each), resident)

    def loss(x: Vector) -> float:
        launch, step, work, batch, doubling = np.exp(x)  # as `cost.took_by`, for all samples at once
        stepping = whole * np.maximum(step, work * resident) + (rest > 0) * np.maximum(step, work * rest)
        took = launch + doubling * slicing + counts * stepping + batch * (whole + (rest > 0) - 1)
        off = np.log((took**cost.OVERLAP + rest_of_it) ** (1 / cost.OVERLAP)) - logs
        size = np.abs(off)
        near = np.where(size < 0.15, off * off, 0.3 * size - 0.0225)
        return float((weights * near).sum() / weights.sum() + anchor * ((x - start) ** 2).sum())

    found: Vector = np.exp(min((simplex(loss, np.log(one)) for one in STARTS), key=loss))
    return found


def simplex(loss: Callable[[Vector], float], start: Vector, rounds: int = 400) -> Vector:
    """A minimum, by the method of Nelder and Mead."""
    points = [(loss(x), tuple(x)) for x in (start, *(start + 0.4 * unit for unit in np.eye(len(start))))]
    for _ in range(rounds):
        points.sort()
        centre, worst = np.mean([x for _, x in points[:-1]], axis=0), np.array(points[-1][1])

        def at(by: float, centre: Vector = centre, worst: Vector = worst) -> tuple[float, tuple[float, ...]]:
            x = centre + by * (centre - worst)
            return loss(x), tuple(x)

        mirrored = at(1.0)
        if mirrored < points[0]:
            points[-1] = min(mirrored, at(2.0))
        elif mirrored < points[-2]:
            points[-1] = mirrored
        elif (inside := at(-0.5)) < points[-1]:
            points[-1] = inside
        else:
            low = np.array(points[0][1])
            nearer = [low + 0.5 * (np.array(x) - low) for _, x in points[1:]]
            points = [points[0], *((loss(x), tuple(x)) for x in nearer)]
    return np.array(min(points)[1])


def judge(table: Sequence[tuple[str, cost.Cost]], samples: Sequence[Sample]) -> str:
    """How far what is chosen is from the best that was measured."""
    lost = []
    for (m, n, k), several in by_shape(samples).items():
        times = {f"{one.kind} {sorted(one.variant.items())}": one.us for one in several}
        problem = {"m": m, "n": n, "k": k}
        fitting = [(cost.estimate(kind, one, problem, PROCESSORS), f"{kind} {sorted(one.variant.items())}")
                   for kind, one in table if cost.suits(kind, one.variant, m, n)]  # fmt: skip
        chosen = min((one for one in fitting if one[1] in times), default=None)
        if chosen is not None:
            lost.append(times[chosen[1]] / min(times.values()))
    return (
        f"{len(lost)} shapes: {statistics.geometric_mean(lost):.3f} times the best one's time, {max(lost):.2f} at worst"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measures gemm's variants, and fits the model that chooses among them."
    )
    parser.add_argument("action", choices=["measure", "fit"])
    parser.add_argument("files", nargs="+", type=Path, help="where the measurements are, or go")
    parser.add_argument("--seconds", type=float, default=50.0, help="for measuring")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="where the figures go")
    options = parser.parse_args()
    if options.action == "measure":
        measure(options)
        return
    samples = read(options.files)
    table = fit(samples)
    print("fitted to all:", judge(table, samples))
    draw, all_shapes = random.Random(1), sorted(by_shape(samples))
    half = set(draw.sample(all_shapes, len(all_shapes) // 2))
    known, rest = ([one for one in samples if (one.shape in half) == which] for which in (True, False))
    print("fitted to half of them, judged by the others:", judge(fit(known), rest))
    if options.out is not None:
        lines = [{"kind": kind, **one._asdict()} for kind, one in table]
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
