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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kernelkeep as kk
from kernelkeep.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "operations"
SOURCES = str(Path(kk.__file__).parents[1])
# What a user's program does, in one cache folder after the other.
APP = """
import os, pwd, sys, warnings
import kernelkeep as kk
from kernelkeep import settings

def look(device, folder, names, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with kk.ProgramCache(device, folder, **options) as cache:
            for name in names:
                kernel = kk.PortableKernel(name, params=[kk.Buffer("x", "f4")], body="x[kk_global_id(0)] += 1;", group=64)
                with cache.get(kernel) as lease:
                    x = device.zeros(64, "f4")
                    lease.kernel().launch(1, (x,))
                    assert (x.numpy() == 1).all()
                    print(name, lease.origin)
    for warning in caught:
        print("warning:", warning.message)

if __name__ == "__main__":
    look(kk.open_device(), None, ["known"])
"""
# The same as another user. Python's own folder and PoCL's may be root's alone: all is imported, and PoCL has compiled, before the
# process becomes that user.
AS_USER = """
from app import *
device = kk.open_device()
for _ in range(2):
    look(device, os.environ["POCL_CACHE_DIR"] + ".other", ["first"])
for folder, _, files in os.walk(os.environ["POCL_CACHE_DIR"]):
    for path in (folder, *(os.path.join(folder, file) for file in files)):
        os.chmod(path, 0o777)
os.setgroups([])
os.setgid(1000)
os.setuid(1000)
for folder, owner in zip(sys.argv[1::2], sys.argv[2::2]):
    print("--", folder)
    look(device, folder, ["known", "other"], trusted_owner=int(owner) if owner != "-" else None)
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
        (root / "as_user.py").write_text(AS_USER, encoding="utf-8")
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
        words = ["bash", "-c", command]
        done = subprocess.run(words, cwd=self.root, env=settings, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def machine(opencl_device: str) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="kernelkeep-test-") as folder:
        Path(folder).chmod(0o711)  # other users can walk down to it
        yield Machine(Path(folder), opencl_device)


@pytest.fixture(scope="module")
def image(machine: Machine) -> Path:
    """The folder of programs that the Dockerfile makes, step by step."""
    kernels = machine.root / "opt" / "kernels"
    kernels.parent.mkdir()
    steps = [line.partition(" ") for line in block("docker.md", "dockerfile").replace("\\\n", "").splitlines()]
    assert ("ENV", " ", "KERNELKEEP_CACHE_DIR=/opt/kernels") in steps and steps[-2] == ("USER", " ", "1000")
    (run,) = [rest for word, _, rest in steps if word == "RUN" and not rest.startswith("apt-get") and "pip" not in rest]
    out = machine.run(run.replace("/opt/kernels", str(kernels)), KERNELKEEP_CACHE_DIR=str(kernels))
    assert "known compiled" in out
    return kernels


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_folders_as_another_user_finds_them(machine: Machine, image: Path) -> None:
    """The image's, an emptyDir of Kubernetes without and with the init container, and that of a user who fills it for others."""
    shared, volume, theirs = machine.root / "shared", machine.root / "cache", machine.root / "theirs"
    for folder in (shared, volume):
        folder.mkdir()
        folder.chmod(0o777)  # as Kubernetes makes an emptyDir
    job = yaml.safe_load(block("kubernetes.md", "yaml", 1))
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    shell, option, script = container["command"]
    script = script.replace("/cache", str(volume)).replace("/opt/kernels", str(image))
    machine.run(f"{shell} {option} {shlex.quote(script)}")
    machine.run(f"cp -r {image} {theirs} && chown -R 1001 {theirs}")
    looked = [
        (image, "-"),
        (shared / "kernels", "-"),
        *[(volume / "kernels", "-")] * 2,
        (theirs, "-"),
        (theirs, "1001"),
    ]
    words = " ".join(f"{folder} {owner}" for folder, owner in looked)
    out = machine.run(f"python as_user.py {words}", POCL_CACHE_DIR=tempfile.mkdtemp(dir=machine.root))
    found = [part.splitlines()[1:] for part in out.split("-- ")[1:]]
    in_image, in_shared, first, second, untrusted, trusted = found
    assert in_image[:2] == ["known disk", "other compiled"] and len(in_image) == 3
    assert "they are kept in memory only" in in_image[2]
    assert in_shared[:2] == ["known compiled", "other compiled"]
    assert "may be written to by others (its mode is 0777)" in in_shared[2]
    assert (first, second) == (["known disk", "other compiled"], ["known disk", "other disk"])
    assert untrusted[:2] == ["known compiled", "other compiled"]
    assert "belongs to user 1001, who is neither this user nor root" in untrusted[2]
    assert trusted[:2] == ["known disk", "other compiled"]


def test_the_ranks_of_the_job_script_compile_once(machine: Machine) -> None:
    srun = machine.root / "bin" / "srun"
    shutil.copy(machine.root / "app.py", machine.root / "simulation.py")
    # Two nodes, one after the other: each has an empty folder, and both the same store.
    for node, ranks, expected in (("one", 3, "known compiled"), ("two", 2, "known remote")):
        srun.write_text(f'#!/bin/bash\nfor rank in $(seq {ranks}); do "$@" & done\nwait\n')
        srun.chmod(0o755)
        (machine.root / node).mkdir()
        lines = machine.run(block("slurm.md", "bash"), SLURM_TMPDIR=str(machine.root / node)).splitlines()
        assert len(lines) == ranks and expected in lines
        assert lines.count("known compiled") == (node == "one")


def test_a_folder_that_was_packed_and_unpacked_is_warm(machine: Machine, image: Path) -> None:
    packed = machine.root / "kernels.tar"
    with tarfile.open(packed, "w") as file:
        file.add(image, "unpacked")
    with tarfile.open(packed) as file:
        file.extractall(machine.root, filter="fully_trusted")
    assert machine.run("python app.py", KERNELKEEP_CACHE_DIR=f"{machine.root}/unpacked") == "known disk\n"


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
