"""The Python in README.md and in every page of docs/ runs as it is printed, block after block in one process."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import kernelkeep as kk
from kernelkeep.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs_programs = _load(ROOT / "scripts" / "docs_programs.py")
PAGES: dict[str, Path] = {docs_programs.name_of(page): page for page in docs_programs.pages()}

# The guide's pages run on several devices, and print this, on however slow a machine.
SAYS = {
    "security.md": "kernelkeep-ed25519 ",
    "kernels.md": " µs",
    "python-kernels.md": "20 iterations, 1.000 left\n",
    "executor.md": " µs of upload",
    "continuous.md": " iterations",
    "variants.md": "expected: ",
    "resident.md": "0 tasks run again",
    "fleet.md": "warm: 4 of 4 done by 2 processes of this machine",
    "one-compile.md": "1\n0\n",
    "language.md": "error 2 9 unknown name nn; did you mean n?\nkernel scale, line 2: unknown name nn",
    "reference-device.md": "(2, 0, 0) {'i': 2, 'v': 4.0}\n",
    "remote.md": "first compiled\nsecond remote\n",
}
FOR_INTERPRETERS = ("one-compile.md", "python-kernels.md", "reference-device.md")  # the others compute too much
PLAIN_PYOPENCL = str(ROOT / "tests" / "end_to_end" / "plain_pyopencl.py")
BEGINS_WITH_PYOPENCL = {"bring/pyopencl.md"}
ELSEWHERE = {  # pages that a test of their own runs
    "ahead-of-time.md": "test_ahead_of_time.py",
    **dict.fromkeys(
        (f"tutorials/{name}.md" for name in ("fleet", "pipeline", "resident", "simulation", "tuning")),
        "test_tutorials.py",
    ),
    "write-a-backend.md": "test_write_a_backend.py",
}
INTERPRETED = {  # pages with so little work that compiling it for a driver takes longer than interpreting it
    "how/read-a-checkpoint.md",
    "how/stop-a-run.md",
    "how/survive-a-crash.md",
}
# All others run once, on an OpenCL device.
SHORT = sorted(set(PAGES) - set(SAYS) - set(ELSEWHERE) - {"start.md"})


def run_page(page: str, device: str, folder: Path, cache_dir: Path) -> str:
    """What a page prints: its program, then those of the files that it tells its reader to make which can be run."""
    folder.mkdir(exist_ok=True)
    backends = {info.backend for info in kk.list_devices()}
    files = docs_programs.files_of(PAGES[page])
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    runs = [name for name, text in files.items() if 'if __name__ == "__main__":' in text]
    if program := docs_programs.program_of(PAGES[page], backends):
        runs.insert(0, f"{Path(page).stem}.md.py")
        (folder / runs[0]).write_text(program, encoding="utf-8")
    environment = {
        **os.environ,
        "KERNELKEEP_DEVICE": device,
        "KERNELKEEP_CACHE_DIR": str(cache_dir),
        "PYTHONPATH": str(Path(kk.__file__).parents[1]),
    }
    said = ""
    for name in runs:
        command = [sys.executable, *([PLAIN_PYOPENCL] if page in BEGINS_WITH_PYOPENCL else []), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder)
        assert done.returncode == 0, f"{page} on {device}: {done.stderr}"
        said += done.stdout
    return said


@pytest.mark.parametrize("page", SAYS)
def test_a_page_of_the_guide_runs(page: str, devices_for: Callable[[int], list[str]], tmp_path: Path) -> None:
    interpreters = [info.spec for info in kk.list_devices() if info.is_interpreter and page in FOR_INTERPRETERS]
    for spec in [*devices_for(list(SAYS).index(page)), *interpreters]:
        # A folder for each: a run refuses the checkpoint of another.
        assert SAYS[page] in run_page(page, spec, tmp_path / spec.replace(":", "-"), tmp_path / "cache")


@pytest.mark.parametrize("page", SHORT)
def test_a_page_runs(page: str, opencl_device: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    # One cache for all: pages use the same kernels.
    device = "reference" if page in INTERPRETED else opencl_device
    run_page(page, device, tmp_path, tmp_path_factory.getbasetemp() / "pages-cache")


def test_pages_with_tests_of_their_own_have_them() -> None:
    for page, test in ELSEWHERE.items():
        assert page in (ROOT / "tests" / "end_to_end" / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "CONTRIBUTING.md"])
def test_the_targets_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page} says `make {target}`"


def test_the_start_is_compiled_once(opencl_device: str, tmp_path: Path) -> None:
    for origin in ("compiled", "disk"):
        assert run_page("start.md", opencl_device, tmp_path / origin, tmp_path / "cache") == f"{origin} [1. 3. 5.]\n"
    assert docs_programs.files_of(PAGES["start.md"]) == docs_programs.files_of(PAGES["README.md"])


def test_the_page_of_the_command_line_has_every_command() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    named = set(re.findall(r"kernelkeep ([a-z][a-z-]*)", text))
    assert named == set(COMMANDS), "docs/command-line.md and `kernelkeep --help` differ"


def test_the_readme_names_every_command_and_fits_two_screens() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z-]+", text.partition("`kernelkeep COMMAND`:")[2].partition(".")[0]))
    assert words >= set(COMMANDS), "the README and `kernelkeep --help` differ"
    assert len(text.splitlines()) <= 110
