"""`kernelkeep bench`: what compiling, cache hits, launches and the executor cost on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from ..cache.stats import human_bytes
from ..errors import DeviceError
from ..observe.bench import Figure, bench_devices
from ..observe.inventory import find_devices
from .common import AsJson, CacheDir, DeviceSpec, Table, cache_root, print_heading, print_json, print_line, print_table

_CAPTION = (
    "Medians, and the range without the fastest and slowest tenth, of one process whose libraries are loaded. A launch is what "
    "the call costs the host; the device may take longer."
)


def bench(
    programs: Annotated[
        int, typer.Option("--programs", metavar="N", min=1, help="How many programs are compiled on each device.")
    ] = 5,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Measure compiles, cache hits, launches and the executor on each device.

    The caches in use are left alone: programs are kept in a temporary folder, with --cache-dir in one below that.
    """
    below = None if cache_dir is None else cache_root(cache_dir)
    if below is not None:
        below.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = [info for info in find_devices(device) if device or not info.is_interpreter]
    if not found:
        raise DeviceError("no device was found; `kernelkeep doctor` says what is missing")
    results = []
    for one in bench_devices([info.spec for info in found], programs=programs, cache_dir=below):
        results.append(one)
        if not as_json:
            _show(f"{one.device}  {one.device_name}", one.figures, last=len(results) == len(found))
    if as_json:
        print_json(results)


def _show(heading: str, figures: tuple[Figure, ...], last: bool) -> None:
    numbers = ("median", "range", "samples")
    made = Table("what", *numbers, right=numbers, optional=("samples",), caption=_CAPTION if last else None)
    for figure in figures:
        rate = f" at {human_bytes(round(figure.bytes / figure.seconds))}/s" if figure.bytes else ""
        spread = f"{_time(figure.low_seconds)} – {_time(figure.high_seconds)}"
        made.add_row(figure.name + rate, _time(figure.seconds), spread, str(figure.samples))
    print_heading(heading)
    print_table(made)
    print_line()


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.2f} µs"
