"""docs/tutorials: each page shows its program as it is, the program prints what the page says and draws the page's picture.

What takes long is made smaller: fewer iterations, frames, variants and kernels. Run here are the pages tutorials/simulation.md,
tutorials/pipeline.md, tutorials/tuning.md, tutorials/fleet.md and tutorials/resident.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing.servers import NotInstalled, RedisServer

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorials"
PROGRAMS = ROOT / "examples" / "tutorials"
PLAIN = ROOT / "examples" / "plain_pyopencl"
PICTURES = ROOT / "docs" / "pictures"
NAMES = ["fleet", "pipeline", "resident", "simulation", "tuning"]
MAX_PICTURE_BYTES = 120 * 1024
# What is replaced in a program so that it is quick here; numbers in what it prints are not compared.
SMALLER = {
    "fleet": {
        "range(1, 9)": "range(1, 3)",
        '[{"n": 100_000}, {"n": 1_000_000}]': '[{"n": 1000}]',
        "GROUP=[32, 256], PER_ITEM=[1, 4]": "GROUP=[32], PER_ITEM=[1]",
    },
    "pipeline": {"FRAMES = 240, 320, 200": "FRAMES = 240, 320, 5"},
    "resident": {"range(11)": "range(3)"},
    "tuning": {"GROUP=[64, 128, 256], PER_ITEM=[1, 8, 64, 512]": "GROUP=[64], PER_ITEM=[8]"},
}  # fmt: skip
# Lines that another machine, or a smaller run, may not print; after a tie the reason of a choice has other words.
MAY_DIFFER = ("  strategy", "  gaps", "  default", "  failed", "            GROUP=")


def smaller(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"the program has no {old} any more"
        text = text.replace(old, new)
    return text


def run(program: Path, folder: Path, device: str, **environment: str) -> str:
    return finish(start(program, folder, device, **environment))


def start(program: Path, folder: Path, device: str, **environment: str) -> subprocess.Popen[str]:
    settings = {
        "KERNELKEEP_DEVICE": device,
        "KERNELKEEP_CACHE_DIR": str(folder / "cache"),
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(folder / "matplotlib"),
        "PYTHONPATH": str(Path(kk.__file__).parents[1]),
    }
    runner = [str(Path(__file__).with_name("plain_pyopencl.py"))] if "kernelkeep" not in program.read_text() else []
    command = [sys.executable, *runner, str(program)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=folder, env={**os.environ, **settings, **environment}
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def skeleton(line: str, device_name: str) -> str:
    """A line without its numbers and without the name of the device."""
    named = line.replace("pthread-AMD EPYC", "DEVICE").replace(device_name, "DEVICE")
    return re.sub(r"[+-]?\d[\d,.]*", "#", named).rstrip()


def check_printed(name: str, out: str, device: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[-1]
    device_name = next(info.name for info in kk.list_devices() if info.spec == device)
    printed = {skeleton(line, device_name) for line in out.splitlines()}
    for line in shown.splitlines():
        if not line.startswith(MAY_DIFFER):
            assert skeleton(line, device_name) in printed, f"{name}.md shows {line!r}, and the program printed:\n{out}"


def check_picture(name: str, folder: Path) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"\]\(\.\./pictures/([\w.-]+)\)", page)
    for file in (PICTURES / picture, folder / picture):
        assert file.read_bytes().startswith(b"\x89PNG")
    assert (PICTURES / picture).stat().st_size <= MAX_PICTURE_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_its_program(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block == (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["pipeline", "resident", "tuning"])
def test_a_program_prints_and_draws_what_its_page_shows(name: str, opencl_device: str, tmp_path: Path) -> None:
    program = tmp_path / f"{name}.py"
    program.write_text(smaller((PROGRAMS / f"{name}.py").read_text(encoding="utf-8"), SMALLER[name]), encoding="utf-8")
    check_printed(name, run(program, tmp_path, opencl_device), opencl_device)
    check_picture(name, tmp_path)


def test_the_simulation_goes_on_after_it_was_killed(opencl_device: str, tmp_path: Path) -> None:
    text = (PROGRAMS / "simulation.py").read_text(encoding="utf-8")
    program, endless = tmp_path / "simulation.py", tmp_path / "endless.py"
    longer = {
        "ITERATIONS = 192, 6000": "ITERATIONS = 192, 100_000_000",
        "checkpoint_every=0.5": "checkpoint_every=0.02",
    }
    endless.write_text(smaller(text, longer), encoding="utf-8")
    process = start(endless, tmp_path, opencl_device)
    while not (tmp_path / "patterns.kkpt").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.kill()
    process.communicate()
    at = kk.read_checkpoint(tmp_path / "patterns.kkpt").iteration
    assert at > 0
    # However fast the device is: so many more.
    program.write_text(smaller(text, {"ITERATIONS = 192, 6000": f"ITERATIONS = 192, {at + 100}"}), encoding="utf-8")
    out = run(program, tmp_path, opencl_device)
    assert f"resumed from patterns.kkpt at iteration {at:,}" in out
    assert "100 iterations in" in out
    check_printed("simulation", out, opencl_device)
    check_picture("simulation", tmp_path)


def test_the_fleet_and_the_store(opencl_device: str, tmp_path: Path) -> None:
    program = tmp_path / "fleet.py"
    program.write_text(smaller((PROGRAMS / "fleet.py").read_text(encoding="utf-8"), SMALLER["fleet"]), encoding="utf-8")
    keys = str(tmp_path / "keys")
    kk.Keyring(keys).new("tutorial")
    try:
        server = RedisServer()
    except NotInstalled as error:
        pytest.skip(str(error))
    with server:
        out = run(program, tmp_path, opencl_device, KERNELKEEP_REMOTE=server.url, KERNELKEEP_KEYS_DIR=keys)
    assert "a new machine: 0 compiled, 2 from the store" in out
    check_printed("fleet", out, opencl_device)
    check_picture("fleet", tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("simulation", {"ITERATIONS = 192, 6000": "ITERATIONS = 192, 200"}, "from iteration 100 to 200 on "),
        ("pipeline", SMALLER["pipeline"], "5 frames; the brightest edge has 255\n"),
        (
            "tuning",
            {"GROUPS, PER_ITEM = [64, 128, 256], [1, 8, 64, 512]": "GROUPS, PER_ITEM = [64], [64]"},
            "commonest",
        ),
    ],
)
def test_the_twins_in_plain_pyopencl_run(
    name: str, changes: dict[str, str], says: str, opencl_device: str, tmp_path: Path
) -> None:
    state = np.ones((192, 192), "f4")
    np.savez(tmp_path / "patterns.npz", iteration=100, a=state, b=state)  # the simulation goes on from there
    program = tmp_path / f"{name}.py"
    program.write_text(smaller((PLAIN / f"{name}.py").read_text(encoding="utf-8"), changes), encoding="utf-8")
    assert says in run(program, tmp_path, opencl_device)


def lines_of_code(file: Path) -> int:
    return len(re.findall(r"^\s*[^\s#]", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_table_has_the_line_counts() -> None:
    rows = re.findall(r"^\| .* \| (\d+) lines \| \[(\d+) lines\]", (PAGES / "index.md").read_text(), re.MULTILINE)
    assert len(rows) == 3
    for name, (ours, theirs) in zip(("simulation", "pipeline", "tuning"), rows, strict=True):
        counted = [lines_of_code(folder / f"{name}.py") for folder in (PROGRAMS, PLAIN)]
        assert counted == [int(ours), int(theirs)], name
        assert counted[0] < counted[1]
