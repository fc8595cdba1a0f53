"""`kernelkeep devices` and `kernelkeep doctor`: what is here, and what is missing."""

from __future__ import annotations

import typer
from rich.markup import escape

from ..cache.stats import human_bytes
from ..observe.doctor import diagnose
from ..observe.inventory import find_devices
from .common import AsJson, CacheDir, DeviceSpec, Table, print_folded, print_json, print_line, print_table


def devices(cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False) -> None:
    """List the devices that can be used, the best first."""
    found = find_devices(device)
    if as_json:
        print_json(found)
        return
    if not found:
        print_line("No device was found; `kernelkeep doctor` says what is missing.")
        return
    made = Table(
        "device", "name", "vendor", "driver", "kind", "memory", right=("memory",), optional=("vendor", "driver")
    )
    for info in found:
        kind = "GPU" if info.is_gpu else "interpreter" if info.is_interpreter else "CPU"
        texts = (escape(text) for text in (info.spec, info.name, info.vendor, info.driver))
        made.add_row(*texts, kind, human_bytes(info.memory_bytes) if info.memory_bytes else "-")
    print_table(made)


def doctor(cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False) -> None:
    """Say what is missing for each backend, and how to get it. Ends with 1 if none is usable.

    The interpreter does not count, unless it is named.
    """
    found = diagnose(device, cache_dir=cache_dir)
    if as_json:
        print_json(found)
    else:
        for health in found:
            state = "usable" if health.usable else "compiles ahead only" if health.compiles_only else "not usable"
            print_line(f"{health.backend}: {state}")
            for check in health.checks:
                print_folded(f"  [{'ok' if check.ok else 'no'}] {check.what}: {check.found}", 7)
                if check.fix:
                    print_folded(f"       to get it: {check.fix}", 18)
    if not any(health.usable and (device or not health.interprets) for health in found):
        raise typer.Exit(1)
