"""docs/ahead-of-time.md: its Python runs, and so do the commands of its Dockerfile and of its job, in an empty folder.

There is no Docker here. The steps of the Dockerfile are done one after the other: RUN in a shell, COPY as a copy, ENV in the
environment, and the last stage as another user. `/opt` and `/app` are folders of the test, and nothing is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk

PAGE = (Path(__file__).parents[2] / "docs" / "ahead-of-time.md").read_text(encoding="utf-8")
SOURCES = str(Path(kk.__file__).parents[1])
KERNELS = """
import kernelkeep as kk
kernels = [
    kk.PortableKernel(f"add{n}", params=[kk.Buffer("x", "i4")], body=f"x[kk_global_id(0)] += {n};", group=64)
    for n in range(3)
]
"""
# What the program does in its container, as far as a machine without a GPU can: read the folder as another user.
APP = """
import os, sys
import kernelkeep.cache.upkeep, pwd, encodings.ascii, rich.console, rich.table
if os.geteuid() == 0:
    os.setgid(1000)
    os.setuid(1000)
from kernelkeep import settings
from kernelkeep.cache.upkeep import list_entries
for stored in list_entries(settings.cache_dir()):
    print(stored.folder, stored.facts.name if stored.facts else stored.damage)
"""
pytestmark = pytest.mark.skipif(find_spec("cuda") is None, reason="cuda-bindings is not installed")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


class Machine:
    """A folder with an empty home and a `kernelkeep` command."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir(parents=True)
        (root / "home").mkdir()
        script = root / "bin" / "kernelkeep"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kernelkeep "$@"\n')
        script.chmod(0o755)
        self.environment = {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(root / "home"),
            "PYTHONPATH": SOURCES,
        }

    def run(self, command: str, folder: Path, **environment: str) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    session: dict[str, Any] = {"__name__": "page"}
    for found in re.finditer(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile("\n" * PAGE[: found.start(1)].count("\n") + found.group(1), "ahead-of-time.md", "exec"), session)
    assert "2 compiled, 0 already there" in capsys.readouterr().out


def test_the_image_is_built_step_by_step(reachable_path: Path) -> None:
    machine = Machine(reachable_path)
    context = reachable_path / "context"
    context.mkdir()
    (context / "kernels.py").write_text(KERNELS)
    (context / "app.py").write_text(APP)
    stages: dict[str, Path] = {}
    here, work, ran = Path(), "/", 0
    for line in block("dockerfile").replace("\\\n", "").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            here = stages[rest.partition(" AS ")[2]] = reachable_path / f"stage{len(stages)}"
            (here / "opt").mkdir(parents=True)
        elif word == "WORKDIR":
            work = rest
            (here / work.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and rest.startswith("--from="):
            stage, source, target = rest.removeprefix("--from=").split()
            shutil.copytree(stages[stage] / source.lstrip("/"), here / target.lstrip("/"))
        elif word == "COPY":
            for name in rest.split()[:-1]:
                shutil.copy(context / name, here / work.lstrip("/"))
        elif word == "RUN" and "pip install" not in rest:
            machine.run(rest.replace("/opt/", f"{here}/opt/"), here / work.lstrip("/"))
            ran += 1
        elif word == "ENV":
            name, _, value = rest.partition("=")
            machine.environment[name] = f"{here}{value}"
    assert ran == 2, "the Dockerfile has other steps now"
    python = shlex.quote(sys.executable)
    listed = machine.run(f"{python} app.py", here / "app").splitlines()
    assert len(listed) == 6 and {line.split()[1] for line in listed} == {"add0", "add1", "add2"}
    assert {line.split("_")[1] for line in listed} == {"any-sm-80", "any-sm-90"}


def test_the_job_makes_a_bundle_that_a_machine_trusts(tmp_path: Path) -> None:
    home, ci, runner = (Machine(tmp_path / name) for name in ("home-of-key", "ci", "runner"))
    made = home.run("kernelkeep keys new --label ci", tmp_path)
    line = next(text for text in made.splitlines() if "keys trust" in text).strip()
    (secret,) = (tmp_path / "home-of-key" / "home").rglob("own/*.key")
    (ci.root / "kernels.py").write_text(KERNELS)
    steps = re.findall(r"^ *- run: (.*)$", block("yaml"), re.MULTILINE)
    for step in (one for one in steps if not one.startswith("pip install")):
        ci.run(step, ci.root, KERNELKEEP_SIGNING_KEY=secret.read_text().rstrip("\n"))
    assert len(steps) == 4 and not (ci.root / "signing.key").exists()
    shutil.copy(ci.root / "kernels.kkb", runner.root)
    runner.run(line, runner.root)
    said = runner.run("kernelkeep import kernels.kkb", runner.root)
    assert "6 programs, in 2 GPU folders" in said and "is signed" in said


def test_the_benchmark_makes_its_bundle_without_a_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    script = Path(__file__).parents[2] / "benchmarks" / "bundle_start.py"
    said = machine.run(f"{sys.executable} {script} make a.kkb --target cuda:sm_90 --programs 9", tmp_path)
    assert '"programs": 9' in said
    added = kk.import_bundle(
        tmp_path / "cache", tmp_path / "a.kkb", signing_key=b"the key of a benchmark, which is no secret"
    )
    assert added.entries == 9 and added.signed
