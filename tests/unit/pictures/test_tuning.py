"""Pictures of a tuning: any report gives one, the same report the same one, and nobody's settings are touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.pictures.landscape import most_relevant_parameters
from kernelkeep.variants.report import Attempt, TuneReport
from kernelkeep.variants.space import Variant


def report(attempts: list[Attempt], name: str = "gemm") -> TuneReport:
    good = [a for a in attempts if a.milliseconds is not None]
    best = min(good, key=lambda a: a.milliseconds or 0.0) if good else None
    return TuneReport(
        name=name,
        device="a device",
        problem={"m": 64, "n": 64},
        best=best.variant if best else None,
        best_ms=best.milliseconds if best else None,
        default=attempts[0].variant if attempts else Variant({}),
        default_ms=attempts[0].milliseconds if attempts else None,
        attempts=tuple(attempts),
        size=None,
        seconds=float(len(attempts)),
        reason="",
    )


def grid(fail: str = "", **more: Any) -> list[Attempt]:
    """TILE matters most, then VEC; COLOUR does not."""
    found: list[Attempt] = []
    for tile in (8, 16, 32):
        for vec in (1, 2):
            for colour in ("red", "blue"):
                milliseconds = None if fail else tile * 1.0 + vec * 2 + len(colour) * 0.01
                variant = Variant({"COLOUR": colour, "VEC": vec, "TILE": tile})
                found.append(Attempt(variant, milliseconds, float(len(found)), fail, **more))
    return found


REPORTS = {
    "two parameters": report(grid()),
    "known before": report(grid(remembered=True)),
    "all failed": report(grid(fail="crashed")),
    "some failed": report([*grid()[:6], *grid(fail="wrong")[6:]]),
    "one parameter": report([Attempt(Variant({"N": n}), n * 1e-3, float(n)) for n in (1, 2, 3)]),
    "one parameter, failed": report([Attempt(Variant({"N": n}), None, float(n), "hung") for n in (1, 2)]),
    "one variant": report([Attempt(Variant({}), 1.0, 0.5)]),
    "no time at all": report([Attempt(Variant({"N": n}), 0.0, 0.0) for n in (1, 2)]),
    "nothing": report([]),
    "many": report([Attempt(Variant({"A": i, "B": i % 7}), 1.0 + i, float(i)) for i in range(300)]),
    "odd names": report([Attempt(Variant({"$A_$": "$x^", "B\n": b}), 1.0, 0.0) for b in (True, False)], "$\\frac 中"),
}


@pytest.mark.parametrize("which", REPORTS)
def test_any_report_can_be_drawn(which: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    REPORTS[which].save_picture(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_bytes().startswith(b"<?xml")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]


def test_the_same_report_gives_the_same_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        REPORTS["some failed"].save_picture(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".PNG", b"\x89PNG"), (".pdf", b"%PDF")])
def test_the_suffix_decides_the_format(suffix: str, magic: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    REPORTS["two parameters"].save_picture(str(tmp_path / f"picture{suffix}"))
    assert (tmp_path / f"picture{suffix}").read_bytes().startswith(magic)


def test_the_most_relevant_parameters_come_first() -> None:
    assert most_relevant_parameters(REPORTS["two parameters"]) == ["TILE", "VEC"]
    assert most_relevant_parameters(REPORTS["one variant"]) == []


@pytest.mark.parametrize("name", ["picture.gif", "picture", ".svg", "no/picture.svg"])
def test_save_picture_rejects_paths_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(kk.ArgumentError) as error:
        REPORTS["two parameters"].save_picture(tmp_path / name)
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(kk.Unsupported, match=r"\[tune\]") as error:
        REPORTS["two parameters"].save_picture(tmp_path / "picture.svg")
    assert error.value.capability == "matplotlib"


def test_drawing_changes_no_matplotlib_setting(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code = """
import sys, matplotlib
from tests.unit.pictures.test_tuning import REPORTS
matplotlib.rcParams["font.size"] = 31.0
def settings(): return [matplotlib.rcParams._get(name) for name in matplotlib.rcParams]
before = settings()
REPORTS["two parameters"].save_picture(sys.argv[1])
assert settings() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "picture.svg"], capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
