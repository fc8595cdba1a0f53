"""PoCL's own folder on a disk that is full or read-only, and a process without file descriptors: an error, never the end.

Each case runs in a process of its own, because PoCL, where it is not kept from it, ends the process.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelkeep.cache.upkeep import survey_root
from kernelkeep.devices.opencl import pocl_folder
from kernelkeep.testing import run_python

pytestmark = pytest.mark.opencl

START = """
import os, sys
from pathlib import Path
import numpy as np
import kernelkeep as kk
from kernelkeep.devices.opencl.pocl_folder import folder_in_use
source = kk.Source("__kernel void f(__global int* y) { y[get_global_id(0)] = 5; }", name="f")
device = kk.open_device(sys.argv[1])
def attempt(work):
    try:
        return work()
    except kk.KernelKeepError as error:
        print(type(error).__name__, error)
def fill(folder):
    with open(Path(folder) / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError as error:
            pass
def build():
    return device.load(device.compile(source))
def run(program, group=8):
    y = device.array(np.zeros(16, "i4"))
    program.kernel().launch(16 // group, (y,), group)
    print("right" if (y.numpy() == 5).all() else "wrong")
"""


@pytest.fixture
def new_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes file systems of their own, with these options for mount."""
    places: list[Path] = []

    def make(options: str) -> Path:
        place = tmp_path / f"disk{len(places)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"FULL AND READ-ONLY DISKS NOT TESTED: mount said {mounted.stderr.strip()}")
        places.append(place)
        return place

    yield make
    for place in places:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _surroundings(home: Path, temporary: Path) -> dict[str, str]:
    """A home without any setting that would lead elsewhere."""
    temporary.mkdir(exist_ok=True)
    return {"HOME": str(home), "XDG_CACHE_HOME": "", "KERNELKEEP_CACHE_DIR": "", "TMPDIR": str(temporary)}


@pytest.mark.parametrize("options", ["size=64k", "size=64k,ro"])
def test_pocl_works_with_a_full_or_read_only_home(
    pocl: str, new_disk: Callable[[str], Path], tmp_path: Path, options: str
) -> None:
    home = new_disk(options)
    if not options.endswith("ro"):
        (home / "filler").write_bytes(bytes(64 << 10))
    environment = _surroundings(home, tmp_path / "tmp")
    script = START + "run(build()); print(folder_in_use())"
    right, folder = run_python(script, pocl, environment=environment).stdout.splitlines()
    assert right == "right"
    assert Path(folder).parent == tmp_path / "tmp"
    assert not list((tmp_path / "tmp").iterdir()), "the temporary folder is gone with the process"


def test_a_disk_that_is_full_is_named(pocl: str, new_disk: Callable[[str], Path]) -> None:
    """PoCL compiles a kernel again at the first launch with another group, so that launch is checked as well."""
    disk = new_disk("size=24m")
    script = f"""{START}
program = build()
run(program, 8)
fill({str(disk)!r})
run(program, 8)
attempt(lambda: run(program, 4))
attempt(build)
os.unlink({str(disk / "filler")!r})
run(program, 4)
"""
    said = run_python(script, pocl, environment={"POCL_CACHE_DIR": str(disk)}).stdout.splitlines()
    assert [line.split()[0] for line in said] == ["right", "right", "DeviceError", "DeviceError", "right"]
    for line in said[2:4]:
        assert str(disk) in line
        assert "full" in line and "POCL_CACHE_DIR" in line


def test_a_folder_that_cannot_be_written_to_is_named(pocl: str, new_disk: Callable[[str], Path]) -> None:
    disk = new_disk("size=24m,ro")
    said = run_python(START + "attempt(build)", pocl, environment={"POCL_CACHE_DIR": str(disk)}).stdout
    assert said.startswith("DeviceError")
    assert str(disk) in said
    assert "Read-only" in said


def test_a_build_without_free_descriptors_raises(pocl: str, tmp_path: Path) -> None:
    script = f"""{START}
program = build()
binary = program.binary()
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
attempt(lambda: device.compile(source))
attempt(lambda: device.load(binary))
attempt(lambda: run(program))
for descriptor in held:
    os.close(descriptor)
run(build())
"""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n" + script
    said = run_python(limited, pocl, environment={"POCL_CACHE_DIR": str(tmp_path)}).stdout.splitlines()
    assert [line.split()[0] for line in said] == ["DeviceError"] * 3 + ["right"]
    assert all("descriptors" in line and "ulimit" in line for line in said[:3])


def test_loading_drivers_without_free_descriptors_raises(pocl: str) -> None:
    """The loader looks for drivers once in a process, so it is not let to look in vain."""
    script = """
import os, resource, sys
import kernelkeep as kk
from kernelkeep.devices import opencl, registry
open_device = kk.open_device  # a module is loaded for it
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    kk.open_device(sys.argv[1])
except kk.DeviceError as error:
    print(error)
for descriptor in held:
    os.close(descriptor)
kk.open_device(sys.argv[1]).close()
"""
    assert "descriptors" in run_python(script, pocl).stdout


def test_the_folder_is_private_and_counted(pocl: str, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    environment = {**_surroundings(tmp_path, tmp_path / "tmp"), "KERNELKEEP_CACHE_DIR": str(root)}
    script = START + "os.umask(0); run(build()); print(folder_in_use(), os.environ.get('POCL_CACHE_DIR'))"
    right, last = run_python(script, pocl, environment=environment).stdout.splitlines()
    folder, variable = last.split()
    assert (right, variable) == ("right", "None"), "what the program starts later decides for itself"
    assert Path(folder).parents[1] == root
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    (survey,) = survey_root(root).folders
    assert survey.driver_bytes > 1000

    root.chmod(0o777)  # now anybody can put native code there
    _, last = run_python(script, pocl, environment=environment).stdout.splitlines()
    assert Path(last.split()[0]).parent == tmp_path / "tmp"


def test_tidying_removes_the_oldest_and_what_is_damaged(tmp_path: Path) -> None:
    now = time.time()
    programs = [tmp_path / f"A{number}" / "PROGRAM" for number in range(8)]
    for age, program in enumerate(programs):
        program.mkdir(parents=True)
        (program / "program.bc").write_bytes(bytes(1000))
        os.utime(program / "program.bc", (now - 3600 * age, now - 3600 * age))
    damaged = tmp_path / "B0" / "PROGRAM"
    damaged.mkdir(parents=True)
    (damaged / "program.bc").touch()
    pocl_folder._tidy(tmp_path, max_bytes=8000)
    assert all(program.exists() for program in programs), "it is not more than allowed"
    assert not damaged.exists(), "PoCL would crash on it"
    pocl_folder._tidy(tmp_path, max_bytes=7000)
    assert [program.exists() for program in programs] == [True] * 3 + [False] * 5, "the oldest went, down to half"
    pocl_folder._tidy(tmp_path, max_bytes=0)
    assert [program.exists() for program in programs] == [True] + [False] * 7, "what may be in use stays"


def test_the_folder_is_tidied_only_while_nobody_works_in_it(pocl: str, tmp_path: Path) -> None:
    """PoCL writes broken binaries of programs whose files are gone, so nothing goes while a process lives that has any."""
    environment = {"KERNELKEEP_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    tidies = """
import kernelkeep.devices.opencl.pocl_folder as pocl_folder
pocl_folder._MAX_BYTES = pocl_folder._IN_USE_SECONDS = pocl_folder._TIDY_EVERY_SECONDS = 0
tidy = pocl_folder._tidy
pocl_folder._tidy = lambda folder: tidy(folder, max_bytes=0)
"""
    programs = "print(len(list(folder_in_use().glob('*/*/program.bc'))))"
    script = f"""{START}
import subprocess
program = build()
other = [sys.executable, "-c", {tidies + START!r} + {programs!r}, sys.argv[1]]
print(subprocess.run(other, capture_output=True, text=True, check=True).stdout.strip())
run(program)
device.load(program.binary())
"""
    beside, right = run_python(script, pocl, environment=environment).stdout.split()
    assert (beside, right) == ("1", "right")
    alone = run_python(tidies + START + programs, pocl, environment=environment).stdout.split()
    assert alone == ["0"]


def test_an_empty_program_in_the_folder_is_built_again(pocl: str, tmp_path: Path) -> None:
    """PoCL takes an empty file for a program without kernels."""
    environment = {"KERNELKEEP_CACHE_DIR": str(tmp_path)}
    script = START + "run(device.build(source)); print(*folder_in_use().glob('*/*/program.bc'))"
    right, program = run_python(script, pocl, environment=environment).stdout.splitlines()
    Path(program).write_bytes(b"")
    assert run_python(script, pocl, environment=environment).stdout.splitlines() == [right, program]
    assert Path(program).stat().st_size


def test_files_that_vanish_under_pocl_make_no_broken_binary(pocl: str, tmp_path: Path) -> None:
    """Without its file PoCL puts an empty program into the binary, and crashes when that is loaded."""
    script = f"""{START}
import shutil
program = device.build(source)
for found in folder_in_use().glob("*/*"):
    shutil.rmtree(found)
binary = program.binary()
run(device.load(binary))
from kernelkeep.devices.binary import Binary
import msgspec
parts = Binary.decode(binary, "opencl")
at = parts.payload.index(b"BC\\xc0\\xde")
attempt(lambda: device.load(msgspec.structs.replace(parts, payload=parts.payload[:at]).encode()))
"""
    right, refused = run_python(script, pocl, environment={"KERNELKEEP_CACHE_DIR": str(tmp_path)}).stdout.splitlines()
    assert right == "right"
    assert refused.startswith("BinaryRejected") and "incomplete" in refused
