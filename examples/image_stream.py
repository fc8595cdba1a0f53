"""A stream of images made ready for a neural network: bytes in, normalised planes of floats out, several at a time.

While the device works on one image, the next is on its way in and the last on its way out. Run it with
`python examples/image_stream.py`; it runs on every device found, or on the one that $KERNELKEEP_DEVICE names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import kernelkeep as kk

HEIGHT, WIDTH, IMAGES = 240, 320, 40
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GROUP = 256
NORMALISE = kk.PortableKernel(
    "normalise",
    params=[kk.Buffer("pixels", "u4", "r"), kk.Buffer("planes", "f4", "w"), kk.Scalar("n", "i4")],
    # A pixel is one word of four bytes: red, green, blue and one that is not used.
    body="""int i = kk_global_id(0);
if (i >= n) return;
uint pixel = pixels[i];
planes[i] = (kk_float(pixel & 255u) / 255.0f - MEAN_R) / DEVIATION_R;
planes[i + n] = (kk_float((pixel >> 8u) & 255u) / 255.0f - MEAN_G) / DEVIATION_G;
planes[i + 2 * n] = (kk_float((pixel >> 16u) & 255u) / 255.0f - MEAN_B) / DEVIATION_B;""",
    group=GROUP,
    defines={f"MEAN_{c}": f"{v}f" for c, v in zip("RGB", MEAN, strict=True)}
    | {f"DEVIATION_{c}": f"{v}f" for c, v in zip("RGB", DEVIATION, strict=True)},
)
Image = npt.NDArray[np.uint8]


def camera() -> Iterator[Image]:
    """Images one after the other, as a camera or a folder of files would give them."""
    random = np.random.default_rng(1)
    for _ in range(IMAGES):
        yield random.integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)


def normalised(image: Image) -> npt.NDArray[np.float32]:
    """The same by NumPy."""
    colours = image[..., :3].astype(np.float32) / np.float32(255)
    mean, deviation = np.array(MEAN, np.float32), np.array(DEVIATION, np.float32)
    return np.moveaxis(((colours - mean) / deviation).astype(np.float32), -1, 0)


def run_on(device: kk.Device) -> None:
    n = HEIGHT * WIDTH
    with kk.ProgramCache(device) as cache, kk.Executor(device) as executor:
        job = kk.Job(cache, NORMALISE, grid=kk.groups(n, GROUP), outputs={"planes": ((3, HEIGHT, WIDTH), "f4")})
        cache.preload([NORMALISE])
        batches = ({"pixels": image.view("u4")} for image in camera())
        started = time.perf_counter()
        results = [result["planes"] for result in executor.map(job, batches, n=n)]
        rate = IMAGES / (time.perf_counter() - started)
        busy = executor.timeline.busy()
    for image, planes in zip(camera(), results, strict=True):
        np.testing.assert_allclose(planes, normalised(image), atol=1e-5)
    print(
        f"{device.spec}: {IMAGES} images, as NumPy has them, {rate:,.0f} in a second; computing {busy['compute']:.0%} of it"
    )


def main() -> None:
    chosen = os.environ.get("KERNELKEEP_DEVICE")
    for spec in [chosen] if chosen else [info.spec for info in kk.list_devices()]:
        with kk.open_device(spec) as device:
            run_on(device)


if __name__ == "__main__":
    main()
