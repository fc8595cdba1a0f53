"""The sections about work: variants, executors, continuous runs, resident grids."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ...continuous.history import CheckpointMoment, GapMoment, ProgressMoment, RunHistory
from ...continuous.html import picture
from ...execution.timeline import ENGINES
from ...html.axis import moment
from ...html.bars import Bar, bars
from ...html.card import badge, section
from ...html.gantt import Row, Span, gantt
from ...html.markup import Markup, element, join
from ...html.numbers import ago, count, milliseconds, rounded, seconds, share, size
from ...html.page import panel, story
from ...html.table import facts
from ...variants.html import landscape
from .cache_sections import Data, device_name, empty_panel

_KINDS = {"upload": "middle", "compute": "accent", "download": "light"}
_TASK_KINDS = ("accent", "middle", "light", "warn", "quiet")


def variants(data: Data) -> Markup:
    """What tuning found, and the landscape of each problem."""
    if not data["tunings"]:
        how = "This fills when a kernel is tuned: kernelkeep tune gemm, or tuned.tune(cache, problem)."
        problem = data["tunings_problem"]
        return empty_panel(
            "variants", "Variants", f"{how} The records here cannot be read: {problem}" if problem else how
        )
    about = (
        "Tuned kernels: the variant in use for each problem and device, and the time of every variant that was tried."
    )
    stories = [_tuning(data, one, is_open=number == 0) for number, one in enumerate(data["tunings"])]
    return panel("variants", "Variants", about, stories)


def _tuning(data: Data, one: Data, *, is_open: bool) -> Markup:
    problem = "  ".join(f"{name}={value}" for name, value in one["problem"].items())
    timed = [
        attempt["milliseconds"]
        for attempt in one["attempts"]
        if attempt["milliseconds"] is not None and not attempt["failure"]
    ]
    slowest = (
        f", {rounded(max(timed) / one['milliseconds'])}× as fast as the slowest"
        if timed and one["milliseconds"]
        else ""
    )
    best = _words(one["variant"]) if one["variant"] else "every variant failed"
    failed = sum(one["failures"].values())
    shown: list[tuple[str, object]] = [
        ("in use", [element("code", best), " ", badge("pinned", "warn") if one["pinned"] else None]),
        ("time", f"{milliseconds(one['milliseconds'])}{slowest}"),
        ("device", device_name(data, one["device"])),
        ("tried", f"{count(one['measured'])} measured{f', {count(failed)} failed' if failed else ''}, {one['dtype']}"),
    ]
    what = join([problem, milliseconds(one["milliseconds"]), f"{len(one['attempts'])} variants"], " · ")
    return story(
        one["tuned"],
        what,
        ago(data["made"] - (one["newest"] or data["made"])),
        facts(shown),
        _landscape(one),
        is_open=is_open,
    )


def _landscape(one: Data) -> Markup | None:
    attempts = [
        SimpleNamespace(
            variant=_Shown(attempt["variant"]), milliseconds=attempt["milliseconds"], failure=attempt["failure"],
            detail=attempt["detail"], at_seconds=0.0, remembered=False,
        )
        for attempt in one["attempts"]
    ]  # fmt: skip
    best = None if one["variant"] is None else _Shown(one["variant"])
    report: Any = SimpleNamespace(attempts=attempts, best=best)
    return landscape(report) if attempts else None


class _Shown(dict[str, Any]):
    """A variant that writes itself as people read it."""

    def __str__(self) -> str:
        return _words(self)


def _words(variant: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in variant.items())


def executors(data: Data) -> Markup:
    """What executors did, with the timeline of their last batches."""
    if not data["executors"]:
        return empty_panel("executors", "Executors", "This fills when a kk.Executor that ran batches is closed.")
    about = "Executors that were closed: how busy uploads, kernels and downloads were, and when the last batches ran."
    stories = [_executor(data, one, is_open=number == 0) for number, one in enumerate(data["executors"])]
    return panel("executors", "Executors", about, stories)


def _executor(data: Data, one: Data, *, is_open: bool) -> Markup:
    busy = one["busy"]
    whole = one["seconds"]
    rate = f"{rounded(one['looked_at'] / whole)} batches in a second" if whole and one["looked_at"] else ""
    failed = f", {count(one['failed_batches'])} failed" if one["failed_batches"] else ""
    what = join(
        [f"{count(one['batches'])} batches{failed}", f"depth {count(one['depth'])}", *([rate] if rate else [])], " · "
    )
    items = [
        Bar(name, busy.get(name, 0.0), share(busy.get(name, 0.0)), kind=_KINDS[name])
        for name in ENGINES
        if name in busy
    ]
    rows = [
        Row(
            engine,
            [
                Span(start, end, f"{job} {batch}: {milliseconds(end - start)}", _KINDS[engine])
                for index, start, end, batch, job in one["spans"]
                if index == number and end > start
            ],
        )
        for number, engine in enumerate(ENGINES)
    ]
    names = list(one["jobs"])
    shown: list[tuple[str, object]] = [("device", device_name(data, one["device"])), ("jobs", ", ".join(names) or "–")]
    shown += [(f"{item.label} busy", item.shown) for item in items]
    title = names[0] if len(names) == 1 else f"{len(names)} jobs" if names else one["spec"] or "executor"
    drawn = section("the last batches", gantt(rows, label="when the last batches ran")) if one["spans"] else None
    return story(title, what, _when(data, one), facts(shown), drawn, is_open=is_open)


def runs(data: Data) -> Markup:
    """Continuous runs, with gaps and checkpoints."""
    if not data["runs"]:
        return empty_panel("runs", "Continuous runs", "This fills when a kk.run ends, however it ends.")
    about = "Runs of state programs: iterations in a second, the gaps between dispatches, and when checkpoints were written."
    stories = [_run(data, one, is_open=number == 0) for number, one in enumerate(data["runs"])]
    return panel("runs", "Continuous runs", about, stories)


def _run(data: Data, one: Data, *, is_open: bool) -> Markup:
    stopped = one["stopped"] or "over"
    state = badge(stopped, "bad" if stopped == "failed" else "warn" if stopped == "interrupted" else "accent")
    what = join([state, f" {count(one['iterations'])} iterations in {seconds(one['seconds'])}"])
    gaps = one["gap_p50_seconds"], one["gap_p99_seconds"]
    shown: list[tuple[str, object]] = [("device", device_name(data, one["device"]))]
    if one["error"]:
        shown.append(("failed because", element("span", one["error"], class_="kk-bad")))
    if one["strategy"]:
        shown.append(
            (
                "strategy",
                [badge(one["strategy"], "accent"), " ", element("span", one["reason"] or "", class_="kk-soft")],
            )
        )
    if one["iterations"] and one["seconds"]:
        shown.append(("on average", f"{rounded(one['iterations'] / one['seconds'])} iterations in a second"))
    if None not in gaps:
        shown.append(("gaps", f"half below {seconds(gaps[0])}, 99% below {seconds(gaps[1])}"))
    if one["busy_share"] is not None:
        shown.append(("device busy", share(one["busy_share"])))
    if one["late_slices"]:
        shown.append(("late", f"{count(one['late_slices'])} slices outlived their deadline"))
    if one["checkpoint"]:
        shown.append(("checkpoint", element("code", one["checkpoint"])))
    if one["checkpoints"] or one["checkpoint_failures"]:
        failed = f", {count(one['checkpoint_failures'])} failed" if one["checkpoint_failures"] else ""
        each = seconds((one["checkpoint_seconds"] or 0) / one["checkpoints"]) if one["checkpoints"] else "–"
        shown.append(
            ("written", f"{count(one['checkpoints'])} times, {size(one['checkpoint_bytes'])}, {each} each{failed}")
        )
    if one["resumed_from"]:
        shown.append(("resumed from", one["resumed_from"]))
    history = RunHistory(
        tuple(ProgressMoment(*entry) for entry in one["progress"]),
        tuple(GapMoment(*entry) for entry in one["gaps"]),
        tuple(CheckpointMoment(*entry) for entry in one["checkpoint_times"]),
    )
    whole = one["seconds"] or 0.0
    drawn = picture(history, whole) if whole > 0 else None
    return story(one["name"] or "run", what, _when(data, one), facts(shown), drawn, is_open=is_open)


def residents(data: Data) -> Markup:
    """Resident grids: their tasks by name, how many a second, and the last of them."""
    if not data["residents"]:
        return empty_panel(
            "residents", "Resident grids",
            "This fills when a kk.Resident is closed; with timeline=… it shows when its last tasks ran.",
        )  # fmt: skip
    about = "Kernels that stayed on the device and took tasks: how many of which name, and when the last ones ran."
    stories = [_resident(data, one, is_open=number == 0) for number, one in enumerate(data["residents"])]
    return panel("residents", "Resident grids", about, stories)


def _resident(data: Data, one: Data, *, is_open: bool) -> Markup:
    whole = one["seconds"]
    rate = f"{rounded(one['tasks'] / whole)} in a second" if whole and one["tasks"] else ""
    emulated = badge("emulated", "quiet") if one["emulated"] else None
    what = join([emulated, " " if emulated else None, " · ".join(filter(None, [f"{count(one['tasks'])} tasks", rate]))])
    kinds = {name: _TASK_KINDS[min(number, len(_TASK_KINDS) - 1)] for number, name in enumerate(one["names"])}
    items = [Bar(name, number, count(number), kind=kinds[name]) for name, number in one["names"].items()]
    pauses = max(0.0, one["launches"] - 1)
    shown: list[tuple[str, object]] = [
        ("device", device_name(data, one["device"])),
        ("grid", f"{count(one['blocks'])} blocks of {count(one['threads'])} work-items"),
        ("open for", seconds(whole)),
        ("started again", f"{count(pauses)} times" if pauses else "never"),
    ]
    if one["last_pause_seconds"]:
        shown.append(("stood still for a new task", seconds(one["last_pause_seconds"])))
    of_all = "" if one["counted"] >= one["tasks"] else f", of the last {count(one['counted'])}"
    blocks = sorted({block for block, *_ in one["spans"]})
    rows = [
        Row(
            f"block {block}",
            [
                Span(start, end, f"{task}: {milliseconds(end - start)}", kinds.get(task, "accent"))
                for where, start, end, task in one["spans"]
                if where == block
            ],
        )
        for block in blocks
    ]
    drawn = section("the last tasks", gantt(rows, label="when the last tasks ran")) if rows else None
    counted = section(f"tasks by name{of_all}", bars(items, label="tasks by name")) if items else None
    title = ", ".join(list(one["names"])[:3]) or "resident"
    return story(title, what, _when(data, one), facts(shown), counted, drawn, is_open=is_open)


def _when(data: Data, one: Data) -> Markup:
    at = one["at"] or data["made"]
    return element("span", ago(data["made"] - at), title=moment(at))
