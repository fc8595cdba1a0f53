"""What a terminal must not get: names with escapes, markup or marks that turn the text round. And folders that are none."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import msgspec
import pytest

import kernelkeep as kk
from kernelkeep.cache.entry import Entry
from kernelkeep.cache.key import Key
from kernelkeep.cache.log import log
from kernelkeep.cache.report import Difference, Explanation, PreloadFailure
from kernelkeep.cli import main
from kernelkeep.escaping import escaped
from kernelkeep.progress.notebook import markup_of
from kernelkeep.progress.reporter import reported
from kernelkeep.progress.terminal import plain_line
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.warned import one_warning

BAD = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202egnp.exe\u2066\x7f\r\nforged line [bold]x[/bold] [/nope] :boom: 🚀 é\\"
SHOWN = r"\x1b[31mred\x1b]0;title\x07\x9b2J\u202egnp.exe\u2066\x7f\r\nforged line [bold]x[/bold] [/nope] :boom: 🚀 é"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    root = tmp_path / "cache"
    tier = DiskChain(root, "opencl_\x1b[31m_0123456789ab", {"model": BAD}, 1 << 30)
    entry = sample_entry(1)
    fields = {BAD: BAD, "language": "opencl"}
    facts = msgspec.structs.replace(
        entry.facts, name=BAD, kernels=(BAD,), version=BAD, language=BAD, key=Key(entry.facts.key.digest, fields)
    )
    assert tier.put(Entry(facts, entry.payload))
    (path,) = tier.folder.path.glob("programs/*/*.bin")
    (path.parent / f"\x1b[2J\u202e-{'0' * 64}.bin").write_bytes(b"bad")
    return root


def check_printable(text: str) -> None:
    bad = {one for one in text if not one.isprintable() and one != "\n"}
    assert not bad, [hex(ord(one)) for one in bad]


@pytest.mark.parametrize("as_json", [False, True])
def test_names_are_shown_escaped(hostile: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    where = ("--cache-dir", str(hostile), *(("--json",) if as_json else ()))
    digest = sample_entry(1).facts.key.digest
    shows = {}
    for command in (["ls"], ["show", digest[:12]], ["show", BAD], ["stats"], ["verify"], ["prune", "--dry-run"]):
        assert main([*command, *where]) in (0, 1)
        out, err = capsys.readouterr()
        check_printable(out)
        check_printable(err)
        shows[" ".join(command)[:6]] = out
    assert not any(line.startswith("forged") for out in shows.values() for line in out.splitlines())
    if as_json:
        listed = json.loads(shows["ls"])["entries"]
        assert BAD in [entry["name"] for entry in listed], "programs get the very name"
        assert listed[1]["key"][BAD] == BAD
    else:
        assert SHOWN in shows[f"show {digest[:1]}"]
        assert "[bold]x[/bold]" in "".join(shows["ls"].split("\n")).replace("│", "").replace(" ", "")
    assert main(["show", "\x1b[31m no such name", *where]) == 1
    assert main(["verify", "--repair", *where]) == 0
    assert main(["clear", "--yes", *where]) == 0
    out, err = capsys.readouterr()
    check_printable(out + err)


def test_reports_logs_warnings_and_progress_are_escaped(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    explained = Explanation(BAD, None, "0" * 64, {BAD: BAD}, BAD, (Difference(BAD, BAD, None),))
    for found in (explained, found_on_disk(explained)):
        check_printable(str(found))
    check_printable(str(PreloadFailure(BAD, ValueError(BAD.replace("\n", "")))))
    with caplog.at_level(logging.INFO, "kernelkeep"):
        log(BAD, "%s in %.2f ms", BAD, 1.5)
    check_printable(caplog.messages[0])
    assert SHOWN in caplog.messages[0] and "1.50 ms" in caplog.messages[0]
    heard: list[kk.Progress] = []
    with reported(BAD, 1, True, unit="programs", listener=heard.append) as report:
        report.step(BAD)
    check_printable(capsys.readouterr().err.removesuffix("\n"))
    check_printable(str(heard[0]))
    assert SHOWN in str(heard[0]) and SHOWN in plain_line(heard[0])
    check_printable(markup_of(heard[0], heard[0].counts, heard[0].doing))
    folder = tmp_path / "\x1b[31m"
    folder.write_text("")
    with one_warning(r"\x1b[31m"):
        DiskChain(folder, "gpu", {}, 1 << 30)


def found_on_disk(explained: Explanation) -> Explanation:
    return Explanation(explained.name, "disk", explained.digest, explained.fields, note="")


def test_what_is_printable_stays() -> None:
    for text in ("saxpy", "größe 🚀", "a b", ""):
        assert escaped(text) is text
    assert escaped("a\nb\tc", keep="\n") == "a\nb\\tc"
    assert escaped("\udc80") == r"\udc80"


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000, "\ud800", "no\0name", "loop"])
def test_folders_that_are_none_are_wrong_use(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for command in ("ls", "stats", "prune", "verify", "clear"):
        yes = ("--yes",) if command == "clear" else ()
        code = main([command, *yes, "--cache-dir", f"{tmp_path}{os.sep}{name}"])
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        assert "cache" in err and err.count("\n") == 1
        check_printable(err)


def test_a_file_in_place_of_one_gpus_programs_hides_no_others(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = hostile / "opencl_broken_0123456789ab"
    (broken / "driver").mkdir(parents=True, mode=0o700)
    broken.chmod(0o700)
    (broken / "programs").write_text("")
    assert main(["ls", "--cache-dir", str(hostile)]) == 0
    assert "2 programs" in capsys.readouterr().out
    assert main(["verify", "--repair", "--cache-dir", str(hostile)]) == 0
