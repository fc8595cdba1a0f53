"""kernelkeep as Windows and macOS see it, on Linux: `stand_in/sitecustomize.py` says what is changed and what is not.

None of this ran on those systems. It shows that nothing asks for a module or a function that they lack, and that the files of a
cache and of a checkpoint live with Windows' rules for open files, names and locks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kernelkeep.processes import python_environment

STAND_IN = Path(__file__).parent / "stand_in"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="another system stands in for Linux")


class Machine:
    """Processes that believe to be on another system, and the folder whose files behave as they do there."""

    def __init__(self, platform: str, folder: Path) -> None:
        self.platform = platform
        self.folder = folder / "root"
        for needed in (self.folder, folder / "processes"):
            needed.mkdir()
        variables = {**os.environ, "KERNELKEEP_STAND_IN": platform, "KERNELKEEP_STAND_IN_ROOT": str(self.folder)}
        self._environment = python_environment({**variables, "PYTHONPATH": str(STAND_IN)})

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def step(self, *arguments: object) -> subprocess.Popen[str]:
        return self.start(STAND_IN / "scenario.py", *arguments)

    def run(self, *arguments: object) -> list[str]:
        return finish(self.step(*arguments))

    def python(self, code: str) -> list[str]:
        return finish(self.start("-c", code))


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, f"{out}{errors}"
    return out.splitlines()


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[None]:
    with process:
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(params=["win32", "darwin"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(request.param, tmp_path)


@pytest.fixture
def windows(tmp_path: Path) -> Machine:
    return Machine("win32", tmp_path)


def heat(iterations: int) -> str:
    """What the program of `scenario.py` computes."""
    u = np.linspace(0, 1, 32, dtype="f4")
    for _ in range(iterations):
        new = u.copy()
        new[1:-1] = u[1:-1] + np.float32(0.25) * (u[:-2] - 2 * u[1:-1] + u[2:] + np.float32(0.5))
        u = new
    return u.tobytes().hex()


def test_every_module_is_imported(machine: Machine) -> None:
    name, count = machine.run("imports")[0].split()
    assert name == ("windows" if machine.platform == "win32" else "posix")
    assert int(count) > 500


def test_missing_drivers_are_said_to_be_missing(machine: Machine) -> None:
    opengl, cuda, hip = machine.run("absent", "opengl", "cuda:7", "hip")
    assert opengl.startswith("opengl DeviceError OpenGL is used through EGL, and only on Linux") and "webgpu" in opengl
    assert cuda.startswith("cuda:7 DeviceError")
    assert hip.startswith("hip DeviceError")


def test_a_second_process_finds_the_program(machine: Machine) -> None:
    cache = machine.folder / "cache"
    assert machine.run("program", cache) == ["compiled", "True", "1"]
    assert machine.run("program", cache) == ["disk", "True", "1"]
    assert machine.run("clear", cache) == ["0"]


def test_locks_exclude_other_processes(machine: Machine) -> None:
    """Three processes count in a file in two steps, and append to another; no number and no line is lost."""
    counting = [machine.step("count", machine.folder, 40) for _ in range(3)]
    for process in counting:
        finish(process)
    assert (machine.folder / "number").read_text() == "120"
    lines = (machine.folder / "lines").read_text().splitlines()
    assert sorted(lines) == sorted(str(process.pid) for process in counting for _ in range(40))
    assert not list((machine.folder / "locks").iterdir()), "a released lock leaves no file"


def test_a_lock_ends_with_its_holder(machine: Machine) -> None:
    code = f"""
from pathlib import Path
from kernelkeep.storage.locks import FileLock, LockHeld, hold_for_life, unless_held
alone, shared = (Path({str(machine.folder)!r}, name) for name in ("alone.lock", "shared.lock"))
try:
    FileLock(alone).acquire(0.05)
    print("free")
except LockHeld:
    print("held with the note", FileLock(alone).note())
let_go = hold_for_life(shared)  # several may share it
for _ in range(2):
    with unless_held(shared) as idle:
        print("idle" if idle else "shared")
    let_go()
"""
    holder = machine.step("hold", machine.folder)
    with killed(holder):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert machine.python(code) == ["held with the note mine", "shared", "shared"]
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert machine.python(code) == ["free", "shared", "idle"]


def test_a_run_goes_on_from_its_checkpoint(machine: Machine) -> None:
    """The second run finds the file open in another program when it first wants to replace it."""
    assert machine.run("advance", machine.folder, 3) == [f"None {heat(3)}", "refused 0"]
    again = machine.run("advance", machine.folder, 6, "reader")
    refused = 1 if machine.platform == "win32" else 0
    assert again == [f"{machine.folder / 'heat.kkpt'} at iteration 3 {heat(6)}", f"refused {refused}"]


def test_a_worker_that_dies_is_replaced(machine: Machine) -> None:
    (said,) = machine.run("supervised", machine.folder)
    assert said == f"1 {heat(4)}"


def test_a_worker_ends_with_its_parent(machine: Machine) -> None:
    code = '''
import os, subprocess, sys, time
child = """
import sys, time
from kernelkeep.processes import end_with
end_with(int(sys.argv[1]))
print(1, flush=True)
time.sleep(600)
"""
process = subprocess.Popen([sys.executable, "-c", child, str(os.getpid())], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid)
'''
    (child,) = machine.python(code)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline, "the child outlives its parent"
        time.sleep(0.05)


def test_a_shared_folder_needs_a_key_where_nothing_says_who_may_write_to_it(windows: Machine) -> None:
    code = f"""
import kernelkeep as kk
with kk.open_device("reference") as device:
    try:
        kk.ProgramCache(device, {str(windows.folder / "cache")!r}, remote={(windows.folder / "shared").as_uri()!r})
    except kk.ArgumentError as error:
        print("allow_unsigned=True" in str(error))
"""
    assert windows.python(code) == ["True"]


def test_paths_are_short_enough(windows: Machine) -> None:
    """With a user's name of 20 letters, the most that Windows allows."""
    code = """
from pathlib import PureWindowsPath
from kernelkeep.cache.entry_files import slug
from kernelkeep.devices.fingerprint import Fingerprint
long = "long " * 50
folder = PureWindowsPath("C:/Users", 20 * "u", "AppData/Local/kernelkeep/Cache", Fingerprint("reference", *[long] * 5).folder)
print(len(str(folder / "programs" / "abc" / f"{slug(long)}-{64 * 'd'}.meta")))
"""
    (length,) = windows.python(code)
    assert int(length) < 260


def test_tuning_needs_no_worker_process(windows: Machine) -> None:
    assert windows.run("tune", windows.folder) == ["2 measured"]


def test_the_stand_in_has_the_rules_of_windows(windows: Machine) -> None:
    """Guards the tests above against passing because nothing is refused."""
    code = f"""
import os, types
from pathlib import Path

folder = Path({str(windows.folder)!r})
code = '''
import os, sys
print(sys.platform, hasattr(os, "register_at_fork"), hasattr(os, "O_BINARY"))
def refused(work):
    try:
        work()
    except (OSError, ImportError, AssertionError) as error:
        print(type(error).__name__)
    else:
        print("allowed")
def fcntl():
    import fcntl
refused(fcntl)
refused(lambda: os.open(folder / "text", os.O_CREAT))
refused(lambda: (folder / "a:b").mkdir())
refused(lambda: os.kill(os.getpid(), 0))
(folder / "old").touch()
with (folder / "new").open("w"):
    refused((folder / "new").unlink)
    refused(lambda: (folder / "old").replace(folder / "new"))
refused((folder / "new").unlink)
'''
exec(code, dict(__name__="kernelkeep.example", folder=folder))
"""
    assert windows.python(code) == [
        "win32 False True",
        "ModuleNotFoundError",
        "AssertionError",
        "OSError",
        "AssertionError",
        "PermissionError",
        "PermissionError",
        "allowed",
    ]
