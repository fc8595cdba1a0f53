"""64 threads take, use and let go of programs under a bound of 4: no leak, and no use of an evicted program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelkeep.testing import open_or_skip, run_python

CHURN = """
import gc, json, os, random, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import kernelkeep as kk

spec, root, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
THREADS, PROGRAMS, BOUND = 64, 12, 4

def resident_bytes():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def kernel(number):
    return kk.PortableKernel(
        f"program{number}",
        params=[kk.Buffer("y", "i4", "w")],
        body=f"int i = kk_global_id(0); y[i] = i * {number + 2} + {number};",
        group=32,
    )

with kk.open_device(spec) as device:
    sources = [kernel(number).source(device) for number in range(PROGRAMS)]
    expected = [np.arange(32) * (number + 2) + number for number in range(PROGRAMS)]
    with kk.ProgramCache(device, root) as cache:  # onto disk, and ripe
        for source in sources:
            with cache.get(source) as lease:
                lease.kernel().launch(1, (device.empty(32, "i4"),))
    most = 0
    with kk.ProgramCache(device, root, max_programs=BOUND) as cache:
        rounds = 0

        def use(number, y, rng):
            global most
            with cache.get(sources[number]) as lease:
                kernel = lease.kernel()
                if rng.random() < 0.02:
                    cache.trim(0)
                kernel.launch(1, (y,))
                right = (y.numpy() == expected[number]).all()
                most = max(most, len(cache.loaded))
            return right

        def go(length, least_rounds, least_evictions):
            # Rounds in which the threads use programs as they like. Each round uses every program, and at its end no lease
            # is held and at most BOUND programs are left: at least PROGRAMS - BOUND were evicted, however slow the device.
            until, enough, left = time.monotonic() + length, False, []

            def end_round():
                global rounds
                nonlocal enough
                cache.loaded.shrink()
                left.append(len(cache.loaded))
                rounds += 1
                enough = rounds >= least_rounds and cache.loaded.evictions >= least_evictions
                enough = enough and time.monotonic() >= until

            together = threading.Barrier(THREADS, end_round, timeout=60)

            def churn(thread):
                rng = random.Random(thread)
                uses = wrong = 0
                y = device.array(np.zeros(32, "i4"))
                while not enough:
                    number, ends = thread % PROGRAMS, time.monotonic() + 0.3
                    while True:
                        wrong += not use(number, y, rng)
                        uses += 1
                        if time.monotonic() >= ends:
                            break
                        number = min(rng.randrange(PROGRAMS), rng.randrange(PROGRAMS))
                    together.wait()
                return uses, wrong

            with ThreadPoolExecutor(THREADS) as pool:
                results = list(pool.map(churn, range(THREADS)))
            assert max(left) <= BOUND, left
            return results

        results = go(seconds * 0.3, 1, 0)
        before, files = resident_bytes(), len(os.listdir("/proc/self/fd"))
        loaded_before = cache.stats().hits_disk
        results += go(seconds * 0.7, 4, 51)
        after = resident_bytes()
        cache.finish_saving()
        cache.loaded.shrink()
        stats = cache.stats()
        print(json.dumps({
            "uses": sum(uses for uses, _ in results), "wrong": sum(wrong for _, wrong in results),
            "grown": after - before, "files": len(os.listdir("/proc/self/fd")) - files,
            "programs": stats.programs, "over": stats.over_bound, "evictions": stats.evictions,
            "compiles": stats.compiles, "corrupt": stats.corrupt_entries, "most": most,
            "loaded": stats.hits_disk, "lookups": stats.hits + stats.misses,
            "loaded_meanwhile": stats.hits_disk - loaded_before, "rounds": rounds,
        }))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "seconds"),
    [
        pytest.param("opencl", 4, marks=pytest.mark.opencl),
        pytest.param("opengl", 3, marks=pytest.mark.opengl),
    ],
)
def test_churn_under_a_bound(backend: str, seconds: int, tmp_path: Path) -> None:
    with open_or_skip(backend) as device:
        spec = device.spec
        # Not so much for each load: llvmpipe grew by 3 MB in a run of 817 loads and in one of 1,197, as a heap does that
        # settles. NVIDIA's OpenGL driver has a heap of its own, and was seen to grow by 81 MB.
        nvidia = backend == "opengl" and device.info.is_gpu
        most_grown = (128 if nvidia else 40) << 20
        # A file that is lost with each load would be hundreds; NVIDIA's OpenGL driver was seen to open two of its own.
        most_files = 8 if nvidia else 0
    # A lease that was lost would be a ResourceWarning, and is an error here.
    said = run_python(
        CHURN,
        spec,
        tmp_path / "cache",
        seconds,
        environment={"PYTHONWARNINGS": "error::ResourceWarning"},
        timeout_seconds=280,
    )
    assert "never released" not in said.stderr
    found = json.loads(said.stdout)
    assert found["wrong"] == 0
    assert found["uses"] > 200, found
    assert found["evictions"] > 50 and found["evictions"] >= 8 * found["rounds"], found
    assert found["compiles"] == 0 and found["corrupt"] == 0, "everything came from disk"
    assert found["programs"] <= 4 and not found["over"], found
    assert found["most"] <= 12
    assert found["evictions"] == found["loaded"] - found["programs"], found
    assert found["grown"] < most_grown, found
    assert found["files"] <= most_files, found
