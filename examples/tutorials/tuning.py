"""How many pixels of each brightness? The fastest variant is found and remembered."""

import numpy as np

import kernelkeep as kk

histogram = kk.Tuned(
    "histogram",
    kk.Template(
        """kk_shared(uint, part, 256);
           int me = kk_local_id(0), all = kk_global_size(0);
           for (int b = me; b < 256; b += GROUP) part[b] = 0u;
           kk_barrier();
           for (int i = kk_global_id(0); i < n; i += all)
               kk_atomic_add(part[pixels[i]], 1u);
           kk_barrier();
           for (int b = me; b < 256; b += GROUP) kk_atomic_add(counts[b], part[b]);""",
        params=[
            kk.Buffer("pixels", "u1", "r"),
            kk.Buffer("counts", "u4", "rw"),
            kk.Scalar("n", "i4"),
        ],
        arrays={"pixels": "n", "counts": 256},
        group=lambda v: v["GROUP"],
        grid=lambda v: kk.groups(v["n"], v["GROUP"] * v["PER_ITEM"]),
    ),
    kk.VariantSpace(GROUP=[64, 128, 256], PER_ITEM=[1, 8, 64, 512]),
    inputs=lambda v, rng: {
        "pixels": rng.integers(0, 256, v["n"], "u1"),
        "counts": np.zeros(256, "u4"),
    },
    reference=lambda pixels: np.bincount(pixels.astype("i4"), minlength=256),
)

n = 1 << 20
pixels = np.random.default_rng(1).normal(128, 30, n).clip(0, 255).astype("u1")
with kk.open_device() as device, kk.ProgramCache(device) as cache:
    report = histogram.tune(cache, {"n": n}, budget_seconds=60)
    print(report)
    report.save_picture("histogram.png")
    counts = histogram.run(cache, {"n": n}, pixels=pixels).numpy()
assert (counts == np.bincount(pixels, minlength=256)).all()
print("the commonest brightness is", counts.argmax())
