"""Many threads in many processes ask for the same programs: each is compiled once in all."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelkeep.testing import open_or_skip, run_python

PROCESSES = 5
ASKING = """
import json, random, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import kernelkeep as kk

spec, root, seed, start = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
THREADS, PROGRAMS = 32, 20

def kernel(number):
    return kk.PortableKernel(
        f"program{number}",
        params=[kk.Buffer("y", "i4", "w")],
        body=f"int i = kk_global_id(0); y[i] = i * {number + 2} + {number};",
        group=32,
    )

with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
    sources = [kernel(number).source(device) for number in range(PROGRAMS)]
    together = threading.Barrier(THREADS)
    time.sleep(max(0, start - time.time()))

    def ask(thread):
        order = list(range(PROGRAMS))
        random.Random(seed * 100 + thread).shuffle(order)
        together.wait()
        for number in order:
            with cache.get(sources[number]) as lease:
                y = device.array(np.zeros(32, "i4"))
                lease.kernel().launch(1, (y,))
                assert (y.numpy() == np.arange(32) * (number + 2) + number).all(), (number, y.numpy())

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(ask, range(THREADS)))
    stats = cache.stats()
    print(json.dumps([stats.compiles, stats.hits_disk, stats.hits_memory, stats.misses, stats.programs]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", [pytest.param("opencl", marks=pytest.mark.opencl), pytest.param("opengl", marks=pytest.mark.opengl)]
)
def test_twenty_programs_are_compiled_twenty_times(backend: str, tmp_path: Path) -> None:
    with open_or_skip(backend) as device:
        spec = device.spec
    start = time.time() + 2.5
    with ThreadPoolExecutor(PROCESSES) as pool:
        children = pool.map(lambda seed: run_python(ASKING, spec, tmp_path / "cache", seed, start), range(PROCESSES))
        each = [json.loads(child.stdout) for child in children]
    assert sum(compiles for compiles, *_ in each) == 20
    assert [compiles + hits_disk for compiles, hits_disk, *_ in each] == [20] * PROCESSES
    assert [hits_memory for _, _, hits_memory, _, _ in each] == [32 * 20 - 20] * PROCESSES
    assert [programs for *_, programs in each] == [20] * PROCESSES
    kept = json.loads((tmp_path / "cache" / "cache_stats.json").read_text())
    assert (kept["compiles"], kept["misses"], kept["hits_disk"]) == (20, 20, (PROCESSES - 1) * 20)
    assert len(list((tmp_path / "cache").glob("*/programs/*/*.bin"))) == 20
    assert not list((tmp_path / "cache").glob("*/locks/*")) and not list((tmp_path / "cache").glob("*/tmp/*"))
