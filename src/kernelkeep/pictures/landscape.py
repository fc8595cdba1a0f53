"""The landscape of a tuning: times over the two parameters that matter most."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .measurements import BEST, DOTS, FAILED, INK, SOFT, Attempt, TimeUnit, Tuning, measured, set_time_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EMPTY = "#f3f1ef"  # the colour of cells without a time
_WRITTEN_COLUMNS, _WRITTEN_ROWS = 12, 18  # cells; more are too small for numbers in them
_LABELS = 24  # along an axis


def draw_landscape(axes: Axes, report: Tuning, unit: TimeUnit) -> None:
    names = most_relevant_parameters(report)
    if not report.attempts:
        axes.set_axis_off()
    elif len(names) < 2:
        _bars(axes, report, names[0] if names else None, unit)
    else:
        _heat_map(axes, report, names, unit)


def most_relevant_parameters(report: Tuning) -> list[str]:
    """The two parameters that together explain most of the times; fewer where no more were varied."""
    names = dict.fromkeys(name for attempt in report.attempts for name in attempt.variant)
    several = [name for name in names if len(values_of(report, name)) > 1]
    alone = {name: explained_variance(report, name) for name in several}
    pairs = itertools.combinations(several, 2)
    best = max(
        pairs, key=lambda pair: (explained_variance(report, *pair), alone[pair[0]] + alone[pair[1]]), default=several
    )
    return sorted(best, key=lambda name: -alone[name])


def values_of(report: Tuning, name: str) -> list[Any]:
    """The values of a parameter that were tried, in order."""
    found = {attempt.variant[name] for attempt in report.attempts if name in attempt.variant}
    if all(isinstance(value, int | float) for value in found):
        return sorted(found)
    return sorted(found, key=str)


def explained_variance(report: Tuning, *names: str) -> float:
    """The share of the variance of the times' logarithms that parameters explain; less than nothing for pure chance.

    Corrected for how many values they have: with one attempt for each value, even chance would explain everything.
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for attempt in measured(report):
        groups.setdefault(tuple(attempt.variant[name] for name in names), []).append(math.log(attempt.milliseconds))
    everything = [x for group in groups.values() for x in group]
    free = len(everything) - len(groups)
    if free < 1:
        return 0.0
    total = _sum_of_squares(everything) / (len(everything) - 1)
    within = sum(_sum_of_squares(group) for group in groups.values()) / free
    return 1.0 - within / total if total > 0 else 0.0


def _sum_of_squares(numbers: Sequence[float]) -> float:
    middle = fmean(numbers)
    return sum((x - middle) ** 2 for x in numbers)


def _most_common_failure(attempts: Iterable[Attempt]) -> str:
    """The class of most of the failures."""
    counts = Counter(attempt.failure for attempt in attempts if attempt.failure)
    return min(counts, key=lambda failure: (-counts[failure], failure)) if counts else ""


def _heat_map(axes: Axes, report: Tuning, names: Sequence[str], unit: TimeUnit) -> None:
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    across, down = sorted(names, key=lambda name: -len(values_of(report, name)))
    xs, ys = values_of(report, across), values_of(report, down)
    cells: dict[tuple[int, int], list[Attempt]] = {}
    times = np.full((len(ys), len(xs)), np.nan)
    for attempt in report.attempts:
        cells.setdefault((ys.index(attempt.variant[down]), xs.index(attempt.variant[across])), []).append(attempt)
    for timed in measured(report):
        place = ys.index(timed.variant[down]), xs.index(timed.variant[across])
        times[place] = np.fmin(times[place], timed.milliseconds * unit.factor)
    known = times[np.isfinite(times)]
    low, high = (float(known.min()), float(known.max())) if known.size else (1.0, 1.0)
    norm = LogNorm(low / 1.01, high * 1.01)
    image = axes.imshow(np.ma.masked_invalid(times), cmap="viridis", norm=norm, aspect="auto", origin="lower")
    written = len(xs) <= _WRITTEN_COLUMNS and len(ys) <= _WRITTEN_ROWS
    size = 9.0 if len(xs) <= 8 and len(ys) <= 12 else 7.0
    for row in range(len(ys)):
        for column in range(len(xs)):
            inside = cells.get((row, column), [])
            value = times[row, column]
            if math.isfinite(value):
                if written:
                    colour = "white" if norm(value) < 0.6 else INK
                    text = unit.number(value / unit.factor)
                    axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=size)
                continue
            shade = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=_EMPTY, edgecolor="white", linewidth=1.5)
            axes.add_patch(shade)
            if inside:
                text = _most_common_failure(inside) if written else "×"
                axes.text(column, row, text, ha="center", va="center", color=FAILED, fontsize=size)
    if report.best is not None:
        column, row = xs.index(report.best[across]), ys.index(report.best[down])
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=BEST, linewidth=2.5, zorder=5)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    others = any(len({tuple(a.variant.items()) for a in inside}) > 1 for inside in cells.values())
    axes.set_title(
        "Fastest time in each cell" + (", over all other parameters" if others else ""), fontsize=10, color=SOFT
    )
    for name, values, axis, label in (
        (across, xs, axes.xaxis, axes.set_xlabel),
        (down, ys, axes.yaxis, axes.set_ylabel),
    ):
        step = -(-len(values) // _LABELS)
        axis.set_ticks(range(0, len(values), step), [str(value) for value in values[::step]])
        label(f"{name}   ({max(0.0, explained_variance(report, name)):.0%} of the variance)" if known.size else name)
    if max(len(str(value)) for value in xs) * len(xs) > 60:
        axes.tick_params(axis="x", labelrotation=60)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks([x - 0.5 for x in range(1, len(xs))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(ys))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    if known.size:
        figure = axes.get_figure()
        assert figure is not None
        bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.05)
        bar.set_label(unit.name, rotation=0, labelpad=8)
        bar.outline.set_visible(False)
        set_time_ticks(bar.ax.yaxis, low, high)
        bar.ax.tick_params(length=2)


def _bars(axes: Axes, report: Tuning, name: str | None, unit: TimeUnit) -> None:
    groups: dict[str, list[Attempt]] = {}
    if name is None:
        groups[str(report.attempts[0].variant)] = list(report.attempts)
    else:
        for value in values_of(report, name):
            groups[str(value)] = [a for a in report.attempts if a.variant.get(name) == value]
    heights = [
        min((a.milliseconds * unit.factor for a in group if a.milliseconds is not None and not a.failure), default=0.0)
        for group in groups.values()
    ]
    best = [report.best is not None and any(a.variant == report.best for a in group) for group in groups.values()]
    axes.bar(range(len(groups)), heights, width=0.7, color=[BEST if it else DOTS for it in best])
    for place, (height, group) in enumerate(zip(heights, groups.values(), strict=True)):
        text = unit.number(height / unit.factor) if height else _most_common_failure(group)
        axes.annotate(
            text, (place, height), (0, 3), textcoords="offset points", ha="center", color=INK if height else FAILED
        )
    step = -(-len(groups) // _LABELS)
    axes.set_xticks(range(0, len(groups), step), list(groups)[::step])
    axes.set_xlim(-0.6 - (len(groups) == 1), len(groups) - 0.4 + (len(groups) == 1))
    axes.set_ylim(0, 1.12 * max(heights) if any(heights) else 1)
    axes.set_xlabel(name or "")
    axes.set_ylabel(unit.name)
    axes.set_title("Time of each variant", fontsize=10, color=SOFT)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)
