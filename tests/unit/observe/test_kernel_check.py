"""`kk.check`: problems of portable kernels and state programs, for every target and without a device."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import run_python
from kernelkeep.words import Coupling

Y: list[kk.Buffer | kk.Scalar] = [kk.Buffer("y", "f4"), kk.Scalar("n", "i4")]
ALL = ("cuda", "opencl", "glsl", "wgsl")


def places(report: kk.CheckReport) -> list[tuple[str, str, int, int]]:
    return [(one.severity, one.target, one.line, one.column) for one in report]


def test_a_kernel_without_problems_is_an_empty_report() -> None:
    report = kk.check(kk.PortableKernel("fine", Y, "int i = kk_global_id(0);\nif (i < n) y[i] = 0.5 * y[i];"))
    assert not report and len(report) == 0 and report.targets == ALL
    assert str(report) == "kernel fine: no mistakes in CUDA C, OpenCL C, GLSL, WGSL"


def test_all_mistakes_are_reported_once_for_all_targets_and_with_carets() -> None:
    report = kk.check(kk.PortableKernel("typos", Y, "int i = kk_global_id(0);\nif (i < nn) y[i] = zz;", first_line=7))
    assert places(report) == [("error", "", 8, 9), ("error", "", 8, 20)]
    assert report.errors == tuple(report) and report.warnings == ()
    assert repr(report) == (
        "kernel typos, line 8: unknown name nn; did you mean n?\n    if (i < nn) y[i] = zz;\n            ^\n"
        "kernel typos, line 8: unknown name zz\n    if (i < nn) y[i] = zz;\n                       ^"
    )


def test_what_one_target_lacks_names_it_and_the_capability() -> None:
    report = kk.check(
        kk.PortableKernel("wide", Y, "int i = kk_global_id(0);\n  double d = y[i];\ny[i] = (float)sqrt(d);")
    )
    assert places(report) == [("unsupported", "wgsl", 2, 10)]
    assert report[0].capability == "float64" and report[0].sentence == "WGSL has no type double"
    assert report[0].shown == "  double d = y[i];"
    only = kk.check(kk.PortableKernel("p", [kk.Buffer("x", "f8")], "x[0] = 1;"))
    assert [(one.target, one.line, one.sentence) for one in only] == [
        ("wgsl", 0, "kernel p uses f8, and WGSL has no float64")
    ]
    assert not kk.check(kk.PortableKernel("p", [kk.Buffer("x", "f8")], "x[0] = 1;"), targets=["cuda", "glsl"])


def test_warnings_come_last_and_are_no_errors() -> None:
    report = kk.check(kk.PortableKernel("lossy", Y, "int k = y[0];\nlong m = n;\ny[1] = k + (float)m;"))
    assert places(report) == [("unsupported", "wgsl", 2, 6), ("warning", "", 1, 9)]
    assert [one.line for one in report.warnings] == [1] and [one.line for one in report.errors] == [2]
    assert "line 1: warning: float becomes int" in str(report)


@pytest.mark.parametrize(
    "wrong", ["}", "#if 1", "{" * 5000, "int x[n];", "y[0] = 'abc';", "y = 1; /*", "\x00", "@", ""]
)
def test_no_body_raises(wrong: str) -> None:
    report = kk.check(kk.PortableKernel("k", Y, wrong))
    assert all(one.sentence for one in report)
    assert bool(report.errors) == bool(wrong)


def test_a_device_is_checked_for_what_it_lacks() -> None:
    class Small:
        language, spec = "opencl", "opencl:7"
        capabilities = kk.Capabilities(float64=False, int64=True, int8=True, float_atomics=True, max_group_items=64)

    kernel = kk.PortableKernel("wide", Y, "double d = y[0];\ny[0] = (float)d;", 64)
    (one,) = kk.check(kernel, targets=[Small()])
    assert (one.target, one.capability, one.sentence) == (
        "opencl:7", "float64", "uses f8, and this device has no float64"
    )  # fmt: skip
    assert (one.line, one.column, one.shown) == (1, 8, "double d = y[0];")
    assert not kk.check(kernel, targets=["opencl"])
    assert str(kk.check(kk.PortableKernel("k", Y, "", 64), targets=[Small()])) == "kernel k: no mistakes in opencl:7"
    with kk.open_device("reference") as device:
        assert not kk.check(kernel, targets=[device, "cuda"])
        state = {"u": np.zeros(8, "f4")}
        assert not kk.check(kk.StateProgram("p", coupling="independent", state=state, body=HEAT), targets=[device])


def test_a_backend_stands_for_its_language() -> None:
    found = kk.check(
        kk.PortableKernel("k", Y, "double d = 1.0;\ny[0] = (float)d;"), targets=["webgpu", "wgsl", "opengl"]
    )
    assert found.targets == ("wgsl", "glsl")
    assert [one.target for one in found] == ["wgsl"]


def test_wrong_use_raises() -> None:
    with pytest.raises(kk.ArgumentError, match=r"kernel must be a kk\.PortableKernel"):
        kk.check("y[0] = 1;")  # type: ignore[arg-type]
    with pytest.raises(
        kk.ArgumentError,
        match="targets must be among cuda, opencl, glsl, wgsl, names of backends, or devices, got 'hlsl'",
    ):
        kk.check(kk.PortableKernel("k", Y, ""), targets=["hlsl"])
    with pytest.raises(kk.ArgumentError, match="at least one"):
        kk.check(kk.PortableKernel("k", Y, ""), targets=[])


def test_a_source_of_a_variant_is_checked_like_its_kernel() -> None:
    kernel = kk.PortableKernel("k", Y, "double d = SIZE;\ny[0] = (float)d;", defines={"SIZE": 3})
    assert places(kk.check(kernel.source("cuda"))) == [("unsupported", "wgsl", 1, 8)]


HEAT = "int i = kk_item();\nu_next[i] = u[i];\n"


@pytest.mark.parametrize("coupling", ["independent", "neighbours"])
def test_a_state_program_is_checked_in_all_its_forms(coupling: Coupling) -> None:
    state = {"u": np.zeros(8, "f4")}
    fine = kk.StateProgram("heat", coupling=coupling, state=state, body=HEAT)
    assert list(kk.check(fine)) == [] and kk.check(fine).targets == ALL
    wrong = kk.StateProgram("heat", coupling=coupling, state=state, body=HEAT + "int k = u[i];\nu_next[i] = v;")
    assert places(kk.check(wrong)) == [("error", "", 4, 13)]
    lossy = kk.StateProgram("heat", coupling=coupling, state=state, body=HEAT + "int k = u[i];\nu_next[i] = k;")
    assert places(kk.check(lossy)) == [("warning", "", 3, 9)]
    wide = kk.StateProgram("heat", coupling=coupling, state={"u": np.zeros(8, "f8")}, body=HEAT)
    assert {problem.capability for problem in kk.check(wide, targets=["wgsl"])} == {"float64"}


def test_a_queue_is_checked() -> None:
    def queue(body: str) -> kk.StateProgram:
        state, tasks = {"total": np.zeros(1, "i4")}, {"lo": np.zeros(4, "i4")}
        return kk.StateProgram("sum", coupling="queue", state=state, tasks=tasks, body=body)

    assert not kk.check(queue("kk_atomic_add(total[0], lo);\nif (lo > 0) kk_push(lo - 1);"))
    assert places(kk.check(queue("kk_atomic_add(total[0], hi);"))) == [("error", "", 1, 25)]


def test_errors_keep_their_places_across_processes() -> None:
    with pytest.raises(kk.Unsupported) as caught:
        assert kk.PortableKernel("k", Y, "double d = y[0];").source("wgsl").text
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.capability, again.line, again.column) == ("float64", 1, 8)
    with pytest.raises(kk.CompileError) as wrong:
        assert kk.PortableKernel("k", Y, "y[0] = v;").source("wgsl").text
    assert pickle.loads(pickle.dumps(wrong.value)).problems == wrong.value.problems != ()


def test_no_driver_is_loaded() -> None:
    said = run_python(
        "import sys, kernelkeep as kk\n"
        "assert not kk.check(kk.PortableKernel('k', [kk.Buffer('y', 'f4')], 'y[0] = 1;'))\n"
        "print(*(name for name in sys.modules if name in ('pyopencl', 'cuda', 'OpenGL') or '.devices.' in name))\n"
    )
    assert said.stdout.split() == []


@kk.function
def doubled(v: kk.f4) -> kk.f4:
    return v * factor  # type: ignore[name-defined,no-any-return] # noqa: F821


@kk.kernel
def typos(y: kk.InOut[kk.f4], n: kk.i4) -> None:
    if kk.global_id(0) < nn:  # type: ignore[name-defined] # noqa: F821
        y[0] = doubled(y[0])


@kk.kernel
def wide(y: kk.InOut[kk.f4]) -> None:
    d: kk.f8 = 1.0
    y[0] = d


def test_kernels_in_python_have_the_places_of_their_file() -> None:
    report = kk.check(typos)
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    assert sorted(one.sentence for one in report) == ["unknown name factor", "unknown name nn; did you mean n?"]
    for one in report:
        name = one.sentence.removeprefix("unknown name ").split(";")[0]
        assert lines[one.line - 1] == one.shown and one.shown[one.column - 1 :].startswith(name)
        assert one.file == __file__ and f"kernel typos in {__file__}, line {one.line}: " in str(report)
    unsupported = kk.check(wide).errors
    assert [(one.target, one.shown, one.file) for one in unsupported] == [("wgsl", "    d: kk.f8 = 1.0", __file__)]


def test_a_state_program_in_python_has_the_places_of_its_file() -> None:
    def body(u, u_next):
        i = kk.item()
        u_next[i] = u[i] + missing  # type: ignore[name-defined] # noqa: F821

    (one,) = kk.check(kk.StateProgram("p", coupling="independent", state={"u": np.zeros(4, "f4")}, body=body))
    assert one.sentence == "unknown name missing" and one.file == __file__
    assert Path(__file__).read_text(encoding="utf-8").split("\n")[one.line - 1] == one.shown
