"""`kernelkeep top`: what running processes do now."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from .. import settings
from ..errors import ArgumentError, KernelKeepError
from ..observe.live_processes import LiveProcess, live_processes
from ..observe.live_rates import Rates, rates_between
from .common import AsJson, CacheDir, DeviceSpec, print_json, print_line, stdout_console
from .top_view import TopView, clock

_ONCE_SECONDS = 0.5  # between the two looks that rates need
_SHORTEST_SECONDS = 0.1


def top(
    pid: Annotated[
        int | None, typer.Argument(metavar="[PID]", help="One process, instead of all of this user's.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one moment and end.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Seconds between two looks.")] = 1.0,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Show what running processes do now: caches, executors, runs, residents.

    Processes of this user are found without their help; one that was started with KERNELKEEP_LIVE=0 is not. Ctrl-C ends it.
    With --json, one object for each look.
    """
    if not _SHORTEST_SECONDS <= interval < 86400:
        raise ArgumentError(f"--interval must be {_SHORTEST_SECONDS} seconds or more, got {interval}")
    chosen = _Chosen(pid, str(settings.cache_dir(cache_dir)) if cache_dir is not None else None, device)
    processes = chosen.look()
    if not processes:
        if pid is not None:
            raise KernelKeepError(
                f"no process {pid} of this user with kernelkeep is running, or it has KERNELKEEP_LIVE=0"
            )
        if not as_json:
            print_line("No process of this user with kernelkeep is running.")
            return
    if once:
        time.sleep(min(interval, _ONCE_SECONDS))
        now = chosen.look()
        _print(now, rates_between(processes, now), as_json)
    elif as_json or not sys.stdout.isatty():
        _print_for_ever(chosen, processes, interval, as_json)
    else:
        _watch(chosen, processes, interval)


class _Chosen:
    """Which processes, and what of them."""

    def __init__(self, pid: int | None, folder: str | None, device: str | None) -> None:
        self.pid, self._folder, self._device = pid, folder, device

    def look(self) -> list[LiveProcess]:
        """What they do now, without this one."""
        found = [one for one in live_processes(self.pid) if one.pid != os.getpid()]
        if self._folder is None and self._device is None:
            return found
        return [kept for kept in map(self._kept, found) if kept is not None]

    def _kept(self, process: LiveProcess) -> LiveProcess | None:
        snapshot = process.snapshot
        if snapshot is None:
            return None
        folders = {one.about.get("folder") for one in snapshot.open if one.kind == "cache"}
        if self._folder is not None and self._folder not in folders:
            return None
        kept = [one for one in snapshot.open if self._device is None or _is_on(self._device, one.about.get("device"))]
        return msgspec.structs.replace(process, snapshot=msgspec.structs.replace(snapshot, open=kept)) if kept else None


def _is_on(wanted: str, spec: Any) -> bool:
    return isinstance(spec, str) and (spec == wanted or spec.partition(":")[0] == wanted)


def _print(processes: Sequence[LiveProcess], rates: Rates, as_json: bool, indent: int | None = 2) -> None:
    if as_json:
        print_json({"time": time.time(), "processes": [_plain(one, rates) for one in processes]}, indent=indent)
    elif processes:
        stdout_console().print(TopView(processes, rates))
    else:
        print_line("No process of this user with kernelkeep is running.")


def _plain(process: LiveProcess, rates: Rates) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(process)
    for one in (plain["snapshot"] or {}).get("open", ()):
        one["rates"] = rates.get((process.pid, one["id"]), {})
    return plain


def _print_for_ever(chosen: _Chosen, before: list[LiveProcess], interval: float, as_json: bool) -> None:
    while True:
        time.sleep(interval)
        now = chosen.look()
        _print(now, rates_between(before, now), as_json, indent=None)
        sys.stdout.flush()
        if chosen.pid is not None and not now:
            return
        before = now


def _watch(chosen: _Chosen, before: list[LiveProcess], interval: float) -> None:
    """The terminal view; it ends with Ctrl-C, or with the process that was named."""
    console = Console(highlight=False, emoji=False)
    now, rates = before, rates_between((), before)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False, redirect_stdout=False) as live:
        while True:
            live.update(_screen(console, now, rates, interval), refresh=True)
            time.sleep(interval)
            now = chosen.look()
            if chosen.pid is not None and not now:
                break
            rates, before = rates_between(before, now), now
    print_line(f"Process {chosen.pid} has ended.")


def _screen(console: Console, processes: Sequence[LiveProcess], rates: Rates, interval: float) -> RenderableType:
    count = f"{len(processes)} process{'' if len(processes) == 1 else 'es'}"
    head = Text(f"kernelkeep top  {clock()}  {count}, every {interval:g} s; Ctrl-C ends it", style="bold", no_wrap=True)
    if not processes:
        return Group(head, Text("No process of this user with kernelkeep is running.", style="dim"))
    return Group(head, TopView(processes, rates, lines=console.height - 1))
