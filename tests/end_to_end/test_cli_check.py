"""`kernelkeep check` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from kernelkeep.cli import main

FILE = """
import kernelkeep as kk
import numpy as np

good = kk.PortableKernel("good", params=[kk.Buffer("y", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\\nif (i < n) y[i] *= 2.0f;", group=64)
bad = kk.PortableKernel("bad", params=[kk.Buffer("y", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\\nif (i <= n) y[i] *= 2.0f;", group=64)
wrong = kk.PortableKernel("wrong", params=[kk.Buffer("y", "f4")], body="y[0] = nn;")
lossy = kk.PortableKernel("lossy", params=[kk.Buffer("y", "i4")], body="y[0] = 2.5f * y[1];")
wide = kk.PortableKernel("wide", params=[kk.Buffer("y", "f4")], body="double d = y[0];\\ny[1] = (float)(d / 3);")
heat = kk.StateProgram("heat", coupling="neighbours", state={"u": np.linspace(0, 1, 40, dtype="f4")},
    body="int i = kk_item();\\nu_next[i] = i > 0 ? u[i - 1] : u[i];")
leak = kk.StateProgram("leak", coupling="neighbours", state={"u": np.linspace(0, 1, 40, dtype="f4")},
    body="int i = kk_item();\\nu_next[i] = u[i + 1];")
by_hand = kk.Source("__kernel void f() {}", name="by_hand", language="opencl")
"""


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


def check(folder: Path, capsys: pytest.CaptureFixture[str], name: str, *options: str) -> Done:
    path = folder / "kernels.py"
    path.write_text(FILE)
    code = main(["check", f"{path}{name}", *options])
    return Done(code, *capsys.readouterr())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["good"], 0, "good: no mistakes (CUDA C, OpenCL C, GLSL, WGSL)\n"),
        (["good", "--target", "glsl"], 0, "good: no mistakes (GLSL)\n"),
        (["good", "--target", "webgpu"], 0, "good: no mistakes (WGSL)\n"),
        (
            ["good", "--target", "fortran"],
            2,
            "targets must be among cuda, opencl, glsl, wgsl, names of backends, or devices, got 'fortran'",
        ),
        (["good", "--device", "reference"], 0, "good: no mistakes (reference:0)\n"),
        (["good", "--device", "reference", "--run"], 2, "--run runs the kernels on the reference device: leave out"),
        (["good", "--run"], 0, "good: no bugs found in a run with the grid (16,)\n"),
        (["bad", "--run"], 1, "kernel bad, line 2: y[1000] is out of bounds: y has 1,000 elements"),
        (["bad", "--run", "--items", "10"], 1, "y[10] is out of bounds"),
        (["bad", "--run", "--set", "n=10"], 0, "bad: no bugs found"),
        (["bad", "--run", "--size", "y=2000", "--grid", "4"], 0, "bad: no bugs found in a run with the grid (4,)"),
        (["bad", "--run", "--set", "m=10"], 1, "kernel bad has no scalar m: it has n"),
        (["heat"], 0, "heat: no mistakes (CUDA C, OpenCL C, GLSL, WGSL)\n"),
        (["heat", "--run"], 0, "heat: no bugs found in 3 iterations\n"),
        (["leak", "--run"], 1, "line 2: u[40] is out of bounds: u has 40 elements"),
        (["wrong"], 1, "kernel wrong, line 1: unknown name nn\n    y[0] = nn;\n           ^\n"),
        (["lossy"], 0, "lossy: no mistakes; warnings above\n"),
        (["wide"], 1, "kernel wide, line 1: WGSL has no type double\n    double d = y[0];\n           ^\n"),
        (["wide", "--target", "cuda", "--target", "opencl"], 0, "wide: no mistakes (CUDA C, OpenCL C)\n"),
        (["by_hand"], 0, "by_hand: a kk.Source in opencl is not checked\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_it_says_and_how_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    name, *options = arguments
    done = check(tmp_path, capsys, f":{name}", *options)
    assert done.code == code, done.stderr
    assert said in (done.stderr if code else done.stdout)


def test_a_whole_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = check(tmp_path, capsys, "", "--json")
    assert done.code == 1
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert {name: one["ok"] for name, one in found.items()} == {
        "good": True, "bad": True, "wrong": False, "lossy": True, "wide": False, "heat": True, "leak": True, "by_hand": None,
    }  # fmt: skip
    assert found["good"]["targets"] == ["cuda", "opencl", "glsl", "wgsl"] and found["good"]["problems"] == []
    (one,) = found["wide"]["problems"]
    assert one == {
        "severity": "unsupported", "sentence": "WGSL has no type double", "line": 1, "column": 8,
        "shown": "double d = y[0];", "target": "wgsl", "capability": "float64", "file": "",
    }  # fmt: skip
    (warning,) = found["lossy"]["problems"]
    assert (warning["severity"], warning["line"]) == ("warning", 1)


def test_a_file_that_is_not_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernels.txt"
    path.write_text("no Python")
    assert main(["check", str(path)]) == 2
    assert "kernels.txt must be a file in Python" in capsys.readouterr().err
