"""`kernelkeep compile-ahead`, `export` and `import`, and kernels in Python files, as a person uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kernelkeep as kk
from kernelkeep.cli import main
from kernelkeep.kernels.user_files import kernels_in

KERNELS = """
import kernelkeep as kk

saxpy = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
    group=64,
)
twice = kk.PortableKernel("twice", params=[kk.Buffer("x", "f4")], body="x[kk_global_id(0)] *= 2.0f;", group=64)
both = [saxpy, twice]
named = {"one": saxpy}
number = 3
"""
TUNED = """
import kernelkeep as kk

template = kk.Template("y[kk_global_id(0)] = W;", [kk.Buffer("y", "f4", "w")], arrays={"y": "n"})
hist = kk.Tuned("hist", template, kk.VariantSpace(W=[1, 2]))
"""
CUDA = pytest.mark.skipif(find_spec("cuda") is None, reason="cuda-bindings is not installed")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def kernelkeep(capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process, which saves a second for each."""

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        return Done(main(arguments), *capfd.readouterr())

    return run


def one_sentence(done: Done) -> str:
    assert done.stderr.startswith("kernelkeep: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS)
    return "kernels.py"


@pytest.fixture
def answer(kernelkeep: Command) -> Callable[..., Any]:
    """What a command prints with --json."""

    def run(*arguments: str) -> Any:
        done = kernelkeep(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_warm_and_explain_take_kernels_in_python_files(
    kernels: str, opencl_device: str, answer: Callable[..., Any]
) -> None:
    options = ("--device", opencl_device, "--cache-dir", "cache")
    for name, count, compiled in ((":named", 1, 1), ("", 2, 1), (":saxpy", 1, 0), (":both", 2, 0)):
        (report,) = answer("warm", kernels + name, *options)
        assert (report["compiled"], report["disk"], report["failed"]) == (compiled, count - compiled, [])
        explained = answer("explain", kernels + name, *options)
        found = explained if isinstance(explained, list) else [explained]
        assert [one["explanation"]["found"] for one in found] == ["disk"] * count


STATES = """
import kernelkeep as kk
import numpy as np

heat = kk.StateProgram(
    "heat", coupling="neighbours", items=64, state={"u": np.ones(64, "f4")}, scalars={"k": np.float32(0.1)},
    body="int i = kk_item();"
    "if (i > 0 && i < kk_items() - 1) u_next[i] = u[i] + k * (u[i-1] - 2 * u[i] + u[i+1]); else u_next[i] = u[i];",
)
"""


def test_a_state_program_that_was_warmed_runs_without_a_compile(
    opencl_device: str, answer: Callable[..., Any], tmp_path: Path, kernels: str
) -> None:
    (tmp_path / "states.py").write_text(STATES)
    (report,) = answer("warm", "states.py:heat", "--device", opencl_device, "--cache-dir", "cache")
    assert report["compiled"] >= 2 and not report["failed"]
    (heat,) = kernels_in("states.py")
    assert isinstance(heat, kk.StateProgram)
    with kk.open_device(opencl_device) as device, kk.ProgramCache(device, tmp_path / "cache") as cache:
        for strategy in ("redispatch", "mega"):
            kk.run(cache, heat, iterations=100, strategy=strategy)
        assert cache.stats().compiles == 0


@CUDA
def test_a_state_program_is_compiled_ahead_in_every_form(
    answer: Callable[..., Any], tmp_path: Path, kernels: str
) -> None:
    (tmp_path / "states.py").write_text(STATES)
    report = answer("compile-ahead", "states.py", "--target", "cuda:sm_90", "--cache-dir", "cache")
    assert report["compiled"] == 6, (
        "a step, many in a group, many in a grid, that under a supervisor, and a chain's two"
    )


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            "kernels.py:number",
            "number in kernels.py must be a kk.PortableKernel, kk.Source or kk.StateProgram, or several of them, got a int",
        ),
        ("kernels.py:nothing", "there is no nothing in kernels.py; it has saxpy, twice, both, named"),
        ("kernels.py:sax", "there is no sax in kernels.py (did you mean saxpy?)"),
        ("tuned.py", "hist in tuned.py is a kk.Tuned: kernelkeep tune tuned.py:hist"),
        ("tuned.py:hist", "whose variants are compiled by `kernelkeep tune tuned.py:hist`"),
        ("other.py", "there is no file other.py"),
        ("empty.py", "empty.py has no kk.PortableKernel, kk.Source or kk.StateProgram among its names"),
        ("broken.py:x", "broken.py, line 2, cannot be loaded: ZeroDivisionError"),
        ("kernels.txt", "cannot read the source kernels.txt"),
    ],
)
def test_files_without_kernels(kernelkeep: Command, kernels: str, tmp_path: Path, file: str, said: str) -> None:
    (tmp_path / "empty.py").write_text("_hidden = 1\n")
    (tmp_path / "tuned.py").write_text(TUNED)
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    done = kernelkeep("compile-ahead", file, "--target", "cuda:sm_90")
    assert done.returncode == 2 and said in one_sentence(done)


def test_macros_are_not_for_python_files(kernelkeep: Command, kernels: str) -> None:
    done = kernelkeep("warm", kernels, "-D", "X=1")
    assert done.returncode == 2 and "are for source files" in one_sentence(done)


@CUDA
def test_from_source_to_another_machine(
    kernelkeep: Command, answer: Callable[..., Any], kernels: str, tmp_path: Path
) -> None:
    """A build machine and one that runs: keys, compile-ahead, a signed bundle, import."""
    assert kernelkeep("keys", "new").returncode == 0
    (tmp_path / "plain.cu").write_text('extern "C" __global__ void plain(int* x) { x[0] = 1; }\n')
    targets = ("--target", "cuda:sm_80", "--target", "cuda:sm_90")
    built = answer("compile-ahead", kernels, "plain.cu", *targets, "--cache-dir", "build", "--bundle", "out.kkb")
    assert built["compiled"] == 6 and built["bundle"]["entries"] == 6 and built["bundle"]["signed"]
    assert answer("compile-ahead", "kernels.py:saxpy", *targets, "--cache-dir", "build")["kept"] == 2
    added = answer("import", "out.kkb", "--cache-dir", "run")
    assert (added["entries"], added["signed"], len(added["folders"])) == (6, True, 2)
    listed = answer("ls", "--cache-dir", "run")["entries"]
    assert sorted(one["name"] for one in listed) == ["plain", "plain", "saxpy", "saxpy", "twice", "twice"]
    text = kernelkeep("export", "part.kkb", "--name", "saxpy", "--cache-dir", "run")
    assert text.returncode == 0 and text.stdout.startswith("2 programs, in 2 GPU folders; ")
    assert "is signed" in text.stdout


@CUDA
def test_what_fails_is_named_and_no_bundle_is_written(kernelkeep: Command, kernels: str, tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("__global__ void f(int* x) {\n  x[0] = y;\n}\n")
    arguments = ("bad.cu", "--target", "cuda:sm_80", "--cache-dir", "cache", "--bundle", "out.kkb")
    done = kernelkeep("compile-ahead", *arguments)
    assert done.returncode == 1 and "cuda:sm_80: bad, line 2:" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out.kkb").exists()
    (failure,) = json.loads(kernelkeep("compile-ahead", *arguments, "--json").stdout)["failed"]
    assert (failure["target"], failure["line"]) == ("cuda:sm_80", 2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("compile-ahead", "kernels.py"), 2, "--target is missing"),
        (("compile-ahead", "kernels.py", "--target", "abacus:9"), 2, "must be written like cuda:"),
        (("export", "out.kkb", "--cache-dir", "nowhere"), 2, "there is no cache folder"),
        (("import", "nothing.kkb"), 2, "nothing.kkb cannot be read: No such file or directory"),
        (("import", "kernels.py"), 1, "kernels.py is not imported: it is not signed"),
        (("import", "kernels.py", "--allow-unsigned"), 1, "kernels.py is not imported: it is not a bundle"),
    ],
)
def test_wrong_use_is_one_sentence(
    kernelkeep: Command, kernels: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = kernelkeep(*arguments)
    assert done.returncode == code and said in one_sentence(done)
