"""What notebooks show of a cache: its statistics, what preloading did, and why a lookup hits or misses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..html.bars import Bar, bars
from ..html.card import badge, card, folded, section, side_by_side
from ..html.markup import Markup, element, join
from ..html.numbers import count, milliseconds, seconds, share, size
from ..html.table import facts, table

if TYPE_CHECKING:
    from .program_cache import ProgramCache
    from .report import Explanation, PreloadReport
    from .stats import CacheStats

_PLACES = {"memory": "in memory", "disk": "on disk", "remote": "in a shared store"}


def stats_html(stats: CacheStats, title: str = "Cache") -> str:
    """Lookups by the place they were answered from, and the counts around them."""
    lookups = stats.hits + stats.misses
    about = f"{share(stats.hit_rate)} of {count(lookups)} lookups needed no compiler" if lookups else "no lookups yet"
    return card(title, about, side_by_side(_lookups(stats), facts(_stat_rows(stats))))


def cache_html(cache: ProgramCache) -> str:
    """A cache: its statistics, or that it is closed."""
    return (
        card(repr(cache).strip("<>"), "closed")
        if cache.closed
        else stats_html(cache.stats(), f"Cache of {cache.device.spec}")
    )


def preload_html(report: PreloadReport) -> str:
    """Where programs came from, and which failed."""
    items = [
        Bar("from disk", report.disk, kind="middle"),
        Bar("compiled", report.compiled, kind="warn"),
        Bar("already in memory", report.memory),
        Bar("from a shared store", report.remote, kind="light"),
        Bar("failed", len(report.failed), kind="bad"),
    ]
    about = f"{count(report.loaded)} program{'' if report.loaded == 1 else 's'} ready in {seconds(report.seconds)}"
    failed = [(one.name, type(one.error).__name__, element("pre", one.error)) for one in report.failed]
    return card(
        "Preloaded",
        about,
        bars([item for item in items if item.value], label="where programs came from"),
        section("failed", table(("program", "error", ""), failed)) if failed else None,
    )


def explanation_html(explanation: Explanation) -> str:
    """Whether a program is found, and if not, what differs from the nearest one."""
    one = explanation
    state = badge(f"found {_PLACES.get(one.found, one.found)}", "accent") if one.found else badge("not found", "warn")
    parts: list[object] = [element("p", one.note, class_="kk-soft")] if one.note else []
    if not one.found and one.nearest is None:
        parts.append(element("p", "No other version of it is known.", class_="kk-soft"))
    elif not one.found:
        rows = [(each.field, _side(each.stored), _side(each.asked)) for each in one.differences]
        label = join(("the nearest entry is ", element("code", one.nearest), ", which differs in"))
        parts.append(element("div", label, class_="kk-label"))
        parts.append(table(("field", "there", "here"), rows, name="differences"))
    everything = facts([(label, element("code", value)) for label, value in one.fields.items()])
    about = join((state, " ", element("code", one.digest[:16], title="the key")))
    return card(one.name, about, parts, folded("all that the key is made of", everything))


def _lookups(stats: CacheStats) -> Markup:
    items = [
        Bar("hits in memory", stats.hits_memory),
        Bar("hits on disk", stats.hits_disk, kind="middle"),
        Bar("remote hits", stats.hits_remote, kind="light"),
        Bar("misses", stats.misses, kind="warn"),
    ]
    return bars([item for item in items if item.value or item.label != "remote hits"], label="lookups")


def _stat_rows(stats: CacheStats) -> list[tuple[str, object]]:
    over = ", over the bound: all are in use" if stats.over_bound else ""
    failed = f", {count(stats.compile_errors)} failed" if stats.compile_errors else ""
    rows: list[tuple[str, object]] = [
        ("in memory", f"{_programs(stats.programs)}, {size(stats.memory_bytes)}{over}"),
        ("on disk", f"{_programs(stats.on_disk)}, {size(stats.disk_bytes)}"),
        ("compiled", f"{_programs(stats.compiles)} in {seconds(stats.compile_seconds)}{failed}"),
        ("compile time saved", milliseconds(stats.compile_seconds_saved * 1e3)),
    ]
    rows += [
        (label, count(value))
        for label, value in (
            ("waited for another's compile", stats.waits),
            ("saved again after use", stats.ripened),
            ("evictions", stats.evictions),
            ("corrupt entries set aside", stats.corrupt_entries),
        )
        if value
    ]
    return [*rows, *stats.remote_rows()]


def _programs(number: int) -> str:
    return f"{count(number)} program{'' if number == 1 else 's'}"


def _side(value: str | None) -> object:
    if value is None or value == "":
        return element("span", "absent" if value is None else "defined without a value", class_="kk-soft")
    return element("code", value)
