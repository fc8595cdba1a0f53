"""Parts of a benchmark: which there are, what running them gives, and the documents made of their rows."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kernelkeep.errors import ArgumentError
from kernelkeep.observe.benchmarks import parts as parts_module
from kernelkeep.observe.benchmarks.documents import save
from kernelkeep.observe.benchmarks.parts import Outcome, parts_in, run_parts, scripts_folder
from kernelkeep.observe.benchmarks.row import rows_in

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys, time
sys.path.insert(0, {benchmarks!r})
from common import row
row("a launch <fast>", 2.0, "µs", peer="by hand", its=3.0, goal="≤ 1.0")
row("a wait", 9.0, "µs", peer="by hand", its=3.0, goal="≤ 1.2", note="the driver sleeps")
row("given", 1.0, "s", note=" ".join(sys.argv[1:-2]))
{end}
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    table = "\n".join(
        f'[{name}]\ncommand = "{name}.py more"\nabout = "{name} parts"' for name in ("good", "bad", "slow")
    )
    (folder / "parts.toml").write_text(table)
    ends = {"good": "", "bad": "raise ValueError('no such thing')", "slow": "time.sleep(600)"}
    for name, end in ends.items():
        (folder / f"{name}.py").write_text(SCRIPT.format(benchmarks=str(ROOT / "benchmarks"), end=end))
    return folder


def run(scripts: Path, *names: str) -> list[Outcome]:
    return list(run_parts(scripts, parts_in(scripts, names), device="reference:0"))


def test_parts_run_and_their_rows_come_back(scripts: Path) -> None:
    (outcome,) = run(scripts, "good")
    assert [row.work for row in outcome.rows] == ["a launch <fast>", "a wait", "given"]
    assert [row.met for row in outcome.rows] == [True, False, None]
    assert outcome.rows[2].note == "more --device reference:0"
    assert outcome.error == ""


def test_a_part_that_fails_keeps_its_rows_and_the_next_one_runs(scripts: Path) -> None:
    good, bad = run(scripts, "bad", "good")
    assert len(good.rows) == len(bad.rows) == 3
    assert "ValueError: no such thing" in bad.error


def test_a_part_whose_peer_is_missing_did_not_fail(scripts: Path, tmp_path: Path) -> None:
    (scripts / "good.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n"
        "from common import end_unmeasured\nend_unmeasured('PyTorch is not installed')\n"
    )
    (outcome,) = run(scripts, "good")
    assert (outcome.error, outcome.rows, outcome.missing) == ("", (), "PyTorch is not installed")
    texts = [path.read_text(encoding="utf-8") for path in save([outcome], tmp_path / "out")]
    assert sum("Nothing to measure on this device: PyTorch is not installed." in text for text in texts) == 2


def test_a_part_that_hangs_is_ended_and_keeps_its_rows(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "LIMIT_SECONDS", 3.0)
    (slow,) = run(scripts, "slow")
    assert slow.error == "it was ended after 3 s"
    assert len(slow.rows) == 3


def test_documents_have_every_row(scripts: Path, tmp_path: Path) -> None:
    outcomes = run(scripts, "good", "bad")
    paths = save(outcomes, tmp_path / "new" / "out")
    texts = {path.suffix: path.read_text(encoding="utf-8") for path in paths}
    rows = [row for outcome in outcomes for row in outcome.rows]
    assert list(rows_in(texts[".jsonl"])) == rows
    assert all(json.loads(line)["machine"] for line in texts[".jsonl"].splitlines())
    assert next(rows_in(texts[".md"])).ratio == pytest.approx(0.67)
    assert "| a wait (the driver sleeps) |" in texts[".md"]
    assert "| **3.00** | ≤ 1.2 | **no** |" in texts[".md"]
    assert "no such thing" in texts[".md"]
    assert "a launch &lt;fast&gt;" in texts[".html"]
    bars = ElementTree.fromstring(texts[".svg"]).iter("{http://www.w3.org/2000/svg}rect")
    assert [bar.get("class") for bar in bars] == ["won", "lost", "won", "lost"]


def test_unknown_parts_and_folders_are_named(scripts: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"PART must be all, good, bad, slow; got worse"):
        parts_in(scripts, ["good", "worse"])
    with pytest.raises(ArgumentError, match=r"has no parts\.toml"):
        scripts_folder(tmp_path)


def test_the_parts_of_this_checkout_name_scripts_that_are_there() -> None:
    folder = scripts_folder(ROOT / "benchmarks")
    parts = parts_in(folder)
    assert len(parts) > 10
    missing = [part for part in parts if not (folder / part.command.split()[0]).is_file()]
    assert not missing
