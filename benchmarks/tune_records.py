"""Tunes gemm and conv2d on a device and writes the records that are shipped with the kernels. For maintainers.

    python benchmarks/tune_records.py FOLDER [problem …] [--device SPEC] [--seconds N] [--name NAME] [--cache-dir DIR]

FOLDER is where the files go, such as src/kernelkeep/kernels/records: one for each kernel, named KERNEL-WAY-NAME.jsonl,
where WAY is the template for the kind of device and NAME the device, such as h200-cuda or x86-pocl. A file is written
anew after each problem: what is not finished in time loses nothing. Lines of problems that are not tuned now stay as
they are, and so do those of other architectures: a processor with wider vectors needs other variants. What is known in the
cache folder is not measured again, so the command may be repeated to search longer.

A problem is named by a part of its title, such as "gemm" or "conv2d 1×64"; all of them by default.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import kernelkeep as kk
from common import show
from kernelkeep.kernels.templates import template_kind
from kernelkeep.variants.record import Record, decode_lines, encode_line
from kernelkeep.variants.values import canonical
from kernels import PROBLEMS, Problem, conv2d_of, gemm_of

KEPT = 3  # variants of a problem: where the best does not fit a device, the next may
MOST_SAMPLES = 9
MEASURED_WELL = 9  # samples; the few that tuning measured again beside each other have that many
OTHERS = [
    *(gemm_of(size, size, size) for size in (128, 512, 2048)),
    gemm_of(1024, 1024, 64),
    gemm_of(4096, 64, 64),
    conv2d_of(1, 3, 64, 224, 7, stride=2, pad=3),
    conv2d_of(1, 256, 256, 14, 3, pad=1),
    conv2d_of(1, 64, 64, 56, 1),
]


def device_name(device: kk.Device) -> str:
    """What a file is called after: the chip and the API, or for a CPU the kind of processor and the driver."""
    if device.info.is_gpu:
        model = re.sub(r"(?i)nvidia|geforce|amd|radeon|intel|\(r\)|\(tm\)|/.*", " ", device.info.name)
        return f"{_plain(model)}-{device.backend}"
    machine = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm"}.get(platform.machine().lower(), platform.machine())
    driver = f"{device.info.driver} {device.info.name}".lower()
    known = (("portable computing", "pocl"), ("llvmpipe", "llvmpipe"))
    return f"{_plain(machine)}-{next((name for text, name in known if text in driver), device.backend)}"


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def best_records(cache: kk.ProgramCache, problem: Problem) -> list[Record]:
    """The fastest variants of a problem among those measured side by side: a lucky sample is not to be shipped."""
    tuned = problem.tuned(cache.device)
    known = tuned.records(cache).known(
        tuned.name, cache.device.fingerprint.digest, problem.sizes, tuned.definition.dtype
    )
    good = [record for record in known.values() if not record.failure and record.median_ms is not None]
    well = [record for record in good if len(record.samples_ms) >= MEASURED_WELL] or good
    well.sort(key=lambda record: record.median_ms or 0.0)
    return [msgspec.structs.replace(r, samples_ms=fewer(r.samples_ms), detail="") for r in well[:KEPT]]


def fewer(samples: list[float]) -> list[float]:
    """Evenly spaced samples, the smallest, the largest and the middle among them."""
    ordered = sorted(samples)
    if len(ordered) > MOST_SAMPLES:
        last = len(ordered) - 1
        ordered = [ordered[round(i * last / (MOST_SAMPLES - 1))] for i in range(MOST_SAMPLES)]
    return [float(f"{sample:.4g}") for sample in ordered]


def write(path: Path, records: list[Record]) -> int:
    """Put the records into the file, in place of those it has of the same problems and architecture; how many it has then."""
    new = {(record.architecture, canonical(record.problem)) for record in records}
    kept: list[Record] = []
    if path.exists():
        with path.open("rb") as lines:
            there = [item for item in decode_lines(lines)[0] if isinstance(item, Record)]
        kept = [record for record in there if (record.architecture, canonical(record.problem)) not in new]
    everything = sorted(
        [*kept, *records],
        key=lambda record: (record.architecture, canonical(record.problem), record.median_ms or 0.0),
    )
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(b"".join(encode_line(record) for record in everything))
    temporary.replace(path)
    return len(everything)


def tune(cache: kk.ProgramCache, problem: Problem, path: Path, seconds: float) -> list[Any]:
    """Tune, write, and say in a row what came of it."""
    report = problem.tuned(cache.device).tune(cache, problem.sizes, budget_seconds=seconds)
    records = best_records(cache, problem)
    if not records:
        return [problem.title, f"nothing: {report.failures}", "", "", len(report.attempts), report.seconds, ""]
    lines = write(path, records)
    microseconds = (records[0].median_ms or 0.0) * 1e3
    speed = problem.flop / microseconds * 1e-3
    variant = " ".join(f"{name}={value}" for name, value in records[0].variant.items())
    return [problem.title, variant, microseconds, speed, len(report.attempts), report.seconds, f"{path.name}: {lines}"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune gemm and conv2d, and write the records that are shipped.")
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("problems", nargs="*", help="parts of titles; all problems by default")
    parser.add_argument("--device", help="such as cuda or opencl:0; the best by default")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each problem")
    parser.add_argument("--name", help="what the files are called after, such as h200-cuda; told from the device")
    parser.add_argument("--cache-dir", help="where programs and measurements are; the user's own by default")
    parser.add_argument("--json", action="store_true", help="JSON lines in place of a table")
    options = parser.parse_args()
    asked = [p for p in [*PROBLEMS, *OTHERS] if not options.problems or any(t in p.title for t in options.problems)]
    if not asked:
        parser.error("there is no such problem")
    options.folder.mkdir(parents=True, exist_ok=True)
    rows: list[list[Any]] = []
    began = time.perf_counter()
    with (
        kk.open_device(options.device, cache_dir=options.cache_dir) as device,
        kk.ProgramCache(device, options.cache_dir) as cache,
    ):
        kind, name = template_kind(device), options.name or device_name(device)
        print(f"{device.spec}: {device.info.name}; files are called after {kind}-{name}", file=sys.stderr)
        for problem in asked:
            try:
                row = tune(cache, problem, options.folder / f"{problem.kernel}-{kind}-{name}.jsonl", options.seconds)
            except Exception as error:  # one that fails is not to lose the others
                row = [problem.title, " ".join(f"{type(error).__name__}: {error}".split())[:200], "", "", "", "", ""]
            rows.append(row)
            print(f"{time.perf_counter() - began:.0f} s: {row}", file=sys.stderr, flush=True)
    columns = ["problem", "best", "µs", "GFLOP/s", "tried", "seconds", "lines"]
    show(f"Records of {device.spec}", columns, rows)


if __name__ == "__main__":
    main()
