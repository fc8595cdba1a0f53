"""A fresh process, from `python` to the results of ten cached programs, beside CuPy, PyOpenCL and the drivers themselves.

    python benchmarks/fresh_process.py [--device SPEC] [--rounds N] [--json FILE] [--long]

Every contender is a process of its own (`fresh_process_child.py`), whose caches its own earlier runs have filled. They take
turns. Times count from the moment before the process is started; a process tells when each of its steps was done.
Python's bytecode is kept too, in a folder of this run, for all of them: an installed package has it, and where the environment
says that none is to be written, each process would compile every module again.

With CUDA the limits are shown too: the driver opened by cuda-bindings in Python, and by a C++ program. No other process uses the
driver meanwhile, not even this one: it would be quicker to start.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kernelkeep as kk
from common import chosen_devices, long_run, row

CHILD = Path(__file__).with_name("fresh_process_child.py")
CPP = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
int main() {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 1;
    int device = 0; void *context = 0;
    if (((int (*)(unsigned))dlsym(driver, "cuInit"))(0)) return 2;
    timespec initialised; clock_gettime(CLOCK_MONOTONIC, &initialised);
    if (((int (*)(int *, int))dlsym(driver, "cuDeviceGet"))(&device, 0)) return 3;
    if (((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, device)) return 4;
    timespec opened; clock_gettime(CLOCK_MONOTONIC, &opened);
    printf("{\"initialised\": %.9f, \"opened\": %.9f}\n", initialised.tv_sec + initialised.tv_nsec * 1e-9,
           opened.tv_sec + opened.tv_nsec * 1e-9);
}
"""
Steps = dict[str, float]  # milliseconds since the process was started


def run(command: list[str], environment: dict[str, str]) -> Steps:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    start = time.monotonic()
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(_reason(ended.stderr) or f"exit status {ended.returncode}")
    steps: Steps = {}
    for step, at in json.loads(ended.stdout.splitlines()[-1]).items():
        steps[step] = at if step == "compiles" else (at - start) * 1e3
    return steps


def _reason(stderr: str) -> str:
    """The line that says what went wrong: a compiler's log ends with its options, an exception's text may have many lines."""
    lines = [line.strip() for line in stderr.strip().splitlines()]
    errors = [line for line in lines if line.startswith("error:") or " error: " in line]
    return (errors or lines[-1:] or [""])[0]


def bytecode(folder: str) -> dict[str, str]:
    """The variable that has Python keep its bytecode there."""
    return {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}


class Contenders:
    """Processes that take turns, after one run each that fills their caches; one that fails is left out."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._commands: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._found: dict[str, list[Steps]] = {}
        self.left_out: dict[str, str] = {}  # and why

    def add(self, name: str, who: str, spec: str = "", *, warm_ups: int = 1, **environment: str) -> None:
        """Add one of `fresh_process_child.py`."""
        self.add_command(name, [sys.executable, str(CHILD), who, self._folder, spec], environment, warm_ups)

    def add_command(
        self, name: str, command: list[str], environment: dict[str, str] | None = None, warm_ups: int = 1
    ) -> None:
        variables = bytecode(self._folder) | (environment or {})
        try:
            for _ in range(warm_ups):
                run(command, variables)
        except (OSError, RuntimeError) as error:
            self.left_out[name] = str(error)
            print(f"{name} is left out: {error}")
            return
        self._commands[name] = command, variables

    def take_turns(self, rounds: int) -> None:
        for _ in range(rounds):
            for name, (command, environment) in self._commands.items():
                self._found.setdefault(name, []).append(run(command, environment))

    def has(self, name: str) -> bool:
        return name in self._found

    def between(self, name: str, step: str, since: str = "") -> float:
        """Milliseconds to a step from another one, or from the start of the process: the median."""
        return statistics.median(one[step] - (one[since] if since else 0.0) for one in self._found[name])

    def parts(self, name: str) -> str:
        """Where the time goes, step by step."""
        told, before = [], ""
        for step in self._found[name][0]:
            if step != "compiles":
                told.append(f"{step} {self.between(name, step, before):.0f}")
                before = step
        return f"{name}: {', '.join(told)}"

    def check_no_compiles(self, name: str) -> None:
        assert not any(one["compiles"] for one in self._found[name]), "a program was not in the cache"


def cpp_program(folder: str) -> list[str]:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise OSError("there is no C++ compiler")
    source, program = Path(folder, "open.cpp"), Path(folder, "open_driver")
    source.write_text(CPP)
    subprocess.run([compiler, "-O2", "-o", program, source, "-ldl"], check=True, capture_output=True)
    return [str(program)]


def fill(folder: str, info: kk.DeviceInfo) -> None:
    """Compile the ten programs, twice: PoCL's binaries ripen with the first launch. Write their texts for the others."""
    command = [sys.executable, str(CHILD), "kernelkeep", folder, info.spec, "--texts"]
    for _ in range(2):
        run(command, bytecode(folder))


def with_cuda(info: kk.DeviceInfo, folder: str, rounds: int) -> None:
    fill(folder, info)
    turns = Contenders(folder)
    turns.add("kernelkeep", "kernelkeep", info.spec)
    turns.add("CuPy", "cupy", warm_ups=2, CUPY_CACHE_DIR=f"{folder}/cupy")
    turns.add("by hand", "by_hand")
    turns.add("NumPy alone", "numpy_alone")
    try:
        turns.add_command("C++", cpp_program(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"C++ is left out: {error}")
    turns.take_turns(rounds)
    turns.check_no_compiles("kernelkeep")
    ours = turns.between("kernelkeep", "results")
    ran = turns.between("kernelkeep", "results", "opened")
    opening = turns.between("kernelkeep", "opened", "numpy")
    names = [name for name in ("kernelkeep", "CuPy", "by hand", "C++") if turns.has(name)]
    note = "ms by steps: " + "; ".join(turns.parts(name) for name in names)
    if turns.has("CuPy"):
        its = turns.between("CuPy", "results", "opened")
        what = "fresh process: opened device to results of ten cached programs"
        row(what, ran, "ms", peer="CuPy RawKernel, warm", its=its, goal="≤ 0.4", device=info)
    if turns.has("by hand"):
        its = turns.between("by hand", "opened", "numpy")
        what = "fresh process: opening the device, imports included"
        row(what, opening, "ms", peer="cuda-bindings, cuInit and context by hand", its=its, goal="≤ 1.05", device=info)
    if turns.has("CuPy"):
        its = turns.between("CuPy", "results")
        what = "fresh process: python to results of ten cached programs"
        row(what, ours, "ms", peer="CuPy RawKernel, warm", its=its, goal="≤ 0.75", device=info, note=note)
    if turns.has("C++"):
        its = turns.between("C++", "opened") + turns.between("NumPy alone", "numpy")
        peer = "a C++ program that opens the driver, and Python's and NumPy's own start"
        row("fresh process: python to results of ten cached programs", ours, "ms", peer=peer, its=its, goal="≤ 1.15",
            device=info)  # fmt: skip


def with_opencl(info: kk.DeviceInfo, folder: str, rounds: int) -> None:
    fill(folder, info)
    turns = Contenders(folder)
    turns.add("kernelkeep", "kernelkeep", info.spec)
    turns.add("PyOpenCL", "pyopencl", info.spec, warm_ups=2, POCL_CACHE_DIR=f"{folder}/pocl", XDG_CACHE_HOME=folder)
    turns.add("NumPy alone", "numpy_alone")
    turns.take_turns(rounds)
    turns.check_no_compiles("kernelkeep")
    ours = turns.between("kernelkeep", "results")
    what = "fresh process: python to results of ten cached programs"
    note = "ms by steps: " + "; ".join(
        turns.parts(n) for n in ("kernelkeep", "PyOpenCL", "NumPy alone") if turns.has(n)
    )
    if turns.has("PyOpenCL"):
        peer, its = "PyOpenCL, its and the driver's caches warm", turns.between("PyOpenCL", "results")
        row(what, ours, "ms", peer=peer, its=its, goal="≥ 1.5", device=info, note=note)
    else:
        row(what, ours, "ms", device=info, note=f"PyOpenCL is left out: {turns.left_out['PyOpenCL']}; {note}")


def devices() -> list[kk.DeviceInfo]:
    """`chosen_devices`, asked in a process of its own."""
    command = [sys.executable, __file__, "--list-devices", *sys.argv[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return [kk.DeviceInfo(**facts) for facts in json.loads(ended.stdout.splitlines()[-1])]


def main() -> None:
    if "--list-devices" in sys.argv:
        print(json.dumps([dataclasses.asdict(info) for info in chosen_devices()]))
        return
    rounds = 15 if long_run() else 5
    if "--rounds" in sys.argv:
        rounds = int(sys.argv[sys.argv.index("--rounds") + 1])
    for info in devices():
        measure = {"cuda": with_cuda, "opencl": with_opencl}.get(info.backend)
        if measure is not None:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "pocl").mkdir()
                measure(info, folder, rounds)


if __name__ == "__main__":
    main()
