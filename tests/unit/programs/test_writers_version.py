"""A program that was compiled from another text must not be found in a cache: what writers write has a version.

The texts of some kernels have a digest, which is recorded here with the version that wrote them.
"""

from __future__ import annotations

import hashlib

from kernelkeep.continuous.lowering.forms import lower
from kernelkeep.language.writers import TARGETS
from kernelkeep.programs.languages import find_language
from kernelkeep.programs.portable import Buffer, PortableKernel, Scalar
from kernelkeep.programs.portable_source import WRITERS_VERSION
from kernelkeep.samples.basic import SAMPLES
from kernelkeep.samples.states import STATE_SAMPLES

RECORDED = (2, "38a2475a64bd192b")
_EVERYTHING = """
#define LIMIT 100
struct pair { float a; int b; };
const float WEIGHTS[3] = {0.25f, 0.5f, 0.25f};
float blurred(const float v[], int at, int n) {
    float s = 0;
    for (int k = -1; k <= 1; k++) s += v[clamp(at + k, 0, n - 1)] * WEIGHTS[k + 1];
    return s;
}
int i = kk_global_id(0), l = kk_local_id(0);
kk_shared(float, tile, 64);
kk_shared(int, counts, 4);
tile[l] = i < n ? x[i] : 0.5;
if (l < 4) counts[l] = 0;
kk_barrier();
kk_atomic_add(counts[l & 3], i % 7 / 2);
kk_atomic_max(y[0], tile[l]);
kk_barrier();
struct pair p = {blurred(tile, l, 64), counts[l % 4] << (i & 40)};
unsigned char small = bytes[i], other;
other = small++ * 3;
switch (small & 3) {
    case 0: p.b++; break;
    case 1: p.a -= 1;
    default: p.b = (int)(p.a * 1e10f) - p.b;
}
do { other >>= 1; if (other == 5) continue; } while (other > 3 && p.b != LIMIT);
float4 v = (float4)(p.a, 1, 2, 3) * 2.0f;
v.yz += v.xw;
if (i >= n) return;
bytes[i] = other;
y[i] = fma(v.y, sqrt(fabs(v.z)), -p.b) + pow(v.w, 0.5f);
"""


def test_another_text_needs_another_version() -> None:
    params: list[Buffer | Scalar] = [
        Buffer("x", "f4", "r"),
        Buffer("y", "f4"),
        Buffer("bytes", "u1"),
        Scalar("n", "i4"),
    ]
    kernels = [PortableKernel("everything", params, _EVERYTHING, 64), *(sample.kernel for sample in SAMPLES)]
    kernels += [lower(one.program(one.size), kind).kernel for one in STATE_SAMPLES for kind in ("step", "group")]
    written = hashlib.sha256()
    for target in TARGETS:
        for kernel in kernels:
            if kernel.functions is not None and not find_language(target).state_helpers:
                continue  # there are no devices that run it
            written.update(kernel.source(target).text.encode())
    now = (WRITERS_VERSION, written.hexdigest()[:16])
    assert now == RECORDED, (
        f"the writers write other texts than those of version {RECORDED[0]}: raise WRITERS_VERSION by 1 if that version "
        f"was released, and record {now}"
    )
