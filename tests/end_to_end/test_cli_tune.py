"""`kernelkeep tune` as a person runs it, with a kernel from a file of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cli import main
from kernelkeep.observe.tuning_overview import known_problems, records_in

Command = Callable[..., subprocess.CompletedProcess[str]]
SOURCES = str(Path(kk.__file__).parents[1])
# Half of the variants of `scale` are wrong, every one of `broken` is, and `many` takes a while.
KERNELS = """
import kernelkeep as kk

def kernel(name, factors, reference=lambda x: 2 * x):
    template = kk.Template(
        "for (int k = 0; k < PER; k++) {"
        "  int i = kk_global_id(0) * PER + k;"
        "  if (i < n) y[i] = FACTOR * x[i];"
        "}",
        params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4")],
        group=32,
        grid=lambda v: -(-v["n"] // (32 * v["PER"])),
    )
    return kk.Tuned(name, template, kk.VariantSpace(PER=[1, 2], FACTOR=factors), reference=reference)

scale = kernel("scale", ["2.0f", "3.0f"])
broken = kernel("broken", ["3.0f"])
many = kernel("many", [f"2.0f * {i}.0f / {i}.0f" for i in range(1, 50)])
unverified = kernel("unverified", ["2.0f"], reference=None)
number = 5
"""


def kernelkeep(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelkeep", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES, "NO_COLOR": "1"}


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernelkeep: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture(scope="module")
def tuned(file: Path, opencl_device: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A cache folder in which `scale` was tuned, and what was said; the tests that change it work on a copy."""
    cache = file.parent / "cache"
    picture = file.parent / "scale.svg"
    problem = ("--problem", "n=3000", "--picture", picture)
    done = kernelkeep("tune", f"{file}:scale", *problem, "--device", opencl_device, "--cache-dir", cache)
    assert done.returncode == 0, done.stderr
    assert picture.read_text().startswith("<?xml")
    return cache, done


@pytest.fixture
def copy(tuned: tuple[Path, object], tmp_path: Path) -> Path:
    shutil.copytree(tuned[0], tmp_path / "cache")
    return tmp_path / "cache"


def test_tune_prints_a_report(tuned: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = tuned
    assert done.stdout.startswith("scale  n=3000  on ")
    assert "tried     4 of 4 variants" in done.stdout and "(0 known before)" in done.stdout
    assert "was the fastest for this problem on this device" in done.stdout or "is kept" in done.stdout
    assert "failed    2 wrong, e.g. PER=" in done.stdout and "computes something else: y[" in done.stdout
    assert "scale.svg." in done.stdout
    assert re.fullmatch(r"(tuning scale: .*\n)*tuning scale: 4 of 4 variants in .*s\n", done.stderr), "a log gets lines"


def test_tuning_again_measures_nothing_unless_forced(
    run_here: Command, file: Path, copy: Path, opencl_device: str
) -> None:
    where = ("--device", opencl_device, "--cache-dir", copy, "--json")
    done = run_here("tune", f"{file}:scale", "--problem", "n=3000", *where)
    (report,) = json.loads(done.stdout)["reports"]
    assert done.returncode == 0 and report["complete"] and report["remembered"] == 4 and report["measured"] == 0
    assert report["best"]["FACTOR"] == "2.0f" and report["failures"] == {"wrong": 2}
    assert {attempt["failure"] for attempt in report["attempts"]} == {"", "wrong"}
    done = run_here("tune", f"{file}:scale", "--problem", "n=3000", "--force", *where)
    (report,) = json.loads(done.stdout)["reports"]
    assert done.returncode == 0 and report["remembered"] == 0 and report["measured"] == 2


def test_show_lists_what_is_known(
    run_here: Command, tuned: tuple[Path, object], copy: Path, opencl_device: str
) -> None:
    done = run_here("tune", "--show", "--cache-dir", copy)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("scale", "n=3000", "FACTOR=2.0f", "2 wrong", "just now"):
        assert words in done.stdout
    done = run_here("tune", "scale", "--show", "--cache-dir", copy, "--device", opencl_device, "--json")
    (known,) = json.loads(done.stdout)["known"]
    assert known["problem"] == {"n": 3000} and known["milliseconds"] > 0 and known["failures"] == {"wrong": 2}
    done = run_here("tune", "other", "--show", "--cache-dir", copy)
    assert done.returncode == 0 and "Nothing is known" in done.stdout


def test_select_gives_the_reason(run_here: Command, file: Path, tuned: tuple[Path, object], opencl_device: str) -> None:
    where = ("--device", opencl_device, "--cache-dir", tuned[0])
    done = run_here("tune", f"{file}:scale", "--select", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert "scale  n=3000" in done.stdout and "this problem" in done.stdout and "about" in done.stdout
    done = run_here("tune", f"{file}:scale", "--select", "--problem", "n=6000", *where, "--json")
    (found,) = json.loads(done.stdout)["selections"]
    assert found["selection"]["basis"] == "nearest" and found["selection"]["distance"] == pytest.approx(1, abs=0.01)
    assert "the nearest problem measured (n=3000)" in found["selection"]["reason"]


def test_shipped_kernels_select_by_name(run_here: Command, tmp_path: Path, opencl_device: str) -> None:
    where = ("--device", opencl_device, "--cache-dir", tmp_path, "--json")
    done = run_here("tune", "conv2d", "--select", "--problem", "c=3,h=8,w=9,k=4,r=3,stride=2", *where)
    (found,) = json.loads(done.stdout)["selections"]
    assert found["problem"] == {
        "n": 1, "c": 3, "h": 8, "w": 9, "k": 4, "r": 3, "s": 3, "stride_y": 2, "stride_x": 2, "pad_y": 1, "pad_x": 1
    }  # fmt: skip
    assert found["selection"]["variant"] and found["selection"]["reason"]
    done = run_here("tune", "gemm", "--select", *where)
    assert [found["problem"]["m"] for found in json.loads(done.stdout)["selections"]] == [64, 256, 1024]


def test_import_reads_what_export_wrote(
    run_here: Command, file: Path, tuned: tuple[Path, object], tmp_path: Path, opencl_device: str
) -> None:
    done = run_here("tune", "--export", tmp_path / "scale.jsonl", "--cache-dir", tuned[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"4 records written to {tmp_path / 'scale.jsonl'}" in done.stdout
    there = ("--cache-dir", tmp_path / "there")
    done = run_here("tune", "--import", tmp_path / "scale.jsonl", *there)
    assert (done.returncode, done.stderr) == (0, "") and "imported from" in done.stdout
    done = run_here("tune", "--import", tmp_path / "scale.jsonl", *there)
    assert "holds nothing new" in done.stdout
    done = run_here("tune", f"{file}:scale", "--select", "--device", opencl_device, *there, "--json")
    assert json.loads(done.stdout)["selections"][0]["selection"]["basis"] == "exact"
    done = run_here("tune", "--import", tmp_path / "no.jsonl", *there)
    assert done.returncode == 2 and "no.jsonl cannot be read" in one_sentence(done)


def test_forget_asks_first(run_here: Command, copy: Path) -> None:
    done = run_here("tune", "scale", "--forget", "--cache-dir", copy, typed="n\n")
    assert done.returncode == 1 and "Nothing was removed" in done.stdout and "4 records of scale" in done.stderr
    done = run_here("tune", "--forget", "--cache-dir", copy, "--json")
    assert done.returncode == 2 and "--yes" in one_sentence(done)
    done = run_here("tune", "--forget", "--yes", "--cache-dir", copy)
    assert done.returncode == 0 and "4 records removed" in done.stdout
    done = run_here("tune", "--show", "--cache-dir", copy)
    assert "Nothing is known" in done.stdout


def test_exit_code_is_1_where_every_variant_is_wrong(
    run_here: Command, file: Path, tmp_path: Path, opencl_device: str
) -> None:
    where = ("--device", opencl_device, "--cache-dir", tmp_path)
    done = run_here("tune", f"{file}:broken", "--problem", "n=3000", *where)
    assert done.returncode == 1 and "none: every variant failed" in done.stdout and "Traceback" not in done.stderr
    chosen = run_here("tune", f"{file}:broken", "--select", "--problem", "n=3000", "--problem", "n=77", *where)
    assert chosen.returncode == 1 and "every variant of broken failed for n=3000" in chosen.stdout
    assert "n=77" in chosen.stdout and "failed for n=3000 (wrong" in chosen.stdout, "of others it is not known"


def test_ctrl_c_keeps_what_was_measured(file: Path, tmp_path: Path, opencl_device: str) -> None:
    command: list[Any] = [sys.executable, "-m", "kernelkeep", "tune", f"{file}:many", "--problem", "n=3000"]
    command += ["--device", opencl_device, "--cache-dir", tmp_path]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not measured(tmp_path) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    assert process.returncode == 130
    done.stderr = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("tuning many: "))
    assert "is kept, and the same command continues there" in one_sentence(done)
    assert measured(tmp_path) > 0


def measured(cache: Path) -> int:
    with records_in(cache) as records:
        return sum(known.measured for known in known_problems(records))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "KERNEL is missing"),
        (("nonsense",), "there is no kernel 'nonsense'"),
        (("no.py:scale",), "there is no file no.py"),
        (("{file}",), "has several: scale, broken, many, unverified"),
        (("{file}:nothing", "--problem", "n=1"), "there is none"),
        (("{file}:number", "--problem", "n=1"), "it is a int"),
        (("{file}:scale",), "needs a problem to be tuned for"),
        (("{file}:scale", "--select", "--cache-dir", "{empty}"), "nothing is known of scale yet"),
        (("{file}:unverified", "--problem", "n=1"), "has no reference"),
        (("{file}:scale", "--problem", "n"), "written like"),
        (("{file}:scale", "--problem", "n=1,n=2"), "says n twice"),
        (("{file}:scale", "--problem", "n=1", "--picture", "x.gif"), "a .png, .svg or .pdf file"),
        (("{file}:scale", "--problem", "n=1", "--picture", "no/x.svg"), "there is no folder"),
        (("{file}:scale", "--problem", "n=1", "--budget", "0"), "a positive number"),
        (("{file}:scale", "--problem", "n=1", "--budget", "soon"), "--budget"),
        (("gemm", "--problem", "m=1"), "needs n, k"),
        (("gemm", "--problem", "m=1,n=1,k=1,q=1"), "does not have q"),
        (("gemm", "--problem", "m=1,n=1,k=0"), "a whole number of at least 1, got 0"),
        (("conv2d", "--problem", "c=1,h=2,w=2,k=1,r=9,pad=0"), "larger than the images"),
        (("--show", "--forget"), "--show and --forget do not go together"),
        (("--show", "--force"), "--force is for tuning"),
        (("--show", "--problem", "n=1"), "--problem does not go with it"),
        (("--export", "no/where.jsonl"), "cannot be written"),
    ],
)
def test_wrong_arguments_exit_with_2_and_one_sentence(
    arguments: tuple[str, ...],
    words: str,
    file: Path,
    tmp_path: Path,
    opencl_device: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [argument.format(file=file, empty=tmp_path / "empty") for argument in arguments]
    code = main(["tune", *given, "--device", opencl_device])  # here: a process for each would take long
    said = capsys.readouterr().err
    assert code == 2, said
    assert said.startswith("kernelkeep: ") and said.count("\n") == 1 and words in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\nx = 1 / 0\n", "bad.py, line 2, cannot be loaded: ZeroDivisionError"),
        ("\n\nx = )\n", "bad.py, line 3, cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit"),
        ("", "bad.py has no kk.Tuned"),
    ],
)
def test_a_file_that_cannot_be_loaded_names_the_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text(text)
    assert main(["tune", str(tmp_path / "bad.py"), "--problem", "n=1"]) == 2
    assert words in capsys.readouterr().err


def test_what_one_machine_measured_another_does_not_measure(
    run_here: Command, file: Path, copy: Path, tmp_path: Path, opencl_device: str
) -> None:
    store = f"file://{tmp_path}/store?allow_unsigned=1"
    where = ("--device", opencl_device, "--json")
    done = run_here("tune", "--share", "--remote", store, "--cache-dir", copy, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["shared"] == [
        {"remote": f"file://{tmp_path}/store", "records": 4, "taken": 0, "refused": {}}
    ]
    other = tmp_path / "another machine"
    command = ("tune", f"{file}:scale", "--problem", "n=3000", "--share", "--remote", store, "--cache-dir", other)
    done = run_here(*command, *where)
    (report,) = json.loads(done.stdout)["reports"]
    assert done.returncode == 0 and report["remembered"] == 4 and report["measured"] == 0
    done = run_here("tune", f"{file}:scale", "--select", "--problem", "n=3000", "--cache-dir", other, *where)
    assert json.loads(done.stdout)["selections"][0]["selection"]["basis"] == "exact"


def test_results_are_kept_where_they_cannot_be_shared(
    run_here: Command, file: Path, copy: Path, opencl_device: str
) -> None:
    command = (
        "tune",
        f"{file}:scale",
        "--problem",
        "n=3000",
        "--device",
        opencl_device,
        "--cache-dir",
        copy,
        "--share",
    )
    done = run_here(*command, "--remote", "redis://:pa55word@127.0.0.1:1/0?allow_unsigned=1")
    assert done.returncode == 1 and "Traceback" not in done.stderr and "pa55word" not in done.stderr + done.stdout
    assert "(4 known before)" in done.stdout
    assert done.stderr.startswith("kernelkeep: what others have measured cannot be taken: redis://127.0.0.1:1/0")
    for wrong in (("--show",), ("--export", "x")):
        refused = run_here("tune", "--share", *wrong)
        assert refused.returncode == 2 and "do not go together" in one_sentence(refused)
    refused = run_here("tune", "gemm", "--remote", "redis://host/0")
    assert refused.returncode == 2 and "--remote is for --share" in one_sentence(refused)
