"""The OpenCL drivers for CPUs that are here, side by side: how fast they start, compile, launch and compute.

    python benchmarks/drivers.py [--rounds N] [--json]

Each driver is measured in fresh processes that take turns; a figure is the best of the rounds. *open* is `kk.open_device` in a
process that has imported kernelkeep and pyopencl (all drivers here are loaded for it); *compile* is one small kernel never seen
before, to its first result; *warm* ten kernels from the cache folder of another process, to their first results; *launch*
one prepared launch of many.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any

import kernelkeep as kk
from common import show

CHILD = """
import json, sys, time
import numpy as np
import pyopencl
import kernelkeep as kk
from kernelkeep.kernels import conv2d, gemm

spec, folder, cold = sys.argv[1], sys.argv[2], sys.argv[3] == "cold"
clock = time.perf_counter

def kernel(number):
    return kk.PortableKernel(
        f"k{number}",
        params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("n", "i4")],
        body=f"int i = kk_global_id(0); if (i < n) y[i] = x[i] * {number}.5f + y[i];",
        group=64,
    )

def first_result(number):
    with cache.get(kernel(number)) as lease:
        lease.kernel().launch(16, (x, y, np.int32(1024)))
        return y.numpy()

start = clock()
device = kk.open_device(spec)
opened = clock() - start
cache = kk.ProgramCache(device, folder)
x, y = device.array(np.ones(1024, "f4")), device.array(np.zeros(1024, "f4"))
start = clock()
for number in range(10):
    first_result(number)
ten = clock() - start
out = {"open": opened, "compile" if cold else "warm": ten / 10 if cold else ten}
if cold:
    cache.persist()
else:
    def best(work, times, inner):
        work(); device.synchronize()
        found = []
        for _ in range(times):
            start = clock()
            for _ in range(inner):
                work()
            device.synchronize()
            found.append((clock() - start) / inner)
        return min(found)

    with cache.get(kernel(0)) as lease:
        out["launch"] = best(lease.kernel().prepare(16, (x, y, np.int32(1024))), 20, 500)
    for n in (256, 1024):
        a, b = (device.array(np.random.rand(n, n).astype("f4")) for _ in range(2))
        assert np.allclose(gemm(cache, a, b).numpy(), a.numpy() @ b.numpy(), rtol=1e-3)
        out[f"gemm {n}"] = 2e-9 * n**3 / best(lambda: gemm(cache, a, b), 10, 3)
    image = device.array(np.random.rand(1, 64, 56, 56).astype("f4"))
    weights = device.array(np.random.rand(128, 64, 3, 3).astype("f4"))
    out["conv2d"] = 2e-9 * 64 * 128 * 9 * 56 * 56 / best(lambda: conv2d(cache, image, weights, padding=1), 10, 3)
print(json.dumps(out))
"""

FIGURES = {  # name: (what a person reads, factor, more is better)
    "open": ("open, ms", 1e3, False),
    "compile": ("compile and first result, ms", 1e3, False),
    "warm": ("ten programs from disk, ms", 1e3, False),
    "launch": ("launch, µs", 1e6, False),
    "gemm 256": ("gemm 256³, GFLOP/s", 1.0, True),
    "gemm 1024": ("gemm 1024³, GFLOP/s", 1.0, True),
    "conv2d": ("conv2d 64→128×56², 3×3, GFLOP/s", 1.0, True),
}


def measure(specs: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """The best figure of each kind, by driver."""
    best: dict[str, dict[str, float]] = {spec: {} for spec in specs}
    for _ in range(rounds):
        for spec in specs:
            with tempfile.TemporaryDirectory() as folder:
                for stage in ("cold", "warm"):
                    command = [sys.executable, "-c", CHILD, spec, folder, stage]
                    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                    for name, value in json.loads(said).items():
                        pick = max if FIGURES[name][2] else min
                        best[spec][name] = pick(value, best[spec].get(name, value))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args()
    devices = [info for info in kk.list_devices() if info.backend == "opencl" and not info.is_gpu]
    figures = measure([info.spec for info in devices], options.rounds)
    rows: list[tuple[Any, ...]] = [
        (title, *(f"{figures[info.spec][name] * factor:.3g}" for info in devices))
        for name, (title, factor, _) in FIGURES.items()
    ]
    show("OpenCL drivers for the CPU", ("", *(info.driver for info in devices)), rows)


if __name__ == "__main__":
    main()
