"""How many work-items the reference device runs in a second: saxpy, a reduction with barriers, and tiled matrix products."""

from __future__ import annotations

import time

import numpy as np

import kernelkeep as kk

SAXPY = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) y[i] = a * x[i] + y[i];",
)
TOTAL = kk.PortableKernel(
    "total",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("sums", "f4", "w"), kk.Scalar("n", "i4")],
    body="""kk_shared(float, s, 256);
int l = kk_local_id(0), i = kk_global_id(0);
s[l] = i < n ? x[i] : 0.0f;
kk_barrier();
for (int k = 128; k > 0; k /= 2) {
    if (l < k) s[l] += s[l + k];
    kk_barrier();
}
if (l == 0) sums[kk_group_id(0)] = s[0];""",
)
PRODUCT = kk.PortableKernel(
    "product",
    params=[kk.Buffer("a", "f4", "r"), kk.Buffer("b", "f4", "r"), kk.Buffer("c", "f4", "w"), kk.Scalar("n", "i4")],
    body="""kk_shared(float, ta, 16, 16); kk_shared(float, tb, 16, 16);
int x = kk_local_id(0), y = kk_local_id(1), col = kk_global_id(0), row = kk_global_id(1);
float sum = 0.0f;
for (int t = 0; t < n; t += 16) {
    ta[y][x] = a[row * n + t + x]; tb[y][x] = b[(t + y) * n + col];
    kk_barrier();
    for (int k = 0; k < 16; k++) sum += ta[y][k] * tb[k][x];
    kk_barrier();
}
c[row * n + col] = sum;""",
    group=(16, 16),
)


def main() -> None:
    """Print a line for each kernel."""
    with kk.open_device("reference") as device:
        n, side = 1 << 18, 64
        x, y = (device.array(np.random.default_rng(seed).random(n, "f4")) for seed in (1, 2))
        a, b = (device.array(np.random.default_rng(seed).random((side, side), "f4")) for seed in (1, 2))
        c, sums = device.empty((side, side)), device.empty(n // 256)
        work = [
            (SAXPY, n, (n // 256,), (x, y, 2.0, n)),
            (TOTAL, n, (n // 256,), (x, sums, n)),
            (PRODUCT, side * side, (side // 16, side // 16), (a, b, c, side)),
        ]
        for kernel, items, grid, args in work:
            loaded = device.build(kernel.source(device)).kernel()
            loaded.launch(grid, args)
            best = min(_seconds(loaded, grid, args) for _ in range(3))
            print(f"{kernel.name:8} {items / best:12,.0f} work-items in a second")


def _seconds(kernel: kk.Kernel, grid: tuple[int, ...], args: tuple[object, ...]) -> float:
    start = time.perf_counter()
    kernel.launch(grid, args)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
