"""The Python in the README and in the pages of docs/ named below runs as it is printed, block after block in one session."""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_python_in_the_readme_runs(opencl_device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELKEEP_DEVICE", opencl_device)
    monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks, "the README has no Python"
    session: dict[str, Any] = {"__name__": "readme"}
    # As a notebook does it: kernels in Python need their text.
    linecache.cache["README.md"] = (len(text), None, text.splitlines(True), "README.md")
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        # Blank lines in front make a traceback point into the README.
        exec(compile("\n" * line + block.group(1), "README.md", "exec"), session)


# What each page prints, on however slow a machine.
_SAYS = {
    "security.md": "kernelkeep-ed25519 ",
    "kernels.md": " µs",
    "python-kernels.md": "20 iterations, 1.000 left\n",
    "executor.md": " µs of upload",
    "continuous.md": " iterations",
    "variants.md": " µs: ",
    "resident.md": "0 tasks run again",
    "fleet.md": "warm: 4 of 4 done by 2 processes of this machine",
    "one-compile.md": "1\n0\n",
    "language.md": "error 2 9 unknown name nn; did you mean n?\nkernel scale, line 2: unknown name nn",
    "reference-device.md": "(2, 0, 0) {'i': 2, 'v': 4.0}\n",
    "remote.md": "first compiled\nsecond remote\n",
}
_FOR_INTERPRETERS = ("one-compile.md", "python-kernels.md", "reference-device.md")  # the others compute too much


@pytest.mark.parametrize("page", _SAYS)
def test_the_python_in_the_docs_runs(page: str, devices_for: Callable[[int], list[str]], tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    script = ""
    for block in BLOCK.finditer(text):
        # Each block on the lines it has in the page, which a traceback then names.
        script += "\n" * (text[: block.start(1)].count("\n") - script.count("\n")) + block.group(1)
    file = tmp_path / f"{page}.py"
    file.write_text(script, encoding="utf-8")
    interpreters = [info.spec for info in kk.list_devices() if info.is_interpreter and page in _FOR_INTERPRETERS]
    for spec in [*devices_for(list(_SAYS).index(page)), *interpreters]:
        environment = {
            **os.environ,
            "KERNELKEEP_DEVICE": spec,
            "KERNELKEEP_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONPATH": str(Path(kk.__file__).parents[1]),
        }
        command = [sys.executable, str(file)]
        folder = tmp_path / spec.replace(":", "-")  # a run refuses the checkpoint of another
        folder.mkdir()
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder)
        assert done.returncode == 0, f"{spec}: {done.stderr}"
        assert _SAYS[page] in done.stdout


def test_the_readme_names_the_commands_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the README says `make {target}`"
