"""A matrix transposed through tiles in shared memory, so that both reading and writing go along rows.

Run it with `python examples/transpose.py`; it runs on every device found, or on the one that $KERNELKEEP_DEVICE names.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

import kernelkeep as kk

TILE = 16
TRANSPOSE = kk.PortableKernel(
    "transpose",
    params=[
        kk.Buffer("a", "f4", "r"),
        kk.Buffer("b", "f4", "w"),
        kk.Scalar("width", "i4"),
        kk.Scalar("height", "i4"),
    ],
    # One column more than the tile needs: a column of it then lies in different banks of the shared memory.
    body="""kk_shared(float, tile, TILE, TILE + 1);
int lx = kk_local_id(0), ly = kk_local_id(1);
int x = kk_group_id(0) * TILE + lx, y = kk_group_id(1) * TILE + ly;
if (x < width && y < height) tile[ly][lx] = a[y * width + x];
kk_barrier();
x = kk_group_id(1) * TILE + lx;
y = kk_group_id(0) * TILE + ly;
if (x < height && y < width) b[y * height + x] = tile[lx][ly];""",
    group=(TILE, TILE),
    defines={"TILE": TILE},
)


def run_on(device: kk.Device, host: npt.NDArray[np.float32]) -> None:
    height, width = host.shape
    a, b = device.array(host), device.empty((width, height), "f4")
    with kk.ProgramCache(device) as cache, cache.get(TRANSPOSE) as lease:
        with device.timer() as timer:
            lease.kernel("transpose").launch(kk.groups((width, height), (TILE, TILE)), (a, b, width, height))
        result = b.numpy()
    np.testing.assert_array_equal(result, host.T)
    print(f"{device.spec}: {height} × {width} transposed, as NumPy has it, in {timer.seconds * 1e3:.2f} ms")


def main() -> None:
    chosen = os.environ.get("KERNELKEEP_DEVICE")
    host = np.arange(1000 * 700, dtype="f4").reshape(1000, 700)
    for spec in [chosen] if chosen else [info.spec for info in kk.list_devices()]:
        with kk.open_device(spec) as device:
            run_on(device, host)


if __name__ == "__main__":
    main()
