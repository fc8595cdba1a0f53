"""The program cache on every backend, and binaries that ripen on PoCL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.testing import CacheTests, note_skipped, run_python
from kernelkeep.testing.cache_parts.lifecycle import FRESH


@pytest.mark.opencl
class TestOpenCL(CacheTests):
    backend = "opencl"


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


@pytest.fixture(scope="module")
def pocl() -> str:
    """The spec of PoCL, whatever other OpenCL devices there are."""
    from kernelkeep.devices import opencl

    reason = "no PoCL among the OpenCL devices"
    try:
        found = [info for info in opencl.list_devices() if "portable" in info.driver.lower()]
    except kk.DeviceError as error:
        found, reason = [], str(error)
    if not found:
        if "opencl" in settings.required_backends() and not kk.list_devices():
            pytest.fail(reason)
        note_skipped("pocl", reason)
        pytest.skip(reason)
    return found[0].spec


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
