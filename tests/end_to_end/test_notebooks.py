"""Notebooks, run by a real Jupyter kernel: the tour, kernels that are defined in cells, and what errors show."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelkeep

needs_jupyter = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("ipykernel", "nbclient", "nbformat")),
    reason="ipykernel, nbclient or nbformat is not installed",
)
TOUR = Path(__file__).parents[2] / "examples" / "tour.ipynb"
# In a process of its own: sockets and event loops of Jupyter stay out of this one.
RUN = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=200, allow_errors=sys.argv[3] == "errors").execute()
nbformat.write(notebook, sys.argv[2])
"""


def executed(path: Path, folder: Path, *, errors: bool = False) -> list[dict[str, Any]]:
    """The code cells of a notebook that was run on PoCL."""
    done = folder / "done.ipynb"
    here = str(Path(kernelkeep.__file__).parents[1])
    environment = os.environ | {
        "PYTHONPATH": here,
        "KERNELKEEP_DEVICE": "opencl",
        "KERNELKEEP_CACHE_DIR": str(folder / "cache"),
        "IPYTHONDIR": str(folder / "ipython"),  # nobody's own settings
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    command = [sys.executable, "-c", RUN, str(path), str(done), "errors" if errors else "-"]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stderr[-3000:]
    cells = json.loads(done.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def notebook_of(folder: Path, *sources: str) -> Path:
    """A notebook with these code cells."""
    path = folder / "made.ipynb"
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
        for i, text in enumerate(sources)
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")
    return path


def shown(cell: dict[str, Any], kind: str = "text/plain") -> str:
    """The result of a cell in one form; "" where there is none. A bar of progress is not a result."""
    found = [output["data"].get(kind, "") for output in cell["outputs"] if output["output_type"] == "execute_result"]
    return "".join("".join(part) for part in found)


def error_of(cell: dict[str, Any]) -> str:
    """What a cell shows of its error, without colours."""
    [output] = [output for output in cell["outputs"] if output["output_type"] == "error"]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"]))


def test_the_tour_is_kept_without_outputs() -> None:
    for cell in json.loads(TOUR.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


@needs_jupyter
@pytest.mark.opencl
@pytest.mark.slow
def test_the_tour_runs_and_shows_pictures(tmp_path: Path) -> None:
    cells = executed(TOUR, tmp_path)
    by_end = {"".join(cell["source"]).splitlines()[-1]: cell for cell in cells}
    for last_line, words in {
        "kk.list_devices()": "the best first",
        "device": "capabilities",
        "saxpy": "portable kernel in Python",
        "kk.check(saxpy)": "no mistakes",
        "cache.stats()": "80% of 5 lookups needed no compiler",
        "cache.explain(saxpy)": "which differs in",
        "run.report": "iterations in a second",
        'kk.read_checkpoint(f"{folder.name}/heat.kkpt")': "50,000",
        'blur.tune(cache, {"n": 100_000}, budget_seconds=60, progress=True)': "fastest time in each cell",
        'blur.select(cache, {"n": 120_000})': "nearest",
        "executor.timeline": "12 batches",
    }.items():
        html = shown(by_end[last_line], "text/html")
        assert words in html, (last_line, html[-2000:])
        assert html.startswith('<div class="kk">'), last_line
    for pictured in ("run.report", "executor.timeline"):
        assert "<svg" in shown(by_end[pictured], "text/html")
    error = error_of(by_end["cache.get(root)"])
    assert len(error.splitlines()) < 20
    assert "in Cell In[8], line 5" in error and "y[i] = kk.sqroot(y[i])" in error and "did you mean sqrt" in error


@needs_jupyter
@pytest.mark.opencl
def test_kernels_in_cells(tmp_path: Path) -> None:
    cells = executed(
        notebook_of(
            tmp_path,
            "import numpy as np, kernelkeep as kk\ndevice = kk.open_device()\ncache = kk.ProgramCache(device)",
            "FACTOR = 3.0\n\n@kk.function\ndef scaled(v: kk.f4) -> kk.f4:\n    return v * FACTOR",
            "@kk.kernel(group=64)\ndef fill(y: kk.Out[kk.f4]):\n    y[kk.global_id(0)] = scaled(kk.f4(kk.global_id(0)))",
            "y = device.empty(64, 'f4')\n\ndef values():\n    with cache.get(fill) as lease:\n"
            "        lease.kernel('fill').launch(grid=1, args=(y,))\n    return y.numpy()[:3].tolist(), lease.origin\nvalues()",
            # The same name with another body is another kernel.
            "@kk.kernel(group=64)\ndef fill(y: kk.Out[kk.f4]):\n    y[kk.global_id(0)] = scaled(1.0)",
            "values()",
            "def body(u, u_next):\n    i = kk.item()\n    u_next[i] = u[i] + 1.0",
            "program = kk.StateProgram('count', coupling='independent', items=8, state={'u': np.zeros(8, 'f4')}, body=body)\n"
            "kk.run(cache, program, iterations=5).state['u'].numpy().tolist()",
            "def wrong(u, u_next):\n    u_next[kk.item()] = u[kk.item()] + missing",
            "kk.check(kk.StateProgram('w', coupling='independent', items=8, state={'u': np.zeros(8, 'f4')}, body=wrong))",
        ),
        tmp_path,
    )
    assert shown(cells[3]) == "([0.0, 3.0, 6.0], 'compiled')"
    assert shown(cells[5]) == "([3.0, 3.0, 3.0], 'compiled')"
    assert shown(cells[7]) == str([5.0] * 8)
    assert "unknown name missing" in shown(cells[9]) and "+ missing" in shown(cells[9], "text/html")


@needs_jupyter
def test_errors_are_short_and_tb_shows_all(tmp_path: Path) -> None:
    cells = executed(
        notebook_of(
            tmp_path,
            "import kernelkeep as kk\ndevice = kk.open_device('reference')",
            "def ask():\n    return device.empty(-1, 'f4')\nask()",
            "%tb",
            "await device.build(kk.PortableKernel('k', [], 'wrong;'))",
            "kk.PortableKernel('d', [kk.Buffer('y', 'f4')], 'double z = 1.0;\\ny[0] = z;').source('wgsl').text",
            "1 / 0",
        ),
        tmp_path,
        errors=True,
    )
    short, whole, compiled, unsupported, other = (error_of(cell) for cell in cells[1:])
    assert "return device.empty(-1, 'f4')" in short and "ask()" in short and "parse_shape" not in short
    assert "calls inside kernelkeep left out" in short
    assert "parse_shape" in whole and "left out" not in whole
    assert "unknown name wrong" in compiled and len(compiled.splitlines()) < 14
    assert "line 1: WGSL has no type double\n    double z = 1.0;\n           ^" in unsupported
    assert "ZeroDivisionError" in other and "left out" not in other
