"""What it costs to keep the order with PyTorch and CuPy: launches with their arrays, against launches with our own.

    python benchmarks/foreign_arrays.py [--json]

The same small kernel is launched with our own arrays, with theirs in order, and with theirs unordered; beside it stand the
library's own smallest operation and the waits for both streams written by hand with the driver. Each figure is the median of
interleaved rounds of 200 launches, the wait for them not included.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import kernelkeep as kk
from common import open_cuda, row, show

LAUNCHES, ROUNDS, N = 200, 21, 1024
SAXPY = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
)
A, COUNT = np.float32(0.5), np.int32(N)


def by_hand(device: Any, kernel: kk.Kernel, x: Any, y: Any) -> Callable[[], None]:
    """The same order with two events of one's own."""
    driver = device.driver
    with device.current:
        events = [driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)[1] for _ in range(2)]
    prepared = kernel.prepare(4, (device.array(x, ordered=False), device.array(y, ordered=False), A, COUNT))
    theirs = driver.CUstream(1)  # the default stream

    def launch() -> None:
        driver.cuEventRecord(events[0], theirs)
        driver.cuStreamWaitEvent(device.cu_stream, events[0], 0)
        prepared()
        driver.cuEventRecord(events[1], device.cu_stream)
        driver.cuStreamWaitEvent(theirs, events[1], 0)

    return launch


def contenders(device: kk.Device) -> dict[str, Callable[[], Any]]:
    kernel = device.build(SAXPY.source(device)).kernel("saxpy")
    x, y = device.array(np.ones(N, "f4")), device.array(np.ones(N, "f4"))
    found: dict[str, Callable[[], Any]] = {
        "own arrays, launch": partial(kernel.launch, 4, (x, y, A, COUNT)),
        "own arrays, prepared": kernel.prepare(4, (x, y, A, COUNT)),
    }
    for library in ("torch", "cupy"):
        try:
            module: Any = __import__(library)
        except ImportError as error:
            print(f"{library}: {error}", file=sys.stderr)
            continue
        tx = module.ones(N, device="cuda") if library == "torch" else module.ones(N, "f4")
        ty = tx + 1
        shared = (device.array(tx), device.array(ty), A, COUNT)
        free = (device.array(tx, ordered=False), device.array(ty, ordered=False), A, COUNT)
        theirs = (tx, ty, A, COUNT)
        found |= {
            f"{library}, launch": partial(kernel.launch, 4, theirs),
            f"{library}, launch, device.array once": partial(kernel.launch, 4, shared),
            f"{library}, launch, ordered=False": partial(kernel.launch, 4, theirs, ordered=False),
            f"{library}, launch, device.array(…, ordered=False)": partial(kernel.launch, 4, free),
            f"{library}, prepared": kernel.prepare(4, theirs),
            f"{library}, prepared, ordered=False": kernel.prepare(4, theirs, ordered=False),
            f"{library}, prepared, waits by hand": by_hand(device, kernel, tx, ty),
            f"{library}'s own y += x": partial(ty.__iadd__, tx),
        }
    return found


def main() -> None:
    device = open_cuda()
    work = contenders(device)
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, launch in work.items():
            with device.exclusive():
                start = time.perf_counter()
                for _ in range(LAUNCHES):
                    launch()
                times[name].append((time.perf_counter() - start) / LAUNCHES * 1e6)
                device.synchronize()
    base = statistics.median(times["own arrays, launch"])
    for library, name in (("torch", "PyTorch"), ("cupy", "CuPy")):
        if f"{library}, prepared" in times:
            what, info = f"prepared launch with {name}'s arrays, in order", device.info
            mine = statistics.median(times[f"{library}, prepared"])
            hand = statistics.median(times[f"{library}, prepared, waits by hand"])
            own = statistics.median(times[f"{library}'s own y += x"])
            row(what, mine, "µs", peer="the same driver calls by hand", its=hand, device=info)
            row(what, mine, "µs", peer=f"{name}'s own y += x", its=own, device=info)
    rows = [
        [name, round(statistics.median(one), 2), round(statistics.median(one) / base, 2)] for name, one in times.items()
    ]
    show(f"Order with other libraries, {device.info.name}", ["launch", "µs", "× own arrays"], rows)


if __name__ == "__main__":
    main()
