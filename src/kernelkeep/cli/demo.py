"""`kernelkeep demo`: the devices, what a kernel costs on each, and what the program cache saves at start-up."""

from __future__ import annotations

import typer
from rich.markup import escape

from ..errors import DeviceError
from ..observe.inventory import find_devices
from ..observe.kill_and_resume import Survival, kill_and_resume
from ..observe.sample_runs import SampleRun, run_samples
from ..observe.warm_start import Start, compare_starts
from .common import AsJson, CacheDir, DeviceSpec, Table, print_folded, print_json, print_line, print_table

_CAPTION = (
    "Launches are timed from the launch to the end of its work. Drivers keep caches of their own: a second run may "
    "compile faster."
)
_STARTS_CAPTION = (
    "Each line is a fresh process, timed from the open device to the first results of all programs, each compared with "
    "NumPy. The cold one has an empty cache folder, which the warm one takes over; drivers' own caches outside it start empty "
    "in both."
)


def demo(cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False) -> None:
    """Run kernels on every device, checked and timed, cold and warm.

    Two kernels are launched many times; then eight are started in fresh processes without and with a filled cache; and a
    long run is killed in the middle and resumed elsewhere.
    """
    # An interpreter takes too long, unless it is what was asked for.
    found = [info for info in find_devices(device) if device or not info.is_interpreter]
    if not found:
        raise DeviceError("no device was found; `kernelkeep doctor` says what is missing")
    if not as_json:
        for info in found:
            print_folded(f"found {info.spec}: {info.name}, {info.driver}, {'GPU' if info.is_gpu else 'CPU'}")
    runs = list(run_samples(found, cache_dir=cache_dir))
    if not as_json:
        _show(runs)
        print_line()
        print_folded("starting the same programs in two fresh processes on each device, which takes a while …")
    starts = list(compare_starts(found))
    if not as_json:
        _show_starts(starts)
        print_line()
    survival = kill_and_resume(found)
    ok = all(run.ok for run in runs) and all(start.ok for start in starts) and (survival is None or survival.ok)
    if as_json:
        print_json({"devices": found, "runs": runs, "starts": starts, "survival": survival, "ok": ok})
    elif survival is not None:
        _show_survival(survival)
    if not ok:
        raise typer.Exit(1)


def _show(runs: list[SampleRun]) -> None:
    numbers = ("compile ms", "load ms", "first launch ms", "launch µs", "max error")
    optional = ("max error", "load ms")
    made = Table("device", "kernel", *numbers, "result", right=numbers, optional=optional, caption=_CAPTION)
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


def _show_starts(starts: list[Start]) -> None:
    numbers = ("programs", "compiled", "from disk", "first results ms", "speed-up", "saved ms")
    optional = ("programs", "saved ms")
    made = Table("device", "start", *numbers, "result", right=numbers, optional=optional, caption=_STARTS_CAPTION)
    for start in starts:
        counts = (str(start.programs), str(start.compiled), str(start.from_disk))
        speed_up = "-" if start.speed_up is None else f"{start.speed_up:,.1f}×"
        times = (_scaled(start.seconds, 1e3, 1), speed_up, _scaled(start.saved_seconds, 1e3, 1))
        result = "[green]ok[/]" if start.ok else "[red]failed[/]"
        made.add_row(escape(start.device), start.start, *counts, *times, result)
    print_table(made)
    for start in starts:
        if not start.ok:
            print_line(f"the {start.start} start on {start.device} failed: {start.problem}")


def _show_survival(survival: Survival) -> None:
    if not survival.ok:
        print_folded(f"a run killed on {survival.killed_on} could not be resumed: {survival.problem}")
        return
    print_folded(
        f"a run on {survival.killed_on} was killed with kill -9; its last checkpoint held iteration "
        f"{survival.checkpoint_iteration:,}"
    )
    print_folded(
        f"it was resumed on {survival.resumed_on} ({survival.strategy}) and ran to iteration {survival.iteration:,}: every word "
        "equals NumPy's"
    )


def _scaled(seconds: float | None, factor: float, digits: int) -> str:
    return "-" if seconds is None else f"{seconds * factor:,.{digits}f}"
