"""A kernel in Python: a picture of a Julia set, made of characters."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelkeep as kk

WIDTH, HEIGHT, ROUNDS = 72, 24, 40
SHADES = " .:-=+*#%@"


@kk.function
def rounds_inside(x: kk.f4, y: kk.f4) -> kk.i4:
    """How many rounds a point stays inside."""
    rounds = 0
    while rounds < ROUNDS and x * x + y * y < 4.0:
        x, y = x * x - y * y - 0.8, 2.0 * x * y + 0.156
        rounds += 1
    return rounds


@kk.kernel(group=64)
def julia(shades: kk.Out[kk.u1]) -> None:
    i = kk.global_id(0)
    if i < WIDTH * HEIGHT:
        row, column = i // WIDTH, i % WIDTH
        inside = rounds_inside(3.2 * column / WIDTH - 1.6, 2.0 * row / HEIGHT - 1.0)
        shades[i] = kk.u1(inside * 9 // ROUNDS)


def with_numpy() -> np.ndarray[Any, Any]:
    """The same picture."""
    row, column = np.mgrid[0:HEIGHT, 0:WIDTH]
    z = (3.2 * column / WIDTH - 1.6) + 1j * (2.0 * row / HEIGHT - 1.0)
    rounds = np.zeros(z.shape, int)
    for _ in range(ROUNDS):
        inside = abs(z) < 2
        rounds += inside
        z = np.where(inside, z * z - 0.8 + 0.156j, z)
    return rounds * 9 // ROUNDS


def main() -> None:
    """Compile or load the kernel, run it, and draw."""
    with kk.open_device() as device, kk.ProgramCache(device) as cache, cache.get(julia) as lease:
        shades = device.empty((HEIGHT, WIDTH), "u1")
        lease.kernel("julia").launch(grid=kk.groups(WIDTH * HEIGHT, 64), args=(shades,))
        found = shades.numpy()
        assert (found == with_numpy()).mean() > 0.95  # points at the edge depend on the last bit
        for row in found:
            print("".join(SHADES[shade] for shade in row))
        print(f"{device.info.spec}: {lease.origin}")


if __name__ == "__main__":
    main()
