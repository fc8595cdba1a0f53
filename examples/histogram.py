"""A histogram: every group counts in an array it shares, and adds its counts to the result at the end.

Run it with `python examples/histogram.py`; it runs on every device found, or on the one that $KERNELKEEP_DEVICE names.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

import kernelkeep as kk

BINS, GROUP, PER_ITEM = 64, 128, 16
HISTOGRAM = kk.PortableKernel(
    "histogram",
    params=[kk.Buffer("values", "f4", "r"), kk.Buffer("counts", "u4", "rw"), kk.Scalar("n", "i4")],
    body="""kk_shared(uint, bins, BINS);
int local_id = kk_local_id(0);
for (int b = local_id; b < BINS; b += kk_group_size(0)) bins[b] = 0u;
kk_barrier();
for (int i = kk_global_id(0); i < n; i += kk_global_size(0)) {
  int b = kk_int(values[i] * kk_float(BINS));
  if (b >= 0 && b < BINS) kk_atomic_add(bins[b], 1u);
}
kk_barrier();
for (int b = local_id; b < BINS; b += kk_group_size(0)) kk_atomic_add(counts[b], bins[b]);""",
    group=GROUP,
    defines={"BINS": BINS},
)


def run_on(device: kk.Device, host: npt.NDArray[np.float32]) -> None:
    values, counts = device.array(host), device.zeros(BINS, "u4")
    groups = kk.groups(host.size, GROUP * PER_ITEM)
    with kk.ProgramCache(device) as cache, cache.get(HISTOGRAM) as lease:
        with device.timer() as timer:
            lease.kernel("histogram").launch(groups, (values, counts, host.size))
        result = counts.numpy()
    expected, _ = np.histogram(host, bins=BINS, range=(0, 1))
    np.testing.assert_array_equal(result, expected)
    print(f"{device.spec}: {host.size:,} values in {BINS} bins, as NumPy has them, in {timer.seconds * 1e3:.2f} ms")


def main() -> None:
    chosen = os.environ.get("KERNELKEEP_DEVICE")
    host = np.random.default_rng(1).beta(2.0, 5.0, 300_000).astype("f4")
    for spec in [chosen] if chosen else [info.spec for info in kk.list_devices()]:
        with kk.open_device(spec) as device:
            run_on(device, host)


if __name__ == "__main__":
    main()
