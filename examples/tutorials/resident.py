"""A kernel that stays and takes small tasks: drops fall where the water is calm."""

import time

import matplotlib.pyplot as plt
import numpy as np

import kernelkeep as kk

SIZE = 160
WAVE = """(int size) {
    for (int i = kk_global_id(0); i < size * size; i += kk_global_size(0)) {
        int x = i % size, y = i / size;
        float around = OLD[x > 0 ? i - 1 : i] + OLD[x < size - 1 ? i + 1 : i]
                     + OLD[y > 0 ? i - size : i] + OLD[y < size - 1 ? i + size : i];
        NEW[i] = 0.997f * (2 * OLD[i] - NEW[i] + 0.2f * (around - 4 * OLD[i]));
    }
}"""
DROP = """(int size, int x0, int y0) {
    for (int i = kk_global_id(0); i < size * size; i += kk_global_size(0)) {
        float dx = i % size - x0, dy = i / size - y0;
        float height = exp(-(dx * dx + dy * dy) / 12);
        water[i] += height; before[i] += height;
    }
}"""
LOOK = "(int i) { if (kk_local_id(0) == 0) kk_result(water[i]); }"
forth, back = WAVE.replace("OLD", "water"), WAVE.replace("OLD", "before")
tasks = {
    "drop": kk.Task(DROP, whole_grid=True),
    "forth": kk.Task(forth.replace("NEW", "before"), whole_grid=True),
    "back": kk.Task(back.replace("NEW", "water"), whole_grid=True),
    "look": kk.Task(LOOK, result="f4"),
}
arrays = {"water": np.zeros((SIZE, SIZE), "f4"), "before": np.zeros((SIZE, SIZE), "f4")}

with kk.open_device() as device, kk.ProgramCache(device) as cache:
    grid = kk.Resident if device.spec.startswith("cuda") else kk.Resident.emulated
    with grid(cache, tasks, arrays, blocks=2) as resident:
        for x, y in np.random.default_rng(8).integers(20, SIZE - 20, (6, 2)).tolist():
            height = resident.submit("look", y * SIZE + x).result()
            if abs(height) < 0.01:  # only where the water is calm
                resident.submit("drop", SIZE, x, y)
            print(f"water at {x}, {y}: {height:+.3f}")
            for _ in range(11):
                resident.submit("forth", SIZE)
                resident.submit("back", SIZE)
        started = time.perf_counter()
        for _ in range(100):
            resident.submit("look", 0).result()
        seconds = (time.perf_counter() - started) / 100
        print(f"a task and the wait for it: {seconds * 1e6:.0f} µs")
        with resident.paused():
            water = resident.arrays["water"].numpy()
plt.imsave("water.png", water, cmap="GnBu_r", vmin=-0.2, vmax=0.3)
