"""The shortest complete program: one portable kernel on the best device here.

Run it with `python examples/saxpy.py`, or on a device of your choice with
`KERNELKEEP_DEVICE=opengl python examples/saxpy.py`.
"""

from __future__ import annotations

import numpy as np

import kernelkeep as kk

SAXPY = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
    group=256,
)


def main() -> None:
    n = 100_000
    host_x = np.arange(n, dtype="f4")
    with kk.open_device() as device:
        x, y = device.array(host_x), device.full(n, 1.0, "f4")
        with device.build(SAXPY) as program:
            program.kernel("saxpy").launch(grid=kk.groups(n, 256), args=(x, y, 2.0, n))
            result = y.numpy()  # waits for the launch
        np.testing.assert_allclose(result, 2 * host_x + 1)
        print(f"{device.spec} ({device.info.name}): y = 2 x + 1 holds for all {n:,} elements")


if __name__ == "__main__":
    main()
