"""What notebooks show of each object: well-formed, escaped, and with the facts that matter. Displaying waits for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.history import CheckpointMoment, GapMoment, ProgressMoment, RunHistory
from kernelkeep.continuous.report import RunReport
from kernelkeep.continuous.supervision.incident import Incident
from kernelkeep.fleet.report import FleetPart, FleetReport
from kernelkeep.testing.browser import Browser
from kernelkeep.variants.report import Attempt

HOSTILE = "<script>alert('x')</script>&\x1b[31m"
SCALE = """int i = kk_global_id(0);
if (i < n) y[i] = a * y[i];  // <b>not bold</b>"""
SIZED = "<meta name=viewport content=width=device-width>"
VOID = {"br", "hr", "input", "link", "meta"}


class Checker(HTMLParser):
    """Collects the text, and fails where elements are not nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "points":
                assert all(len([float(part) for part in point.split(",")]) == 2 for point in (value or "").split())

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)


def text_in(shown: Any) -> str:
    """The text of an object's HTML, which must be well-formed and harmless."""
    checker = Checker()
    html = shown._repr_html_()
    checker.feed(html)
    assert not checker.open
    assert "script" not in checker.tags
    assert "\x1b" not in html
    return " ".join(" ".join(checker.texts).split())


def svg_count(shown: Any) -> int:
    return int(shown._repr_html_().count("<svg"))


def kernel(body: str = SCALE, name: str = "scale") -> kk.PortableKernel:
    params: list[kk.Buffer | kk.Scalar] = [kk.Buffer("y", "f4"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")]
    return kk.PortableKernel(name, params, body)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
    folder = tmp_path_factory.mktemp("views")
    with kk.open_device("opencl") as device, kk.ProgramCache(device, cache_dir=folder) as cache:
        yield cache


def test_devices_are_a_table_and_still_a_list() -> None:
    devices = kk.list_devices()
    assert isinstance(devices, list) and devices == list(devices)
    assert all(one.spec in text_in(devices) for one in devices)
    assert str(devices).splitlines()[0].startswith(devices[0].spec)
    info = kk.DeviceInfo("opencl:7", "opencl", HOSTILE, HOSTILE, HOSTILE, is_gpu=True, memory_bytes=3 << 30)
    assert "<script>" in text_in(info) and "3.0 GiB" in text_in(info) and "GPU" in text_in(info)


@pytest.mark.opencl
def test_a_device_its_capabilities_and_an_array(cache: kk.ProgramCache) -> None:
    device = cache.device
    assert device.info.name in text_in(device) and "capabilities" in text_in(device)
    assert "max_group_items" in text_in(device.capabilities)
    array = device.zeros((3, 1000), "f4")
    assert "3 × 1,000" in text_in(array) and "float32" in text_in(array) and "11.7 KiB" in text_in(array)
    array.close()
    assert "closed" in text_in(array)


def test_displaying_an_array_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with kk.open_device("reference") as device:
        array = device.zeros(4, "f4")
        monkeypatch.setattr(type(device), "download", lambda *_: pytest.fail("it was read"))
        monkeypatch.setattr(type(device), "synchronize", lambda *_: pytest.fail("it waited"))
        assert "4" in text_in(array) and text_in(device)


@pytest.mark.opencl
def test_the_cache_its_statistics_and_explanations(cache: kk.ProgramCache) -> None:
    before = cache.explain(kernel())
    assert "not found" in text_in(before) and "No other version" in text_in(before)
    assert repr(before).startswith("<Explanation: scale is not found")
    report = cache.preload([kernel(), kernel("wrong;", "broken")])
    assert "1 program ready" in text_in(report) and "unknown name wrong" in text_in(report)
    assert "found in memory" in text_in(cache.explain(kernel()))
    other = cache.explain(kernel(SCALE + " "))
    assert "which differs in" in text_in(other) and "source" in text_in(other)
    assert "lookups needed no compiler" in text_in(cache.stats())
    assert svg_count(cache.stats()) >= 3
    assert cache.device.spec in text_in(cache)


def test_a_closed_cache_can_be_shown(tmp_path: Path) -> None:
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        pass
    assert "closed" in text_in(cache) and "closed" in text_in(device)


def test_kernels_and_sources_with_line_numbers() -> None:
    shown = text_in(kernel())
    assert "1 2" in shown and "// <b>not bold</b>" in shown and "read and written" in shown
    written = kernel().source("opencl")
    assert "written from a portable kernel" in text_in(written) and "__kernel" in text_in(written)
    assert "unknown name wrong" in text_in(kernel("wrong;").source("opencl"))
    source = kk.Source("a < b", HOSTILE, "opencl", options=("-w",), defines={"A": 3})
    assert "a < b" in text_in(source) and "-w" in text_in(source) and "#define A 3" in text_in(source)


@kk.kernel
def twice(y: kk.InOut[kk.f4]) -> None:
    y[kk.global_id(0)] *= 2.0


def test_a_kernel_in_python_has_the_lines_of_its_file() -> None:
    shown = text_in(twice)
    assert "portable kernel in Python" in shown and "y[kk.global_id(0)] *= 2.0" in shown
    assert f"{twice.first_line} {twice.first_line + 1} def twice" in shown


def test_checks() -> None:
    assert "no mistakes" in text_in(kk.check(kernel()))
    shown = text_in(kk.check(kernel("double z = 1.0; y[0] = (float)z;")))
    assert "unsupported" in shown and "WGSL has no type double" in shown and "line 1, wgsl" in shown
    assert "error" in text_in(kk.check(kernel("wrong;")))


@pytest.mark.opencl
def test_a_run_its_program_and_its_checkpoint(cache: kk.ProgramCache, tmp_path: Path) -> None:
    program = kk.StateProgram(
        "count",
        coupling="independent",
        items=64,
        state={"u": np.zeros(64, "f4")},
        scalars={"k": np.float32(2)},
        body="int i = kk_item(); u_next[i] = u[i] + k;",
    )
    assert "state program, independent, 64 items" in text_in(program)
    path = tmp_path / "count.kkpt"
    seen: list[str] = []

    def look(run: kk.Run) -> bool:
        seen.append(text_in(run))
        return False

    run = kk.run(
        cache,
        program,
        iterations=200,
        strategy="redispatch",
        checkpoint=path,
        until=look,
    )
    with run:
        assert "at iteration" in seen[0] and "what it did" not in seen[0]
        shown = text_in(run.report)
        assert "200 iterations" in shown and "all iterations are done" in shown and "redispatch" in shown
        assert "iterations in a second" in shown and "checkpoints" in shown
        assert svg_count(run.report) >= 4
        assert "float32" in text_in(run) and "what it did" in text_in(run)
    checkpoint = kk.read_checkpoint(path)
    assert "200" in text_in(checkpoint) and "float32" in text_in(checkpoint) and "can be resumed" in text_in(checkpoint)


def long_run() -> RunReport:
    progress = tuple(ProgressMoment(i * 1.23456, i * 1000 + i % 7) for i in range(240))
    gaps = tuple(GapMoment(i * 2.34567, 1e-5, 1e-3 * i) for i in range(120))
    checkpoints = tuple(CheckpointMoment(i * 1.1, i * 1.1 + 0.1, i, i % 9 > 0) for i in range(240))
    return RunReport(
        program="long", device="opencl:0", strategy="mega", reason=HOSTILE, iterations=239_001, iteration=239_001, dispatches=9,
        seconds=300.0, stopped="done", gap_p50_seconds=1e-5, gap_p99_seconds=1e-3, busy_share=0.9,
        host_seconds_per_dispatch=None, longest_slice_seconds=0.1, late_slices=2, checkpoints=240, checkpoint_seconds=1.0,
        checkpoint_bytes=100, checkpoint_failures=3, resumed_from="long.kkpt", tasks_done=0, overruns=0, queue_grown=0,
        history=RunHistory(progress, gaps, checkpoints),
    )  # fmt: skip


def test_a_long_run_is_drawn_whole() -> None:
    report = long_run()
    shown = text_in(report)
    assert "2 outlived the deadline" in shown and "3 failed" in shown and "long.kkpt" in shown
    html = report._repr_html_()
    assert html.count("kk-fill-bad") > 20 and html.count("<polyline") == 3


def tuned() -> kk.TuneReport:
    attempts = [attempt(tile + vector / 7, TILE=tile, VEC=vector) for tile in (1, 2, 4) for vector in (1, 2)]
    failed = Attempt(kk.Variant({"TILE": 8, "VEC": 1}), None, 2.0, "compile", HOSTILE)
    return tuning(*attempts, failed, best=attempts[0])


@pytest.mark.parametrize(
    ("says", "prefers_dark", "is_dark"),
    [("", False, False), ("", True, True), ("true", True, False), ("false", False, True)],
    ids=["light", "dark", "light theme, dark system", "dark theme, light system"],
)
def test_a_browser_shows_them_in_the_colours_of_the_notebook(
    says: str, prefers_dark: bool, is_dark: bool, browser: Browser, tmp_path: Path
) -> None:
    views: tuple[Any, ...] = (
        long_run(),
        tuned(),
        kernel(),
        kk.check(kernel("wrong;")),
        kk.CacheStats(hits_memory=5, misses=1),
        kk.list_devices(),
    )
    theme = f' data-jp-theme-light="{says}"' if says else ""
    path = tmp_path / "views.html"
    body = "".join(view._repr_html_() for view in views)
    path.write_text(f"<!doctype html><meta charset=utf-8>{SIZED}<body{theme}>{body}", encoding="utf-8")
    for width in (1280, 420):
        page = browser.open(path.as_uri(), width=width, dark=prefers_dark)
        assert page.problems == [] and page.requests == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink = page.evaluate("getComputedStyle(document.querySelector('.kk-title')).color")
        assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 384) == is_dark, ink
        drawn = "[...document.querySelectorAll('polyline, .kk-gantt rect.kk-span')].map(one => one.getBoundingClientRect().width)"
        widths = page.evaluate(drawn)
        assert len(widths) == 3 + 2 + 240 and min(widths) > 0


@pytest.mark.opencl
def test_an_executor_and_its_timeline(cache: kk.ProgramCache) -> None:
    job = kk.Job(cache, kernel(), grid=4, outputs={"y": ((1024,), "f4")})
    with kk.Executor(cache.device) as executor:
        assert "no batches yet" in text_in(executor)
        list(executor.map(job, [{"y": np.ones(1024, "f4"), "a": 2.0, "n": 1024}] * 3))
        assert "3 batches" in text_in(executor) and "upload" in text_in(executor.timeline)
        assert svg_count(executor.timeline) == 6
    assert "closed" in text_in(executor)
    with kk.Executor(cache.device, trace=False) as silent:
        assert "keeps no timeline" in text_in(silent)


def test_a_resident_grid_and_its_timeline(tmp_path: Path) -> None:
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        tasks = {"add": "(float a) { int i = kk_local_id(0); if (i < 4) x[i] += a; }"}
        with kk.Resident.emulated(cache, tasks, {"x": np.zeros(4, "f4")}, threads=64, timeline=8) as resident:
            assert "no tasks yet" in text_in(resident.timeline)
            resident.submit("add", 1.0).result()
            assert "1 task submitted" in text_in(resident) and "add" in text_in(resident)
            assert "block" in text_in(resident.timeline) and svg_count(resident.timeline) == 2
        assert resident.closed and "stopped" in text_in(resident)


def attempt(number: float, **values: Any) -> Attempt:
    return Attempt(kk.Variant(values), number, number)


def tuning(*attempts: Attempt, best: Attempt | None) -> kk.TuneReport:
    first = attempts[0] if attempts else attempt(1.0, TILE=8)
    milliseconds = None if best is None else best.milliseconds
    return kk.TuneReport(
        "gemm", "opencl:0", {"m": 4}, None if best is None else best.variant, milliseconds, first.variant,
        first.milliseconds, attempts, 10, 3.0, HOSTILE,
    )  # fmt: skip


def test_a_tuning_has_a_landscape() -> None:
    report = tuned()
    failed = report.attempts[-1]
    shown = text_in(report)
    assert "TILE=1 VEC=1" in shown and "1.14 ms" in shown and "fastest time in each cell" in shown
    assert "the best so far" in shown and "compile" in shown and "<script>" in shown
    assert repr(report).startswith("<TuneReport of gemm on opencl:0: TILE=1 VEC=1 takes 1.143 ms, 7 variants")
    single = [attempt(tile, TILE=tile) for tile in (1, 2, 4)]
    assert "time of each variant" in text_in(tuning(*single, best=single[0]))
    assert "every variant failed" in text_in(tuning(failed, best=None))
    assert "the time was too short" in text_in(tuning(best=None))
    wide = [attempt(1.0 + a + b, A=a, B=b) for a in range(20) for b in range(20)]
    assert "the fastest variants" in text_in(tuning(*wide, best=wide[0]))


def test_a_selection() -> None:
    selection = kk.Selection(kk.Variant({"TILE": 8}), "it was measured", 0.25, 1.0, "nearest")
    assert "TILE=8" in text_in(selection) and "250 µs" in text_in(selection) and "nearest" in text_in(selection)


def test_reports_of_fleets_and_supervised_runs() -> None:
    parts = (FleetPart("good", True, None, "", "here", 0, 1.5), FleetPart(HOSTILE, False, None, "no", "there", 2, 0.5))
    shown = text_in(FleetReport("warm", "2 processes", parts, 3.0))
    assert (
        "1 of 2 done by 2 processes" in shown
        and "2 workers lost" in shown
        and shown.index("failed") < shown.index("good")
    )
    incident = Incident(0.0, "was killed", 12, 3.0, last_iteration=400)
    report = kk.SupervisedReport(None, 1, (incident,), 9.0)
    assert "1 restart" in text_in(report) and "was killed" in text_in(report) and "400" in text_in(report)


def test_ipython_in_a_terminal_shows_the_text_for_people() -> None:
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    report = FleetReport("warm", "2 processes", (), 3.0)
    for shown in (kk.CacheStats(hits_disk=3), report, tuning(best=None), kk.list_devices()):
        assert pretty(shown) == str(shown)
