"""The picture of a tuning: the landscape of times on the left, the progress over time on the right."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from os import PathLike
from typing import TYPE_CHECKING

from .file import save_figure
from .landscape import draw_landscape
from .measurements import BEST, DOTS, FAILED, INK, LINE, SOFT, TimeUnit, Tuning, measured, set_time_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES = (11.5, 5.0)


def save_tuning_picture(report: Tuning, path: str | PathLike[str]) -> None:
    """Draw a report as PNG, SVG or PDF, by the file's suffix. The file appears whole or not at all."""
    save_figure(path, lambda: _draw(report))


def _draw(report: Tuning) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)  # the figure's own: no display and no global list of figures
    unit = TimeUnit(report)
    problem = "  ".join(f"{name}={value}" for name, value in report.problem.items())
    head = [f"{report.name}   {problem}".rstrip(), f"{report.device}   ·   {_summary(report, unit)}"]
    lines = [line for text in head for line in textwrap.wrap(text, 130) or [""]]
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize=10.5, color=INK, linespacing=1.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
    draw_landscape(left, report, unit)
    _progress(right, report, unit)
    return figure


def _summary(report: Tuning, unit: TimeUnit) -> str:
    tried = f"{len(report.attempts)} of {report.size}" if report.size is not None else f"{len(report.attempts)}"
    words = f"{tried} variants in {report.seconds:.3g} s"
    if report.best is None or report.best_ms is None:
        return words
    found = f"{report.best}: {unit.words(report.best_ms)}"
    if report.best == report.default:
        found += ", the default"
    elif report.default_ms is not None:
        found += f", {report.default_ms / report.best_ms:.3g}× as fast as the default"
    return f"{found}   ·   {words}"


def _progress(axes: Axes, report: Tuning, unit: TimeUnit) -> None:
    axes.set_title("Progress", fontsize=10, color=SOFT)
    axes.set_xlabel("seconds since the start")
    axes.spines[["top", "right"]].set_visible(False)
    good = sorted(measured(report), key=lambda attempt: attempt.at_seconds)
    end = max([report.seconds, *(attempt.at_seconds for attempt in report.attempts)])
    axes.set_xlim(-0.02 * end, 1.02 * end if end > 0 else 1.0)
    if good:
        times = [attempt.milliseconds * unit.factor for attempt in good]
        axes.set_yscale("log")
        low, high = min(times), max(times)
        reach = max(high / low, 1.1)
        failures = any(attempt.failure for attempt in report.attempts)
        axes.set_ylim(low / reach ** (0.22 if failures else 0.1), high * reach**0.16)
        set_time_ticks(axes.yaxis, *axes.get_ylim())
        axes.set_ylabel(unit.name)
        axes.grid(axis="y", color="#e4e6ea", linewidth=0.8)
        axes.set_axisbelow(True)
        for new, colour, label in ((True, DOTS, "measured"), (False, "white", "known before")):
            shown = [a for a in good if a.remembered != new]
            if shown:
                axes.scatter(
                    [a.at_seconds for a in shown], [a.milliseconds * unit.factor for a in shown],
                    s=22, color=colour, edgecolors=LINE, linewidths=0.7, zorder=3, label=label,
                )  # fmt: skip
        seconds, best, so_far = [], [], math.inf
        for attempt, time in zip(good, times, strict=True):
            so_far = min(so_far, time)
            seconds.append(attempt.at_seconds)
            best.append(so_far)
        axes.step([*seconds, end], [*best, so_far], where="post", color=LINE, linewidth=1.8, label="the best so far")
        if report.default_ms is not None:
            axes.axhline(
                report.default_ms * unit.factor, color=SOFT, linewidth=1, linestyle=(0, (5, 4)), label="the default"
            )
        chosen = next((a for a in good if a.variant == report.best), None)
        if chosen is not None:
            axes.scatter(
                [chosen.at_seconds], [chosen.milliseconds * unit.factor],
                s=120, marker="*", color=BEST, edgecolors="white", linewidths=0.6, zorder=6, label="chosen",
            )  # fmt: skip
    else:
        axes.set_yticks([])
        _write_in_the_middle(axes, "every variant failed" if report.attempts else "nothing was tried")
    failed = [attempt for attempt in report.attempts if attempt.failure]
    if failed:
        counts = Counter(attempt.failure for attempt in failed)
        words = ", ".join(f"{count} {failure}" for failure, count in sorted(counts.items()))
        axes.scatter(
            [a.at_seconds for a in failed], [0.045] * len(failed), transform=axes.get_xaxis_transform(),
            s=26, marker="x", color=FAILED, linewidths=1.2, zorder=4, clip_on=False, label=f"failed: {words}",
        )  # fmt: skip
    if report.attempts:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=8, frameon=False, labelcolor=INK)


def _write_in_the_middle(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=SOFT, fontsize=11)
