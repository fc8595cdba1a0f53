"""docs/operations: its files parse, and its scripts and steps do what the pages say, on this machine and as another user.

There is no Docker, no Kubernetes and no Slurm here. Steps of the Dockerfile and commands of the pod are run one by one in folders
of the test; a stand-in for `srun` starts the ranks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import kernelkeep as kk
from kernelkeep.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "operations"
SOURCES = str(Path(kk.__file__).parents[1])
# What a user's program does. With AS_USER it becomes another user first, but only once all is imported and PoCL has compiled:
# perhaps root alone may read the folder of this Python. PoCL's own folder is then open to both.
APP = """
import os, pwd, sys, warnings
import kernelkeep as kk
device = kk.open_device()
if os.environ.get("AS_USER"):
    with kk.ProgramCache(device, os.environ["POCL_CACHE_DIR"] + ".other") as cache:
        for _ in range(2):
            with cache.get(kk.PortableKernel("first", params=[kk.Buffer("x", "f4")], body="x[0] = 1;")) as lease:
                lease.kernel().launch(1, (device.zeros(1, "f4"),))
                device.synchronize()
        cache.trim(0)
        warnings.warn("loads what warnings need", kk.CacheWarning)
    for folder, _, files in os.walk(os.environ["POCL_CACHE_DIR"]):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            os.chmod(path, 0o777)
    os.setgroups([])
    os.setgid(int(os.environ["AS_USER"]))
    os.setuid(int(os.environ["AS_USER"]))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with kk.ProgramCache(device) as cache:
        for name in sys.argv[1:] or ["known"]:
            kernel = kk.PortableKernel(name, params=[kk.Buffer("x", "f4")], body="x[kk_global_id(0)] += 1;", group=64)
            with cache.get(kernel) as lease:
                x = device.zeros(64, "f4")
                lease.kernel().launch(1, (x,))
                assert (x.numpy() == 1).all()
                print(name, lease.origin)
for warning in caught:
    print("warning:", warning.message)
"""


def block(page: str, language: str, number: int = 0) -> str:
    text = (PAGES / page).read_text(encoding="utf-8")
    return str(re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[number])


class Machine:
    """Commands with an empty home, and programs that may become another user."""

    def __init__(self, root: Path, device: str) -> None:
        self.root = root
        (root / "bin").mkdir(parents=True)
        (root / "home").mkdir()
        (root / "app.py").write_text(APP, encoding="utf-8")
        for name, command in {"python": "", "kernelkeep": " -m kernelkeep"}.items():
            script = root / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{command} "$@"\n')
            script.chmod(0o755)
        self.environment = {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(root / "home"),
            "PYTHONPATH": SOURCES,
            "KERNELKEEP_DEVICE": device,
        }

    def run(self, command: str, **environment: str) -> str:
        settings = {**self.environment, **environment}
        if "AS_USER" in environment:
            settings["POCL_CACHE_DIR"] = tempfile.mkdtemp(dir=self.root)
        words = ["bash", "-c", command]
        done = subprocess.run(words, cwd=self.root, env=settings, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def machine(reachable_path: Path, opencl_device: str) -> Machine:
    return Machine(reachable_path, opencl_device)


def test_the_dockerfile_step_by_step(machine: Machine) -> None:
    kernels = machine.root / "opt" / "kernels"
    kernels.parent.mkdir()
    steps = [line.partition(" ") for line in block("docker.md", "dockerfile").splitlines()]
    assert ("ENV", " ", "KERNELKEEP_CACHE_DIR=/opt/kernels") in steps
    (run,) = [rest for word, _, rest in steps if word == "RUN" and not rest.startswith(("apt-get", "pip"))]
    machine.run(run.replace("/opt/kernels", str(kernels)), KERNELKEEP_CACHE_DIR=str(kernels))
    assert steps[-2] == ("USER", " ", "1000")
    if os.geteuid() != 0:
        pytest.skip("becoming the user of the image needs root")
    out = machine.run("python app.py known other", KERNELKEEP_CACHE_DIR=str(kernels), AS_USER="1000")
    assert "known disk" in out and "other compiled" in out
    assert out.count("warning:") == 1 and "they are kept in memory only" in out


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_the_init_container_makes_a_folder_that_is_used(machine: Machine) -> None:
    volume, image = machine.root / "cache", machine.root / "kernels"
    machine.run("python app.py", KERNELKEEP_CACHE_DIR=str(image))
    machine.run(f"chmod -R a+rX,go-w {image}")
    volume.mkdir()
    volume.chmod(0o777)  # as Kubernetes makes an emptyDir
    out = machine.run("python app.py", KERNELKEEP_CACHE_DIR=f"{volume}/kernels", AS_USER="1000")
    assert "known compiled" in out and "may be written to by others (its mode is 0777)" in out
    job = yaml.safe_load(block("kubernetes.md", "yaml", 1))
    (command,) = [container["command"][2] for container in job["spec"]["template"]["spec"]["initContainers"]]
    machine.run(command.replace("/cache", str(volume)).replace("/opt/kernels", str(image)))
    out = machine.run("python app.py known other", KERNELKEEP_CACHE_DIR=f"{volume}/kernels", AS_USER="1000")
    assert out == "known disk\nother compiled\n"
    out = machine.run("python app.py known other", KERNELKEEP_CACHE_DIR=f"{volume}/kernels", AS_USER="1000")
    assert out == "known disk\nother disk\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_folder_that_one_user_fills_for_others(machine: Machine) -> None:
    folder = machine.root / "srv"
    folder.mkdir()
    os.chown(folder, 1001, 1001)
    machine.run("python app.py", KERNELKEEP_CACHE_DIR=str(folder), AS_USER="1001")
    machine.run(f"chmod -R a+rX,go-w {folder}")
    out = machine.run("python app.py", KERNELKEEP_CACHE_DIR=str(folder), AS_USER="1000")
    assert "known compiled" in out and "belongs to user 1001, who is neither this user nor root" in out
    out = machine.run(
        "python app.py", KERNELKEEP_CACHE_DIR=str(folder), AS_USER="1000", KERNELKEEP_TRUSTED_OWNER="1001"
    )
    assert "known disk" in out


def test_the_ranks_of_the_job_script_compile_once(machine: Machine) -> None:
    srun = machine.root / "bin" / "srun"
    srun.write_text('#!/bin/bash\nfor rank in 1 2 3 4; do "$@" & done\nwait\n')
    srun.chmod(0o755)
    shutil.copy(machine.root / "app.py", machine.root / "simulation.py")
    node = machine.root / "node"
    node.mkdir()
    out = machine.run(block("slurm.md", "bash"), SLURM_TMPDIR=str(node))
    assert sorted(out.splitlines()) == ["known compiled", *["known disk"] * 3]
    # Another node: an empty folder, the same store.
    other = machine.root / "other-node"
    other.mkdir()
    out = machine.run(block("slurm.md", "bash"), SLURM_TMPDIR=str(other))
    assert len(out.splitlines()) == 4
    assert set(out.splitlines()) <= {"known disk", "known remote"} and "known remote" in out


def test_a_folder_that_was_packed_and_unpacked_is_warm(machine: Machine) -> None:
    machine.run("python app.py", KERNELKEEP_CACHE_DIR=f"{machine.root}/one")
    with tarfile.open(machine.root / "one.tar", "w") as packed:
        packed.add(machine.root / "one", "two")
    with tarfile.open(machine.root / "one.tar") as packed:
        packed.extractall(machine.root, filter="fully_trusted")
    assert machine.run("python app.py", KERNELKEEP_CACHE_DIR=f"{machine.root}/two") == "known disk\n"


def test_every_yaml_parses_and_names_what_it_should() -> None:
    found: dict[str, list[Any]] = {}
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        found[page.name] = [yaml.safe_load(one) for one in blocks]
    deployment, job = found["kubernetes.md"]
    assert [one["kind"] for one in (deployment, job)] == ["Deployment", "Job"]
    for one in (deployment, job):
        pod = one["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert "fsGroup" not in pod.get("securityContext", {})
    (workflow,) = found["ci.md"]
    (test,) = workflow["jobs"].values()
    assert test["env"]["KERNELKEEP_CACHE_DIR"].endswith("/.kernelkeep")


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_the_commands_and_variables_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    # What stands in code: `kernelkeep stats`, and lines of blocks.
    named = set(re.findall(r"(?:`|^|- run: |sudo -u builder .* )kernelkeep ([a-z-]+)", text, re.MULTILINE))
    assert named <= set(COMMANDS), named - set(COMMANDS)
    settings = (Path(kk.__file__).parent / "settings.py").read_text(encoding="utf-8")
    for variable in set(re.findall(r"\bKERNELKEEP_[A-Z_]+", text)):
        assert variable in settings, variable
