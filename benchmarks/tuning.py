"""kernelkeep's tuning beside kernel_tuner: the same kernel text, the same space, the same device, the same reference.

    python benchmarks/tuning.py [--device SPEC] [--repeats N] [--size N] [--json]

A product of matrices with tiles in shared memory and a block of sums in each item's registers, in 36 variants. Both try
all of them; kernel_tuner in order (brute force, its default), kernelkeep in its own order, in child processes.

- Each tuner runs in a process of its own. Imports and the start of the driver are not counted; everything after them
  is: opening the device, compiling, verifying, measuring. kernel_tuner is given the answer, and the time to compute
  it is not counted; kernelkeep computes its own, for a second, ragged problem too, and verifies the winner once more
  with other numbers, all of which is counted, as are the imports of its child processes.
- *first*: in new folders, so that neither a tuner's cache nor a driver's holds anything.
- *again*: the same folders in a new process. kernel_tuner without its cache file has only the drivers' caches; with
  it, what it measured before.
- *to the best*: until the winner was first measured. Which one wins is chance where several are nearly as fast, and
  when its turn comes is luck; hence also the time until one within 5 % was measured, for all, and for one variant.

At the end both winners are measured in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_devices, show

PREFACE = {
    "opencl": """\
#define SHARED __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define ITEM_X get_local_id(0)
#define ITEM_Y get_local_id(1)
#define GROUP_X get_group_id(0)
#define GROUP_Y get_group_id(1)
__kernel void product(__global const float* a, __global const float* b, __global float* c, int m, int n, int k) {
""",
    "cuda": """\
#define SHARED __shared__
#define BARRIER __syncthreads()
#define ITEM_X threadIdx.x
#define ITEM_Y threadIdx.y
#define GROUP_X blockIdx.x
#define GROUP_Y blockIdx.y
extern "C" __global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
""",
}
BODY = """\
#define DEPTH 16
#define BLOCK_M (block_size_y * tile_y)
#define BLOCK_N (block_size_x * tile_x)
#define ITEMS (block_size_x * block_size_y)
  SHARED float left[BLOCK_M * DEPTH];
  SHARED float right[DEPTH * BLOCK_N];
  const int x = ITEM_X, y = ITEM_Y, item = y * block_size_x + x;
  const int row0 = GROUP_Y * BLOCK_M, col0 = GROUP_X * BLOCK_N;
  float sums[tile_y][tile_x];
  for (int i = 0; i < tile_y; i++)
    for (int j = 0; j < tile_x; j++) sums[i][j] = 0.0f;
  for (int p0 = 0; p0 < k; p0 += DEPTH) {
    for (int e = item; e < BLOCK_M * DEPTH; e += ITEMS) {
      const int row = row0 + e / DEPTH, p = p0 + e % DEPTH;
      left[e] = row < m && p < k ? a[row * k + p] : 0.0f;
    }
    for (int e = item; e < DEPTH * BLOCK_N; e += ITEMS) {
      const int p = p0 + e / BLOCK_N, col = col0 + e % BLOCK_N;
      right[e] = p < k && col < n ? b[p * n + col] : 0.0f;
    }
    BARRIER;
    for (int p = 0; p < DEPTH; p++)
      for (int i = 0; i < tile_y; i++)
        for (int j = 0; j < tile_x; j++)
          sums[i][j] += left[(y + i * block_size_y) * DEPTH + p] * right[p * BLOCK_N + x + j * block_size_x];
    BARRIER;
  }
  for (int i = 0; i < tile_y; i++)
    for (int j = 0; j < tile_x; j++) {
      const int row = row0 + y + i * block_size_y, col = col0 + x + j * block_size_x;
      if (row < m && col < n) c[row * n + col] = sums[i][j];
    }
}
"""
SPACE = {"block_size_x": [8, 16, 32], "block_size_y": [8, 16], "tile_x": [1, 2, 4], "tile_y": [2, 4]}
TOLERANCE = 1e-5  # relative to the largest element
CLOSE = 1.05
OURS, THEIRS = "kernelkeep", "kernel_tuner"
FIRST, AGAIN, AGAIN_FILE = "first", "again", "again, cache file"
Result = dict[str, Any]


def reference(a: Any, b: Any) -> Any:
    return a @ b


def tuned_kernel(language: str) -> kk.Tuned:
    """The kernel for kernelkeep."""
    template = kk.Template(
        kk.Source(PREFACE[language] + BODY, name="product", language=language),
        [
            kk.Buffer("a", "f4", "r"),
            kk.Buffer("b", "f4", "r"),
            kk.Buffer("c", "f4", "w"),
            *(kk.Scalar(name, "i4") for name in "mnk"),
        ],
        arrays={"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")},
        grid=lambda v: (
            -(-v["n"] // (v["block_size_x"] * v["tile_x"])),
            -(-v["m"] // (v["block_size_y"] * v["tile_y"])),
        ),
        group=("block_size_x", "block_size_y"),
        kernel="product",
        engine="defines",
    )
    return kk.Tuned("product", template, kk.VariantSpace(**SPACE), reference=reference, tolerance=TOLERANCE)


# --- in a process of its own


def tune_with_kernelkeep(task: Mapping[str, Any]) -> Result:
    start = time.perf_counter()
    size = task["size"]
    with (
        kk.open_device(task["spec"], cache_dir=task["folder"]) as device,
        kk.ProgramCache(device, task["folder"]) as cache,
    ):
        tuned = tuned_kernel(device.language)
        before = time.perf_counter() - start
        report = tuned.tune(cache, {"m": size, "n": size, "k": size})
        seconds = time.perf_counter() - start
    measured = [
        (dict(a.variant), a.milliseconds, before + a.at_seconds)
        for a in report.attempts
        if a.milliseconds is not None and not a.failure
    ]
    best = dict(report.best) if report.best is not None else None
    return {"seconds": seconds, "measured": measured, "best": best, "failures": report.failures}


def tune_with_kernel_tuner(task: Mapping[str, Any]) -> Result:
    import kernel_tuner

    size = task["size"]
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), dtype="f4") for _ in range(2))
    answer = reference(a.astype("f8"), b.astype("f8")).astype("f4")
    arguments = [a, b, np.zeros_like(answer), *[np.int32(size)] * 3]
    start, started_at = time.perf_counter(), time.time()
    results, _ = kernel_tuner.tune_kernel(
        "product",
        PREFACE[task["language"]] + BODY,
        (size, size),
        arguments,
        SPACE,
        grid_div_x=["block_size_x", "tile_x"],
        grid_div_y=["block_size_y", "tile_y"],
        answer=[None, None, answer, None, None, None],
        atol=TOLERANCE * float(np.max(np.abs(answer))),
        lang=task["lang"],
        platform=task["platform"],
        device=task["index"],
        cache=task["cache_file"],
        quiet=True,
    )
    seconds = time.perf_counter() - start
    good = [result for result in results if isinstance(result.get("time"), float)]
    measured = [
        (
            {name: int(result[name]) for name in SPACE},
            float(result["time"]),
            datetime.fromisoformat(result["timestamp"]).timestamp() - started_at,
        )
        for result in good
    ]
    best = min(measured, key=lambda found: found[1])[0] if measured else None
    return {"seconds": seconds, "measured": measured, "best": best, "failures": len(results) - len(good)}


def import_everything(task: Mapping[str, Any]) -> None:
    """What a tuner would otherwise import while it is timed."""
    driver = (
        ["pyopencl"] if task["language"] == "opencl" else [f"cuda.bindings.{n}" for n in ("driver", "nvrtc", "runtime")]
    )
    places = {"OpenCL": "opencl", "NVCUDA": "nvcuda", "CUPY": "cupy"}
    ours = ["kernelkeep.variants.tune", "kernelkeep.variants.case", f"kernelkeep.devices.{task['language']}.device"]
    theirs = ["kernel_tuner.strategies.brute_force", "kernel_tuner.runners.sequential"]
    theirs += [f"kernel_tuner.backends.{places.get(task.get('lang', ''), 'opencl')}"]
    for name in [*driver, *(ours if task["tuner"] == OURS else theirs)]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def start_driver(task: Mapping[str, Any]) -> Any:
    """A context that either tuner's own finds the driver awake with; without it that is most of a second run."""
    if task["language"] == "opencl":
        import pyopencl

        with contextlib.suppress(pyopencl.Error, IndexError):
            index = int(task["spec"].partition(":")[2] or 0)
            return pyopencl.Context([[d for p in pyopencl.get_platforms() for d in p.get_devices()][index]])
        return None
    from cuda.bindings import driver

    driver.cuInit(0)
    return driver.cuDevicePrimaryCtxRetain(int(task["spec"].partition(":")[2] or 0))


def work(path: Path) -> None:
    """Do what the file says, and write the result beside it."""
    task = json.loads(path.read_text())
    import_everything(task)
    held = start_driver(task)
    result = tune_with_kernelkeep(task) if task["tuner"] == OURS else tune_with_kernel_tuner(task)
    path.with_suffix(".result").write_text(json.dumps(result))
    del held


# --- the processes


class World:
    """Folders of its own for whatever caches there are, and processes that know no others."""

    def __init__(self, folder: Path, task: Mapping[str, Any]) -> None:
        self._folder = folder
        self._task = dict(task)
        names = {"HOME": "home", "XDG_CACHE_HOME": "xdg", "POCL_CACHE_DIR": "pocl", "CUDA_CACHE_PATH": "cuda"}
        self._environment = {**os.environ, **{name: str(folder / place) for name, place in names.items()}}
        for place in names.values():
            (folder / place).mkdir(parents=True)

    def run(self, tuner: str, cache_file: bool = False) -> Result:
        kept = str(self._folder / "kernel_tuner.json") if cache_file else None
        task = self._task | {"tuner": tuner, "folder": str(self._folder / "programs"), "cache_file": kept}
        path = self._folder / "task.json"
        path.write_text(json.dumps(task))
        path.with_suffix(".result").unlink(missing_ok=True)
        command = [sys.executable, str(Path(__file__).resolve()), "--work", str(path)]
        began = time.perf_counter()
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode or not path.with_suffix(".result").exists():
            said = (done.stderr.strip() or done.stdout.strip() or "no words").splitlines()[-1]
            raise RuntimeError(f"{tuner} ended with {done.returncode}: {said}")
        result: Result = json.loads(path.with_suffix(".result").read_text())
        return result | {"process_seconds": time.perf_counter() - began}


def task_for(device: kk.Device, size: int) -> dict[str, Any]:
    """What both need to know of a device."""
    if device.language not in PREFACE:
        raise kk.Unsupported("kernel_tuner", f"kernel_tuner does not know {device.backend}")
    task: dict[str, Any] = {"spec": device.spec, "language": device.language, "size": size, "platform": 0, "index": 0}
    if device.language == "cuda":
        return task | {"langs": ["NVCUDA", "CUPY"], "index": device.info.index}
    import pyopencl as cl

    here: Any = device
    for p, platform in enumerate(cl.get_platforms()):
        for d, found in enumerate(platform.get_devices()):
            if found == here.cl_device:
                return task | {"langs": ["OpenCL"], "platform": p, "index": d}
    raise kk.DeviceError(f"{device.spec} is not among those that pyopencl finds")


Runs = dict[tuple[str, str], list[Result]]


def one_round(task: Mapping[str, Any], langs: list[str], runs: Runs) -> None:
    """All processes once, the first ones in new folders. A tuner that fails is left out with a word.

    `langs` are kernel_tuner's ways to the device; one that fails is taken off the list.
    """
    with tempfile.TemporaryDirectory(prefix="tuning-") as name:
        attempted(World(Path(name) / OURS, task), OURS, {FIRST: False, AGAIN: False}, runs)
        while langs:
            world = World(Path(name) / langs[0], {**task, "lang": langs[0]})
            # The first run writes the cache file, which costs it next to nothing.
            if attempted(world, THEIRS, {FIRST: True, AGAIN: False, AGAIN_FILE: True}, runs, langs[0]):
                break
            langs.pop(0)


def attempted(world: World, tuner: str, kinds: Mapping[str, bool], runs: Runs, lang: str = "") -> bool:
    """Runs with or without the cache file, one after the other; whether they worked."""
    for kind, cache_file in kinds.items():
        said = " ".join(filter(None, (tuner, lang, f"({kind})")))
        try:
            result = world.run(tuner, cache_file)
        except Exception as error:
            print(f"  {said} is left out: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return False
        runs.setdefault((tuner, kind), []).append(result)
        failures = f", failures: {result['failures']}" if result["failures"] else ""
        print(f"  {said}: {result['seconds']:.2f} s{failures}", file=sys.stderr, flush=True)
    return True


def times_of(result: Result) -> tuple[float, float, float]:
    """Seconds to the winner, to one nearly as fast, and in all."""
    best_ms = next((ms for variant, ms, _ in result["measured"] if variant == result["best"]), float("nan"))
    to_best = next((at for variant, _, at in result["measured"] if variant == result["best"]), float("nan"))
    to_close = min((at for _, ms, at in result["measured"] if ms <= CLOSE * best_ms), default=float("nan"))
    return to_best, to_close, result["seconds"]


def rows_of(spec: str, runs: Runs) -> list[list[Any]]:
    rows = []
    for (tuner, kind), results in runs.items():
        to_best, to_close, total = (statistics.median(t) for t in zip(*map(times_of, results), strict=True))
        count = statistics.median(len(result["measured"]) for result in results)
        ms = [next(ms for v, ms, _ in r["measured"] if v == r["best"]) for r in results if r["best"] is not None]
        process = statistics.median(result["process_seconds"] for result in results)
        best = statistics.median(ms) * 1e3 if ms else ""
        each = total / max(count, 1) * 1e3
        rows.append([spec, tuner, kind, to_best, to_close, total, process, int(count), each, best])
    return rows


def goals_of(spec: str, runs: Runs) -> list[list[Any]]:
    """What was to be reached: no later at the best than kernel_tuner, and 20 times as fast the second time."""

    def median(tuner: str, kind: str, which: int) -> float | None:
        results = runs.get((tuner, kind))
        return statistics.median(times_of(result)[which] for result in results) if results else None

    found = []
    compared = [
        ("first run, to the best", FIRST, FIRST, 0, 1.0),
        ("first run, to within 5 %", FIRST, FIRST, 1, 1.0),
        ("first run, all", FIRST, FIRST, 2, 1.0),
        ("second run, its without its cache file", AGAIN, AGAIN, 2, 20.0),
        ("second run, its with its cache file", AGAIN, AGAIN_FILE, 2, 20.0),
    ]
    for what, ours_kind, their_kind, which, least in compared:
        ours, theirs = median(OURS, ours_kind, which), median(THEIRS, their_kind, which)
        if ours and theirs:
            found.append([spec, what, ours, theirs, theirs / ours, least, "yes" if theirs / ours >= least else "NO"])
    return found


# --- the winners, side by side


def compared_winners(device: kk.Device, size: int, runs: Runs) -> list[list[Any]]:
    from kernelkeep.variants.measure import Bench, in_turn, spread
    from kernelkeep.variants.space import Variant

    winners = {
        tuner: runs[tuner, FIRST][0]["best"]
        for tuner in (OURS, THEIRS)
        if runs.get((tuner, FIRST)) and runs[tuner, FIRST][0]["best"] is not None
    }
    problem = {"m": size, "n": size, "k": size}
    with tempfile.TemporaryDirectory() as name, kk.ProgramCache(device, name) as cache:
        definition = tuned_kernel(device.language).definition
        values, params = definition.template.values(problem), definition.template.params(device.language)
        bench = Bench(cache, params, lambda: definition.case(device, problem))
        contenders = [
            bench.contender(Variant(winner), definition.launch(device, values, winner)) for winner in winners.values()
        ]
        taken = in_turn(contenders, 15)
        bench.close()
    fastest = min(statistics.median(samples) for samples in taken)
    return [
        [
            device.spec,
            tuner,
            " ".join(f"{parameter}={value}" for parameter, value in winner.items()),
            statistics.median(samples) * 1e3,
            100 * spread(samples),
            statistics.median(samples) / fastest,
        ]
        for (tuner, winner), samples in zip(winners.items(), taken, strict=True)
    ]


COLUMNS = ["device", "tuner", "run", "s to the best", "s to within 5 %", "s in all", "s of the process", "variants"]
COLUMNS += ["ms a variant", "best, µs"]


def main() -> None:
    parser = argparse.ArgumentParser(description="kernelkeep's tuning beside kernel_tuner.")
    parser.add_argument("--device", help="such as cuda or opencl:0; all that both know by default")
    parser.add_argument("--repeats", type=int, help="of all, in new folders; 3 on a GPU, 1 on a CPU by default")
    parser.add_argument("--size", type=int, help="of the matrices: 1024 on a GPU, 256 on a CPU by default")
    parser.add_argument("--json", action="store_true", help="JSON lines in place of tables")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
        return
    rows: list[list[Any]] = []
    goals: list[list[Any]] = []
    winners: list[list[Any]] = []
    for info in chosen_devices():
        size = options.size or (1024 if info.is_gpu else 256)
        try:
            with kk.open_device(info.spec) as device:
                task = task_for(device, size)
                print(f"{info.spec}: {info.name}, {size}³", file=sys.stderr, flush=True)
                runs: Runs = {}
                langs = list(task["langs"])
                for _ in range(options.repeats or (3 if info.is_gpu else 1)):
                    one_round(task, langs, runs)
                rows += rows_of(info.spec, runs)
                goals += goals_of(info.spec, runs)
                winners += compared_winners(device, size, runs)
        except Exception as error:  # one device is not to lose the others
            print(f"{info.spec} is left out: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    show("Tuning 36 variants of a product of matrices", COLUMNS, rows)
    show("The winners, measured in turn", ["device", "tuner", "winner", "µs", "± %", "÷ the faster"], winners)
    heads = ["device", "what", "kernelkeep, s", "kernel_tuner, s", "kernel_tuner ÷ kernelkeep", "at least", "holds"]
    show("Goals of tuning", heads, goals)


if __name__ == "__main__":
    main()
