"""A dive into the Mandelbrot set: each frame is a batch of a stream, computed while the one before is on its way back.

The executor takes frames from a generator as they are wanted, a few at a time, and gives the pictures in order.

Run it with `python examples/mandelbrot_zoom.py [PICTURE.gif] [WIDTH]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageColor

import kernelkeep as kk

FRAMES, DEEPER, ROUNDS, GROUP = 41, 0.84, 400, 128
START, CENTRE = (-0.6, 0.0), (-0.10155, 0.95635)  # of the first picture, and of the dive
COLOURS = ["#0b1026", "#1f3b73", "#3f8fb0", "#f4ecd0", "#f0a24a", "#9c3b36", "#3a1638"]  # and round again
SHADES, CYCLE = 24, 2.2  # a cycle of colours is so many doublings of the rounds


@kk.function
def escape(cx: kk.f4, cy: kk.f4) -> kk.f4:
    """The logarithm of how many rounds a point stays near, with a fraction between two rounds."""
    x, y, rounds = 0.0, 0.0, 0
    while rounds < ROUNDS and x * x + y * y < 64.0:
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
        rounds += 1
    fraction: kk.f4 = kk.log2(0.5 * kk.log2(max(x * x + y * y, 64.0)))
    return kk.f4(kk.log2(rounds + 4.0 - fraction))


@kk.kernel(group=GROUP)
def mandelbrot(shades: kk.Out[kk.u1], width: kk.i4, n: kk.i4, x0: kk.f4, y0: kk.f4, step: kk.f4) -> None:
    i = kk.global_id(0)
    if i < n:
        mean = 0.0
        for k in range(4):  # four points in each pixel: no noise where the set is finer than the picture
            mean += 0.25 * escape(x0 + step * (i % width + 0.5 * (k % 2)), y0 + step * (i // width + 0.5 * (k // 2)))
        inside = mean > kk.log2(ROUNDS + 0.0) - 0.02
        shades[i] = kk.u1(0 if inside else 1 + kk.i4(SHADES * mean / CYCLE) % SHADES)


def dive(width: int, height: int) -> Iterator[dict[str, float]]:
    """The upper left corner and the size of a pixel of each frame."""
    for frame in range(FRAMES):
        step, away = 3.4 / width * DEEPER**frame, DEEPER ** (1.6 * frame)
        x, y = (there + (here - there) * away for here, there in zip(START, CENTRE, strict=True))
        yield {"x0": x - step * width / 2, "y0": y - step * height / 2, "step": step}


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "mandelbrot_zoom.gif"
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 240
    height = width * 2 // 3
    stops = np.array([ImageColor.getrgb(colour) for colour in [*COLOURS, COLOURS[0]]])
    steps = np.linspace(0, len(COLOURS), SHADES, endpoint=False)
    ring = np.stack([np.interp(steps, range(len(stops)), stops[:, k]) for k in range(3)], axis=1)
    palette = np.vstack([[5, 5, 12], ring]).astype("u1").tobytes()
    images = []
    with kk.open_device() as device, kk.ProgramCache(device) as cache, kk.Executor(device) as executor:
        n = width * height
        job = kk.Job(cache, mandelbrot, grid=kk.groups(n, GROUP), outputs={"shades": ((height, width), "u1")})
        began = time.perf_counter()
        for frame in executor.map(job, dive(width, height), width=width, n=n):
            images.append(Image.fromarray(frame["shades"]))
            images[-1].putpalette(palette)
        rate = FRAMES / (time.perf_counter() - began)
    first = np.asarray(images[0])
    if first[height // 2, width * 5 // 8] != 0 or first[0, 0] == 0 or len(images) != FRAMES:
        raise SystemExit("this is not the Mandelbrot set")
    print(f"{device.spec}: {FRAMES} frames of {width} × {height}, {rate:.0f} in a second")
    images[0].save(path, save_all=True, append_images=images[1:], duration=[600] + [80] * (FRAMES - 2) + [1200], loop=0)


if __name__ == "__main__":
    main()
