"""A run whose worker is killed three times, and a picture without a seam.

`kk.run_supervised` runs a function in a worker process and starts another one when it dies; the run in it goes on from the last
checkpoint. The work is the Kuramoto-Sivashinsky equation, a flame front that never comes to rest: the slightest difference after
a restart would make another picture. A row is the front at one moment; time runs downwards, and a red mark is a `kill -9`.

Run it with `python examples/survivor.py [PICTURE.png] [WIDTH]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw

import kernelkeep as kk

ITERATIONS_PER_ROW, KILLS = 100, (0.3, 0.55, 0.8)  # of the way
COLOURS = ["#1b0b2e", "#5b1a5e", "#b5365b", "#ee7b51", "#fbd08a", "#fffbe8"]
FRONT = """
    int i = kk_item(), n = kk_items();
    float l2 = u[(i + n - 2) % n], l = u[(i + n - 1) % n], r = u[(i + 1) % n], r2 = u[(i + 2) % n];
    float bend = (l - 2.0f * u[i] + r) / (DX * DX);
    float stiff = (l2 - 4.0f * l + 6.0f * u[i] - 4.0f * r + r2) / (DX * DX * DX * DX);
    u_next[i] = u[i] + DT * (-bend - stiff - (r * r - l * l) / (4.0f * DX));
"""


def program(width: int) -> kk.StateProgram:
    """A front that is nearly flat at first."""
    u = np.random.default_rng(7).normal(0, 0.1, width).astype("f4")
    body = FRONT.replace("DX", "0.6f").replace("DT", "0.008f")
    return kk.StateProgram("front", coupling="neighbours", state={"u": u}, body=body)


def work(folder: str, width: int, killed: bool) -> str:
    """What the worker does: run, and put each row into a file, where it outlives the worker."""
    rows = np.lib.format.open_memmap(f"{folder}/rows.npy")
    count = len(rows)

    def keep(iteration: int, state: dict[str, npt.NDArray[np.float32]]) -> None:
        row = iteration // ITERATIONS_PER_ROW - 1
        rows[row] = state["u"]
        for kill in KILLS if killed else ():
            if row == int(kill * count) and not (mark := Path(f"{folder}/killed-at-{row}")).exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is short

    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        # In a worker that replaces another, this resumes from what that one wrote. With "auto" each might choose another
        # strategy, whose kernels may round floats in another way.
        with kk.run(
            cache, program(width), strategy="buffered", iterations=count * ITERATIONS_PER_ROW, checkpoint=f"{folder}/front.kkpt",
            checkpoint_iterations=count // 18 * ITERATIONS_PER_ROW, on_state=keep, state_iterations=ITERATIONS_PER_ROW,
        ):  # fmt: skip
            return device.spec


def save_png(path: str, rows: npt.NDArray[np.float32]) -> None:
    stops = np.array([ImageColor.getrgb(colour) for colour in COLOURS])
    where = np.clip((rows + 3.2) / 6.4, 0, 1) * (len(COLOURS) - 1)
    shown = np.stack([np.interp(where, range(len(COLOURS)), stops[:, k]) for k in range(3)], axis=2).astype("u1")
    picture = Image.new("RGBA", (rows.shape[1] + 16, len(rows)))
    picture.paste(Image.fromarray(shown), (16, 0))
    for kill in KILLS:
        y = int(kill * len(rows))
        ImageDraw.Draw(picture).polygon([(2, y - 5), (12, y), (2, y + 5)], fill="#d1242f")
    picture.save(path, optimize=True)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "survivor.png"
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 480
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        for one in (folder, other):
            np.save(f"{one}/rows.npy", np.zeros((width * 5 // 8, width), "f4"))
        report = kk.run_supervised(work, checkpoint=f"{folder}/front.kkpt", args=(folder, width, True))
        work(other, width, False)
        rows, whole = np.load(f"{folder}/rows.npy"), np.load(f"{other}/rows.npy")
    if report.restarts != len(KILLS) or not np.array_equal(rows, whole):
        raise SystemExit("the picture has a seam")
    print(f"{report.result}: killed {report.restarts} times, and every bit is that of a run that was left alone")
    save_png(path, rows)


if __name__ == "__main__":
    main()
