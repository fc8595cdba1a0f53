"""Gray-Scott: two substances that feed on each other grow into a coral, and the picture is a GIF of it.

A state program has the two as arrays. `on_state` gets a copy of them every so many iterations, exactly, which becomes a frame.

Run it with `python examples/gray_scott.py [PICTURE.gif] [SIZE]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor

import kernelkeep as kk

FRAMES, ITERATIONS_PER_FRAME = 40, 160
SHADES = 20  # a GIF with more is larger, and looks the same
COLOURS = ["#08142b", "#0b3a53", "#0f7173", "#5db48d", "#f2d6a0", "#fff6e6"]  # from no coral to much of it


def react(
    u: kk.In[kk.f4],
    u_next: kk.Out[kk.f4],
    v: kk.In[kk.f4],
    v_next: kk.Out[kk.f4],
    size: kk.i4,
    feed: kk.f4,
    kill: kk.f4,
) -> None:
    i = kk.item()
    x, y = i % size, i // size
    left, right = y * size + (x + size - 1) % size, y * size + (x + 1) % size
    up, down = (y + size - 1) % size * size + x, (y + 1) % size * size + x
    reaction = u[i] * v[i] * v[i]
    u_next[i] = u[i] + 0.2 * (u[left] + u[right] + u[up] + u[down] - 4.0 * u[i]) - reaction + feed * (1.0 - u[i])
    v_next[i] = v[i] + 0.1 * (v[left] + v[right] + v[up] + v[down] - 4.0 * v[i]) + reaction - (feed + kill) * v[i]


def seeds(size: int) -> npt.NDArray[np.float32]:
    """A few round drops."""
    y, x = np.mgrid[:size, :size] / size
    v = np.zeros((size, size), "f4")
    for drop_x, drop_y in ((0.5, 0.5), (0.27, 0.33), (0.7, 0.25), (0.3, 0.74), (0.76, 0.68)):
        v[(x - drop_x) ** 2 + (y - drop_y) ** 2 < 0.035**2] = 0.5
    return v


def save_gif(path: str, frames: list[npt.NDArray[np.float32]]) -> None:
    """Amounts from 0 to 0.4 as colours between those above."""
    stops = np.array([ImageColor.getrgb(colour) for colour in COLOURS])
    steps = np.linspace(0, len(COLOURS) - 1, SHADES)
    palette = np.stack([np.interp(steps, range(len(COLOURS)), stops[:, k]) for k in range(3)], axis=1).astype("u1")
    images = []
    for frame in frames:
        images.append(Image.fromarray((np.clip(frame / 0.4, 0, 1) * (SHADES - 1)).astype("u1"), "P"))
        images[-1].putpalette(palette.tobytes())
    durations = [80] * (len(images) - 1) + [1500]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "gray_scott.gif"
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 192
    v = seeds(size)
    program = kk.StateProgram(
        "gray_scott",
        coupling="neighbours",
        state={"u": np.float32(1) - v, "v": v},
        scalars={"size": size, "feed": np.float32(0.0545), "kill": np.float32(0.062)},
        body=react,
    )
    frames = [v]
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        iterations = FRAMES * ITERATIONS_PER_FRAME * size // 192  # a smaller plane is full earlier
        every = max(iterations // FRAMES, 1)
        with kk.run(
            cache, program, iterations=iterations, on_state=lambda k, s: frames.append(s["v"]), state_iterations=every
        ) as run:
            covered = float((frames[-1] > 0.1).mean())
            print(f"{device.spec}: {run.iteration:,} iterations in {run.report.seconds:.1f} s, {covered:.0%} is coral")
    if not 0.05 < covered < 0.95:
        raise SystemExit("nothing grew")
    save_gif(path, frames)


if __name__ == "__main__":
    main()
