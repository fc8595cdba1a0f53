"""How much time the cache saves at start-up: the same kernels in two fresh processes, one after the other.

The first process starts with an empty cache folder and compiles; the second uses the first one's folder. They share nothing
else: other caches of drivers and libraries are turned off or start empty in each of them. The clock runs inside the process,
from the open device until every kernel's first result was compared with the reference. Python's start, the imports and
opening the device take the same time in both and are not counted.

`python -m kernelkeep.observe.warm_start opencl:0` is such a process; it uses $KERNELKEEP_CACHE_DIR.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cache.program_cache import ProgramCache
from ..devices.base import Device, DeviceInfo
from ..devices.registry import open_device
from ..errors import DeviceError, KernelKeepError
from ..processes import python_environment
from ..samples.basic import Sample, largest_error
from ..samples.startup import STARTUP_SAMPLES

_TIMEOUT_SECONDS = 600  # a busy machine with two cores once took more than 120
# The children's OpenGL driver must not use the folder where this process's keeps its shaders.
_NOT_INHERITED = ("MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH")


@dataclass(frozen=True)
class Start:
    """One process's start on one device. `speed_up` and `saved_seconds` compare a warm start with the cold one before it.

    Where `ok` is false, `problem` says why and the numbers mean nothing.
    """

    device: str
    start: str  # "cold" or "warm"
    ok: bool
    programs: int = 0
    compiled: int = 0
    from_disk: int = 0
    seconds: float | None = None
    speed_up: float | None = None
    saved_seconds: float | None = None
    problem: str = ""


def compare_starts(devices: Iterable[DeviceInfo]) -> Iterator[Start]:
    """A cold and a warm start on each device, each in a process of its own, with a cache folder that is removed after."""
    for info in devices:
        with tempfile.TemporaryDirectory(prefix="kernelkeep-demo-", ignore_cleanup_errors=True) as folder:
            cold = _start_process(info.spec, "cold", Path(folder))
            yield cold
            if not cold.ok:
                continue
            warm = _start_process(info.spec, "warm", Path(folder))
            if cold.seconds and warm.seconds:
                speed_up, saved = cold.seconds / warm.seconds, cold.seconds - warm.seconds
                warm = dataclasses.replace(warm, speed_up=speed_up, saved_seconds=saved)
            yield warm


def _start_process(spec: str, start: str, folder: Path) -> Start:
    elsewhere = folder / f"others-{start}"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment |= {
        "KERNELKEEP_CACHE_DIR": str(folder / "cache"),
        "POCL_CACHE_DIR": str(elsewhere),
        "XDG_CACHE_HOME": str(elsewhere),
        "CUDA_CACHE_DISABLE": "1",
        "CUDA_CACHE_PATH": str(elsewhere),
    }
    command = [sys.executable, "-P", "-m", __name__, spec]
    try:
        done = subprocess.run(
            command, env=python_environment(environment), capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Start(spec, start, ok=False, problem=f"the process took longer than {_TIMEOUT_SECONDS} s")
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return Start(spec, start, **found)
    except (IndexError, ValueError, TypeError):
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"it ended with {done.returncode}"
        return Start(spec, start, ok=False, problem=f"the process failed: {reason}")


def measure_start(device: Device, samples: Iterable[Sample] = STARTUP_SAMPLES) -> dict[str, Any]:
    """Run every sample through a new `ProgramCache` and check its result; returns fields of a `Start`."""
    work = []
    for sample in samples:
        inputs = sample.inputs()
        work.append((sample, inputs, sample.reference(inputs)))
    origins: list[str] = []
    wrong: list[str] = []
    start = time.perf_counter()
    with ProgramCache(device, remote=[]) as cache:
        for sample, inputs, expected in work:
            with cache.get(sample.kernel) as lease:
                args, output = sample.upload(device, inputs)
                lease.kernel(sample.name).launch(sample.grid, args)
                result = output.numpy()
                origins.append(lease.origin)
            wrong.append(sample.what_is_wrong(largest_error(result, expected)))
        # Saving continues in the background and at the end of the block; a program waits for results only.
        seconds = time.perf_counter() - start
    return {
        "ok": not any(wrong),
        "programs": len(origins),
        "compiled": origins.count("compiled"),
        "from_disk": origins.count("disk"),
        "seconds": seconds,
        "problem": "; ".join(filter(None, wrong)),
    }


def _main(spec: str) -> None:
    try:
        with open_device(spec) as device:
            found = measure_start(device)
    except KernelKeepError as error:
        kind = "device" if isinstance(error, DeviceError) else "program"
        found = {"ok": False, "problem": f"the {kind} failed: {error}"}
    print(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1])
