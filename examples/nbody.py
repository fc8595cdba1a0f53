"""Two galaxies meet: every star attracts every other one, and the picture is a GIF of their light.

A group loads a tile of stars into shared memory and all of its work-items use it, so that a star is read from the device's
memory once for each group and not once for each work-item.

Run it with `python examples/nbody.py [PICTURE.gif] [STARS]`. It needs Pillow; in the clone:
`.venv/bin/pip install -e '.[pictures]'`.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor

import kernelkeep as kk

TILE, FRAMES, STEPS_PER_FRAME, DT, SOFTENING = 128, 44, 8, 0.025, 0.1
WIDTH, HEIGHT, REACH = 288, 192, 2.7  # pixels, and how far the picture reaches to the left and right
COLOURS = ["#05060f", "#161a45", "#4a2f8a", "#b0479a", "#ff8a5c", "#ffe9b0", "#ffffff"]
Floats = npt.NDArray[np.floating]


@kk.kernel(group=TILE)
def move(old: kk.In[kk.float4], new: kk.Out[kk.float4], speed: kk.InOut[kk.float4], n: kk.i4) -> None:
    """A star is x, y, z and its mass; there are n, a multiple of TILE."""
    tile = kk.shared(kk.float4, TILE)
    i, slot = kk.global_id(0), kk.local_id(0)
    me, v = old[i], speed[i]
    for start in range(0, n, TILE):
        tile[slot] = old[start + slot]
        kk.barrier()
        for k in range(TILE):
            way = tile[k] - me
            square = way.x * way.x + way.y * way.y + way.z * way.z + SOFTENING * SOFTENING
            v += way * (DT * tile[k].w / (square * kk.sqrt(square)))
        kk.barrier()
    speed[i] = v
    new[i] = kk.float4(me.x + v.x * DT, me.y + v.y * DT, me.z + v.z * DT, me.w)


def galaxy(stars: int, centre: list[float], drift: list[float], tilt: float, seed: int) -> tuple[Floats, Floats]:
    """Stars on circles around a heavy one: places with masses, and speeds."""
    random = np.random.default_rng(seed)
    radius, angle = 0.12 + random.gamma(2.2, 0.19, stars), random.uniform(0, 2 * np.pi, stars)
    radius[0] = 0.0
    round_it = np.sqrt(radius**2 / (radius**2 + SOFTENING**2) ** 1.5)  # as fast as the heavy one demands
    turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    flat = np.stack([radius * np.cos(angle), radius * np.sin(angle), random.normal(0, 0.03, stars)], 1) @ turn.T
    moves = np.stack([-np.sin(angle) * round_it, np.cos(angle) * round_it, 0 * angle], 1) @ turn.T
    masses = np.where(np.arange(stars) == 0, 1.0, 0.08 / stars)[:, None]
    return np.hstack([flat + centre, masses]), np.hstack([moves + drift, 0 * masses])


def light(stars: Floats) -> Floats:
    """How bright each pixel is."""
    tall = REACH * HEIGHT / WIDTH
    seen, _, _ = np.histogram2d(stars[:, 1], stars[:, 0], bins=(HEIGHT, WIDTH), range=((-tall, tall), (-REACH, REACH)))
    for axis in (0, 1, 0, 1):  # a little blurred
        seen = 0.5 * seen + 0.25 * np.roll(seen, 1, axis) + 0.25 * np.roll(seen, -1, axis)
    return seen


def save_gif(path: str, frames: list[Floats]) -> None:
    stops = np.array([ImageColor.getrgb(colour) for colour in COLOURS])
    steps = np.linspace(0, len(COLOURS) - 1, 16)
    palette = np.stack([np.interp(steps, range(len(COLOURS)), stops[:, k]) for k in range(3)], axis=1).astype("u1")
    brightest = np.quantile(frames[-1][frames[-1] > 0], 0.985)
    images = []
    for frame in frames:
        shades = np.clip(np.log1p(8 * frame / brightest) / np.log(9) * 15, 0, 15).astype("u1")
        images.append(Image.fromarray(shades))
        images[-1].putpalette(palette.tobytes())
    images[0].save(path, save_all=True, append_images=images[1:], duration=70, loop=0, optimize=False)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "nbody.gif"
    n = kk.groups(int(sys.argv[2]) if len(sys.argv) > 2 else 2048, 2 * TILE) * 2 * TILE
    one = galaxy(n // 2, [-1.5, -0.5, 0], [0.3, -0.16, 0], 0.4, seed=1)
    other = galaxy(n // 2, [1.5, 0.5, 0], [-0.3, 0.16, 0], -0.7, seed=2)
    with kk.open_device() as device, kk.ProgramCache(device) as cache, cache.get(move) as lease:
        places = device.array(np.vstack([one[0], other[0]]).astype("f4"))
        speeds = device.array(np.vstack([one[1], other[1]]).astype("f4"))
        spare = device.empty(places.shape, "f4")
        kernel, grid = lease.kernel("move"), kk.groups(n, TILE)
        there, back = (kernel.prepare(grid, (a, b, speeds, n)) for a, b in ((places, spare), (spare, places)))
        frames, masses = [3 * light(places.numpy())], places.numpy()[:, 3:]
        drift_before = (speeds.numpy()[:, :3] * masses).sum(0)
        with device.timer() as timer:
            for _ in range(FRAMES):
                frames.append(0.5 * frames[-1])  # a star leaves a trail
                for _ in range(STEPS_PER_FRAME // 2):
                    there()
                    back()
                    frames[-1] = frames[-1] + light(places.numpy())
        drift = np.abs((speeds.numpy()[:, :3] * masses).sum(0) - drift_before).max()
        pairs = FRAMES * STEPS_PER_FRAME * n * n / timer.seconds
        print(f"{device.spec}: {n:,} stars, {pairs / 1e6:,.0f} million pairs a second, momentum kept to {drift:.1g}")
    if not drift < 1e-3:
        raise SystemExit("what attracts must be attracted as much")
    save_gif(path, frames)


if __name__ == "__main__":
    main()
