"""The same kernels as two versions of kernelkeep write them, in one process and in turns: before's time ÷ after's.

    python benchmarks/kernel_texts.py BEFORE [AFTER] [gemm] [stencil] … [--device SPEC] [--kind KIND] [--rounds N] [--json]

BEFORE and AFTER are folders with a checkout each; without AFTER it is this one. Each version writes its texts in a process
of its own. Then both texts are compiled here, launched with the same arguments, and compared. Where the device is the CPU, a
time is that of all its cores together, without the time they wait for other programs.

gemm and conv2d run the fastest variant of the shipped records of the device's architecture, the default where there is none.
--kind takes a template that is not the device's own: "tiled", which is for GPUs, or "plain".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import executor
import kernelkeep as kk
import kernels
import reference
from common import chosen_devices, show
from kernelkeep.kernels import templates
from kernelkeep.kernels.conv2d.operation import CONV2D
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.programs.translation_unit import translation_unit
from kernelkeep.samples import basic

ROOT = Path(__file__).parents[1]
GOAL = 0.98
BLOCK_SECONDS = 0.05


class Job(NamedTuple):
    """A kernel and what it is launched with. `output` is the name of the array that is compared."""

    title: str
    source: Callable[[], kk.Source]
    kernel: str
    grid: tuple[int, ...]
    group: tuple[int, ...] | None
    arguments: Mapping[str, Any]
    output: str


def jobs(device: kk.Device, kind: str) -> Iterator[Job]:
    """What is compared on a device, as this version writes it."""
    for problem in kernels.PROBLEMS:
        yield tuned_job(device, problem, kind)
    for sample in (basic.SAXPY, basic.STENCIL):
        grid = sample.grid if isinstance(sample.grid, tuple) else (sample.grid,)
        yield portable_job(device, sample.kernel, grid, dict(sample.inputs()), sample.output)
    random = np.random.default_rng(1)
    n, side = 1 << 18, 256
    x, sums, matrix = random.random(n, "f4"), np.zeros(n // 256, "f4"), np.zeros((side, side), "f4")
    yield portable_job(device, reference.TOTAL, (n // 256,), {"x": x, "sums": sums, "n": n}, "sums")
    values = {"a": random.random((side, side), "f4"), "b": random.random((side, side), "f4"), "c": matrix, "n": side}
    yield portable_job(device, reference.PRODUCT, (side // 16, side // 16), values, "c")
    work = {"x": x, "y": np.zeros(n, "f4"), "rounds": 100, "halvings": 0, "n": n}
    yield portable_job(device, executor.WORK, (n // executor.GROUP,), work, "y")


def portable_job(
    device: kk.Device, kernel: kk.PortableKernel, grid: tuple[int, ...], values: Mapping[str, Any], output: str
) -> Job:
    return Job(kernel.name, lambda: kernel.source(device), kernel.name, grid, None, values, output)


def tuned_job(device: kk.Device, problem: kernels.Problem, kind: str) -> Job:
    family = {"gemm": GEMM, "conv2d": CONV2D}[problem.kernel]
    tuned = family.tuned(kind, device.capabilities.shared_bytes)
    definition = tuned.definition
    known = [
        (record.median_ms, record.variant)
        for record in definition.shipped_records
        if record.problem == problem.sizes and record.architecture.split()[0] == device.backend and record.median_ms
    ]
    values = definition.template.values(problem.sizes)
    variant = min(known, key=lambda one: one[0])[1] if known else definition.space.default(values)
    launch = definition.template.launch(tuned.name, device, values, variant)
    left, right = problem.operands()
    named = {"a": left, "b": right} if problem.kernel == "gemm" else {"x": left, "weights": right}
    arguments: dict[str, Any] = {}
    for p in definition.template.params(device.language):
        if p.kind == "scalar":
            arguments[p.name] = definition.template.scalar(p.name, values)
        else:
            shape = definition.template.shape(p.name, values)
            arguments[p.name] = named[p.name] if p.name in named else np.zeros(shape, "f4")
    output = "c" if problem.kernel == "gemm" else "y"
    title = f"{problem.title} {kind}"
    return Job(
        title, lambda: launch.source, launch.kernel or problem.kernel, launch.grid, launch.group, arguments, output
    )


# --- what each version writes


def write_texts(spec: str, kind: str) -> None:
    """Print the texts as JSON, by their titles."""
    with kk.open_device(spec) as device:
        json.dump({job.title: translation_unit(job.source()) for job in jobs(device, kind)}, sys.stdout)


def texts_of(checkout: Path, spec: str, kind: str) -> dict[str, str]:
    """The texts that a checkout writes, in a process of its own."""
    path = f"{checkout / 'src'}{os.pathsep}{ROOT / 'benchmarks'}"
    command = [sys.executable, __file__, str(checkout), "--write-texts", "--device", spec, "--kind", kind]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout} wrote no texts:\n{done.stderr[-2000:]}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


# --- measuring


def compare(device: kk.Device, job: Job, texts: tuple[str, str], rounds: int, seconds: float) -> list[Any]:
    """A row of the table: how long each of the two takes, and how far their results are apart."""
    with ExitStack() as stack:
        sides, outputs, waits = [], [], device.synchronize
        shared: tuple[Any, ...] = ()
        for text in texts:
            values = {k: device.array(v) if isinstance(v, np.ndarray) else v for k, v in job.arguments.items()}
            for value in values.values():
                if isinstance(value, kk.Array):
                    stack.callback(value.close)
            program = stack.enter_context(device.build(kk.Source(text, job.kernel, device.language)))
            kernel = program.kernel(job.kernel)
            args = tuple(values[p.name] for p in kernel.signature.params or ())
            kernel.launch(job.grid, args, job.group)
            outputs.append(values[job.output].numpy())
            shared = shared or args  # both are measured with the same arrays: where these lie makes a difference, too
            sides.append(kernel.prepare(job.grid, shared, job.group))
        largest = float(np.max(np.abs(outputs[0]))) or 1.0
        error = float(np.max(np.abs(outputs[0] - outputs[1]))) / largest
        clock = time.perf_counter if device.info.is_gpu else time.process_time
        once = min(seconds_of(clock, side, waits, 1) for side in sides for _ in range(3))
        count = max(1, min(500, round(BLOCK_SECONDS / max(once, 1e-6))))
        samples: list[list[float]] = [[], []]
        began = time.perf_counter()
        for at in range(rounds):
            if at >= 5 and time.perf_counter() - began > seconds:
                break
            for side in (0, 1) if at % 2 == 0 else (1, 0):  # neither is always the one that runs after the other
                samples[side].append(seconds_of(clock, sides[side], waits, count))
    ratio = statistics.median(a / b for a, b in zip(*samples, strict=True))
    before, after = (1e6 * statistics.median(one) for one in samples)
    same = "same" if texts[0] == texts[1] else "other"
    return [
        device.spec,
        job.title,
        same,
        before,
        after,
        f"{ratio:.3f}",
        "yes" if ratio >= GOAL else "NO",
        f"{error:.1e}",
    ]


def seconds_of(clock: Callable[[], float], launch: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    start = clock()
    for _ in range(count):
        launch()
    wait()
    return (clock() - start) / count


COLUMNS = ["device", "kernel", "text", "before µs", "after µs", "before ÷ after", f"≥ {GOAL}", "difference"]


def main() -> None:
    parser = argparse.ArgumentParser(description="The same kernels as two versions write them.")
    parser.add_argument("before", type=Path, help="a folder with a checkout")
    parser.add_argument("names", nargs="*", help="a second checkout, and parts of the kernels' titles")
    parser.add_argument("--device", help="such as cuda, opencl or opengl:0; all of them by default")
    parser.add_argument("--kind", help="of template: tiled, plain or vectors; the device's own by default")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=30.0, help="after which there are no more rounds, beyond five")
    parser.add_argument("--json", action="store_true", help="JSON lines in place of tables")
    parser.add_argument("--write-texts", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_texts:
        write_texts(options.device, options.kind)
        return
    after = next((Path(name) for name in options.names if (Path(name) / "src").is_dir()), ROOT)
    names = [name for name in options.names if Path(name) != after]
    rows: list[list[Any]] = []
    for info in chosen_devices():
        with kk.open_device(info.spec) as device:
            kind = options.kind or templates.template_kind(device)
            before_texts, after_texts = (texts_of(one.resolve(), info.spec, kind) for one in (options.before, after))
            for job in jobs(device, kind):
                if names and not any(name in job.title for name in names):
                    continue
                texts = before_texts[job.title], after_texts[job.title]
                rows.append(compare(device, job, texts, options.rounds, options.seconds))
                print("  ".join(str(cell) for cell in rows[-1]), file=sys.stderr, flush=True)
    show("Two versions' texts of the same kernels", COLUMNS, rows)


if __name__ == "__main__":
    main()
