"""Conway's game of life: a few cells keep a whole plane busy, and where life was the picture glows for a while.

Each cell counts how long it has lived, or been dead. The rule is integers only, so every device has the same picture.

Run it with `python examples/life.py [PICTURE.gif] [SIZE]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from PIL import Image

import kernelkeep as kk

FRAMES, GENERATIONS_PER_FRAME, PIXELS = 90, 8, 3
ACORN = [(0, 1), (1, 3), (2, 0), (2, 1), (2, 4), (2, 5), (2, 6)]  # seven cells that take 5,206 generations to settle
GLOW = 12  # shades, from just dead to dead for long
ALIVE, TRAIL, NEVER = (255, 244, 214), ((233, 116, 53), (31, 21, 52)), (11, 10, 22)
Plane = npt.NDArray[np.int32]

LIFE = """
    int width = kk_items() / height, i = kk_item(), x = i % width, y = i / width, alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int other = (y + dy + height) % height * width + (x + dx + width) % width;
            if ((dx != 0 || dy != 0) && cells[other] > 0) alive++;
        }
    bool lives = alive == 3 || (alive == 2 && cells[i] > 0);
    if (lives) cells_next[i] = max(cells[i], 0) + 1;                          /* for so many generations */
    else cells_next[i] = cells[i] > 0 ? -1 : cells[i] < 0 ? cells[i] - 1 : 0; /* dead for so many; 0: always */
"""


def by_numpy(cells: Plane, generations: int) -> npt.NDArray[np.bool_]:
    """Who lives after so many generations."""
    lives = cells > 0
    for _ in range(generations):
        near = sum(np.roll(lives, (dy, dx), (0, 1)).astype(int) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - lives
        lives = (near == 3) | ((near == 2) & lives)
    return lives


def save_gif(path: str, frames: list[Plane]) -> None:
    """Living cells are bright; dead ones fade."""
    fade = np.linspace(0, 1, GLOW)[:, None] ** 0.6
    trail = (1 - fade) * TRAIL[0] + fade * TRAIL[1]
    palette = np.vstack([NEVER, ALIVE, trail]).astype("u1")
    images = []
    for cells in frames:
        dead_for = np.minimum(-cells // (5 * GENERATIONS_PER_FRAME), GLOW - 1)
        shades = np.where(cells > 0, 1, np.where(cells < 0, 2 + dead_for, 0)).astype("u1")
        images.append(Image.fromarray(shades.repeat(PIXELS, 0).repeat(PIXELS, 1), "P"))
        images[-1].putpalette(palette.tobytes())
    images[0].save(path, save_all=True, append_images=images[1:], duration=70, loop=0, optimize=False)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "life.gif"
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 144
    height = width * 2 // 3
    cells = np.zeros((height, width), "i4")
    for y, x in ACORN:
        cells[height // 2 + y - 1, width // 2 + x - 3] = 1
    program = kk.StateProgram(
        "life", coupling="neighbours", state={"cells": cells}, scalars={"height": height}, body=LIFE
    )
    frames = [cells]
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        generations = FRAMES * GENERATIONS_PER_FRAME
        with kk.run(
            cache, program, iterations=generations, state_iterations=GENERATIONS_PER_FRAME,
            on_state=lambda generation, state: frames.append(state["cells"]),
        ) as run:  # fmt: skip
            print(f"{device.spec}: {run.iteration:,} generations in {run.report.seconds:.1f} s")
    if ((frames[-1] > 0) != by_numpy(cells, generations)).any():
        raise SystemExit("NumPy has other cells")
    print(f"{(frames[-1] > 0).sum()} cells live, the same as NumPy's")
    save_gif(path, frames)


if __name__ == "__main__":
    main()
