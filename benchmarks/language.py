"""What it takes to check a kernel of 100 lines and to write it for each target.

    cold    in a fresh process, after `import kernelkeep` and the making of the kernel: the import of the reader, the checker
            and one writer, then reading with checking, then writing; and all of it as users get it, by kernel.source(target).text
    warm    the same kernel again, everything imported

Cold times are CPU time, so that other processes count little. `--runs 40` sets how many fresh processes each target gets.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import kernelkeep as kk
from common import long_run, row, show
from kernelkeep.language import writers
from kernelkeep.language.readers.c import read_body
from kernelkeep.language.tree import kernel_parameter
from kernelkeep.programs.signature import declaration, entry_symbol

PARTICLES = """\
#define TILE 64
#define BINS 32

struct body { float x, y, z, mass; };
const float WEIGHTS[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};

float squared(float v) { return v * v; }

// The softened distance between two bodies, and what they pull at each other with.
float distance_of(struct body a, struct body b, float softening) {
    float dx = b.x - a.x, dy = b.y - a.y, dz = b.z - a.z;
    return sqrt(squared(dx) + squared(dy) + squared(dz) + softening);
}

float smoothed(const float values[], int at, int n) {
    float sum = 0;
    for (int k = -2; k <= 2; k++) {
        int where = at + k;
        if (where < 0) where = 0;
        if (where >= n) where = n - 1;
        sum += WEIGHTS[k + 2] * values[where];
    }
    return sum;
}

int bin_of(float speed, float top) {
    int bin = (int)(speed / top * BINS);
    return clamp(bin, 0, BINS - 1);
}

struct body loaded(const float* positions, int at) {
    struct body found;
    found.x = positions[4 * at];
    found.y = positions[4 * at + 1];
    found.z = positions[4 * at + 2];
    found.mass = positions[4 * at + 3];
    return found;
}

kk_shared(float, tile, TILE, 4);
kk_shared(float, partial, TILE);
kk_shared(int, counts, BINS);
int i = kk_global_id(0), me = kk_local_id(0);
for (int b = me; b < BINS; b += TILE) counts[b] = 0;
kk_barrier();

struct body mine = loaded(positions, i < n ? i : n - 1);
float ax = 0.0f, ay = 0.0f, az = 0.0f;
for (int start = 0; start < n; start += TILE) {
    int other = start + me;
    if (other < n) {
        for (int c = 0; c < 4; c++) tile[me][c] = positions[4 * other + c];
    } else {
        tile[me][3] = 0;
    }
    kk_barrier();
    kk_unroll
    for (int k = 0; k < TILE; k++) {
        struct body theirs = {tile[k][0], tile[k][1], tile[k][2], tile[k][3]};
        float d = distance_of(mine, theirs, softening);
        float pull = theirs.mass / (d * d * d);
        ax += (theirs.x - mine.x) * pull;
        ay += (theirs.y - mine.y) * pull;
        az += (theirs.z - mine.z) * pull;
    }
    kk_barrier();
}

float energy = 0;
if (i < n) {
    float vx = speeds[3 * i] + ax * step, vy = speeds[3 * i + 1] + ay * step, vz = speeds[3 * i + 2] + az * step;
    speeds[3 * i] = vx;
    speeds[3 * i + 1] = vy;
    speeds[3 * i + 2] = vz;
    float speed = sqrt(squared(vx) + squared(vy) + squared(vz));
    energy = 0.5f * mine.mass * speed * speed;
    kk_atomic_add(counts[bin_of(speed, 10.0f)], 1);
    blurred[i] = 0.5f * smoothed(blurred, i, n) + (i % 2 == 0 ? speed : -speed);
    switch (flags[i] & 3) {
        case 0: flags[i] |= 1; break;
        case 1: flags[i] += 2;
        default: flags[i] ^= i << 2;
    }
}

partial[me] = energy;
kk_barrier();
for (int half_size = TILE / 2; half_size > 0; half_size >>= 1) {
    if (me < half_size) partial[me] += partial[me + half_size];
    kk_barrier();
}
if (me == 0) kk_atomic_add(totals[0], partial[0]);
for (int b = me; b < BINS; b += TILE) {
    if (counts[b] != 0) kk_atomic_add(histogram[b], counts[b]);
}
"""
KERNEL = """kk.PortableKernel(
    "particles",
    params=[
        kk.Buffer("positions", "f4", "r"), kk.Buffer("speeds", "f4"), kk.Buffer("blurred", "f4"), kk.Buffer("flags", "i4"),
        kk.Buffer("histogram", "i4"), kk.Buffer("totals", "f4"), kk.Scalar("n", "i4"), kk.Scalar("softening", "f4"),
        kk.Scalar("step", "f4"),
    ],
    body=PARTICLES,
    group=64,
)"""
_CHILD = """\
import time
import kernelkeep as kk
PARTICLES = {body!r}
kernel = {kernel}
parameters = [(p.name, p.dtype, getattr(p, "access", None)) for p in kernel.params]
from kernelkeep.programs.signature import declaration, entry_symbol
head = declaration(kernel.signature), entry_symbol(kernel.name), kernel.signature.group
clock = time.process_time_ns
start = clock()
if {whole}:
    kernel.source({target!r}).text
    print(clock() - start)
    raise SystemExit
from kernelkeep.language.tree import kernel_parameter
from kernelkeep.language.readers.c import read_body
from kernelkeep.language import writers
from kernelkeep.language.writers import {target}
imported = clock()
module = read_body(kernel.name, [kernel_parameter(*one) for one in parameters], kernel.body, group=kernel.signature.group).module
read = clock()
writers.write({target!r}, module, writers.Entry(*head))
print(imported - start, read - imported, clock() - read)
"""


def cold(target: str, *, whole: bool = False) -> list[float]:
    """Seconds of CPU time in a fresh process: import, reading, writing; or all of it as one, by `kernel.source`."""
    program = _CHILD.format(body=PARTICLES, kernel=KERNEL, target=target, whole=whole)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment)
    return [int(one) / 1e9 for one in child.stdout.split()]


def warm(targets: tuple[str, ...], rounds: int = 50) -> dict[str, float]:
    """The best CPU seconds of reading, and of writing for each target."""
    kernel: kk.PortableKernel = eval(KERNEL, {"kk": kk, "PARTICLES": PARTICLES})
    parameters = [kernel_parameter(p.name, p.dtype, getattr(p, "access", None)) for p in kernel.params]
    group = kernel.signature.group
    assert group is not None
    entry = writers.Entry(declaration(kernel.signature), entry_symbol(kernel.name), group)
    module = read_body(kernel.name, parameters, kernel.body, group=group).module
    work: dict[str, Callable[[], object]] = {
        "reading": partial(read_body, kernel.name, parameters, kernel.body, group=group),
        **{target: partial(writers.write, target, module, entry) for target in targets},
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, one in work.items():
            start = time.process_time()
            one()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    """Print two tables."""
    runs = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 20 if long_run() else 7
    targets = tuple(writers.TARGETS)
    parts: dict[str, list[list[float]]] = {target: [] for target in targets}
    whole: dict[str, list[float]] = {target: [] for target in targets}
    for target in targets:
        cold(target)  # bytecode
    for _ in range(runs):
        for target in targets:
            parts[target].append(cold(target))
            whole[target] += cold(target, whole=True)
    rows = []
    for target in targets:
        middle = [1000 * statistics.median(one[part] for one in parts[target]) for part in range(3)]
        rows.append((target, *middle, 1000 * statistics.median(whole[target]), 1000 * min(whole[target])))
    lines = PARTICLES.count("\n")
    for target in targets:
        median = 1000 * statistics.median(whole[target])
        imported, read, written = (1000 * statistics.median(one[part] for one in parts[target]) for part in range(3))
        note = f"importing {imported:.1f}, reading {read:.1f}, writing {written:.1f}; only where a program is compiled"
        work = f"a kernel of {lines} lines read and written as {target}, with imports"
        row(work, median, "ms", goal="≤ 10", note=note)
    show(
        f"cold, {lines} lines, ms of CPU time",
        ("target", "import", "read, check", "write", "source().text", "least"),
        rows,
    )
    best = warm(targets)
    show(
        "warm, the least of 50",
        ("what", "ms", "lines in a second"),
        [(name, 1000 * seconds, f"{lines / seconds:,.0f}") for name, seconds in best.items()],
    )


if __name__ == "__main__":
    main()
