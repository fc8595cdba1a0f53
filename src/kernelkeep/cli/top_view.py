"""What `kernelkeep top` shows, as tables for a terminal. All text of another process is escaped before it is shown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from ..cache.stats import human_bytes
from ..escaping import escaped
from ..observe.live_processes import LiveProcess, OpenObject
from ..observe.live_rates import Rates
from .top_section import Section

_BAR = 5  # columns of a bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NONE = "[dim]–[/]"

Row = Callable[[OpenObject, dict[str, float]], Sequence[str]]


class TopView:
    """The processes of a moment, for whatever width the terminal has. Where they do not fit into `lines`: a line for each."""

    def __init__(self, processes: Sequence[LiveProcess], rates: Rates, *, lines: int | None = None) -> None:
        self._processes, self._rates, self._lines = processes, rates, lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        panels = Group(*(self._panel(process, options.max_width) for process in self._processes))
        if self._lines is not None and len(self._processes) > 1:
            found = console.render_lines(panels, options.update(height=None))
            if len(found) > self._lines:
                yield self._overview(options.max_width)
                return
        yield panels

    def _panel(self, process: LiveProcess, width: int) -> Panel:
        snapshot = process.snapshot
        title = f"[bold]{process.pid}[/]"
        if snapshot is None:
            return Panel(Text(process.problem, style="yellow"), title=title, title_align="left", box=ROUNDED)
        facts = snapshot.process
        title += f" {_text(facts.program)} · {_duration(snapshot.time - facts.started)} · kernelkeep {_text(facts.kernelkeep)}"
        sections: list[Section] = []
        for kind, (make, row) in _KINDS.items():
            found = [one for one in snapshot.open if one.kind == kind]
            if found:
                section = make()
                for one in found:
                    rates = self._rates.get((process.pid, one.id), {})
                    section.add_row(_safely(row, one, rates, len(section.columns)))
                sections.append(section)
        widest = max((section.first_width for section in sections), default=0)
        parts: list[RenderableType] = []
        for section in sections:
            parts += [section.fitted(width - 4, widest), Text()]
        content = Group(*parts[:-1]) if parts else Text("nothing is open", style="dim")
        return Panel(content, title=title, title_align="left", box=ROUNDED, padding=(0, 1))

    def _overview(self, width: int) -> RenderableType:
        table = Section(
            "process", "since", "lookups/s", "compiling", "batches/s", "iterations/s", "tasks/s", "program",
            optional=("since", "compiling", "lookups/s", "tasks/s"),
        )  # fmt: skip
        for process in self._processes:
            snapshot = process.snapshot
            if snapshot is None:
                table.add_row([str(process.pid), *[_NONE] * 6, f"[yellow]{_text(process.problem)}[/]"])
                continue
            totals = dict.fromkeys(("lookups", "batches", "iterations", "tasks"), 0.0)
            compiling = 0
            for one in snapshot.open:
                rates = self._rates.get((process.pid, one.id), {})
                if one.kind == "cache":
                    totals["lookups"] += sum(rates.get(name, 0.0) for name in _LOOKUPS)
                    compiling += len(_list(one.now.get("compiling")))
                name = {"executor": "batches", "run": "iterations", "resident": "tasks"}.get(one.kind)
                if name:
                    totals[name] += rates.get(name, 0.0)
            since = _duration(snapshot.time - snapshot.process.started)
            shown = {name: _rate(value) if value else _NONE for name, value in totals.items()}
            table.add_row(
                [str(process.pid), since, shown["lookups"], str(compiling or _NONE), shown["batches"],
                 shown["iterations"], shown["tasks"], _text(snapshot.process.program)]
            )  # fmt: skip
        return table.fitted(width)


_LOOKUPS = ("hits_memory", "hits_disk", "hits_remote", "misses")


def _caches() -> Section:
    return Section(
        "cache", "programs", "size", "lookups/s", "memory hits", "disk hits", "remote hits", "misses", "hit rate", "compiling",
        optional=("size", "remote hits", "hit rate", "programs"),
    )  # fmt: skip


def _cache(one: OpenObject, rates: dict[str, float]) -> Sequence[str]:
    hits = [_count(one.counts, f"hits_{tier}") for tier in ("memory", "disk", "remote")]
    misses = _count(one.counts, "misses")
    lookups = sum(hits) + misses
    compiling = [
        f"[yellow]{_text(each.get('program'))}[/] {_duration(_number(each.get('seconds')))}"
        for each in _list(one.now.get("compiling"))
        if isinstance(each, dict)
    ]
    return (
        _text(one.about.get("device")),
        f"{_count(one.now, 'programs'):,}",
        human_bytes(_count(one.now, "memory_bytes")),
        _rate(sum(rates.get(name, 0.0) for name in _LOOKUPS)),
        *(f"{count:,}" for count in (*hits, misses)),
        f"{sum(hits) / lookups:.1%}" if lookups else _NONE,
        ", ".join(compiling[:3]) + (f" and {len(compiling) - 3} more" if len(compiling) > 3 else "") or _NONE,
    )


def _executors() -> Section:
    return Section(
        "executor", "depth", "queued", "in flight", "batches", "failed", "batches/s", "upload", "compute", "download",
        bars=("upload", "compute", "download"), optional=("depth", "failed", "batches", "upload", "download"),
    )  # fmt: skip


def _executor(one: OpenObject, rates: dict[str, float]) -> Sequence[str]:
    failed = _count(one.counts, "failed_batches")
    busy = [rates.get(f"{engine}_busy_seconds") for engine in ("upload", "compute", "download")]
    return (
        _text(one.about.get("device")),
        f"{_count(one.about, 'depth'):,}",
        f"{_count(one.now, 'queued'):,}",
        f"{_count(one.now, 'in_flight'):,}",
        f"{_count(one.counts, 'batches'):,}",
        f"[red]{failed:,}[/]" if failed else "0",
        _rate(rates.get("batches", 0.0)),
        *(_NONE if share is None else _bar(share) for share in busy),
    )


def _runs() -> Section:
    return Section(
        "run", "on", "strategy", "iteration", "done", "iterations/s", "left", "gap p50", "gap p99", "checkpoint",
        left=("on", "strategy"), bars=("done",), optional=("gap p99", "gap p50", "done"),
    )  # fmt: skip


def _run(one: OpenObject, rates: dict[str, float]) -> Sequence[str]:
    iteration, goal = _count(one.now, "iteration"), one.now.get("goal")
    rate = rates.get("iterations", 0.0)
    left, done = _NONE, _NONE
    if isinstance(goal, int) and goal > 0:
        done = _bar(iteration / goal)
        left = _duration((goal - iteration) / rate) if rate > 0 and goal >= iteration else _NONE
        left = " " * max(0, len("59 min 59 s") - len(Text.from_markup(left))) + left  # columns stay where they are
    age, problem = one.now.get("checkpoint_age_seconds"), one.now.get("checkpoint_problem")
    saved = "none" if one.now.get("checkpoint") is None else "not yet"
    if isinstance(age, int | float):
        saved = f"{_duration(age)} ago at {_count(one.now, 'checkpoint_iteration'):,}"
    if one.now.get("writing_checkpoint"):
        saved += " [cyan]writing[/]"
    if problem:
        saved += " [red]failing[/]"
    return (
        _text(one.about.get("name")),
        _text(one.about.get("device")),
        _text(one.about.get("strategy")),
        f"{iteration:,}",
        done,
        _rate(rate),
        left,
        _brief(one.now.get("gap_p50_seconds")),
        _brief(one.now.get("gap_p99_seconds")),
        saved,
    )


def _residents() -> Section:
    return Section(
        "resident", "blocks", "tasks", "tasks/s", "queued", "room", "last pause", "state",
        optional=("last pause", "room", "blocks"),
    )  # fmt: skip


def _resident(one: OpenObject, rates: dict[str, float]) -> Sequence[str]:
    state = "[green]alive[/]" if one.now.get("alive") else "[red]ended[/]"
    if one.now.get("paused"):
        state = "[yellow]paused[/]"
    if one.now.get("problem"):
        state = "[red]failed[/]"
    if one.about.get("emulated"):
        state += " [dim]emulated[/]"
    return (
        _text(one.about.get("device")),
        f"{_count(one.about, 'blocks'):,}",
        f"{_count(one.counts, 'tasks'):,}",
        _rate(rates.get("tasks", 0.0)),
        f"{_count(one.now, 'queued'):,}",
        f"{_count(one.now, 'capacity'):,}",
        _brief(one.now.get("last_pause_seconds") or None),
        state,
    )


def _preloads() -> Section:
    return Section("preload", "programs", "programs/s", "done", "last", bars=("done",), optional=("done",))


def _tunings() -> Section:
    return Section("tuning", "variants", "variants/s", "done", "last", bars=("done",), optional=("done",))


def _work(one: OpenObject, rates: dict[str, float]) -> Sequence[str]:
    done, total = _count(one.now, "done"), one.now.get("total")
    known = isinstance(total, int) and total > 0
    name = one.about.get("name") if one.kind == "tuning" else ""
    return (
        " on ".join(filter(None, (_text(name), _text(one.about.get("device"))))),
        f"{done:,} of {total:,}" if known else f"{done:,}",
        _rate(rates.get("steps", 0.0)),
        _bar(done / total) if isinstance(total, int) and total > 0 else _NONE,
        _text(one.now.get("last")),
    )


_KINDS: dict[str, tuple[Callable[[], Section], Row]] = {
    "cache": (_caches, _cache), "executor": (_executors, _executor), "run": (_runs, _run),
    "resident": (_residents, _resident), "preload": (_preloads, _work), "tuning": (_tunings, _work),
}  # fmt: skip


def _safely(row: Row, one: OpenObject, rates: dict[str, float], columns: int) -> Sequence[str]:
    """The cells of a row; of another version's process some may be missing or of another type."""
    try:
        return row(one, rates)
    except (TypeError, ValueError, OverflowError):
        return [_text(one.about.get("device")), *["?"] * (columns - 1)]


# --- cells


def _text(value: object) -> str:
    return escape(escaped("" if value is None else value)[:200])


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _count(values: dict[str, Any], name: str) -> int:
    return int(_number(values.get(name)))


def _rate(value: float) -> str:
    """Three digits: 0.52, 8.1, 1,250, 3.4 M."""
    if value >= 1e6:
        return f"{value / 1e6:,.1f} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _brief(seconds: object) -> str:
    """A short time with its unit: 12 µs, 3.1 ms, 2 s."""
    if not isinstance(seconds, int | float):
        return _NONE
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return _duration(float(seconds))


def _duration(seconds: float) -> str:
    """A time for people: 8 s, 3 min 12 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return _NONE
    whole = max(0, int(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    for (size, unit), (smaller, below) in zip(units, (*units[1:], (1, "")), strict=True):
        if whole >= size and size > 1:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def _bar(share: float) -> str:
    """A share of one as a bar with a number."""
    share = min(1.0, max(0.0, share))
    eighths = round(share * _BAR * 8)
    bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return f"[green]{bar}[/][dim]{'·' * (_BAR - len(bar))}[/] {share:4.0%}"


def clock() -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S")
