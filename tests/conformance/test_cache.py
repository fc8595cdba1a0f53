"""The program cache on every backend, and binaries that ripen on PoCL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelkeep.testing import CacheTests, run_python
from kernelkeep.testing.cache_parts.lifecycle import FRESH


@pytest.mark.opencl
class TestOpenCL(CacheTests):
    backend = "opencl"
    refuses_damaged_binaries = False


@pytest.mark.opengl
class TestOpenGL(CacheTests):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(CacheTests):
    backend = "cuda"


TEXT = """__kernel void ripening(__global const int* x, __global int* y, int a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + 1;
}
"""


@pytest.mark.opencl
@pytest.mark.parametrize("first", ["1", "0"])
def test_a_pocl_binary_ripens(pocl: str, tmp_path: Path, first: str) -> None:
    """The second process, with PoCL's own cache off, finds native code for its launch and compiles nothing at all."""

    def run(kernel_cache: str, place: str) -> dict[str, object]:
        environment = {"POCL_KERNEL_CACHE": kernel_cache, "POCL_CACHE_DIR": str(tmp_path / place)}
        said = run_python(FRESH, pocl, tmp_path / "cache", TEXT, "ripening", "opencl", environment=environment)
        result: dict[str, object] = json.loads(said.stdout)
        return result

    made = run(first, "made")
    assert (made["origin"], made["compiles"], made["ripeness"]) == ("compiled", 1, 1)
    (path,) = (tmp_path / "cache").glob("*/programs/*/*.meta")
    assert json.loads(path.read_text())["ripened"] == 1
    again = run("0", "again")
    assert (again["origin"], again["compiles"], again["ripeness"]) == ("disk", 0, 0)
    assert again["result"] == made["result"] == [3 * i + 1 for i in range(100)]


UNRELEASED = """
import sys
import numpy as np
import kernelkeep as kk
with kk.open_device(sys.argv[1]) as device:
    cache = kk.ProgramCache(device, sys.argv[2])
    lease = cache.get(kk.Source(sys.argv[3], name="ripening"))
    x, y = device.array(np.arange(100, dtype="i4")), device.empty(100, "i4")
    lease.kernel().launch(2, (x, y, np.int32(3), np.int32(100)), 64)
    cache.close()
    lease.release()
"""


@pytest.mark.opencl
def test_closing_saves_what_ripened_under_a_lease_still_held(pocl: str, tmp_path: Path) -> None:
    environment = {"POCL_KERNEL_CACHE": "1", "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    run_python(UNRELEASED, pocl, tmp_path / "cache", TEXT, environment=environment)
    (path,) = (tmp_path / "cache").glob("*/programs/*/*.meta")
    assert json.loads(path.read_text())["ripened"] == 1


QUEUED = """
import sys, threading
import numpy as np
import kernelkeep as kk
with kk.open_device(sys.argv[1]) as device, kk.ProgramCache(device, sys.argv[2], max_programs=1) as cache:
    gate = threading.Event()
    cache.saver.executor.submit(gate.wait)  # saving is slow today
    leases = [cache.get(kk.Source(sys.argv[3] + f"// {n}", name=f"ripening{n}")) for n in range(3)]
    x, y = device.array(np.arange(100, dtype="i4")), device.empty(100, "i4")
    for lease in leases:
        lease.kernel().launch(2, (x, y, np.int32(3), np.int32(100)), 64)
        lease.release()
    print(cache.stats().programs, cache.stats().over_bound)
    gate.set()
    cache.finish_saving()
    print(cache.stats().programs, cache.stats().over_bound, cache.stats().ripened)
"""


@pytest.mark.opencl
def test_programs_waiting_to_be_saved_make_room_afterwards(pocl: str, tmp_path: Path) -> None:
    environment = {"POCL_KERNEL_CACHE": "1", "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    said = run_python(QUEUED, pocl, tmp_path / "cache", TEXT, environment=environment).stdout.splitlines()
    assert said == ["3 True", "1 False 3"]
