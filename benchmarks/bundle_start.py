"""A bundle made on a machine without a GPU, and 50 programs started from it on one with a GPU, without a compile.

    python benchmarks/bundle_start.py make kernels.kkb --target cuda:sm_90      # anywhere; no GPU is needed
    python benchmarks/bundle_start.py start kernels.kkb --device cuda           # on a machine with such a GPU

`start` opens the device, imports the bundle into a new cache folder, gets every program, launches each once, and compares each
result with NumPy's. It ends with 1 if anything was compiled or any result is wrong. With --compare it then compiles the
same programs into another new folder: what the bundle saved.

The programs are the eight kernels of `kernelkeep.samples.startup`, each under several names. The bundle is signed with the key
below, which is no secret: a bundle of your own needs a key of your own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import kernelkeep as kk
from kernelkeep.samples.basic import Sample, largest_error
from kernelkeep.samples.startup import STARTUP_SAMPLES

PROGRAMS = 50
KEY = b"the key of a benchmark, which is no secret"


def programs(count: int = PROGRAMS) -> list[Sample]:
    """Small programs with references, each with a kernel name of its own."""
    found = []
    for number in range(count):
        sample = STARTUP_SAMPLES[number % len(STARTUP_SAMPLES)]
        kernel = dataclasses.replace(sample.kernel, name=f"{sample.kernel.name}_{number}")
        found.append(dataclasses.replace(sample, kernel=kernel))
    return found


def make(path: Path, targets: list[str], count: int) -> dict[str, Any]:
    """Compile the programs for the targets and bundle them."""
    with tempfile.TemporaryDirectory() as folder:
        ahead = kk.compile_ahead([sample.kernel for sample in programs(count)], targets, folder)
        if not ahead.ok:
            raise SystemExit(str(ahead))
        bundle = kk.export_bundle(folder, path, signing_key=KEY)
    return {
        "targets": targets,
        "programs": ahead.compiled,
        "compile_seconds": round(ahead.seconds, 3),
        "bundle_bytes": bundle.bytes,
        "export_seconds": round(bundle.seconds, 4),
    }


def start(path: Path | None, device: kk.Device, count: int) -> dict[str, Any]:
    """Get and launch every program, from a bundle if there is one."""
    samples = programs(count)
    inputs = {id(sample): sample.inputs() for sample in samples}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, kk.ProgramCache(device, folder) as cache:
        if path is not None:
            added = kk.import_bundle(cache, path, signing_key=KEY)
            figures = {"imported": added.entries, "import_ms": round(added.seconds * 1e3, 2)}
            figures["first"] = cache.explain(samples[0].kernel).note
        began = time.perf_counter()
        leases = [cache.get(sample.kernel) for sample in samples]
        figures["get_ms"] = round((time.perf_counter() - began) * 1e3, 2)
        origins = Counter(lease.origin for lease in leases)
        wrong = []
        launching = 0.0
        for sample, lease in zip(samples, leases, strict=True):
            args, output = sample.upload(device, inputs[id(sample)])
            began = time.perf_counter()
            lease.kernel(sample.name).launch(sample.grid, args)
            device.synchronize()
            launching += time.perf_counter() - began
            error = largest_error(output.numpy(), sample.reference(inputs[id(sample)]))
            if problem := sample.what_is_wrong(error):
                wrong.append(problem)
            lease.release()
        compiles = cache.stats().compiles
    return figures | {
        "programs": len(samples),
        "compiles": compiles,
        "origins": dict(origins),
        "first_launches_ms": round(launching * 1e3, 2),
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "start"))
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--target", action="append", help="such as cuda:sm_90; several times for several")
    parser.add_argument("--device", help="such as cuda:0, instead of the best one")
    parser.add_argument("--programs", type=int, default=PROGRAMS)
    parser.add_argument("--compare", action="store_true", help="then compile the same programs")
    asked = parser.parse_args()
    if asked.what == "make":
        print(json.dumps(make(asked.bundle, asked.target or ["cuda:sm_90"], asked.programs), indent=2))
        return 0
    with kk.open_device(asked.device) as device:
        print(f"{device.spec}: {device.info.name}, {device.fingerprint.folder}")
        figures = start(asked.bundle, device, asked.programs)
        print(json.dumps(figures, indent=2))
        if asked.compare:
            print("compiled here instead:")
            print(json.dumps(start(None, device, asked.programs), indent=2))
    return 0 if figures["compiles"] == 0 and not figures["wrong"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
