"""What IPython shows of our errors, in a real IPython shell in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.tracebacks import users_frames

needs_ipython = pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
for cell in sys.argv[1:]:
    shell.run_cell(cell, store_history=True)
    print("=" * 20)
"""

KERNEL = '''import kernelkeep as kk
kernel = kk.PortableKernel("broken", [kk.Buffer("y", "f4")], """int i = kk_global_id(0);
y[i] = wrong * 2.0f;""")
def text():
    return kernel.source("opencl").text
text()'''

IN_PYTHON = """@kk.kernel
def scale(y: kk.InOut["f4"]):
    y[kk.global_id(0)] *= wrong
scale.source("opencl").text"""


def shown(*cells: str) -> list[str]:
    """What IPython prints for each cell."""
    command = [sys.executable, "-c", SHELL, *cells]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout.split("=" * 20)


def test_the_users_frames_are_those_outside_kernelkeep() -> None:
    def ask() -> None:
        kk.PortableKernel("broken", [], "wrong;").source("opencl").text  # noqa: B018

    with pytest.raises(kk.CompileError) as caught:
        ask()
    kept, hidden = users_frames(caught.value.__traceback__)
    names = [one.tb_frame.f_code.co_name for one in kept]
    assert names == ["test_the_users_frames_are_those_outside_kernelkeep", "ask"]
    assert hidden == len(traceback.extract_tb(caught.value.__traceback__)) - 2
    assert len(users_frames(caught.value.__traceback__, skip=1)[0]) == 1


def test_a_users_function_below_a_call_of_ours_is_shown() -> None:
    def functions(language: object) -> str:
        raise kk.ArgumentError("from below")

    with pytest.raises(kk.ArgumentError) as caught:
        kk.PortableKernel("k", [], "", functions=functions).source("opencl").text  # noqa: B018
    kept, hidden = users_frames(caught.value.__traceback__)
    assert kept[-1].tb_frame.f_code.co_name == "functions"
    assert hidden


def test_python_itself_shows_every_frame(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100)
    assert "problems.py" in done.stderr
    assert "left out" not in done.stderr


@needs_ipython
def test_ipython_shows_the_way_to_the_call_and_the_line() -> None:
    first, again, verbose, *_ = shown(KERNEL, "%tb", "%tb verbose")
    lines = first.splitlines()
    assert len(lines) < 25
    assert "----> 6 text()" in lines
    assert '----> 5     return kernel.source("opencl").text' in lines
    at = lines.index("CompileError: kernel broken, line 2: unknown name wrong")
    assert lines[at + 1 : at + 3] == ["    y[i] = wrong * 2.0f;", "           ^"]
    assert "calls inside kernelkeep left out; %tb shows all)" in first
    assert "problems.py" not in first and "functools.py" not in first
    for whole in (again, verbose):
        assert "problems.py" in whole and "left out" not in whole


@needs_ipython
def test_a_kernel_in_a_cell_is_found_and_its_cell_is_named() -> None:
    _, error = shown("import kernelkeep as kk", IN_PYTHON)[:2]
    assert "kernel scale in Cell In[2], line 3: unknown name wrong" in error
    assert "        y[kk.global_id(0)] *= wrong" in error


@needs_ipython
def test_a_chosen_mode_is_kept() -> None:
    minimal = shown("%xmode Minimal", KERNEL)[1]
    assert "CompileError: kernel broken" in minimal and "----> 6" not in minimal
    whole = shown("%xmode Verbose", KERNEL)[1]
    assert "problems.py" in whole


@needs_ipython
def test_the_reason_is_shown_only_where_the_user_raised_it() -> None:
    from_user = """import kernelkeep as kk
try:
    1 / 0
except ZeroDivisionError as error:
    kk.open_device("no such device")"""
    inside = """class Odd:
    def __getattr__(self, name): raise KeyError(name)
kk.open_device("opencl").array(object())"""
    theirs, ours = shown(from_user, inside)[:2]
    assert "ZeroDivisionError" in theirs and "ArgumentError" in theirs
    assert ours.count("Traceback (most recent call last)") == 1
