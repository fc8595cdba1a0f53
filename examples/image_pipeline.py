"""Two hundred frames through three kernels: blur, edges, threshold. Bytes go in, bytes come out, and nothing else comes back.

What one kernel hands to the next stays on the device, and while one frame is computed the next is on its way in. The sums are
integers, so every device finds the same edges, and NumPy too.

Run it with `python examples/image_pipeline.py [PICTURE.png] [HEIGHT]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import Image

import kernelkeep as kk

FRAMES, LIMIT, TILE = 200, 60, (16, 16)
Frame = npt.NDArray[np.uint8]


@kk.kernel(group=TILE)
def blur(image: kk.In[kk.u1], blurred: kk.Out[kk.u1], width: kk.i4, height: kk.i4) -> None:
    x, y = kk.global_id(0), kk.global_id(1)
    if x < width and y < height:
        total = 0
        for dy in range(-2, 3):
            for dx in range(-2, 3):
                weight = (3 - kk.abs(dx)) * (3 - kk.abs(dy))  # 81 in all
                total += weight * image[kk.clamp(y + dy, 0, height - 1) * width + kk.clamp(x + dx, 0, width - 1)]
        blurred[y * width + x] = total // 81


@kk.kernel(group=TILE)
def slopes(image: kk.In[kk.u1], edges: kk.Out[kk.u1], width: kk.i4, height: kk.i4) -> None:
    x, y = kk.global_id(0), kk.global_id(1)
    if x < width and y < height:
        left, right = kk.max(x - 1, 0), kk.min(x + 1, width - 1)
        above, here, below = kk.max(y - 1, 0) * width, y * width, kk.min(y + 1, height - 1) * width
        across = image[above + right] + 2 * image[here + right] + image[below + right]
        across -= image[above + left] + 2 * image[here + left] + image[below + left]
        down = image[below + left] + 2 * image[below + x] + image[below + right]
        down -= image[above + left] + 2 * image[above + x] + image[above + right]
        edges[here + x] = kk.min(255, kk.abs(across) + kk.abs(down))


@kk.kernel
def threshold(edges: kk.InOut[kk.u1], limit: kk.i4, n: kk.i4) -> None:
    i = kk.global_id(0)
    if i < n:
        edges[i] = 255 if edges[i] > limit else 0


def camera(height: int, width: int) -> Iterator[Frame]:
    """Three balls that roll over a table, one frame after the other, and the noise of a cheap sensor."""
    y, x = np.mgrid[:height, :width] / height
    noise = np.random.default_rng(4).integers(0, 24, (height, width))
    table = 24 + 20 * y
    for moment in np.linspace(0, 2 * np.pi, FRAMES, endpoint=False):
        scene = table.copy()
        for ball, radius in enumerate((0.24, 0.17, 0.12)):
            angle = moment + 2.1 * ball
            dx, dy = x - 0.75 - 0.42 * np.cos(angle), y - 0.5 - 0.22 * np.sin(2 * angle)
            up = 1 - (dx * dx + dy * dy) / radius**2  # what the lamp, above on the left, sees of it
            light = 105 + 120 * np.clip(0.6 * np.sqrt(np.maximum(up, 0)) - 0.5 * (dx + dy) / radius, 0, 1)
            scene = np.where(up > 0, light, scene)
        yield (scene + noise).astype("u1")


def expected(frame: Frame) -> Frame:
    """The same three steps with NumPy."""
    height, width = frame.shape
    wide = np.pad(frame.astype("i4"), 2, mode="edge")
    weights = 3 - np.abs(np.arange(-2, 3))
    soft = sum(
        weights[j] * weights[i] * wide[j : j + height, i : i + width] for j in range(5) for i in range(5)
    ) // 81  # fmt: skip
    p = np.pad(soft, 1, mode="edge")
    across = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    down = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    return np.where(np.minimum(255, np.abs(across) + np.abs(down)) > LIMIT, 255, 0).astype("u1")


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "image_pipeline.png"
    height = int(sys.argv[2]) if len(sys.argv) > 2 else 240
    width = height * 3 // 2
    shape, n, tiles = (height, width), height * width, kk.groups((width, height), TILE)
    with kk.open_device() as device, kk.ProgramCache(device) as cache, kk.Executor(device) as executor:
        find_edges = kk.Pipeline(
            [
                kk.Job(cache, blur, tiles, outputs={"blurred": (shape, "u1")}),
                (kk.Job(cache, slopes, tiles, outputs={"edges": (shape, "u1")}), {"image": "blurred"}),
                (kk.Job(cache, threshold, kk.groups(n), outputs=["edges"]), {"limit": LIMIT}),  # in place
            ]
        )
        frames = [{"image": frame} for frame in camera(height, width)]
        start = time.perf_counter()
        results = [
            result["edges"]
            for result in executor.map(find_edges, frames, width=width, height=height, n=n, progress=True)
        ]
        seconds = time.perf_counter() - start
        moved = dict.fromkeys(("upload", "download"), 0)
        for span in executor.timeline.spans:
            if span.engine in moved:
                moved[span.engine] += span.nbytes
        print(
            f"{device.spec}: {len(results)} frames in {seconds:.2f} s; {moved['upload'] / 1e6:.1f} MB went in and "
            f"{moved['download'] / 1e6:.1f} MB came back"
        )
    shown = FRAMES // 7
    if not all((results[k] == expected(frames[k]["image"])).all() for k in (0, shown, FRAMES - 1)):
        raise SystemExit("the edges are not as they should be")
    Image.fromarray(np.hstack([frames[shown]["image"], results[shown]])).save(path)


if __name__ == "__main__":
    main()
