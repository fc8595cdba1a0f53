"""`kernelkeep demo`: two kernels on every device, checked against NumPy."""

from __future__ import annotations

import typer
from rich.markup import escape

from ..errors import DeviceError
from ..observe.inventory import find_devices
from ..observe.samples import SampleRun, run_samples
from .common import AsJson, CacheDir, DeviceSpec, print_json, print_line, print_table, table

__all__ = ["demo"]

_CAPTION = (
    "Launches are timed from the launch to the end of its work. Drivers keep caches of their own: a second run may "
    "compile faster."
)


def demo(cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False) -> None:
    """Run two small kernels on every device, compare them with NumPy and show how long each step takes."""
    found = find_devices(device)
    if not found:
        raise DeviceError("no device was found; `kernelkeep doctor` says what is missing")
    if not as_json:
        for info in found:
            print_line(f"found {info.spec}: {info.name}, {info.driver}, {'GPU' if info.is_gpu else 'CPU'}")
    runs = list(run_samples(found, driver_cache_dir=cache_dir))
    ok = all(run.ok for run in runs)
    if as_json:
        print_json({"devices": found, "runs": runs, "ok": ok})
    else:
        _show(runs)
    if not ok:
        raise typer.Exit(1)


def _show(runs: list[SampleRun]) -> None:
    numbers = ("compile ms", "load ms", "first launch ms", "launch µs", "max error")
    made = table("device", "kernel", *numbers, "result", right=numbers)
    made.caption = _CAPTION
    for run in runs:
        times = (
            _scaled(run.compile_seconds, 1e3, 2),
            _scaled(run.load_seconds, 1e3, 2),
            _scaled(run.first_launch_seconds, 1e3, 2),
            _scaled(run.launch_seconds, 1e6, 1),
        )
        error = "-" if run.max_error is None else f"{run.max_error:.1e}"
        result = "[green]ok[/]" if run.ok else "[red]failed[/]"
        made.add_row(escape(run.device), run.sample, *times, error, result)
    print_table(made)
    for run in runs:
        if not run.ok:
            print_line(f"{run.sample} failed on {run.device}: {run.problem}")


def _scaled(seconds: float | None, factor: float, digits: int) -> str:
    return "-" if seconds is None else f"{seconds * factor:,.{digits}f}"
