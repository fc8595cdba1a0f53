"""A blur with eight variants: which one is the fastest here is found out, remembered, and from then on simply used.

Each work-item computes ROWS pixels, one below the other, and adds up every row of the image it needs only once. More of
them save work, and leave fewer work-items to share it.

Run it with `python examples/tuned_blur.py`, or with the name of a picture to be made: `python examples/tuned_blur.py
blur.svg` needs matplotlib.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import kernelkeep as kk

BLUR = kk.Template(
    """int x = kk_global_id(0), y0 = kk_global_id(1) * ROWS;
if (x < width && y0 < height) {
  float across[ROWS + 2 * radius];
  for (int r = 0; r < ROWS + 2 * radius; r++) {
    int y = min(max(y0 + r - radius, 0), height - 1);
    across[r] = 0.0f;
    for (int dx = -radius; dx <= radius; dx++) across[r] += image[y * width + min(max(x + dx, 0), width - 1)];
  }
  for (int r = 0; r < ROWS && y0 + r < height; r++) {
    float sum = 0.0f;
    for (int dy = 0; dy <= 2 * radius; dy++) sum += across[r + dy];
    blurred[(y0 + r) * width + x] = sum / kk_float((2 * radius + 1) * (2 * radius + 1));
  }
}""",
    params=[
        kk.Buffer("image", "f4", "r"),
        kk.Buffer("blurred", "f4", "w"),
        kk.Scalar("width", "i4"),
        kk.Scalar("height", "i4"),
    ],
    arrays={"image": ("height", "width"), "blurred": ("height", "width")},
    constants=["radius"],  # compiled in; width and height come with each launch
    group=lambda v: v["GROUP"],
    grid=lambda v: kk.groups((v["width"], v["height"]), (v["GROUP"], v["ROWS"])),
)
SPACE = kk.VariantSpace(GROUP=[32, 128], ROWS=[1, 2, 4, 8])


def reference(image: Any, radius: int) -> Any:
    """What must come out, with NumPy: the mean of a square around each pixel, edges repeated."""
    size = 2 * radius + 1
    squares = np.lib.stride_tricks.sliding_window_view(np.pad(image, radius, mode="edge"), (size, size))
    return squares.mean(axis=(2, 3))


blur = kk.Tuned("blur", BLUR, SPACE, reference=reference)


def main() -> None:
    problem = {"width": 640, "height": 480, "radius": 2}
    image = np.random.default_rng(0).random((480, 640), dtype="f4")
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        print(f"{device.spec}: {blur.select(cache, problem).reason}")
        report = blur.tune(cache, problem, budget_seconds=10, progress=True)
        print(report)
        if len(sys.argv) > 1:
            report.save_picture(sys.argv[1])

        # From now on, in every process on this device, the best variant runs at the first call.
        blurred = blur.run(cache, problem, image=image)
        assert isinstance(blurred, kk.Array)
        error = float(np.abs(blurred.numpy() - reference(image.astype("f8"), 2)).max())
    if error > 1e-5:
        raise SystemExit(f"the blurred image is off by {error:g}")
    print(f"the blurred image differs from NumPy's by {error:.1g} at most")


if __name__ == "__main__":
    main()
