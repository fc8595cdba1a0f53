"""A portable kernel that is found in a cache is neither read nor written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.testing import run_python, skip_backend

IN_PYTHON = """
import kernelkeep as kk

FACTOR = 5

@kk.function
def scaled(v: kk.f4) -> kk.f4:
    return v * FACTOR

@kk.kernel(group=64)
def scale5(x: kk.In["f4"], y: kk.Out["f4"], n: kk.i4):
    i = kk.global_id(0)
    if i < n:
        y[i] = scaled(x[i])

def twice(x, x_next):
    x_next[kk.item()] = 2 * x[kk.item()]
"""
SCRIPT = """
import json, runpy, sys
import numpy as np
import kernelkeep as kk

spec, root = sys.argv[1:3]
kernels = [
    kk.PortableKernel(
        f"scale{factor}",
        params=[kk.Buffer("in", "f4", "r"), kk.Buffer("out", "f4", "w"), kk.Scalar("n", "i4")],
        body=f"int i = kk_global_id(0); if (i < n) out[i] = in[i] * {factor};",
        group=64,
    )
    for factor in (2, 3)
]
program = kk.StateProgram(
    "counter", coupling="independent", state={"x": np.zeros(64, "i4")}, body="x_next[kk_item()] = x[kk_item()] + 1;"
)
with open(root + "_kernels.py", "w") as file:  # kernels in Python need a file
    file.write(IN_PYTHON)
in_python = runpy.run_path(root + "_kernels.py")
kernels.append(in_python["scale5"])
twice = kk.StateProgram("twice", coupling="independent", state={"x": np.ones(64, "i4")}, body=in_python["twice"])
origins, results = [], []
with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
    x, y = device.array(np.arange(100, dtype="f4")), device.array(np.zeros(100, "f4"))
    for kernel in kernels * 2:
        with cache.get(kernel) as lease:
            lease.kernel().launch(2, (x, y, 100))
            origins.append(lease.origin)
        results.append(float(y.numpy()[7]))
    for one in (program, twice):
        with kk.run(cache, one, 5, "redispatch") as done:
            results.append(int(done.state["x"].numpy()[7]))
front_end = [name for name in sys.modules if name.startswith("kernelkeep.language")]
print(json.dumps([origins, results, front_end]))
"""


@pytest.mark.parametrize("spec", ["opencl", "opengl"])
def test_a_hit_imports_neither_reader_nor_writer(spec: str, tmp_path: Path) -> None:
    try:
        kk.open_device(spec).close()
    except kk.DeviceError as error:
        skip_backend(spec, str(error))
    for origin in ("compiled", "disk"):
        origins, results, front_end = json.loads(
            run_python(f"IN_PYTHON = {IN_PYTHON!r}\n{SCRIPT}", spec, tmp_path).stdout
        )
        assert origins == [origin] * 3 + ["memory"] * 3
        assert results == [14.0, 21.0, 35.0] * 2 + [5, 32]
        assert bool(front_end) == (origin == "compiled"), front_end


LOOKUP = """
import json, os, sys
os.environ["KERNELKEEP_LIVE"] = "0"  # its thread imports what it needs half a second later
import kernelkeep as kk

kernel = kk.PortableKernel("one", params=[kk.Buffer("x", "f4", "rw")], body="x[kk_global_id(0)] += 1.0f;", group=64)
device = kk.open_device(sys.argv[1], cache_dir=sys.argv[2])
with device, kk.ProgramCache(device, sys.argv[2]) as cache, cache.get(kernel) as lease:
    print(json.dumps([lease.origin, sorted(sys.modules)]))
"""
# What shows, compiles or records, and the words of type checkers.
NOT_FOR_A_HIT = (
    "kernelkeep.activity.diary", "kernelkeep.devices.cuda.compiler", "kernelkeep.devices.opencl.linker",
    "kernelkeep.devices.opencl.requirements", "kernelkeep.devices.requirements", "kernelkeep.html", "kernelkeep.observe",
    "kernelkeep.programs.includes", "kernelkeep.progress", "kernelkeep.words", "cuda.bindings.nvrtc",
)  # fmt: skip


@pytest.mark.parametrize("spec", ["opencl", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_program_that_is_found_loads_nothing_that_shows_or_compiles(spec: str, tmp_path: Path) -> None:
    try:
        kk.open_device(spec).close()
    except kk.DeviceError as error:
        skip_backend(spec, str(error))
    for origin in ("compiled", "disk"):
        found, modules = json.loads(run_python(LOOKUP, spec, tmp_path / "cache").stdout)
        assert found == origin
    assert [name for name in modules if name.startswith(NOT_FOR_A_HIT)] == []
