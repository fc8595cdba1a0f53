"""The command as a person runs it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk

Command = Callable[..., subprocess.CompletedProcess[str]]
SOURCES = str(Path(kk.__file__).parents[1])


def kernelkeep(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelkeep", *arguments]
    env = {**os.environ, "PYTHONPATH": SOURCES, "NO_COLOR": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)


@pytest.fixture
def any_device(opencl_device: str) -> str:
    """For tests of what is printed: OpenGL where it is here, because PoCL takes its time to compile."""
    return next((info.spec for info in kk.list_devices() if info.backend == "opengl"), opencl_device)


def fields(text: str) -> Any:
    return json.loads(text)


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernelkeep: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_version() -> None:
    done = kernelkeep("--version")
    assert (done.returncode, done.stdout) == (0, f"kernelkeep {kk.__version__}\n")


def test_help_names_every_command() -> None:
    done = kernelkeep("--help")
    assert done.returncode == 0
    for command in ("demo", "devices", "doctor", "trace"):
        assert command in done.stdout


@pytest.mark.parametrize("command", ["ls", "prune", "clear", "verify", "demo"])
def test_a_flag_does_not_look_as_if_it_took_a_value(run_here: Command, command: str) -> None:
    done = run_here(command, "--help")
    assert done.returncode == 0
    assert "--json  " in done.stdout
    assert "<bool>" not in done.stdout
    assert not any(line != line.rstrip() for line in done.stdout.splitlines())


def test_wrong_use_names_the_help_of_the_command(run_here: Command) -> None:
    assert "`kernelkeep devices --help`" in one_sentence(run_here("devices", "--fast"))
    assert "`kernelkeep --help`" in one_sentence(run_here("dance"))


def test_no_command_shows_the_help_and_is_wrong_use(run_here: Command) -> None:
    done = run_here()
    assert done.returncode == 2
    assert "Usage" in done.stdout


@pytest.mark.parametrize(
    "arguments", [("dance",), ("devices", "--fast"), ("demo", "--device"), ("doctor", "extra"), ("--nope",)]
)
def test_wrong_use_is_one_sentence_and_2(run_here: Command, arguments: tuple[str, ...]) -> None:
    done = run_here(*arguments)
    assert done.returncode == 2
    assert "--help" in one_sentence(done)


@pytest.mark.parametrize("command", ["devices", "doctor", "demo"])
def test_a_malformed_device_is_wrong_use(run_here: Command, command: str) -> None:
    done = run_here(command, "--device", "abacus")
    assert done.returncode == 2
    assert "abacus" in one_sentence(done)


@pytest.mark.parametrize("command", ["devices", "demo"])
def test_a_device_that_is_not_here_is_1(run_here: Command, opencl_device: str, command: str) -> None:
    done = run_here(command, "--device", "opencl:99")
    assert done.returncode == 1
    assert "opencl:99" in one_sentence(done)


def test_devices_as_a_table(run_here: Command, opencl_device: str) -> None:
    done = run_here("devices")
    assert done.returncode == 0, done.stderr
    assert opencl_device in done.stdout


def test_devices_as_json(run_here: Command, opencl_device: str) -> None:
    done = run_here("devices", "--json", "--device", "opencl")
    assert done.returncode == 0, done.stderr
    listed = fields(done.stdout)
    assert opencl_device in [info["spec"] for info in listed]
    assert {"spec", "backend", "name", "vendor", "driver", "is_gpu", "memory_bytes"} <= set(listed[0])


def test_doctor_looks_at_every_backend(run_here: Command, opencl_device: str) -> None:
    done = run_here("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = {health["backend"]: health for health in fields(done.stdout)}
    assert set(found) == {"cuda", "opencl", "opengl", "webgpu", "hip", "reference"}
    assert found["opencl"]["usable"]
    # It runs nothing, so no device is missing where its compiler is there.
    assert found["hip"]["compiles_only"] == all(check["ok"] for check in found["hip"]["checks"])
    for health in found.values():
        assert health["checks"]
        # What is missing says how to get it; only the final run of a kernel has its reason alone.
        assert all(c["ok"] or c["fix"] or c["what"].endswith("runs a kernel") for c in health["checks"])


def test_doctor_as_text(run_here: Command, opencl_device: str) -> None:
    done = run_here("doctor", "--device", opencl_device)
    assert done.returncode == 0, done.stderr
    assert "opencl: usable" in done.stdout


def test_doctor_says_when_the_linker_is_missing(run_here: Command, opencl_device: str, tmp_path: Path) -> None:
    if "Portable" not in run_here("devices", "--device", opencl_device).stdout:
        pytest.skip("only PoCL needs a linker")
    done = kernelkeep("doctor", "--device", opencl_device, PATH=str(tmp_path))
    assert done.returncode == 1
    assert "apt-get install gcc libc6-dev" in done.stdout


def test_demo_as_a_table(run_here: Command, any_device: str, tmp_path: Path) -> None:
    done = run_here("demo", "--device", any_device, "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("saxpy", "stencil", "cold", "warm", "speed-up"):
        assert word in done.stdout
    assert "failed" not in done.stdout


def test_demo_as_json_on_every_device(opencl_device: str, tmp_path: Path) -> None:
    done = kernelkeep("demo", "--json", "--cache-dir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    result = fields(done.stdout)
    assert result["ok"] is True
    specs = {info["spec"] for info in result["devices"]}
    assert {(run["device"], run["sample"]) for run in result["runs"]} == {
        (spec, name) for spec in specs for name in ("saxpy", "stencil")
    }
    assert all(run["launch_seconds"] > 0 for run in result["runs"])
    assert [(start["device"], start["start"]) for start in result["starts"]] == [
        (info["spec"], start) for info in result["devices"] for start in ("cold", "warm")
    ]
    for cold, warm in zip(result["starts"][::2], result["starts"][1::2], strict=True):
        assert (cold["compiled"], cold["from_disk"]) == (8, 0)
        assert warm["compiled"] + warm["from_disk"] == 8
        if cold["device"] == opencl_device:
            assert (warm["from_disk"], warm["speed_up"] > 1) == (8, True)


def test_demo_that_cannot_run_is_1_and_says_why(run_here: Command, opencl_device: str, tmp_path: Path) -> None:
    if "Portable" not in run_here("devices", "--device", opencl_device).stdout:
        pytest.skip("only PoCL needs a linker")
    done = kernelkeep("demo", "--device", opencl_device, PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("libc6-dev") >= 2, "the samples and the cold start both say it"
    assert "Traceback" not in done.stderr


def test_without_typer_the_command_says_what_to_install(tmp_path: Path) -> None:
    # A module that fails to import stands in for one that is not installed.
    (tmp_path / "typer.py").write_text("raise ImportError('No module named typer')\n")
    done = kernelkeep("devices", PYTHONPATH=f"{tmp_path}{os.pathsep}{SOURCES}")
    assert done.returncode == 2
    assert "[cli]'" in one_sentence(done)


# --- trace


def test_trace_demo_as_text_writes_where_it_is_run(any_device: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernelkeep", "trace", "demo", "--device", any_device, "--cache-dir", "cache"]
    env = {**os.environ, "PYTHONPATH": SOURCES, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("upload", "compute", "download", "%", "kernelkeep-trace.json", "ui.perfetto.dev"):
        assert word in done.stdout
    assert not any(line != line.rstrip() for line in done.stdout.splitlines())
    assert fields((tmp_path / "kernelkeep-trace.json").read_text())["traceEvents"]


def test_trace_demo_as_json_on_every_device(run_here: Command, opencl_device: str, tmp_path: Path) -> None:
    for info in kk.list_devices():
        if info.is_interpreter:
            continue
        trace = tmp_path / f"{info.backend}{info.index}.json"
        arguments = ("--json", "--device", info.spec, "--out", str(trace), "--cache-dir", str(tmp_path / "cache"))
        done = run_here("trace", "demo", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        result = fields(done.stdout)
        assert (result["ok"], result["device"], result["trace"]) == (True, info.spec, str(trace))
        assert set(result["busy"]) == {"upload", "compute", "download"}
        # Shares: clocks of host and device are matched to a few microseconds only, hence a little room.
        assert all(0 <= share <= 1.01 for share in (*result["busy"].values(), result["overlap"]))
        events = fields(trace.read_text())["traceEvents"]
        computed = [event for event in events if event.get("cat") == "compute"]
        assert len(computed) == result["batches"]
        assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_trace_without_more_shows_the_help_and_is_wrong_use(run_here: Command) -> None:
    done = run_here("trace")
    assert done.returncode == 2
    assert "demo" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("dance",), ("demo", "--fast"), ("demo", "extra"), ("demo", "--out"), ("demo", "--device", "abacus")],
)
def test_wrong_use_of_trace_is_one_sentence_and_2(run_here: Command, arguments: tuple[str, ...]) -> None:
    done = run_here("trace", *arguments)
    assert done.returncode == 2
    one_sentence(done)


def test_trace_demo_says_where_it_cannot_write(run_here: Command, opencl_device: str, tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "none" / "trace.json"):
        done = run_here("trace", "demo", "--device", opencl_device, "--out", str(out))
        assert done.returncode == 2
        assert str(out if out == tmp_path else out.parent) in one_sentence(done)


def test_trace_demo_on_a_device_that_is_not_here_is_1(run_here: Command, opencl_device: str) -> None:
    done = run_here("trace", "demo", "--device", "opencl:99")
    assert done.returncode == 1
    assert "opencl:99" in one_sentence(done)


# --- bench


def test_bench_as_a_table_and_as_json(run_here: Command, tmp_path: Path) -> None:
    chosen = ("--device", "reference", "--programs", "1", "--cache-dir", str(tmp_path / "cache"))
    done = run_here("bench", *chosen)
    assert done.returncode == 0, done.stderr
    for words in ("compile and first result", "disk hit and first result", "prepared launch", "executor, 4.0 KiB at "):
        assert words in done.stdout
    (found,) = fields(run_here("bench", "--json", *chosen).stdout)
    assert (found["device"], len(found["figures"])) == ("reference:0", 8)
    assert not list((tmp_path / "cache").iterdir())


def test_wrong_use_of_bench(run_here: Command) -> None:
    for arguments in (("--programs", "0"), ("--device", "abacus"), ("extra",)):
        done = run_here("bench", *arguments)
        assert done.returncode == 2
        one_sentence(done)
