"""Progress: the words, how often they are shown, and that a display that fails harms nobody."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.progress import displays
from kernelkeep.progress.displays import Display, Lines, open_display
from kernelkeep.progress.notebook import markup_of
from kernelkeep.progress.progress import Progress, duration
from kernelkeep.progress.reporter import reported
from kernelkeep.progress.terminal import fit, plain_line


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("kernelkeep.progress.reporter.time", made)
    return made


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (12.3, "12 s"), (59.7, "1 min"), (60, "1 min"), (200, "3 min 20 s"),
        (3600, "1 h"), (7500, "2 h 5 min"), (90_000, "1 d 1 h"), (86_400 * 3, "3 d"),
    ],
)  # fmt: skip
def test_a_time_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress("heat", 12_000, 1_000_000, 10.0, "iterations", 1200.0, "mega"),
         "heat: 12,000 of 1,000,000 iterations, 0.833 ms each, 13 min 43 s left, mega"),
        (Progress("heat", 12_000, None, 75.0, "iterations", 0.5), "heat: 12,000 iterations, 2.0 s each, 1 min 15 s so far"),
        (Progress("preloading", 3, 24, 0.5, "programs", 6.0, "now blur", 1),
         "preloading: 3 of 24 programs, 1 failed, 6.0/s, 3.5 s left, now blur"),
        (Progress("map", 2_000, None, 2.0, "batches", 1000.0), "map: 2,000 batches, 1,000/s, 2.0 s so far"),
        (Progress("map", 0, 5, 0.0, "batches"), "map: 0 of 5 batches"),
        (Progress("map", 1, None, 2.0, "batches"), "map: 1 batch, 2.0 s so far"),
        (Progress("work", 1, 1, 2.0, "items"), "work: 1 of 1 item, 2.0 s so far"),
        (Progress("work", 1, 3, 2.0, "items"), "work: 1 of 3 items, 2.0 s so far"),
    ],
)  # fmt: skip
def test_the_line_of_a_log(progress: Progress, line: str) -> None:
    assert str(progress) == line


def test_a_limit_of_time_is_what_is_left() -> None:
    slow = Progress("tuning", 1, 98, 10.0, "variants", 0.1, limit_seconds=30.0)
    assert str(slow) == "tuning: 1 of 98 variants, 10 s each, 20 s left"
    fast = Progress("tuning", 90, 98, 10.0, "variants", 9.0, limit_seconds=30.0)
    assert fast.seconds_left == pytest.approx(8 / 9)
    assert Progress("tuning", 0, 98, 40.0, "variants", limit_seconds=30.0).seconds_left == 0


def test_the_last_line() -> None:
    progress = Progress("preloading", 24, 24, 1.25, "programs", failed=2)
    assert progress.ending(is_whole=True) == "preloading: 24 of 24 programs in 1.2 s, 2 failed"
    assert progress.ending(is_whole=False) == "preloading: stopped at 24 of 24 programs, after 1.2 s, 2 failed"


def test_a_run_calls_its_counts_iterations() -> None:
    progress = Progress("heat", 5, 10, 1.0, "iterations")
    assert (progress.iteration, progress.iterations, progress.share, progress.seconds_left) == (5, 10, 0.5, None)
    assert Progress("heat", 5, None, 1.0).share is None and Progress("heat", 0, 0, 1.0).share == 1.0


def test_the_rate_is_that_of_the_last_seconds(clock: Clock) -> None:
    heard: list[Progress] = []
    with reported("heat", 10_000, heard.append, unit="iterations", first=1000) as report:
        for second in range(1, 61):
            clock.now += 1
            # It begins slowly, because something is compiled.
            report.reach(1000 + (second if second <= 20 else 20 + 100 * (second - 20)))
    assert heard[9].rate == pytest.approx(1.0), "what was done before this call does not count"
    assert heard[-1].rate == pytest.approx(100.0, rel=0.05)
    assert heard[-1].seconds == pytest.approx(60)
    assert heard[-1].seconds_left == pytest.approx((10_000 - heard[-1].done) / heard[-1].rate)


def test_what_is_compiled_before_the_first_iteration_does_not_count_into_the_rate(clock: Clock) -> None:
    heard: list[Progress] = []
    with reported("heat", 20_000, heard.append, unit="iterations") as report:
        report.begin("loading or compiling")
        clock.now += 8.7
        report.reach(1)
        assert str(heard[0]) == "heat: 1 of 20,000 iterations, 8.7 s so far"
        clock.now += 1
        report.reach(401)
    assert heard[1].rate == pytest.approx(400) and heard[1].seconds_left == pytest.approx(19_599 / 400)


def test_a_step_that_takes_longer_than_the_window_has_a_rate(clock: Clock) -> None:
    heard: list[Progress] = []
    with reported("tuning", 9, heard.append, unit="variants") as report:
        for _ in range(4):
            clock.now += 60
            report.step()
    assert [one.rate for one in heard] == pytest.approx([0, 1 / 60, 1 / 60, 1 / 60])


def test_a_log_gets_few_lines_however_often_something_is_done(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with reported("work", 1_000_000, True, unit="items") as report:
        for _ in range(36_000):  # ten hours, of which each second does something
            clock.now += 1
            report.step()
        hours = capsys.readouterr().err.splitlines()
    assert 300 < len(hours) < 900, "one a minute at last"
    assert hours[0] == "work: 5 of 1,000,000 items, 1.0/s, 11 d 13 h left"
    assert hours[1].startswith("work: 10 of")
    assert capsys.readouterr().err.splitlines() == ["work: 36,000 of 1,000,000 items in 10 h"]


def test_a_short_call_leaves_one_line_in_a_log(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with reported("work", 3, True, unit="items") as report:
        for name in "abc":
            report.begin(f"now {name}")
            clock.now += 0.5
            report.step()
    assert capsys.readouterr().err == "work: 3 of 3 items in 1.5 s\n"


def test_the_line_of_all_is_the_last_one(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with reported("work", 2, True, unit="items") as report:
        for _ in range(2):
            clock.now += 6
            report.step()
    assert capsys.readouterr().err == "work: 1 of 2 items, 6.0 s so far\nwork: 2 of 2 items in 12 s\n"


def test_a_rate_is_not_told_in_the_first_moments(clock: Clock) -> None:
    heard: list[Progress] = []
    with reported("work", 1000, heard.append, unit="items") as report:
        for _ in range(8):
            clock.now += 0.125
            report.step()
    assert [bool(one.rate) for one in heard] == [False] * 4 + [True] * 4
    assert heard[0].seconds_left is None


class Frames(Display):
    """A display that draws over what it has drawn."""

    draws_over = True

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def pause_seconds(self, progress: Progress) -> float:
        return 0.1

    def show(self, progress: Progress) -> None:
        self.seen.append((progress.done, progress.doing))


def test_what_takes_long_is_named_while_it_does(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = Frames()
    monkeypatch.setattr("kernelkeep.progress.reporter.open_display", lambda title: frames)
    with reported("work", 3, True, unit="items") as report:
        for name in "abc":
            report.begin(f"now {name}")
            clock.now += 10  # what is seen all this time
            assert frames.seen[-1] == ("abc".index(name), f"now {name}")
            report.step()
    before = len(frames.seen)
    with reported("work", 1000, True, unit="items") as report:
        for number in range(1000):
            report.begin(f"now {number}")
            clock.now += 0.001
            report.step()
    assert 10 <= len(frames.seen) - before <= 24, "a second: ten frames, and as many for what began"


def test_what_an_error_ended_says_so(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with reported("work", 3, True, unit="items") as report:
            report.step()
            clock.now += 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert capsys.readouterr().err == "work: stopped at 1 of 3 items, after 2.0 s\n"


def test_a_function_hears_what_is_done_and_not_what_begins() -> None:
    heard: list[Progress] = []
    with reported("work", 2, heard.append, unit="items") as report:
        report.begin("now a")
        report.step()
        report.begin("now b")
        report.step(failed=True)
    assert [(one.done, one.doing, one.failed) for one in heard] == [(1, "now a", 0), (2, "now b", 1)]


def test_an_error_of_the_function_ends_the_call() -> None:
    def fail(progress: Progress) -> None:
        raise LookupError(progress.done)

    with pytest.raises(LookupError), reported("work", 2, fail, unit="items") as report:
        report.step()


@pytest.mark.parametrize("wrong", [1, "yes", None, []])
def test_progress_is_true_false_or_a_function(wrong: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"progress must be True, False or a function of a kk\.Progress, got"):
        with reported("work", 2, wrong, unit="items"):
            pass


@pytest.mark.parametrize("setting", ["", "lines", "0"])
def test_the_setting_chooses(setting: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELKEEP_PROGRESS", setting)
    with reported("work", 1, True, unit="items") as report:
        report.step()
    assert bool(capsys.readouterr().err) == (setting != "0")


@pytest.mark.parametrize(
    ("setting", "term", "has_rich", "kind"),
    [
        ("", "xterm", True, "RichBar"), ("", "xterm", False, "PlainBar"), ("", "dumb", True, "Lines"),
        ("lines", "xterm", True, "Lines"), ("0", "xterm", True, "NoneType"),
    ],
)  # fmt: skip
def test_a_terminal_gets_what_it_can_show(
    setting: str, term: str, has_rich: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(displays, "Harmless", lambda display: display)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("KERNELKEEP_PROGRESS", setting)
    monkeypatch.setenv("TERM", term)
    if not has_rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    shown = open_display("work")
    assert type(shown).__name__ == kind
    if shown is not None:
        shown.end(Progress("work", 1, 1, 1.0), is_whole=True)


def _closed() -> Any:
    stream = SimpleNamespace(isatty=lambda: True)
    stream.write = stream.flush = lambda *_: (_ for _ in ()).throw(BrokenPipeError())
    return stream


@pytest.mark.parametrize("stream", [None, _closed()], ids=["no standard error", "a closed one"])
@pytest.mark.parametrize("has_rich", [True, False])
def test_a_display_that_cannot_show_anything_harms_nobody(
    stream: Any, has_rich: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys, "stderr", stream)
    with reported("work", 100, True, unit="items") as report:
        for _ in range(100):
            report.step("now")


def test_a_bar_beside_a_bar_of_the_user_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(title: str) -> Display:
        raise RuntimeError("only one live display may be active at once")

    monkeypatch.setattr("kernelkeep.progress.displays._bar", refuse)
    shown: Any = open_display("work")
    assert shown.first_seconds == Lines.first_seconds


@pytest.mark.parametrize(
    ("text", "columns", "fitted", "width"),
    [
        ("abc", 5, "abc", 3),
        ("abcdef", 5, "abcde", 5),
        ("日本語", 5, "日本", 4),
        ("e\u0301x", 2, "e\u0301x", 2),
        ("", 5, "", 0),
    ],
)
def test_a_line_fits_the_terminal(text: str, columns: int, fitted: str, width: int) -> None:
    assert fit(text, columns) == (fitted, width)


@pytest.mark.parametrize(
    "form", [plain_line, lambda progress: markup_of(progress, progress.counts, progress.doing), str]
)
def test_names_are_escaped(form: Callable[[Progress], str]) -> None:
    shown = form(Progress("<b>\x1b[2J", 1, 2, 1.0, "items", 1.0, "\x1b]0;title\x07</progress><script>"))
    assert "\x1b" not in shown and "\x07" not in shown
    assert "\\x1b[2J" in shown
    if shown.startswith("<div"):
        assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_a_bar_in_a_notebook_has_its_share() -> None:
    half = markup_of(Progress("work", 5, 10, 1.0, "items"), "5 of 10", "")
    assert "width:50.0%" in half and 'aria-valuenow="50"' in half
    assert "progressbar" not in markup_of(Progress("work", 5, None, 1.0, "items"), "5", ""), (
        "nobody knows how far it is"
    )
