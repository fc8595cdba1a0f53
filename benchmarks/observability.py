"""What it costs that others can watch a process: `kernelkeep top`, metrics and spans.

    python benchmarks/observability.py [--device opencl] [--rounds 21]

Processes with KERNELKEEP_LIVE=1 and =0 are started in turn; each opens the device and gets a program from disk, and then from
memory. The rest is measured in this process. All times are processor time, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import kernelkeep as kk
from kernelkeep.activity import live
from kernelkeep.activity.facts import Facts
from kernelkeep.activity.spans import span

CHILD = """
import sys, time
import kernelkeep as kk
k = kk.PortableKernel("add", params=[kk.Buffer("x", "f4", "rw")], body="x[kk_global_id(0)] += 1.0f;", group=64)
device = kk.open_device(sys.argv[1])
opened = time.process_time()
cache = kk.ProgramCache(device, sys.argv[2])
cache.get(k).release()
warm = time.process_time()
time.sleep(1)  # the thread has begun to listen, where there is one
listening = time.process_time()
best = 1.0
for _ in range(20):
    began = time.thread_time()
    for _ in range(20_000):
        cache.get(k).release()
    best = min(best, (time.thread_time() - began) / 20_000)
print(warm, warm - opened, listening - warm, best)
"""
WHAT = (
    "from the start to a program from disk",
    "of that, the cache and the lookup",
    "in the second after that",
    "hit in memory",
)
ADD = kk.PortableKernel("add", params=[kk.Buffer("x", "f4", "rw")], body="x[kk_global_id(0)] += 1.0f;", group=64)


def processes(device: str, folder: str, rounds: int) -> dict[str, list[list[float]]]:
    """Seconds of processor time of processes that can be watched and of others, in turn."""
    found: dict[str, list[list[float]]] = {"1": [], "0": []}
    for number in range(2 * rounds + 2):
        switch = "10"[number % 2]
        command = [sys.executable, "-c", CHILD, device, folder]
        environment = {**os.environ, "KERNELKEEP_LIVE": switch}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        if number >= 2:  # the first ones compile
            found[switch].append([float(word) for word in done.stdout.split()])
    return found


def per_call(call: Callable[[], object], count: int) -> float:
    """The seconds of one call: the best of several rounds of many."""
    best = float("inf")
    for _ in range(15):
        began = time.thread_time()
        for _ in range(count):
            call()
        best = min(best, (time.thread_time() - began) / count)
    return best


def shown(seconds: float) -> str:
    """A time with its unit."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} µs"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = processes(given.device, folder, given.rounds)
        for place, what in enumerate(WHAT):
            with_, without = ([one[place] for one in times[switch]] for switch in "10")
            print(
                f"{what:<40} watched: median {shown(statistics.median(with_))}, best {shown(min(with_))}; "
                f"KERNELKEEP_LIVE=0: median {shown(statistics.median(without))}, best {shown(min(without))}"
            )
        with kk.open_device(given.device) as device, kk.ProgramCache(device, folder) as cache:
            with kk.Executor(device) as executor:
                job = kk.Job(cache, ADD, grid=1, outputs={"x": ((64,), "f4")})
                executor.submit(job, x=np.zeros(64, "f4")).result()
                print(f"{'a snapshot of a cache and an executor':<40} {shown(per_call(live.snapshot, 1000))}")
                print(f"{'live.add and live.remove':<40} {shown(per_call(_add_and_remove, 5000))}")
                print(f"{'a hook for tracing, while nobody traces':<40} {shown(per_call(_traced, 50_000))}")
                try:
                    collector = kk.PrometheusCollector()
                except kk.Unsupported as missing:
                    print(missing)
                else:
                    print(f"{'a scrape, without HTTP':<40} {shown(per_call(lambda: list(collector.collect()), 100))}")


class _Thing:
    pass


_thing = _Thing()


def _add_and_remove() -> None:
    live.add("cache", _thing, lambda one: Facts({"device": "d"}, {"hits": 1}))
    live.remove(_thing)


def _traced() -> None:
    with span("cache.get", program="add", device="d") as current:
        current.set(origin="disk")


if __name__ == "__main__":
    main()
