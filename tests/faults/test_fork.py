"""A forked child leaves the cache of its parent alone: it neither waits for the parent's threads nor counts twice.

On PoCL, whose binaries ripen: that is what the parent's threads are busy with. NVIDIA's driver does not survive the end of
a forked child, whatever the cache does.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelkeep.testing import run_python

pytestmark = pytest.mark.opencl

SCRIPT = """
import os, sys, time
import numpy as np
import kernelkeep as kk

device = kk.open_device(sys.argv[1])
cache = kk.ProgramCache(device, sys.argv[2])
kernel = kk.PortableKernel("forked", params=[kk.Buffer("y", "f4")], body="y[kk_global_id(0)] = 3.0f;", group=64)
y = device.array(np.zeros(64, "f4"))
with cache.get(kernel) as lease:
    lease.kernel().launch(1, (y,))
# The driver may be loading a library in a thread that the child does not have: there, the C library ends who asks for one.
parent = os.getpid()
sys.addaudithook(lambda event, _: os._exit(9) if event == "ctypes.dlopen" and os.getpid() != parent else None)
# The binary ripened, and saving it again has just begun in a thread that the child does not have.
child = os.fork()
if child == 0:
    sys.exit(0)  # through atexit, which closes open caches
deadline = time.monotonic() + 10
while time.monotonic() < deadline:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.02)
else:
    os.kill(child, 9)
    sys.exit("the child hangs at its end")
assert status == 0, status
assert (y.numpy() == 3).all()
cache.close()
"""


def test_a_forked_child_ends_at_once_and_counts_nothing(pocl: str, tmp_path: Path) -> None:
    run_python(SCRIPT, pocl, tmp_path / "cache")
    counts = json.loads((tmp_path / "cache" / "cache_stats.json").read_text())
    assert (counts["compiles"], counts["misses"]) == (1, 1)
