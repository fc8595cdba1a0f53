"""examples/tutorials/simulation.py with PyOpenCL alone."""

# Missing: checkpoints hold up the computation while they are downloaded and written, and
# have no checksums; a checkpoint of another program or size is not noticed; Ctrl-C and
# SIGTERM lose what came after the last one.

import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyopencl as cl

SIZE, ITERATIONS = 192, 6000
CHECKPOINT = Path("patterns.npz")
SOURCE = """
__kernel void advance(__global const float* a, __global const float* b,
                      __global float* a_next, __global float* b_next,
                      int size, float feed, float kill) {
    int i = get_global_id(0), x = i % size, y = i / size;
    int left = y * size + (x + size - 1) % size, right = y * size + (x + 1) % size;
    int up = (y + size - 1) % size * size + x, down = (y + 1) % size * size + x;
    float reaction = a[i] * b[i] * b[i];
    float spread_a = a[left] + a[right] + a[up] + a[down] - 4 * a[i];
    float spread_b = b[left] + b[right] + b[up] + b[down] - 4 * b[i];
    a_next[i] = a[i] + 0.2f * spread_a - reaction + feed * (1 - a[i]);
    b_next[i] = b[i] + 0.1f * spread_b + reaction - (feed + kill) * b[i];
}
"""


def save(iteration: int, a: cl.Buffer, b: cl.Buffer) -> None:
    """Write the state to a file that is there whole or not at all."""
    host_a, host_b = np.empty((SIZE, SIZE), "f4"), np.empty((SIZE, SIZE), "f4")
    cl.enqueue_copy(queue, host_a, a)
    cl.enqueue_copy(queue, host_b, b)
    temporary = CHECKPOINT.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, iteration=iteration, a=host_a, b=host_b)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(CHECKPOINT)


if CHECKPOINT.exists():
    with np.load(CHECKPOINT) as saved:
        start, a, b = int(saved["iteration"]), saved["a"], saved["b"]
else:
    start, a, b = 0, np.ones((SIZE, SIZE), "f4"), np.zeros((SIZE, SIZE), "f4")
    for x, y in np.random.default_rng(3).integers(8, SIZE - 8, (14, 2)):
        b[y - 4 : y + 4, x - 4 : x + 4] = 0.5

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
advance = cl.Program(context, SOURCE).build().advance
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
state = [cl.Buffer(context, flags, hostbuf=array) for array in (a, b)]
state_next = [cl.Buffer(context, flags, hostbuf=array) for array in (a, b)]
last_saved = time.monotonic()
for iteration in range(start, ITERATIONS):
    advance(
        queue,
        (SIZE * SIZE,),
        None,
        *state,
        *state_next,
        np.int32(SIZE),
        np.float32(0.037),
        np.float32(0.06),
    )
    state, state_next = state_next, state
    if iteration % 64 == 0:  # do not enqueue far ahead: the clock would say nothing
        queue.finish()
        if time.monotonic() - last_saved > 0.5:
            save(iteration + 1, *state)
            last_saved = time.monotonic()
save(ITERATIONS, *state)
print(f"from iteration {start} to {ITERATIONS} on {queue.device.name}")
result = np.empty((SIZE, SIZE), "f4")
cl.enqueue_copy(queue, result, state[1])
plt.imsave("patterns.png", result, cmap="inferno")
