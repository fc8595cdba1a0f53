"""The Mandelbrot set from a queue of tiles: one whose border is all alike is filled, any other is split into four.

Nobody knows beforehand how much work there is: tasks push tasks, the queue grows as it must, and the run ends when none is
left. The arithmetic is in integers, so every device draws the same picture to the last pixel.

Run it with `python examples/mandelbrot_tiles.py`.
"""

from __future__ import annotations

import kernelkeep as kk
from kernelkeep.samples.states import TILES

SHADES = " .:-=+*#%@"


def main() -> None:
    tiles = TILES.program(160)
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        with kk.run(cache, tiles, strategy="buffered") as run:
            rounds, tally = run.state["rounds"].numpy(), run.state["tally"].numpy()
            error = TILES.largest_error(run.state, tiles, None)
            report = run.report
    for row in rounds[::8, ::4]:
        print("".join(SHADES[min(count * len(SHADES) // 48, len(SHADES) - 1)] for count in row.tolist()))
    if error:
        raise SystemExit("NumPy has another picture")
    computed, filled, split = tally.tolist()
    print(
        f"{device.spec}: {report.tasks_done} tiles, {computed} computed, {filled} filled and {split} split, in "
        f"{report.iterations} rounds; the queue grew {report.queue_grown} times; the picture is NumPy's"
    )


if __name__ == "__main__":
    main()
