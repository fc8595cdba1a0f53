"""The sections about the cache: what it holds, what it saved, what was compiled and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...html.axis import moment
from ...html.bars import Bar, bars
from ...html.card import badge
from ...html.charts import Series, stacked_columns
from ...html.markup import Markup, element
from ...html.numbers import ago, count, finite, milliseconds, rounded, seconds, share, short, size
from ...html.page import more, panel, story, tile
from ...html.table import Cell, Column, facts, table

Data = Mapping[str, Any]
_STORIES = 9  # of misses, before a click


def tiles(data: Data) -> Markup:
    """The numbers that matter most."""
    sums = data["lifetime"]
    lookups = sums["hits_memory"] + sums["hits_disk"] + sums["hits_remote"] + sums["misses"]
    devices = sum(one["programs"] > 0 for one in data["folders"])
    kept = _number(sums["on_disk"], "program", "programs")
    loads = sums["hits_disk"] + sums["hits_remote"]
    made = [
        tile("compile time saved", seconds(sums["compile_seconds_saved"]), f"{count(loads)} not compiled again", first=True),
        tile("compile time spent", seconds(sums["compile_seconds"]), f"{count(sums['compiles'])} compiles"
             + (f", {count(sums['compile_errors'])} failed" if sums["compile_errors"] else "")),
        tile("hit rate", share(sums["hit_rate"]) if lookups else "–", f"of {count(lookups)} lookups"),
        tile("on disk", size(sums["disk_bytes"]), f"{kept} for {_number(devices, 'device', 'devices')}"),
    ]  # fmt: skip
    return element("div", made, class_="kk-tiles")


def activity(data: Data) -> Markup:
    """Lookups and compile time over time."""
    found = data["over_time"]
    intervals: Sequence[Data] = found["intervals"]
    about = "Lookups of all processes that used this cache folder, by where the program was found."
    if not intervals:
        return empty_panel(
            "activity", "Over time",
            "This fills when a process that uses the cache ends, and each minute before; KERNELKEEP_DIARY=0 keeps it empty.",
        )  # fmt: skip
    starts = [one["start"] for one in intervals]
    width = found["width_seconds"]

    def chart(
        title: str, label: str, series: Sequence[tuple[str, str, str]], write: Any, factor: float = 1.0
    ) -> Markup:
        drawn = [Series(name, [one[field] * factor for one in intervals], kind) for name, field, kind in series]

        def describe(i: int) -> str:
            words = [f"{one.name}: {write(one.values[i])}" for one in drawn if one.values[i]]
            return f"{moment(starts[i])} – {', '.join(words)}"

        top = max((sum(values) for values in zip(*(one.values for one in drawn), strict=True)), default=0.0)
        axis = _in_one_unit(top) if write is milliseconds else write
        return element(
            "div",
            element("h3", title),
            stacked_columns(starts, width, drawn, label=label, write=axis, describe=describe, height=190),
        )

    charts = [
        chart(
            "Programs loaded or compiled", f"programs in {seconds(width)}",
            [("from disk", "hits_disk", "accent"), ("remote", "hits_remote", "middle"), ("compiled", "misses", "warn")], _whole,
        ),
        chart("Compile time", f"compile time in {seconds(width)}",
              [("saved", "compile_seconds_saved", "accent"), ("spent", "compile_seconds", "warn")], milliseconds, 1e3),
        chart("Hits in memory", f"hits in memory in {seconds(width)}", [("hits in memory", "hits_memory", "middle")], _whole),
    ]  # fmt: skip
    each = f"A column is {short(seconds(width))}; times are local."
    return panel(
        "activity", "Over time", f"{about} {each}", element("div", charts, class_="kk-columns"), _processes(data)
    )


def _processes(data: Data) -> Markup | None:
    rows = [
        (
            one["program"], Cell(str(one["pid"]), sort=one["pid"]), device_name(data, one["device"]),
            Cell(ago(data["made"] - one["at"]), sort=-one["at"], title=f"{moment(one['since'])} – {moment(one['at'])}"),
            *(round(one["counts"].get(name, 0)) for name in ("hits_memory", "hits_disk", "hits_remote", "misses")),
            _time(one["counts"].get("compile_seconds_saved", 0)), _time(one["counts"].get("compile_seconds", 0)),
        )
        for one in data["processes"]
    ]  # fmt: skip
    if not rows:
        return None
    columns = ("program", Column("pid", number=True), "device", "last seen", "memory", "disk", "remote", "compiled",
               Column("saved", number=True), Column("spent", number=True))  # fmt: skip
    made = table(columns, rows, name="processes", sortable=True, filterable=True)
    return more(f"The last {_number(len(rows), 'process', 'processes')}", made)


def cached(data: Data) -> Markup:
    """What is kept for which GPU."""
    about = "Compiled programs by the device, driver and compiler they are for; another driver has a folder of its own."
    if not data["folders"]:
        return empty_panel(
            "cached", "Cached programs", "This fills when kk.ProgramCache compiles its first program into this folder."
        )
    now = data["made"]
    folders = [
        (
            Cell(_model(one), title=one["folder"]), one["backend"], Cell(one["driver"], title=one["compiler"]), one["programs"],
            Cell(size(one["bytes"]), sort=one["bytes"]), Cell(size(one["driver_bytes"]), sort=one["driver_bytes"]),
            _age(now, one["oldest"]), _age(now, one["last_used"]),
            one["damaged"] + one["set_aside"],
        )
        for one in data["folders"]
    ]  # fmt: skip
    columns = (
        "device", "backend", Column("driver", hint="Rest here for the compiler"), "programs", Column("size", number=True),
        Column("driver's own", number=True, hint="What the driver keeps for itself in this folder"),
        "oldest", "last used", Column("damaged", hint="Entries that failed their check, here or set aside"),
    )  # fmt: skip
    programs = [
        (
            Cell(one["name"], title=", ".join(one.get("kernels", ())) or one["name"]), device_name(data, one["folder"]),
            one.get("language") or "–", Cell(size(one["bytes"]), sort=one["bytes"]), _time(one.get("compile_seconds")),
            _age(now, one.get("created")), _age(now, one["last_used"]),
            _key(one),
        )
        for one in data["programs"]
    ]  # fmt: skip
    left = data["programs_left_out"]
    heads = (
        "name",
        "device",
        "language",
        Column("size", number=True),
        Column("compile", number=True),
        "made",
        "last used",
        "key",
    )
    return panel(
        "cached", "Cached programs", about,
        table(columns, folders, name="GPU folders", sortable=True),
        element("h3", f"Programs{f', without the {count(left)} that were not used for longest' if left else ''}"),
        table(heads, programs, name="programs", sortable=True, filterable=True),
    )  # fmt: skip


def compiles(data: Data) -> Markup:
    """The slowest compiles, and why the last lookups missed."""
    if not data["slowest"] and not data["misses"]:
        return empty_panel("compiles", "Compiles", "This fills when a program is compiled.")
    names = [one["name"] for one in data["slowest"]]
    slowest = [
        Bar(
            f"{one['name']} {one['digest'][:6]}" if names.count(one["name"]) > 1 else one["name"], one["seconds"],
            seconds(one["seconds"]),
            f"{device_name(data, one['device'])}, {moment(one['at'] or 0)}{'' if one['kept'] else ', no longer kept'}",
            "accent" if one["kept"] else "quiet",
        )
        for one in data["slowest"]
    ]  # fmt: skip
    grey = (
        element("p", "Grey ones are no longer kept.", class_="kk-soft")
        if any(b.kind == "quiet" for b in slowest)
        else None
    )
    missed = _misses(data)
    return panel(
        "compiles", "Compiles", "What a compiler was needed for, and why no tier had it.",
        element(
            "div",
            element("div", element("h3", "The slowest"), bars(slowest, label="the slowest compiles"), grey),
            element("div", element("h3", "Why the last lookups missed"), missed) if missed else None,
            class_="kk-thirds",
        ),
    )  # fmt: skip


def _misses(data: Data) -> list[Markup]:
    """A story for each miss; those of one program with the same reason are told once."""
    groups: dict[tuple[str, str, str], list[Data]] = {}
    for one in data["misses"]:
        groups.setdefault((one["name"], one["device"], one["why"]), []).append(one)
    stories = [_miss(data, found[0], len(found)) for found in groups.values()]
    rest = stories[_STORIES:]
    return stories[:_STORIES] + ([more(f"{len(rest)} more", rest)] if rest else [])


def _miss(data: Data, one: Data, times: int) -> Markup:
    end = [seconds(one["seconds"]), " · "] if one["seconds"] is not None else []
    inside: list[object] = []
    if one["differences"]:
        rows = [
            (
                one_field["field"],
                Cell(element("span", one_field["then"] or "–", class_="kk-diff kk-old")),
                Cell(element("span", one_field["now"] or "–", class_="kk-diff")),
            )
            for one_field in one["differences"]
        ]
        inside.append(table(("field", "the nearest had", "this one has"), rows, name=f"differences of {one['name']}"))
    shown: list[tuple[str, object]] = [("device", device_name(data, one["device"])), ("when", moment(one["at"]))]
    if one["nearest"] is not None:
        shown.append(("the nearest is of", moment(one["nearest"])))
    if one["program"]:
        shown.append(("process", f"{one['program']} {int(one['pid'] or 0) or ''}"))
    if one["digest"]:
        shown.append(("key", element("code", one["digest"][:16])))
    why = [
        badge("failed", "bad") if one["failed"] else None,
        " ",
        one["why"],
        f" · {times} times" if times > 1 else None,
    ]
    return story(
        one["name"], why, [*end, ago(data["made"] - one["at"])],
        facts(shown), *inside,
    )  # fmt: skip


def empty_panel(name: str, title: str, how: str) -> Markup:
    """A section that has nothing to show yet, and how it fills."""
    return element(
        "section", element("h2", title), element("p", how, class_="kk-empty-section"), class_="kk-panel", id=name
    )


def device_name(data: Data, folder: str) -> str:
    """The name of the device that a folder is for."""
    found: str = data["devices"].get(folder, folder)
    return found


def _model(folder: Data) -> str:
    return "the driver's own cache" if folder["is_driver_cache"] else str(folder["model"])


def _age(now: float, then: float | None) -> Cell:
    return Cell("–") if then is None else Cell(ago(now - then), sort=-then, title=moment(then))


def _key(one: Data) -> Cell:
    if one["damage"]:
        return Cell(badge("damaged", "bad"), one["digest"], one["damage"])
    return Cell(element("code", one["digest"][:12]), one["digest"], one["digest"])


def _time(value: object) -> Cell:
    number = finite(value)
    return Cell(seconds(number) if number else "–", sort=number or 0.0)


def _in_one_unit(top: float) -> Callable[[float], str]:
    """Writes milliseconds up to `top` along an axis, all in the same unit."""
    length, unit = next((one for one in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")) if top >= 2 * one[0]),
                        (1, "ms"))  # fmt: skip
    return lambda value: f"{rounded(value / length)} {unit}"


def _whole(value: float) -> str:
    """A whole number; nothing for what is between two of them."""
    return count(round(value)) if abs(value - round(value)) < 1e-6 else ""


def _number(number: float, one: str, many: str) -> str:
    return f"{count(number)} {one if number == 1 else many}"
