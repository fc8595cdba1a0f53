"""Triton on a bad day: the process that compiles is killed, or its files have no room or cannot be run where they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from .conftest import Guest, needs
from .test_triton import KERNEL, ON, PROGRAM

# Triton compiles, and hangs.
HANGS = (
    KERNEL
    + """
import pathlib, time
def hang(*args, **settings):
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(600)
ASTSource.make_ir = hang
triton.compile(make_source(int(sys.argv[1])), target=target)
"""
)


@needs("triton")
def test_when_the_process_that_compiles_is_killed_one_of_those_that_wait_compiles(guest: Guest) -> None:
    compiling = guest.folder / "compiling"
    first = guest.start(HANGS, "64", str(compiling), **ON)
    try:
        while not compiling.exists():
            assert first.poll() is None, first.communicate()[1]
            time.sleep(0.01)
        others = [guest.start(PROGRAM, "64", **ON) for _ in range(2)]
    finally:
        first.kill()
    said = [child.communicate(timeout=300)[0].strip() for child in others]
    first.communicate()
    assert sorted(said) == ["compiled", "found"]


# A launcher is a module in C that Triton writes through its cache and imports at once. Here it is one that is installed.
LAUNCHER = """
import msgspec._core, triton
from triton.runtime import build
def ready(name, src, folder, *args, **settings):
    return msgspec._core.__file__
build._build = ready
for _ in range(2):
    print(build.compile_module_from_src("source", "_core").__name__)
"""


@needs("triton")
@pytest.mark.parametrize("options", ["noexec", "size=64k"], ids=["a container's memory", "little memory"])
def test_triton_loads_its_launcher_where_memory_runs_nothing_or_is_full(guest: Guest, options: str) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs /dev/shm"
    inside = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$@"']  # seen by this process only
    if (
        shutil.which("unshare") is None
        or subprocess.run([*inside, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("A SMALL OR RESTRICTED /dev/shm IS NOT TESTED: only root can mount one")
    done = subprocess.run(
        [*inside, sys.executable, "-W", "ignore", "-c", LAUNCHER],
        env=guest.environment(**ON),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == ["msgspec._core"] * 2, done.stderr
