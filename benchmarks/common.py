"""What every benchmark here shares: rows with their goals, interleaved rounds, medians, tables, and what the command line says.

A row is work that we and a peer do in the same run:

    row("prepared launch", ours * 1e6, "µs", peer="C++ loop", its=cpp * 1e6, goal="≤ 1.0", device=device.info)

It is printed at once as a line of an aligned table, below lines that name the machine and the versions, so nothing is lost where
a run is ended early. With `--json FILE` (.json or .jsonl) it is also appended to FILE as a line of JSON. `kernelkeep bench`
reads both.

- Both figures have the row's unit. They should be medians of rounds in which the two took turns.
- A goal "≤ 1.0" is for our time ÷ the peer's, a goal "≥ 0.9" for the peer's time ÷ ours: how many times as fast we are. For
  a unit that ends with "/s" a goal "≥ …" is for our rate ÷ the peer's. Without a peer the goal is for our own figure.
- `ratio=` gives a ratio that was measured better than by dividing two medians.
- `note=` says what limits us where that is not ours, with its figure, or what the reader must know.

A script ends within a minute by default; what needs longer asks `long_run()`, which is true with `--long`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import kernelkeep as kk
from kernelkeep.observe.benchmarks import UNMEASURED

if TYPE_CHECKING:
    from kernelkeep.observe.benchmarks.row import Row

Key = TypeVar("Key", bound=Hashable)
_printed_above: list[str] = []  # what the heading above the last row said


def row(
    work: str,
    ours: float,
    unit: str,
    *,
    peer: str = "",
    its: float | None = None,
    goal: str = "",
    ratio: float | None = None,
    device: kk.DeviceInfo | None = None,
    note: str = "",
) -> Row:
    """Print a row, and append it as JSON to the file that `--json FILE` names. See the module's docstring."""
    # Imported now: children whose start is measured import this module, too.
    from kernelkeep.observe.benchmarks.row import heading, line, make_row

    where = dict(_where())
    spec = ""
    if device is not None:
        spec = device.spec
        where["machine"] = f"{device.name}, {device.driver}; {where['machine']}"
    made = make_row(work, ours, unit, peer=peer, its=its, goal=goal, ratio=ratio, device=spec, note=note, **where)
    above = heading(made)
    if [above] != _printed_above:
        print(above)
        _printed_above[:] = [above]
    print(line(made), flush=True)
    if file := json_file():
        import msgspec

        with file.open("ab") as lines:
            lines.write(msgspec.json.encode(made) + b"\n")
    return made


@cache
def _where() -> tuple[tuple[str, str], ...]:
    from kernelkeep.observe.benchmarks.machine import machine, measured_now, versions

    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *_without_json(sys.argv[1:])])
    return ("machine", machine()), ("versions", versions()), ("measured", measured_now()), ("command", command)


def json_file() -> Path | None:
    """The file that `--json FILE` names; None without one."""
    at = sys.argv.index("--json") + 1 if "--json" in sys.argv else len(sys.argv)
    return Path(sys.argv[at]) if at < len(sys.argv) and sys.argv[at].endswith((".json", ".jsonl")) else None


def _without_json(arguments: Sequence[str]) -> list[str]:
    named = json_file()
    return [one for one in arguments if one != "--json" and (named is None or one != str(named))]


def open_cuda() -> kk.Device:
    """The CUDA device that --device names, or the first one; without one, or with another backend named, the script ends."""
    found = [info for info in chosen_devices() if info.backend == "cuda"]
    if not found:
        end_unmeasured("it needs a CUDA device")
    return kk.open_device(found[0].spec)


def end_unmeasured(reason: str) -> NoReturn:
    """End the script: a device or a peer is missing, so nothing can be measured. `kernelkeep bench` says so and goes on."""
    print(reason, file=sys.stderr)
    raise SystemExit(UNMEASURED)


def long_run() -> bool:
    """Whether `--long` allows more than a minute."""
    return "--long" in sys.argv


def interleaved(contenders: Mapping[Key, Callable[[], None]], rounds: int = 9) -> dict[Key, float]:
    """Median seconds of each contender. They take turns, so that a slow spell of the machine hits all alike."""
    return {name: statistics.median(times) for name, times in rounds_of(contenders, rounds).items()}


def rounds_of(contenders: Mapping[Key, Callable[[], None]], rounds: int) -> dict[Key, list[float]]:
    """Seconds of each contender in each round, after one to warm up."""
    samples: dict[Key, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()  # warm up
    for _ in range(rounds):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            samples[name].append(time.perf_counter() - start)
    return samples


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people, or JSON lines with --json and no file."""
    if "--json" in sys.argv and json_file() is None:
        for row in rows:
            print(json.dumps({"benchmark": title, **dict(zip(columns, row, strict=True))}))
        return
    cells = [[f"{value:.2f}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    print(f"\n{title}")
    for line in [list(columns), ["-" * width for width in widths], *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def chosen_sections(sections: Mapping[str, Any]) -> list[str]:
    """The sections named on the command line, or all of them."""
    return [argument for argument in sys.argv[1:] if argument in sections] or list(sections)


def chosen_devices() -> list[kk.DeviceInfo]:
    """The devices that --device names, such as "opencl" or "cuda:0", or all of them but interpreters."""
    if "--device" not in sys.argv:
        return [info for info in kk.list_devices() if not info.is_interpreter]
    spec = sys.argv[sys.argv.index("--device") + 1]
    return [info for info in kk.list_devices() if spec in (info.backend, info.spec)]
