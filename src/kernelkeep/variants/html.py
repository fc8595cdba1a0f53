"""What notebooks show of a tuning: the landscape of times, the progress over time, and what failed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..html.axis import linear_ticks
from ..html.bars import Bar, bars
from ..html.card import badge, card, section, side_by_side
from ..html.charts import Series, lines
from ..html.heat_map import Spot, heat_map
from ..html.markup import Markup, element, join
from ..html.numbers import milliseconds, rounded, seconds
from ..html.table import facts, table
from ..pictures.landscape import most_relevant_parameters, values_of

if TYPE_CHECKING:
    from .report import Attempt, TuneReport
    from .select import Selection

_MOST_BARS = 24
_MOST_CELLS = 16  # in a row or a column of the landscape


def tuning_html(report: TuneReport) -> str:
    """A tuning: the best variant, and a picture of all of them."""
    problem = "  ".join(f"{name}={value}" for name, value in report.problem.items())
    of_all = "" if report.size is None else f" of {report.size:,}"
    about = f"{problem} on {report.device}, {len(report.attempts):,}{of_all} variants in {seconds(report.seconds)}"
    return card(
        report.name,
        about,
        facts(_rows(report)),
        element("div", side_by_side(landscape(report), _progress(report)), class_="kk-section")
        if report.attempts
        else None,
        _failures(report),
    )


def selection_html(selection: Selection) -> str:
    """Which variant is run, and why."""
    rows: list[tuple[str, object]] = [("variant", element("code", str(selection.variant)))]
    if selection.expected_ms is not None:
        guess = "" if not selection.distance else f", a guess from {rounded(selection.distance)} doublings away"
        rows.append(("expected", f"{milliseconds(selection.expected_ms)}{guess}"))
    return card("Selection", badge(selection.basis, "accent"), facts([*rows, ("reason", selection.reason)]))


def landscape(report: TuneReport) -> Markup | None:
    """The times over the two parameters that matter most; bars where only one was varied."""
    names = most_relevant_parameters(report)
    if len(names) < 2:
        return section("time of each variant", _bars(report))
    across, down = sorted(names, key=lambda name: -len(values_of(report, name)))
    xs, ys = values_of(report, across), values_of(report, down)
    if len(xs) > _MOST_CELLS or len(ys) > _MOST_CELLS:
        return section("the fastest variants", _bars(report))
    cells: dict[tuple[int, int], list[Attempt]] = {}
    for attempt in report.attempts:
        if across in attempt.variant and down in attempt.variant:
            place = ys.index(attempt.variant[down]), xs.index(attempt.variant[across])
            cells.setdefault(place, []).append(attempt)
    spots = {place: _spot(found, report) for place, found in cells.items()}
    others = any(len(found) > 1 for found in cells.values())
    label = "fastest time in each cell" + (", over all other parameters" if others else "")
    return section(label, heat_map((across, xs), (down, ys), spots, label=label))


def _rows(report: TuneReport) -> list[tuple[str, object]]:
    if report.best is None or report.best_ms is None:
        return [("best", "none: every variant failed" if report.attempts else "none: the time was too short")]
    rows: list[tuple[str, object]] = [
        ("best", join((element("code", str(report.best)), " ", element("b", milliseconds(report.best_ms))))),
        ("", element("span", report.reason, class_="kk-soft")),
    ]
    if report.default_ms is not None:
        times = report.default_ms / report.best_ms if report.best_ms else math.nan
        slower = "" if report.default == report.best else f", {times:.2f} times as long"
        rows.append(
            ("default", join((element("code", str(report.default)), f" {milliseconds(report.default_ms)}{slower}")))
        )
    return rows


def _spot(found: list[Attempt], report: TuneReport) -> Spot:
    timed = [one for one in found if one.milliseconds is not None and not one.failure]
    if not timed:
        one = found[0]
        return Spot(None, one.failure, f"{one.variant}: {one.detail or one.failure}")
    fastest = min(timed, key=lambda one: one.milliseconds or math.inf)
    is_best = any(one.variant == report.best for one in found)
    return Spot(
        fastest.milliseconds,
        milliseconds(fastest.milliseconds),
        f"{fastest.variant}: {milliseconds(fastest.milliseconds)}",
        is_best,
    )


def _bars(report: TuneReport) -> Markup:
    timed = [one for one in report.attempts if one.milliseconds is not None and not one.failure]
    timed.sort(key=lambda one: one.milliseconds or 0.0)
    items = [
        Bar(
            str(one.variant),
            one.milliseconds or 0.0,
            milliseconds(one.milliseconds),
            kind="warn" if one.variant == report.best else "middle",
        )
        for one in timed[:_MOST_BARS]
    ]
    return bars(items, label="time of each variant")


def _progress(report: TuneReport) -> Markup | None:
    timed = sorted(
        (one for one in report.attempts if one.milliseconds is not None and not one.failure),
        key=lambda one: one.at_seconds,
    )
    if len(timed) < 2:
        return None
    xs, best, so_far = [0.0], [math.nan], math.inf
    for one in timed:
        if so_far < math.inf:  # a step, not a slope
            xs.append(one.at_seconds)
            best.append(so_far)
        so_far = min(so_far, one.milliseconds or math.inf)
        xs.append(one.at_seconds)
        best.append(so_far)
    end = max(report.seconds, xs[-1])
    xs.append(end)
    best.append(so_far)
    series = [Series("the best so far", best)]
    if report.default_ms is not None:
        series.append(Series("the default", [report.default_ms] * len(xs), "quiet"))
    ticks = linear_ticks(0.0, end, 5, seconds)
    return section(
        "the best time over the time spent",
        lines(xs, series, label="the best time so far", x_ticks=ticks, write=milliseconds, height=180),
    )


def _failures(report: TuneReport) -> Markup | None:
    rows = []
    for failure, number in sorted(report.failures.items()):
        example = next(one for one in report.attempts if one.failure == failure)
        rows.append((badge(failure, "bad"), number, element("code", str(example.variant)), example.detail))
    return section("failed", table(("failure", "variants", "such as", "because"), rows)) if rows else None
