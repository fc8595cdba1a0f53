"""The README's Python runs as it is printed, block after block in one session, as a reader would type it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

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
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        # Blank lines in front make a traceback point into the README.
        exec(compile("\n" * line + block.group(1), "README.md", "exec"), session)


def test_the_readme_names_the_commands_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the README says `make {target}`"
