"""What things cost on this machine: the work behind `kernelkeep bench`.

Figures are medians of what one process sees once its libraries are loaded; `kernelkeep demo` times a start from nothing. Every
compile is of a text that no cache has seen.
"""

from __future__ import annotations

import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from ..cache.program_cache import ProgramCache
from ..cache.stats import human_bytes
from ..devices.base import Device
from ..devices.registry import open_device
from ..errors import DeviceError
from ..execution.executor import Executor
from ..execution.job import Job
from ..programs.portable import Buffer, PortableKernel, Scalar

_ITEMS, _GROUP = 1 << 18, 256  # floats of a batch: 1 MiB
_SMALL = 1024
_ROUNDS = 21  # measurements, each of many calls where a call is short


class Figure(msgspec.Struct, frozen=True):
    """One thing that was measured: the median of `samples`, in seconds, and the range without their fastest and slowest tenth."""

    name: str
    seconds: float
    low_seconds: float
    high_seconds: float
    samples: int
    bytes: int = 0  # that go in and come out, where that is the point


class Bench(msgspec.Struct, frozen=True):
    """What was measured on a device. Results were compared with what must come out."""

    device: str
    device_name: str
    figures: tuple[Figure, ...]


def bench_devices(
    specs: Iterable[str], *, programs: int = 5, cache_dir: str | os.PathLike[str] | None = None
) -> Iterator[Bench]:
    """Measure on one device after the other, with an empty cache in a temporary folder, or in one below `cache_dir`."""
    # One folder for all: Mesa's drivers, once loaded, keep to the first one.
    with tempfile.TemporaryDirectory(prefix="kernelkeep-bench-", dir=cache_dir, ignore_cleanup_errors=True) as folder:
        for spec in specs:
            with open_device(spec, cache_dir=folder) as device:
                figures = [*_programs(device, folder, programs), *_launches(device, folder), _executor(device, folder)]
                yield Bench(device.spec, device.info.name, tuple(figures))


def _kernel(name: str) -> PortableKernel:
    """y = 2 x + a constant that makes the text a new one."""
    params: list[Buffer | Scalar] = [Buffer("x", "f4", "r"), Buffer("y", "f4", "rw"), Scalar("n", "i4")]
    body = f"int i = kk_global_id(0); if (i < n) y[i] = 2.0f * x[i] + {secrets.randbelow(1 << 20)}e-9f;"
    return PortableKernel(name, params, body, group=_GROUP)


def _programs(device: Device, folder: str, count: int) -> Iterable[Figure]:
    """From the kernel to its first correct result: compiled, from disk, and from memory; then the lookup alone."""
    kernels = [_kernel(f"bench{number}") for number in range(count)]
    x, y = device.array(np.ones(_SMALL, "f4")), device.array(np.zeros(_SMALL, "f4"))

    def first_results(cache: ProgramCache, origin: str) -> list[float]:
        took = []
        for kernel in kernels:
            y.copy_from(np.zeros(_SMALL, "f4"))
            before = time.perf_counter()
            with cache.get(kernel) as lease:
                lease.kernel().launch(_SMALL // _GROUP, (x, y, _SMALL))
                result = y.numpy()
            took.append(time.perf_counter() - before)
            if lease.origin != origin or not np.allclose(result, 2.0, atol=1e-2):
                raise DeviceError(
                    f"{device.spec} cannot be measured: {kernel.name} came from {lease.origin}, not {origin}"
                )
        return took

    with ProgramCache(device, folder, remote=[]) as cache:
        yield _figure("compile and first result", first_results(cache, "compiled"))
        yield _figure("memory hit and first result", first_results(cache, "memory"))
        yield _figure("memory hit alone", _timed(lambda: cache.get(kernels[0]).release()))
    if device.capabilities.program_binaries:
        with ProgramCache(device, folder, remote=[]) as cache:
            yield _figure("disk hit and first result", first_results(cache, "disk"))


def _launches(device: Device, folder: str) -> Iterable[Figure]:
    """What a call costs the host, and how long one takes with its work."""
    x, y = device.array(np.ones(_SMALL, "f4")), device.array(np.zeros(_SMALL, "f4"))
    with ProgramCache(device, folder, remote=[]) as cache, cache.get(_kernel("launched")) as lease:
        kernel, grid, args = lease.kernel(), _SMALL // _GROUP, (x, y, _SMALL)
        prepared = kernel.prepare(grid, args)
        yield _figure("launch", _timed(lambda: kernel.launch(grid, args), device.synchronize))
        yield _figure("prepared launch", _timed(prepared, device.synchronize))

        def launch_and_wait() -> None:
            prepared()
            device.synchronize()

        yield _figure("prepared launch and wait", _timed(launch_and_wait))


def _executor(device: Device, folder: str) -> Figure:
    """A stream of batches, as many bytes in as out."""
    items, batches = (_SMALL, 2) if device.info.is_interpreter else (_ITEMS, 40)
    host = np.ones(items, "f4")
    with ProgramCache(device, folder, remote=[]) as cache, Executor(device, trace=False) as executor:
        job = Job(cache, _kernel("streamed"), grid=items // _GROUP, outputs={"y": (items, "f4")})
        took = []
        for _ in range(6):
            before = time.perf_counter()
            for result in executor.map(job, ({"x": host} for _ in range(batches)), n=items):
                if result["y"][-1] < 2.0:
                    raise DeviceError(f"{device.spec} cannot be measured: a batch came back wrong")
            took.append((time.perf_counter() - before) / batches)
    return _figure(
        f"executor, {human_bytes(host.nbytes)}", took[1:], 2 * host.nbytes
    )  # the first round compiles and allocates


def _timed(call: Callable[[], object], finish: Callable[[], object] = lambda: None) -> list[float]:
    """Seconds a call, over so many calls that a measurement takes a few milliseconds."""
    before = time.perf_counter()
    call()
    finish()
    calls = min(max(int(2e-3 / max(time.perf_counter() - before, 1e-7)), 1), 2000)
    took = []
    for _ in range(_ROUNDS):
        before = time.perf_counter()
        for _ in range(calls):
            call()
        took.append((time.perf_counter() - before) / calls)
        finish()
    return took


def _figure(name: str, took: list[float], nbytes: int = 0) -> Figure:
    ordered = sorted(took)
    edge = len(ordered) // 10
    return Figure(name, statistics.median(ordered), ordered[edge], ordered[-1 - edge], len(ordered), nbytes)
