"""A portable kernel that is found in a cache is neither read nor written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.testing import run_python, skip_backend

SCRIPT = """
import json, sys
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
origins, results = [], []
with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
    x, y = device.array(np.arange(100, dtype="f4")), device.array(np.zeros(100, "f4"))
    for kernel in kernels * 2:
        with cache.get(kernel) as lease:
            lease.kernel().launch(2, (x, y, 100))
            origins.append(lease.origin)
        results.append(float(y.numpy()[7]))
    with kk.run(cache, program, 5, "redispatch") as done:
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
        origins, results, front_end = json.loads(run_python(SCRIPT, spec, tmp_path).stdout)
        assert origins == [origin, origin, "memory", "memory"]
        assert results == [14.0, 21.0, 14.0, 21.0, 5]
        assert bool(front_end) == (origin == "compiled"), front_end
