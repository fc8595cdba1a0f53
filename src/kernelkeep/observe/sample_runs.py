"""Running a sample kernel on a device, checked and measured: the work behind `kernelkeep demo`."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..devices.base import Device, DeviceInfo
from ..devices.registry import open_device
from ..errors import KernelKeepError
from ..samples.basic import SAMPLES, Sample, largest_error


@dataclass(frozen=True)
class SampleRun:
    """One sample on one device. Times are None, and `problem` says why, where it could not be run.

    `first_launch_seconds` and `launch_seconds` are from the launch to the end of its work, seen from the host; the
    latter is the median of `launches`. Drivers keep caches of their own, so `compile_seconds` is not always cold.
    """

    device: str
    device_name: str
    sample: str
    ok: bool
    compile_seconds: float | None = None
    load_seconds: float | None = None
    first_launch_seconds: float | None = None
    launch_seconds: float | None = None
    launches: int = 0
    max_error: float | None = None
    problem: str = ""


def run_sample(device: Device, sample: Sample, *, launches: int = 50) -> SampleRun:
    """Compile, load and launch a sample, compare its result with the reference, then time `launches` more."""
    inputs = sample.inputs()
    args, output = sample.upload(device, inputs)
    source = sample.kernel.source(device)

    started = time.perf_counter()
    binary = device.compile(source)
    compiled = time.perf_counter()
    with device.load(binary) as program:
        kernel = program.kernel(sample.name)
        loaded = time.perf_counter()
        device.synchronize()

        def launch() -> float:
            before = time.perf_counter()
            kernel.launch(sample.grid, args)
            device.synchronize()
            return time.perf_counter() - before

        first = launch()
        # Compared before the timed launches: a kernel that updates in place is right after one launch only.
        max_error = largest_error(output.numpy(), sample.reference(inputs))
        median = statistics.median(launch() for _ in range(launches)) if launches else None
    problem = sample.what_is_wrong(max_error)
    return SampleRun(
        device=device.spec,
        device_name=device.info.name,
        sample=sample.name,
        ok=not problem,
        compile_seconds=compiled - started,
        load_seconds=loaded - compiled,
        first_launch_seconds=first,
        launch_seconds=median,
        launches=launches,
        max_error=max_error,
        problem=problem,
    )


def run_samples(
    devices: Iterable[DeviceInfo],
    samples: Iterable[Sample] = SAMPLES,
    *,
    launches: int = 50,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Iterator[SampleRun]:
    """Run every sample on every device, one after the other. A failure is a run that is not ok, and the rest continues."""
    samples = tuple(samples)
    for info in devices:
        try:
            device = open_device(info.spec, cache_dir=cache_dir)
        except KernelKeepError as error:
            yield from (_failed(info, sample, error) for sample in samples)
            continue
        with device:
            for sample in samples:
                try:
                    yield run_sample(device, sample, launches=launches)
                except KernelKeepError as error:
                    yield _failed(info, sample, error)


def _failed(info: DeviceInfo, sample: Sample, error: KernelKeepError) -> SampleRun:
    return SampleRun(info.spec, info.name, sample.name, ok=False, problem=str(error))
