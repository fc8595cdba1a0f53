"""What notebooks show of runs, their programs and their checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..html.axis import linear_ticks
from ..html.card import badge, card, folded, section
from ..html.charts import Series, lines
from ..html.code import code
from ..html.gantt import Row, Span, gantt
from ..html.markup import Markup, element
from ..html.numbers import count, rounded, seconds, share, size
from ..html.table import facts, table

if TYPE_CHECKING:
    from .checkpoints.checkpoint import Checkpoint
    from .history import ProgressMoment, RunHistory
    from .program import StateProgram
    from .report import RunReport
    from .run import Run
    from .supervision.incident import SupervisedReport

_NOTHING = math.nan  # a break in a line
_SHORTEST_GAP = 1e-7  # seconds, at the bottom of the scale
_ENDED = {
    "done": "all iterations are done",
    "body": "the body ended it",
    "until": "the condition ended it",
    "empty": "no tasks were left",
    "interrupted": "interrupted",
}


def report_html(report: RunReport) -> str:
    """A run: what it did, and how it went over time."""
    about = f"on {report.device}, {count(report.iterations)} iterations in {seconds(report.seconds)}, {_ENDED[report.stopped]}"
    return card(report.program, about, facts(_report_rows(report)), picture(report.history, report.seconds))


def run_html(run: Run) -> str:
    """A run's state, and its report once it is over."""
    title, about = run.program.name, f"at iteration {run.iteration:,}, phase {run.phase}"
    parts = [section("state on the device", _arrays(run.state))]
    if run.is_over:
        parts += [
            section("what it did", facts(_report_rows(run.report)), picture(run.report.history, run.report.seconds))
        ]
    return card(title, about, parts)


def program_html(program: StateProgram) -> str:
    """A state program: its arrays and its body."""
    what = f"{len(next(iter(program.tasks.values())))} tasks" if program.tasks else f"{program.items:,} items"
    scalars = [(name, element("code", str(value))) for name, value in program.scalars.items()]
    python = program.python
    body = code(program.body) if python is None else code(python.text, python.first_line)
    return card(
        program.name,
        f"state program, {program.coupling}, {what}",
        _arrays(program.state),
        section("scalars", facts(scalars)) if scalars else None,
        section("body", body),
    )


def checkpoint_html(checkpoint: Checkpoint) -> str:
    """A checkpoint: how far the run was, and its arrays."""
    one = checkpoint
    rows: list[tuple[str, object]] = [
        ("iteration", count(one.iteration)),
        ("saved", f"{one.created:%Y-%m-%d %H:%M:%S} UTC"),
        ("device", f"{one.header.device_name or '–'} ({one.device})" if one.device else None),
        ("coupling", one.coupling),
        ("finished", "yes" if one.finished else "no, it can be resumed"),
        *((f"scalar {name}", element("code", str(value))) for name, value in one.scalars.items()),
    ]
    body = folded("body", code(one.body)) if one.body else None
    return card(one.program, "checkpoint", facts(rows), section("arrays", _arrays(one.arrays)), body)


def supervised_html(report: SupervisedReport) -> str:
    """A supervised run: how often its worker was replaced, and why."""
    restarts = "no restart" if not report.restarts else f"{report.restarts} restart{'s' if report.restarts > 1 else ''}"
    rows = [(one.what, seconds(one.seconds), count(one.last_iteration), one.checkpoint) for one in report.history]
    found = table(("the worker", "after", "at iteration", "the checkpoint"), rows) if rows else None
    return card("Supervised run", f"done in {seconds(report.seconds)} with {restarts}", found, report.note or None)


def picture(history: RunHistory, whole: float) -> Markup | None:
    """How a run went: iterations in a second, gaps between dispatches, and checkpoints, over the same time.

    It begins when the first dispatch is over: before that, programs are compiled.
    """
    start = _first_dispatch(history.progress)
    ticks = linear_ticks(start, whole, 6, seconds)
    parts = [_rate(history.progress, start, whole), _gaps(history, start, whole)]
    if history.checkpoints:
        spans = [
            Span(
                one.seconds,
                one.end_seconds,
                f"iteration {one.iteration:,}: {'written' if one.ok else 'failed'} in {seconds(one.end_seconds - one.seconds)}",
                "warn" if one.ok else "bad",
            )
            for one in history.checkpoints
            if one.end_seconds > start
        ]
        drawn = gantt([Row("written", spans)], label="checkpoints", span=(start, whole), ticks=ticks)
        parts.append(section("checkpoints", drawn))
    return element("div", parts, class_="kk-aligned") if any(parts) else None


def _first_dispatch(progress: tuple[ProgressMoment, ...]) -> float:
    """When it was over, where it took long because programs were compiled; else 0."""
    after = [one for one in progress if one.iteration > progress[0].iteration]
    if not after or after[-1].seconds <= after[0].seconds:
        return 0.0
    first, last = after[0], after[-1]
    rate = (last.iteration - first.iteration) / (last.seconds - first.seconds)
    return first.seconds if (first.iteration - progress[0].iteration) < 0.5 * rate * first.seconds else 0.0


def _rate(progress: tuple[ProgressMoment, ...], start: float, whole: float) -> Markup | None:
    xs, rates = [], []
    for before, after in pairwise(one for one in progress if one.seconds >= start):
        passed = after.seconds - before.seconds
        if passed <= 0 or (after.iteration == before.iteration and after is progress[-1]):
            continue
        rate = (after.iteration - before.iteration) / passed
        xs += [before.seconds, after.seconds]
        rates += [rate, rate]
    if not xs:
        return None
    xs, rates = [start, *xs, whole], [_NOTHING, *rates, _NOTHING]
    label = "iterations in a second"
    ticks = linear_ticks(start, whole, 6, seconds)
    chart = lines(xs, [Series(label, rates)], label=label, x_ticks=ticks, height=150, filled=True)
    return element("div", chart, class_="kk-section")


def _gaps(history: RunHistory, start: float, whole: float) -> Markup | None:
    """Gaps on a logarithmic scale: the longest may be thousands of times as long as the others."""
    gaps = [one for one in history.gaps if one.seconds >= start]
    if len(gaps) < 2:
        return None
    xs = [start, *(one.seconds for one in gaps), whole]
    longest = [_NOTHING, *(_logarithm(one.longest) for one in gaps), _NOTHING]
    middle = [_NOTHING, *(_logarithm(one.middle) for one in gaps), _NOTHING]
    series = [Series("the longest gap between dispatches", longest, "middle"), Series("the middle one", middle)]
    ticks = linear_ticks(start, whole, 6, seconds)
    label = "gaps between dispatches"
    chart = lines(xs, series, label=label, x_ticks=ticks, write=lambda y: seconds(_SHORTEST_GAP * 10**y), height=130)
    return element("div", chart, class_="kk-section")


def _logarithm(gap: float) -> float:
    return math.log10(max(gap, _SHORTEST_GAP) / _SHORTEST_GAP)


def _report_rows(report: RunReport) -> list[tuple[str, object]]:
    one = report
    rows: list[tuple[str, object]] = [
        ("strategy", (badge(one.strategy, "accent"), " ", element("span", one.reason, class_="kk-soft"))),
        ("dispatches", count(one.dispatches)),
    ]
    if one.gap_p50_seconds is not None and one.gap_p99_seconds is not None:
        rows.append(("gaps", f"half below {seconds(one.gap_p50_seconds)}, 99% below {seconds(one.gap_p99_seconds)}"))
    if one.busy_share is not None:
        rows.append(("device busy", share(one.busy_share)))
    if one.longest_slice_seconds is not None:
        late = f", {count(one.late_slices)} outlived the deadline" if one.late_slices else ""
        rows.append(("slices", f"the longest took {seconds(one.longest_slice_seconds)}{late}"))
    if one.tasks_done:
        rows.append(("tasks", count(one.tasks_done)))
    if one.checkpoints or one.checkpoint_failures:
        failed = f", {one.checkpoint_failures} failed" if one.checkpoint_failures else ""
        rows.append(("checkpoints", f"{count(one.checkpoints)} written, {size(one.checkpoint_bytes)} each{failed}"))
    if one.resumed_from:
        rows.append(("resumed from", one.resumed_from))
    if one.iterations and one.seconds:
        rows.append(("on average", f"{rounded(one.iterations / one.seconds)} iterations in a second"))
    return rows


def _arrays(arrays: Mapping[str, Any]) -> Markup:
    rows = [
        (element("code", name), array.dtype.name, " × ".join(map(count, array.shape)), size(array.nbytes))
        for name, array in arrays.items()
    ]
    return table(("array", "dtype", "shape", "size"), rows, name="arrays")
