"""Signals while PoCL compiles and links: this process gets them, and PoCL's compiler and linker are not disturbed.

Each case runs in a process of its own, because PoCL, where it is not kept from it, replaces the handlers or ends the process.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from kernelkeep.testing import run_python

pytestmark = pytest.mark.opencl

START = """
import os, signal, sys, threading, time
import numpy as np
import kernelkeep as kk
def source(value=5):
    return kk.Source(f"__kernel void f(__global int* y) {{ y[get_global_id(0)] = {value}; }}", name="f")
"""
# A linker that is sent signals, as all processes of a terminal are.
LINKER = """#!{python} -IS
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
for number in ({signals}):
    os.kill(os.getpid(), number)
os.execv({linker!r}, sys.argv)
"""


def _path_with_signalled_linker(folder: Path, *signals: str) -> str:
    linker = folder / "ld"
    names = "".join(f"signal.{name}, " for name in signals)
    linker.write_text(LINKER.format(python=sys.executable, signals=names, linker=shutil.which("ld")))
    linker.chmod(0o700)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_signal_handlers_stay_installed(pocl: str, tmp_path: Path) -> None:
    script = START + (
        "numbers = [signal.SIGUSR1, signal.SIGQUIT, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR2]\n"
        "came = []\n"
        "for number in numbers:\n"
        "    signal.signal(number, lambda number, frame: came.append(number))\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "device = kk.open_device(sys.argv[1], cache_dir=sys.argv[2])\n"
        "assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked\n"
        "device.build(source())\n"
        "for number in numbers * 2:\n"
        "    os.kill(os.getpid(), number)\n"
        "assert came == numbers * 2, came\n"
    )
    assert run_python(script, pocl, tmp_path).stderr == ""


def test_programs_compile_while_signals_come(pocl: str, tmp_path: Path) -> None:
    script = START + (
        "came = []\n"
        "signal.signal(signal.SIGINT, lambda number, frame: came.append(number))\n"
        "device = kk.open_device(sys.argv[1], cache_dir=sys.argv[2])\n"
        "built = []\n"
        "thread = threading.Thread(target=lambda: built.extend(device.build(source(value)) for value in range(5)))\n"
        "thread.start()\n"
        "while thread.is_alive():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.01)\n"
        "print(len(built), len(came) > 5)\n"
    )
    done = run_python(script, pocl, tmp_path)
    assert (done.stdout, done.stderr) == ("5 True\n", "")


def test_a_signal_to_the_linker_does_not_fail_a_launch(pocl: str, tmp_path: Path) -> None:
    script = START + (
        "device = kk.open_device(sys.argv[1], cache_dir=sys.argv[2])\n"
        "y = device.array(np.zeros(16, 'i4'))\n"
        "device.build(source()).kernel().launch(2, (y,), 8)\n"
        "print('right' if (y.numpy() == 5).all() else 'wrong')\n"
    )
    path = _path_with_signalled_linker(tmp_path, "SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1")
    done = run_python(script, pocl, tmp_path, environment={"PATH": path})
    assert (done.stdout, done.stderr) == ("right\n", "")


def test_a_signal_to_the_linker_does_not_fail_a_binary(pocl: str, tmp_path: Path) -> None:
    script = START + (
        "signal.signal(signal.SIGTERM, lambda number, frame: None)\n"
        "device = kk.open_device(sys.argv[1], cache_dir=sys.argv[2])\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "device.compile(source())\n"
        "assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked\n"
    )
    path = _path_with_signalled_linker(tmp_path, "SIGINT", "SIGTERM")  # those that Python handles there
    assert run_python(script, pocl, tmp_path, environment={"PATH": path}).stderr == ""
