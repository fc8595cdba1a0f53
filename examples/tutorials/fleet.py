"""Several processes compile and tune; every machine finds the results in a store."""

import tempfile
import time

import numpy as np

import kernelkeep as kk
from kernelkeep import fleet

PARAMS: list[kk.Buffer | kk.Scalar] = [
    kk.Buffer("x", "f4", "r"),
    kk.Buffer("y", "f4", "w"),
    kk.Scalar("n", "i4"),
]
SERIES = [
    kk.PortableKernel(
        f"series{degree}",
        params=PARAMS,
        body="int i = kk_global_id(0); if (i < n) y[i] = 1"
        + "".join(f" + pow(x[i], {k}.0f) / {k}" for k in range(1, degree + 1))
        + ";",
    )
    for degree in range(1, 9)
]
smooth = kk.Tuned(
    "smooth",
    kk.Template(
        """for (int j = 0; j < PER_ITEM; j++) {
               int i = kk_global_id(0) * PER_ITEM + j;
               if (i < n) y[i] = (x[max(i - 1, 0)] + x[i] + x[min(i + 1, n - 1)]) / 3;
           }""",
        params=PARAMS,
        group=lambda v: v["GROUP"],
        grid=lambda v: kk.groups(v["n"], v["GROUP"] * v["PER_ITEM"]),
    ),
    kk.VariantSpace(GROUP=[32, 256], PER_ITEM=[1, 4]),
    reference=lambda x: np.convolve(np.pad(x, 1, "edge"), [1 / 3] * 3, "valid"),
)

if __name__ == "__main__":  # workers import this file
    import matplotlib.pyplot as plt  # takes a second, and workers do not draw

    warmed = fleet.warm(SERIES, workers=2)
    print(warmed)
    problems = [{"n": 100_000}, {"n": 1_000_000}]
    print(fleet.tune(f"{__file__}:smooth", problems, budget_seconds=30))

    # A machine that starts later: it shares nothing with the others but the store.
    device = kk.open_device()
    with kk.ProgramCache(device, tempfile.mkdtemp()) as cache:
        x, y = device.full(1000, 0.5, "f4"), device.empty(1000, "f4")
        seconds = []
        for kernel in SERIES:
            started = time.perf_counter()
            with cache.get(kernel) as lease:
                lease.kernel().launch(kk.groups(1000), (x, y, 1000))
                y.numpy()
            seconds.append(time.perf_counter() - started)
        stats = cache.stats()
        found = f"{stats.compiles} compiled, {stats.hits_remote} from the store"
        print(f"a new machine: {found}, {sum(seconds):.2f} s")
    compiled = [part.seconds for part in warmed.parts]
    rows = np.arange(len(SERIES))
    plt.figure(figsize=(7, 3.2), layout="constrained")
    plt.barh(rows - 0.2, compiled, 0.4, label="compiled by the fleet")
    plt.barh(rows + 0.2, seconds, 0.4, label="loaded and run on a new machine")
    plt.yticks(rows, [kernel.name for kernel in SERIES])
    plt.xlabel("seconds")
    plt.legend()
    plt.savefig("fleet.png", dpi=110)
