"""Two chemicals react and spread. Kill this program and start it again: it goes on."""

import matplotlib.pyplot as plt
import numpy as np

import kernelkeep as kk

SIZE, ITERATIONS = 192, 6000
a, b = np.ones((SIZE, SIZE), "f4"), np.zeros((SIZE, SIZE), "f4")
for x, y in np.random.default_rng(3).integers(8, SIZE - 8, (14, 2)):
    b[y - 4 : y + 4, x - 4 : x + 4] = 0.5

gray_scott = kk.StateProgram(
    "gray_scott",
    coupling="neighbours",
    state={"a": a, "b": b},
    scalars={"size": SIZE, "feed": 0.037, "kill": 0.06},
    body="""
        int i = kk_item(), x = i % size, y = i / size;
        int left = y * size + (x + size - 1) % size, right = y * size + (x + 1) % size;
        int up = (y + size - 1) % size * size + x, down = (y + 1) % size * size + x;
        float reaction = a[i] * b[i] * b[i];
        float spread_a = a[left] + a[right] + a[up] + a[down] - 4 * a[i];
        float spread_b = b[left] + b[right] + b[up] + b[down] - 4 * b[i];
        a_next[i] = a[i] + 0.2f * spread_a - reaction + feed * (1 - a[i]);
        b_next[i] = b[i] + 0.1f * spread_b + reaction - (feed + kill) * b[i];
    """,
)

with kk.open_device() as device, kk.ProgramCache(device) as cache:
    run = kk.run(
        cache,
        gray_scott,
        iterations=ITERATIONS,
        checkpoint="patterns.kkpt",
        checkpoint_every=0.5,
        resume=True,
    )
    print(run.report)
    plt.imsave("patterns.png", run.state["b"].numpy(), cmap="inferno")
