"""A run that is steered while it goes: waves on water, and a finger that moves over it and writes an eight.

What may change during a run is an array of the state that the body only reads: here where the finger is, and how hard it
presses. The function in `until=` gets the run between two dispatches; what `run.steer` writes there holds from the next iteration
on, and is in every checkpoint. A mouse or a slider could be read there as well; a path gives everyone the same picture.

Run it with `python examples/ripples.py [PICTURE.gif] [SIZE]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor

import kernelkeep as kk

FRAMES, ITERATIONS_PER_FRAME = 48, 26
COLOURS = ["#04101f", "#0a2a4a", "#11527a", "#2c86a6", "#8fc7cf", "#fbf6e4"]  # from a trough to a crest
SHADES = 16
Plane = npt.NDArray[np.float32]

WAVES = """
    int i = kk_item(), rows = kk_items() / width, x = i % width, y = i / width;
    int shore = min(min(x, width - 1 - x), min(y, rows - 1 - y));
    if (shore == 0) { height_next[i] = 0.0f; speed_next[i] = 0.0f; return; }
    float bend = height[i - 1] + height[i + 1] + height[i - width] + height[i + width] - 4.0f * height[i];
    float dx = kk_float(x) - finger[0], dy = kk_float(y) - finger[1];
    float push = finger[2] * sin(0.3f * kk_float(kk_iteration())) * exp(-(dx * dx + dy * dy) / 6.0f);
    float calm = shore < 16 ? 0.9f + 0.006f * kk_float(shore) : 0.996f;  /* the shore swallows waves */
    speed_next[i] = calm * speed[i] + 0.4f * bend + push;
    height_next[i] = height[i] + speed_next[i];
"""


def save_gif(path: str, frames: list[Plane]) -> None:
    stops = np.array([ImageColor.getrgb(colour) for colour in COLOURS])
    steps = np.linspace(0, len(COLOURS) - 1, SHADES)
    palette = np.stack([np.interp(steps, range(len(COLOURS)), stops[:, k]) for k in range(3)], axis=1).astype("u1")
    images = []
    for height in frames:
        light = 0.42 + 0.65 * height + 0.7 * (height - np.roll(height, (1, 1), (0, 1)))  # from the upper left
        images.append(Image.fromarray((np.clip(light, 0, 1) * (SHADES - 1)).astype("u1")))
        images[-1].putpalette(palette.tobytes())
    images[0].save(path, save_all=True, append_images=images[1:], duration=60, loop=0, optimize=False)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "ripples.gif"
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 240
    still = np.zeros((width * 2 // 3, width), "f4")
    program = kk.StateProgram(
        "ripples",
        coupling="neighbours",
        items=still.size,
        state={"height": still, "speed": still, "finger": np.zeros(3, "f4")},
        scalars={"width": width},
        body=WAVES,
    )
    frames: list[Plane] = []
    touched: list[tuple[float, float]] = []

    def steer(run: kk.Run) -> bool:
        """Move the finger; the run goes on until this is true."""
        angle = 2 * np.pi * run.iteration / (FRAMES * ITERATIONS_PER_FRAME)
        x, y = width * (0.5 + 0.34 * np.sin(angle)), width * (1 / 3 + 0.18 * np.sin(2 * angle))
        run.steer(finger=[x, y, 0.25])
        touched.append((x, y))
        return len(frames) == FRAMES

    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        with kk.run(
            cache, program, until=steer, state_iterations=ITERATIONS_PER_FRAME,
            on_state=lambda iteration, state: frames.append(state["height"]),
        ) as run:  # fmt: skip
            print(
                f"{device.spec}: {run.iteration:,} iterations, steered {len(touched)} times in {run.report.seconds:.1f} s"
            )
    if not all(np.isfinite(frame).all() for frame in frames) or np.abs(frames[-1]).max() < 0.05:
        raise SystemExit("the water is not as it should be")
    save_gif(path, frames)


if __name__ == "__main__":
    main()
