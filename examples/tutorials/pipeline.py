"""Two hundred frames, three kernels for each; only the last output comes back."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

import kernelkeep as kk

HEIGHT, WIDTH, FRAMES = 240, 320, 200


@kk.kernel
def grey(rgb: kk.In[kk.u1], light: kk.Out[kk.f4], n: kk.i4) -> None:
    i = kk.global_id(0)
    if i < n:
        light[i] = 0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2]


@kk.kernel(group=(16, 16))
def blur(light: kk.In[kk.f4], soft: kk.Out[kk.f4], width: kk.i4, height: kk.i4) -> None:
    x, y = kk.global_id(0), kk.global_id(1)
    if x < width and y < height:
        total = 0.0
        for dy in range(-2, 3):
            row = kk.clamp(y + dy, 0, height - 1) * width
            for dx in range(-2, 3):
                total += light[row + kk.clamp(x + dx, 0, width - 1)]
        soft[y * width + x] = total / 25


@kk.kernel(group=(16, 16))
def slopes(
    soft: kk.In[kk.f4], edges: kk.Out[kk.u1], width: kk.i4, height: kk.i4
) -> None:
    x, y = kk.global_id(0), kk.global_id(1)
    if x < width and y < height:
        i = y * width + x
        left, right = i - 1 if x > 0 else i, i + 1 if x < width - 1 else i
        above, below = i - width if y > 0 else i, i + width if y < height - 1 else i
        across, down = soft[right] - soft[left], soft[below] - soft[above]
        edges[i] = kk.i4(kk.min(255.0, 6 * kk.hypot(across, down)))


def camera() -> Iterator[np.ndarray]:
    """Frames one after the other: three lamps that move."""
    noise = np.random.default_rng(1).integers(0, 40, (HEIGHT, WIDTH, 3), "u1")
    y, x = np.ogrid[:HEIGHT, :WIDTH]
    for t in np.linspace(0, 2 * np.pi, FRAMES):
        frame = noise.copy()
        for colour in range(3):
            angle = t + 2 * colour
            lamp_x, lamp_y = 160 + 80 * np.cos(angle), 120 + 60 * np.sin(2 * angle)
            frame[np.hypot(x - lamp_x, y - lamp_y) < 40, colour] += 200
        yield frame


with (
    kk.open_device() as device,
    kk.ProgramCache(device) as cache,
    kk.Executor(device) as executor,
):
    shape, n = (HEIGHT, WIDTH), HEIGHT * WIDTH
    tiles = kk.groups((WIDTH, HEIGHT), (16, 16))
    find_edges = kk.Pipeline(
        [
            kk.Job(cache, grey, grid=kk.groups(n), outputs={"light": (shape, "f4")}),
            kk.Job(cache, blur, grid=tiles, outputs={"soft": (shape, "f4")}),
            kk.Job(cache, slopes, grid=tiles, outputs={"edges": (shape, "u1")}),
        ]
    )
    frames = ({"rgb": frame} for frame in camera())
    results = executor.map(
        find_edges, frames, n=n, width=WIDTH, height=HEIGHT, progress=True
    )
    edges = [result["edges"] for result in results]
    print(len(edges), "frames; the brightest edge has", max(map(np.max, edges)))

first = next(camera())
grey_edges = np.repeat(edges[0][..., None], 3, axis=2)
plt.imsave("edges.png", np.hstack([first, grey_edges])[::2, ::2])
