"""Heat spreading over a plate: many launches that swap two arrays, with the data on the device throughout.

The binary is loaded a second time at the end, from a file: that is all a later process needs to skip the compiler.

Run it with `python examples/stencil.py`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import kernelkeep as kk

TILE = 16
HEAT = kk.PortableKernel(
    "heat",
    params=[
        kk.Buffer("u", "f4", "r"),
        kk.Buffer("u_next", "f4", "w"),
        kk.Scalar("width", "i4"),
        kk.Scalar("height", "i4"),
    ],
    body="""int x = kk_global_id(0), y = kk_global_id(1);
if (x < width && y < height) {
  int i = y * width + x;
  bool inside = x > 0 && x < width - 1 && y > 0 && y < height - 1;
  u_next[i] = inside ? 0.25f * (u[i - 1] + u[i + 1] + u[i - width] + u[i + width]) : u[i];
}""",
    group=(TILE, TILE),
)


def main() -> None:
    height, width, steps = 200, 300, 500
    plate = np.zeros((height, width), "f4")
    plate[0] = 100.0  # one hot edge
    grid = kk.groups((width, height), (TILE, TILE))
    with kk.open_device() as device:
        binary = device.compile(HEAT.source(device))
        with device.load(binary) as program:
            heat = program.kernel("heat")
            u, u_next = device.array(plate), device.empty(plate.shape, "f4")
            with device.timer() as timer:
                for _ in range(steps):
                    heat.launch(grid, (u, u_next, width, height))
                    u, u_next = u_next, u
            mean = float(u.numpy().mean())
        print(f"{device.spec}: {steps} steps took {timer.seconds * 1e3:.1f} ms of device time; the mean is {mean:.3f}")

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "heat.bin"
            file.write_bytes(binary)
            started = time.perf_counter()
            with device.load(file.read_bytes()) as program:
                names = ", ".join(program.kernel_names)
                print(f"{file.stat().st_size:,} bytes load in {(time.perf_counter() - started) * 1e3:.1f} ms: {names}")


if __name__ == "__main__":
    main()
