"""A program that is compiled, loaded and closed a thousand times leaves nothing behind."""

from __future__ import annotations

import json
import sys
from typing import ClassVar

import pytest

from ...devices.base import Device
from ..process import run_python
from .common import DevicePart

__all__ = ["LeakTests"]

_SCRIPT = """
import gc, json, os, sys, time
import numpy as np
import kernelkeep as kk

spec, warm_up, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
page = os.sysconf("SC_PAGE_SIZE")

def resident_bytes():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * page

def open_files():
    return len(os.listdir("/proc/self/fd"))

kernel = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
    group=64,
)
with kk.open_device(spec) as device:
    source = kernel.source(device)

    def one_round():
        binary = device.compile(source)
        with device.load(binary) as program:
            x, y = device.array(np.ones(100, "f4")), device.array(np.zeros(100, "f4"))
            program.kernel("saxpy").launch(2, (x, y, 2.0, 100))
            assert (y.numpy() == 2).all()
        return len(binary)

    for _ in range(warm_up):
        size = one_round()
    bytes_before, files_before, started = resident_bytes(), open_files(), time.perf_counter()
    for _ in range(rounds):
        one_round()
    seconds = time.perf_counter() - started
    print(json.dumps({
        "grown": resident_bytes() - bytes_before, "files": open_files() - files_before, "image": size, "seconds": seconds,
    }))
"""


class LeakTests(DevicePart):
    """Memory after many rounds is memory after a few."""

    leak_rounds: ClassVar[int] = 1000
    leak_warm_up: ClassVar[int] = 100
    # Allocators settle: PoCL and llvmpipe drift by a few hundred kilobytes over 1,000 rounds, NVIDIA's drivers by a
    # few megabytes. One leaked binary a round (50 kB and more on PoCL) or one leaked compiler or shader object
    # passes this bound several times over.
    leak_bound_bytes: ClassVar[int] = 24 << 20

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
    def test_rounds_do_not_grow_memory(self, device: Device) -> None:
        """Compile, load, launch, close, in a process of its own; the same source, which the drivers' caches know."""
        done = run_python(_SCRIPT, device.spec, self.leak_warm_up, self.leak_rounds, timeout_seconds=300)
        report = json.loads(done.stdout.splitlines()[-1])
        grown = report["grown"]
        assert grown < self.leak_bound_bytes, f"{self.leak_rounds} rounds grew memory by {grown:,} bytes ({report})"
        assert report["files"] <= 2, f"{self.leak_rounds} rounds left {report['files']} more files open"
