"""The report: what processes did is in it, and a real browser shows the page, whatever somebody planted in the cache folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.activity.diary import FILE_NAME
from kernelkeep.cli import main
from kernelkeep.observe.report.misses import Known, explain_misses
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.browser import Browser, Page
from kernelkeep.testing.cache_parts.common import adder

HOSTILE = '"><script>window.planted=1</script><img src=https://example.com/x onerror="window.planted=1">'
EMPTY_SECTIONS = 7


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder that was used: compiles, hits, an executor, a run with checkpoints, a resident grid."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KERNELKEEP_DIARY", raising=False)
        root = tmp_path_factory.mktemp("report") / "cache"
        _use(root)
        yield root


def _use(root: Path) -> None:
    scale = kk.PortableKernel(
        "scale", params=[kk.Buffer("x", "f4", "rw"), kk.Scalar("n", "i4")],
        body="int i = kk_global_id(0); if (i < n) x[i] = 2.0f * x[i];", group=4,
    )  # fmt: skip
    grow = kk.StateProgram(
        "grow",
        coupling="independent",
        items=4,
        state={"u": np.zeros(4, "f4")},
        body="u_next[kk_item()] = u[kk_item()] + 1.0f;",
    )
    tasks = {"bump": "(int n) { if (kk_local_id(0) == 0) y[0] += n; }"}
    with kk.open_device("reference") as device:
        with kk.ProgramCache(device, root) as cache:
            job = kk.Job(cache, scale, grid=1, outputs={"x": ((4,), "f4")})
            with kk.Executor(device) as executor:
                list(executor.map(job, [{"x": np.ones(4, "f4"), "n": 4}] * 5))
            kk.run(
                cache,
                grow,
                iterations=8,
                strategy="redispatch",
                checkpoint=root.parent / "grow.kkpt",
                checkpoint_iterations=2,
            )
            with kk.Resident.emulated(cache, tasks, {"y": np.zeros(1, "i4")}, timeline=16) as resident:
                for _ in range(6):
                    resident.submit("bump", 1)
        with kk.ProgramCache(device, root) as cache:
            cache.get(scale).release()
    with FakeDevice() as fake, kk.ProgramCache(fake, root) as cache:
        for term in (1, 2):
            cache.get(adder(fake, term, defines={"TILE": term})).release()
        with pytest.raises(kk.CompileError):
            cache.get(kk.Source("nothing", name="broken", language=fake.language))


def test_it_tells_what_was_done(worked: Path) -> None:
    data = kk.report(cache_dir=worked).data
    json.dumps(data, allow_nan=False)
    assert {one["backend"] for one in data["folders"]} == {"reference", "fake"}
    assert {one["name"] for one in data["programs"]} >= {"scale", "adder"}
    sums = {name: sum(one[name] for one in data["over_time"]["intervals"]) for name in ("hits_disk", "misses")}
    assert sums["hits_disk"] >= 1 and round(sums["misses"]) == data["lifetime"]["misses"]
    (executor,) = data["executors"]
    assert executor["batches"] == 5 and executor["jobs"] == {"scale": 5.0} and len(executor["spans"]) == 15
    (run,) = data["runs"]
    assert (run["name"], run["iterations"], run["strategy"], run["stopped"]) == ("grow", 8, "redispatch", "done")
    assert run["checkpoints"] >= 1 and run["checkpoint_times"] and run["checkpoint"].endswith("grow.kkpt")
    (resident,) = data["residents"]
    assert resident["tasks"] == 6 and resident["names"] == {"bump": 6.0} and resident["emulated"]
    assert len(resident["spans"]) == 6
    assert {one["program"] for one in data["processes"]} and data["slowest"][0]["seconds"] >= data["slowest"][-1][
        "seconds"
    ]


def test_it_says_why_lookups_missed(worked: Path) -> None:
    missed = {(one["name"], one["why"].partition(":")[0]): one for one in kk.report(cache_dir=worked).data["misses"]}
    assert ("broken", "the compiler refused it") in missed
    assert ("adder", "no program of this name was known") in missed
    changed = missed[("adder", "the source text changed and define TILE was 1 and is 2")]
    assert [one["field"] for one in changed["differences"]] == ["source", "define TILE"]


def test_a_program_that_was_removed_is_told_from_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DIARY", raising=False)
    with FakeDevice() as device:
        for _ in range(2):
            with kk.ProgramCache(device, tmp_path / "cache") as cache:
                cache.get(adder(device, 1)).release()
                cache.disk.delete(cache.key(adder(device, 1)).digest)
    newest = kk.report(cache_dir=tmp_path / "cache").data["misses"][0]
    assert newest["why"].startswith("it had been compiled before")


def test_a_new_program_whose_entry_is_much_older_than_its_record_is_the_first() -> None:
    slow = {"kind": "compile", "at": 100.0, "name": "adder", "digest": "ab", "seconds": 1.0, "fields": {"source": "1"}}
    (told,) = explain_misses([slow], [Known("adder", "ab", "", 90.0, {"source": "1"})])
    assert told["why"] == "no program of this name was known: it was the first"


def test_what_was_never_saved_is_not_told_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DIARY", raising=False)
    with FakeDevice() as device:
        for saves in (False, False, True):
            with kk.ProgramCache(device, tmp_path / "cache", auto_save=saves) as cache:
                cache.get(adder(device, 1)).release()
    saved, *tried = [one["why"] for one in kk.report(cache_dir=tmp_path / "cache").data["misses"]]
    assert len(tried) == 2 and all(why.startswith("tried while tuning") for why in tried)
    assert saved == "no program of this name was known: it was the first"


def test_one_device_can_be_chosen(worked: Path) -> None:
    data = kk.report(cache_dir=worked, device="reference").data
    assert {one["backend"] for one in data["folders"]} == {"reference"}
    assert data["runs"] and {one["name"] for one in data["misses"]}.isdisjoint({"adder", "broken"})


def test_the_command_writes_a_page_or_data(worked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    assert _command("report", "--cache-dir", worked, "-o", target) == 0
    assert str(target) in capsys.readouterr().out and target.read_text().startswith("<!doctype html>")
    assert _command("report", "--cache-dir", worked, "--json") == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1
    assert _command("report", "--cache-dir", worked, "-o", tmp_path / "no" / "page.html") == 2
    assert capsys.readouterr().err.count("\n") == 1


def _command(*words: object) -> int:
    return main([str(word) for word in words])


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(kk.ArgumentError, match="cannot be reported on"):
        kk.report(cache_dir=root)


# --- in a browser


@pytest.fixture
def page(worked: Path, tmp_path: Path, browser: Browser) -> Page:
    return browser.open(_saved(worked, tmp_path), width=1280)


def _saved(root: Path, folder: Path) -> str:
    kk.report(folder / "report.html", cache_dir=root)
    return (folder / "report.html").as_uri()


def test_the_page_loads_without_errors_and_without_the_network(page: Page) -> None:
    assert page.evaluate("document.title") == "kernelkeep report"
    assert page.problems == [] and page.requests == []


def test_charts_are_drawn(page: Page) -> None:
    """Every chart has shapes with a size; what is folded is opened first."""
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    sizes = page.evaluate(
        """Object.fromEntries(['#activity .kk-x rect', '#compiles .kk-bar rect', '#executors .kk-span', '#runs .kk-line',
            '#runs .kk-span', '#residents .kk-span', '#residents .kk-bar rect'].map(name => [name,
            Array.from(document.querySelectorAll(name)).filter(one => {
                const box = one.getBoundingClientRect(); return box.width + box.height > 0.5; }).length]))"""
    )
    assert all(sizes.values()), sizes
    assert sizes["#executors .kk-span"] >= 5 and sizes["#residents .kk-span"] == 6


def test_tables_sort_by_mouse_and_keyboard(page: Page) -> None:
    names = "Array.from(document.querySelectorAll('table[aria-label=programs] tbody tr')).map(row => row.cells[0].textContent)"
    button = "document.querySelector('table[aria-label=programs] th button')"
    before = page.evaluate(names)
    page.evaluate(f"{button}.click()")
    assert page.evaluate(names) == sorted(before, key=str.lower)
    page.evaluate(f"{button}.focus()")
    page.press("Enter")
    assert page.evaluate(names) == sorted(before, key=str.lower, reverse=True)
    assert page.evaluate(f"{button}.parentElement.getAttribute('aria-sort')") == "descending"
    sizes = "Array.from(document.querySelectorAll('table[aria-label=programs] tbody tr')).map(row => +row.cells[3].dataset.sort)"
    page.evaluate("document.querySelectorAll('table[aria-label=programs] th button')[3].click()")
    found = page.evaluate(sizes)
    assert found == sorted(found, reverse=True) and len(set(found)) > 1


def test_tables_filter(page: Page) -> None:
    page.evaluate("document.querySelector('#cached input[type=search]').focus()")
    page.type_text("adder fake")
    shown = "Array.from(document.querySelectorAll('table[aria-label=programs] tbody tr')).filter(row => row.offsetHeight).length"
    assert page.evaluate(shown) == 2
    assert page.evaluate("document.querySelector('#cached .kk-filter [role=status]').textContent").startswith("2 of ")
    page.type_text(" no such thing")
    assert page.evaluate(shown) == 0


def test_why_a_lookup_missed_is_one_click_away(page: Page) -> None:
    story = "Array.from(document.querySelectorAll('#compiles details.kk-story')).find(one => one.textContent.includes('TILE'))"
    assert page.evaluate(f"{story}.querySelector('table').checkVisibility()") is False
    page.evaluate(f"{story}.querySelector('summary').click()")
    assert page.evaluate(f"{story}.querySelector('table').checkVisibility()") is True


def test_dark_surroundings_change_the_colours(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
    ink = "getComputedStyle(document.querySelector('h1')).color.match(/[0-9]+/g).map(Number)"
    light = page.evaluate(f"[{ground}, {ink}]")
    page.set_dark(True)
    dark = page.evaluate(f"[{ground}, {ink}]")
    assert sum(light[0]) > sum(light[1]) and sum(dark[0]) < sum(dark[1])


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_no_window_is_too_narrow(page: Page, width: int) -> None:
    page.resize(width)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_empty_folder_says_how_each_section_fills(tmp_path: Path, browser: Browser) -> None:
    empty = browser.open(_saved(tmp_path / "nothing", tmp_path))
    assert empty.problems == [] and empty.requests == []
    texts = empty.evaluate("Array.from(document.querySelectorAll('.kk-empty-section')).map(one => one.textContent)")
    assert len(texts) == EMPTY_SECTIONS and all(text.startswith("This fills when") for text in texts)


def planted_records(text: str) -> Iterator[dict[str, Any]]:
    """Records that a hostile hand wrote: markup in every text, and numbers of every kind."""
    now = time.time()
    numbers: tuple[Any, ...] = (0, -5, 1e300, float("nan"), float("inf"), 10**400, text, None, [], {"x": text})
    for number in numbers:
        common = {
            "at": now,
            "pid": number,
            "program": text,
            "device": text,
            "device_name": text,
            "spec": text,
            "seconds": number,
        }
        yield {
            **common,
            "kind": "counts",
            "since": number,
            "counts": {"hits_disk": number, "misses": number, text: number},
        }
        yield {**common, "kind": "compile", "name": text, "digest": text, "fields": {text: text, "source": text}}
        yield {**common, "kind": "compile", "name": text, "error": text, "digest": number, "fields": number}
        yield {**common, "kind": "executor", "batches": number, "busy": {"upload": number, text: number}, "jobs": {text: number},
               "spans": [[0, number, number, number, text], [number] * 5, text, [1, 0.0, 1.0, 3, text]], "depth": number,
               "looked_at": number}  # fmt: skip
        yield {**common, "kind": "run", "name": text, "strategy": text, "reason": text, "stopped": text, "iterations": number,
               "gap_p50_seconds": number, "gap_p99_seconds": number, "busy_share": number, "checkpoint": text, "error": text,
               "checkpoints": number, "checkpoint_bytes": number, "checkpoint_seconds": number, "resumed_from": text,
               "progress": [[0.0, 1], [number, number], [2.0, 5]], "gaps": [[0.1, number, number], [1.0, 0.1, 0.2]],
               "checkpoint_times": [[number, 1.0, 3, True], [0.1, 0.2, 3, False]]}  # fmt: skip
        yield {**common, "kind": "resident", "names": {text: number, "x": 3}, "tasks": number, "blocks": number,
               "spans": [[number, number, number, text], [0, 0.1, 0.2, text]], "launches": number, "counted": number}  # fmt: skip


def test_what_was_planted_is_text(tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DIARY", raising=False)
    root = tmp_path / "cache"
    with FakeDevice() as device, kk.ProgramCache(device, root) as cache:
        cache.get(adder(device, 1, name="adder")).release()
        manifest = cache.folder / "manifest.json"
        (cache.folder / "programs" / "ab").mkdir(exist_ok=True)
    damaged = manifest.parent / "programs" / "ab" / f"<img src=x onerror=planted()>-{'ab' * 32}.bin"
    damaged.write_bytes(b"x")
    found = json.loads(manifest.read_text())
    found["fingerprint"] |= dict.fromkeys(("model", "driver", "compiler", "backend"), HOSTILE)
    manifest.write_text(json.dumps(found | {"last_used": 1e300, "created": HOSTILE}))
    lines = [json.dumps(record) for record in planted_records(HOSTILE)]
    (root / FILE_NAME).write_text("\n".join([*lines, *(json.dumps(record) for record in planted_records("x" * 5000))]))
    os.chmod(root / FILE_NAME, 0o600)  # noqa: PTH101
    json.dumps(kk.report(cache_dir=root).data, allow_nan=False)
    planted = browser.open(_saved(root, tmp_path), width=390)
    planted.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert planted.evaluate("window.planted") is None
    assert planted.evaluate("document.querySelectorAll('img, main script, iframe, object').length") == 0
    assert planted.evaluate("document.body.textContent").count("<script>window.planted=1</script>") > 20
    assert planted.problems == [] and planted.requests == []
    assert planted.evaluate("document.documentElement.scrollWidth") <= 390
