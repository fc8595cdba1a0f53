"""examples/tutorials/pipeline.py with PyOpenCL alone."""

# Three sets of buffers, each with a queue of its own, so that one frame is uploaded while
# another is computed and a third comes back. Missing: pinned memory, a timeline of what
# overlapped, an error that fails its frame alone.

import sys
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pyopencl as cl

HEIGHT, WIDTH, FRAMES = 240, 320, 200
DEPTH = 3
SOURCE = """
__kernel void grey(__global const uchar* rgb, __global float* light, int n) {
    int i = get_global_id(0);
    if (i >= n) return;
    light[i] = 0.299f * rgb[3 * i] + 0.587f * rgb[3 * i + 1] + 0.114f * rgb[3 * i + 2];
}
__kernel void blur(__global const float* light, __global float* soft,
                   int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    float total = 0;
    for (int dy = -2; dy <= 2; dy++) {
        int row = clamp(y + dy, 0, height - 1) * width;
        for (int dx = -2; dx <= 2; dx++) total += light[row + clamp(x + dx, 0, width - 1)];
    }
    soft[y * width + x] = total / 25;
}
__kernel void slopes(__global const float* soft, __global uchar* edges,
                     int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int i = y * width + x;
    int left = x > 0 ? i - 1 : i, right = x < width - 1 ? i + 1 : i;
    int above = y > 0 ? i - width : i, below = y < height - 1 ? i + width : i;
    float across = soft[right] - soft[left], down = soft[below] - soft[above];
    edges[i] = (int)min(255.0f, 6 * hypot(across, down));
}
"""


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


def round_up(size: int, group: int) -> int:
    return -(-size // group) * group


class Slot:
    """Buffers of one frame, and the queue that works on them."""

    def __init__(self) -> None:
        n = HEIGHT * WIDTH
        self.queue = cl.CommandQueue(context)
        self.rgb, self.light, self.soft, self.edges = (
            cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes)
            for nbytes in (3 * n, 4 * n, 4 * n, n)
        )
        # A kernel object holds its arguments: each slot has its own.
        self.grey, self.blur, self.slopes = (
            cl.Kernel(program, name) for name in ("grey", "blur", "slopes")
        )
        self.host = np.empty(0, "u1")
        self.done: cl.Event | None = None

    def start(self, frame: np.ndarray) -> None:
        # Both are in use until the event is complete.
        self.frame, self.host = frame, np.empty((HEIGHT, WIDTH), "u1")
        n, width, height = np.int32(HEIGHT * WIDTH), np.int32(WIDTH), np.int32(HEIGHT)
        tiles = (round_up(WIDTH, 16), round_up(HEIGHT, 16))
        cl.enqueue_copy(self.queue, self.rgb, self.frame, is_blocking=False)
        self.grey(
            self.queue,
            (round_up(HEIGHT * WIDTH, 256),),
            (256,),
            self.rgb,
            self.light,
            n,
        )
        self.blur(self.queue, tiles, (16, 16), self.light, self.soft, width, height)
        self.slopes(self.queue, tiles, (16, 16), self.soft, self.edges, width, height)
        self.done = cl.enqueue_copy(
            self.queue, self.host, self.edges, is_blocking=False
        )
        self.queue.flush()

    def finish(self) -> list[np.ndarray]:
        if self.done is None:
            return []
        self.done.wait()
        self.done = None
        return [self.host]


context = cl.create_some_context(interactive=False)
program = cl.Program(context, SOURCE).build()
slots = [Slot() for _ in range(DEPTH)]
edges: list[np.ndarray] = []
for number, frame in enumerate(camera()):
    slot = slots[number % DEPTH]
    edges += slot.finish()
    slot.start(frame)
    print(f"\r{number + 1} frames", end="", file=sys.stderr)
for number in range(FRAMES, FRAMES + DEPTH):
    edges += slots[number % DEPTH].finish()
print(len(edges), "frames; the brightest edge has", max(map(np.max, edges)))

first = next(camera())
grey_edges = np.repeat(edges[0][..., None], 3, axis=2)
plt.imsave("edges.png", np.hstack([first, grey_edges])[::2, ::2])
