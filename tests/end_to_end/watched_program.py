"""A program for tests of what others see of it: a stream, a run with checkpoints and an emulated resident, until its input ends.

It prints a line once each of them has done something.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

import kernelkeep as kk

device = kk.open_device()
cache = kk.ProgramCache(device)
stop = threading.Event()
begun = [threading.Event() for _ in range(3)]
ITEMS = 1024

scale = kk.PortableKernel(
    "scale",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = 2.0f * x[i];",
    group=64,
)
count = kk.StateProgram(
    "count",
    coupling="independent",
    items=ITEMS,
    state={"u": np.zeros(ITEMS, "f4")},
    body="int i = kk_item(); u_next[i] = u[i] + 1.0f;",
)


def stream() -> None:
    job = kk.Job(cache, scale, grid=ITEMS // 64, outputs={"y": ((ITEMS,), "f4")})
    with kk.Executor(device, depth=2) as executor:
        while not stop.is_set():
            executor.submit(job, x=np.ones(ITEMS, "f4"), n=ITEMS).result()
            begun[0].set()
            stop.wait(0.05)


def run() -> None:
    def until(run: kk.Run) -> bool:
        if run.iteration:
            begun[1].set()
        return stop.wait(0.005)  # others need the processor more

    kk.run(
        cache,
        count,
        iterations=10**9,
        strategy="redispatch",
        checkpoint="count.kkpt",
        checkpoint_every=0.2,
        until=until,
    )


def resident() -> None:
    tasks, arrays = {"add": "(int k) { x[0] = x[0] + k; }"}, {"x": np.zeros(16, "i4")}
    with kk.Resident.emulated(cache, tasks=tasks, arrays=arrays) as grid:
        while not stop.is_set():
            grid.submit("add", 1).result()
            begun[2].set()
            stop.wait(0.05)


threads = [threading.Thread(target=one) for one in (stream, run, resident)]
for one in threads:
    one.start()
for event in begun:
    event.wait()
print("running", flush=True)
sys.stdin.read()
stop.set()
for one in threads:
    one.join()
cache.close()
