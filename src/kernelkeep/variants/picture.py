"""What tuning found, as a picture: the landscape of times over the two parameters that matter most, and the progress.

Needs matplotlib, which is loaded when a picture is made. The same report gives the same SVG, byte for byte.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError, Unsupported
from ..storage.files import NotRegular, check_destination, write_whole
from .report import Attempt, TuneReport
from .space import Value, Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_picture", "save_picture"]

_FORMATS = (".png", ".svg", ".pdf")
# What is in a file beside the picture; a date would make every one of them different.
_METADATA: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "kernelkeep",  # the names of things in an SVG are otherwise random
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.size": 9.0,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#3c4149",
    "xtick.color": "#5b616b",
    "ytick.color": "#5b616b",
    "xtick.labelcolor": "#3c4149",
    "ytick.labelcolor": "#3c4149",
}
_INK, _SOFT, _LINE, _DOTS, _FAILED, _BEST = "#1f2328", "#5b616b", "#2f6f9f", "#7fb2d6", "#b3403a", "#e8590c"
_SHADE = "#f3f1ef"  # of cells without a time
_INCHES = (11.5, 5.0)
_WRITTEN_COLUMNS, _WRITTEN_ROWS = 12, 18  # cells; more are too small for numbers in them
_LABELS = 24  # along an axis


def save_picture(report: TuneReport, path: str | PathLike[str]) -> None:
    """Draw a report as PNG, SVG or PDF, by the name's ending. The file appears whole or not at all."""
    target = check_picture(path)
    import matplotlib

    suffix = target.suffix.lower()
    file = io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # the same picture whatever the user's own settings are
        matplotlib.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a device's or parameter's name may hold anything
        figure = _draw(report)
        figure.savefig(file, format=suffix[1:], dpi=160, metadata=_METADATA[suffix])
    write_whole(target, file.getvalue())


def check_picture(path: str | PathLike[str]) -> Path:
    """Whether a picture can go there, asked before the work that it is to show."""
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"a picture is a .png, .svg or .pdf file, not {target.name!r}")
    if not target.parent.is_dir():
        raise ArgumentError(f"{target} cannot be written: there is no folder {target.parent}")
    try:
        check_destination(target)
    except NotRegular as error:
        raise ArgumentError(f"{target} cannot be written: it {error}") from None
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Unsupported("matplotlib", "pictures need matplotlib, which is not installed: kernelkeep[tune]") from None
    return target


def _draw(report: TuneReport) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)  # the figure's own: no display and no global list of figures
    unit = _Unit(report)
    problem = "  ".join(f"{name}={value}" for name, value in report.problem.items())
    head = [f"{report.name}   {problem}".rstrip(), f"{report.device}   ·   {_summary(report, unit)}"]
    lines = [line for text in head for line in textwrap.wrap(text, 130) or [""]]
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize=10.5, color=_INK, linespacing=1.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
    _landscape(left, report, unit)
    _progress(right, report, unit)
    return figure


def _summary(report: TuneReport, unit: _Unit) -> str:
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


class _Unit:
    """Milliseconds or microseconds, whichever suits the whole picture."""

    def __init__(self, report: TuneReport) -> None:
        fast = min((a.milliseconds for a in _measured(report)), default=1.0)
        self.name, self.factor = ("µs", 1e3) if fast < 0.1 else ("ms", 1.0)

    def number(self, milliseconds: float) -> str:
        value = milliseconds * self.factor
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    def words(self, milliseconds: float) -> str:
        return f"{self.number(milliseconds)} {self.name}"


class _Measured(NamedTuple):
    """An attempt that has a time."""

    variant: Variant
    milliseconds: float
    at_seconds: float
    remembered: bool


def _measured(report: TuneReport) -> list[_Measured]:
    # A time of zero, from a clock that is too coarse, has no logarithm.
    return [
        _Measured(a.variant, max(a.milliseconds, 1e-6), a.at_seconds, a.remembered)
        for a in report.attempts
        if a.milliseconds is not None and not a.failure
    ]


# --- the landscape


def _landscape(axes: Axes, report: TuneReport, unit: _Unit) -> None:
    names = _that_matter(report)
    if not report.attempts:
        axes.set_axis_off()
    elif len(names) < 2:
        _bars(axes, report, names[0] if names else None, unit)
    else:
        _heat_map(axes, report, names, unit)


def _that_matter(report: TuneReport) -> list[str]:
    """The two parameters that together explain most of the times; fewer where no more were varied."""
    names = dict.fromkeys(name for attempt in report.attempts for name in attempt.variant)
    several = [name for name in names if len(_values(report, name)) > 1]
    alone = {name: _explained(report, name) for name in several}
    pairs = itertools.combinations(several, 2)
    best = max(pairs, key=lambda pair: (_explained(report, *pair), alone[pair[0]] + alone[pair[1]]), default=several)
    return sorted(best, key=lambda name: -alone[name])


def _values(report: TuneReport, name: str) -> list[Value]:
    found = {attempt.variant[name] for attempt in report.attempts if name in attempt.variant}
    if all(isinstance(value, int | float) for value in found):
        return sorted(found)
    return sorted(found, key=str)


def _explained(report: TuneReport, *names: str) -> float:
    """The share of the variance of the times' logarithms that parameters explain; less than nothing for pure chance.

    Corrected for how many values they have: with one attempt for each value, even chance would explain everything.
    """
    groups: dict[tuple[Value, ...], list[float]] = {}
    for attempt in _measured(report):
        groups.setdefault(tuple(attempt.variant[name] for name in names), []).append(math.log(attempt.milliseconds))
    everything = [x for group in groups.values() for x in group]
    free = len(everything) - len(groups)
    if free < 1:
        return 0.0
    total = _squares(everything) / (len(everything) - 1)
    within = sum(_squares(group) for group in groups.values()) / free
    return 1.0 - within / total if total > 0 else 0.0


def _squares(numbers: Sequence[float]) -> float:
    middle = fmean(numbers)
    return sum((x - middle) ** 2 for x in numbers)


def _failure(attempts: Iterable[Attempt]) -> str:
    """The class of most of the failures."""
    counts = Counter(attempt.failure for attempt in attempts if attempt.failure)
    return min(counts, key=lambda failure: (-counts[failure], failure)) if counts else ""


def _heat_map(axes: Axes, report: TuneReport, names: Sequence[str], unit: _Unit) -> None:
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    across, down = sorted(names, key=lambda name: -len(_values(report, name)))
    xs, ys = _values(report, across), _values(report, down)
    cells: dict[tuple[int, int], list[Attempt]] = {}
    times = np.full((len(ys), len(xs)), np.nan)
    for attempt in report.attempts:
        cells.setdefault((ys.index(attempt.variant[down]), xs.index(attempt.variant[across])), []).append(attempt)
    for measured in _measured(report):
        place = ys.index(measured.variant[down]), xs.index(measured.variant[across])
        times[place] = np.fmin(times[place], measured.milliseconds * unit.factor)
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
                    colour = "white" if norm(value) < 0.6 else _INK
                    text = unit.number(value / unit.factor)
                    axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=size)
                continue
            shade = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=_SHADE, edgecolor="white", linewidth=1.5)
            axes.add_patch(shade)
            if inside:
                text = _failure(inside) if written else "×"
                axes.text(column, row, text, ha="center", va="center", color=_FAILED, fontsize=size)
    if report.best is not None:
        column, row = xs.index(report.best[across]), ys.index(report.best[down])
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=_BEST, linewidth=2.5, zorder=5)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    others = any(len({tuple(a.variant.items()) for a in inside}) > 1 for inside in cells.values())
    axes.set_title(
        "Fastest time in each cell" + (", over all other parameters" if others else ""), fontsize=10, color=_SOFT
    )
    for name, values, axis, label in (
        (across, xs, axes.xaxis, axes.set_xlabel),
        (down, ys, axes.yaxis, axes.set_ylabel),
    ):
        step = -(-len(values) // _LABELS)
        axis.set_ticks(range(0, len(values), step), [str(value) for value in values[::step]])
        label(f"{name}   ({max(0.0, _explained(report, name)):.0%} of the variance)" if known.size else name)
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
        _time_ticks(bar.ax.yaxis, low, high)
        bar.ax.tick_params(length=2)


def _bars(axes: Axes, report: TuneReport, name: str | None, unit: _Unit) -> None:
    groups: dict[str, list[Attempt]] = {}
    if name is None:
        groups[str(report.attempts[0].variant)] = list(report.attempts)
    else:
        for value in _values(report, name):
            groups[str(value)] = [a for a in report.attempts if a.variant.get(name) == value]
    heights = [
        min((a.milliseconds * unit.factor for a in group if a.milliseconds is not None and not a.failure), default=0.0)
        for group in groups.values()
    ]
    best = [report.best is not None and any(a.variant == report.best for a in group) for group in groups.values()]
    axes.bar(range(len(groups)), heights, width=0.7, color=[_BEST if it else _DOTS for it in best])
    for place, (height, group) in enumerate(zip(heights, groups.values(), strict=True)):
        text = unit.number(height / unit.factor) if height else _failure(group)
        axes.annotate(
            text, (place, height), (0, 3), textcoords="offset points", ha="center", color=_INK if height else _FAILED
        )
    step = -(-len(groups) // _LABELS)
    axes.set_xticks(range(0, len(groups), step), list(groups)[::step])
    axes.set_xlim(-0.6 - (len(groups) == 1), len(groups) - 0.4 + (len(groups) == 1))
    axes.set_ylim(0, 1.12 * max(heights) if any(heights) else 1)
    axes.set_xlabel(name or "")
    axes.set_ylabel(unit.name)
    axes.set_title("Time of each variant", fontsize=10, color=_SOFT)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)


# --- progress over time


def _progress(axes: Axes, report: TuneReport, unit: _Unit) -> None:
    axes.set_title("Progress", fontsize=10, color=_SOFT)
    axes.set_xlabel("seconds since the start")
    axes.spines[["top", "right"]].set_visible(False)
    good = sorted(_measured(report), key=lambda attempt: attempt.at_seconds)
    end = max([report.seconds, *(attempt.at_seconds for attempt in report.attempts)])
    axes.set_xlim(-0.02 * end, 1.02 * end if end > 0 else 1.0)
    if good:
        times = [attempt.milliseconds * unit.factor for attempt in good]
        axes.set_yscale("log")
        low, high = min(times), max(times)
        reach = max(high / low, 1.1)
        failures = any(attempt.failure for attempt in report.attempts)
        axes.set_ylim(low / reach ** (0.22 if failures else 0.1), high * reach**0.16)
        _time_ticks(axes.yaxis, *axes.get_ylim())
        axes.set_ylabel(unit.name)
        axes.grid(axis="y", color="#e4e6ea", linewidth=0.8)
        axes.set_axisbelow(True)
        for new, colour, label in ((True, _DOTS, "measured"), (False, "white", "known before")):
            shown = [a for a in good if a.remembered != new]
            if shown:
                axes.scatter(
                    [a.at_seconds for a in shown], [a.milliseconds * unit.factor for a in shown],
                    s=22, color=colour, edgecolors=_LINE, linewidths=0.7, zorder=3, label=label,
                )  # fmt: skip
        seconds, best, so_far = [], [], math.inf
        for attempt, time in zip(good, times, strict=True):
            so_far = min(so_far, time)
            seconds.append(attempt.at_seconds)
            best.append(so_far)
        axes.step([*seconds, end], [*best, so_far], where="post", color=_LINE, linewidth=1.8, label="the best so far")
        if report.default_ms is not None:
            axes.axhline(
                report.default_ms * unit.factor, color=_SOFT, linewidth=1, linestyle=(0, (5, 4)), label="the default"
            )
        chosen = next((a for a in good if a.variant == report.best), None)
        if chosen is not None:
            axes.scatter(
                [chosen.at_seconds], [chosen.milliseconds * unit.factor],
                s=120, marker="*", color=_BEST, edgecolors="white", linewidths=0.6, zorder=6, label="chosen",
            )  # fmt: skip
    else:
        axes.set_yticks([])
        _say(axes, "every variant failed" if report.attempts else "nothing was tried")
    failed = [attempt for attempt in report.attempts if attempt.failure]
    if failed:
        counts = Counter(attempt.failure for attempt in failed)
        words = ", ".join(f"{count} {failure}" for failure, count in sorted(counts.items()))
        axes.scatter(
            [a.at_seconds for a in failed], [0.045] * len(failed), transform=axes.get_xaxis_transform(),
            s=26, marker="x", color=_FAILED, linewidths=1.2, zorder=4, clip_on=False, label=f"failed: {words}",
        )  # fmt: skip
    if report.attempts:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=8, frameon=False, labelcolor=_INK)


def _time_ticks(axis: Any, low: float, high: float) -> None:
    """Labels such as 2, 5, 10 along a logarithmic axis, also where it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high / low > 8 else MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=_SOFT, fontsize=11)
