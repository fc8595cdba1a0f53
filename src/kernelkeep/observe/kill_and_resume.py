"""A run that is killed with `kill -9` on one device and resumed on another.

`python -m kernelkeep.observe.kill_and_resume opencl:0 FILE` is the process that is killed; it uses $KERNELKEEP_CACHE_DIR.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cache.program_cache import ProgramCache
from ..continuous.checkpoints.files import newest_header
from ..continuous.program import StateProgram
from ..continuous.runner import resume, run
from ..devices.base import DeviceInfo
from ..devices.registry import open_device
from ..errors import CheckpointError, DeviceError, KernelKeepError
from ..processes import python_environment
from ..samples.states import SCRAMBLE

_TIMEOUT_SECONDS = 120
_ITEMS = 4999
_ITERATIONS_BEFORE = 300  # in a checkpoint, before the process is killed
_ITERATIONS_AFTER = 500


@dataclass(frozen=True)
class Survival:
    """The result of a run that was killed and resumed. Where `ok` is false, `problem` says why."""

    killed_on: str
    resumed_on: str
    ok: bool
    checkpoint_iteration: int = 0
    iteration: int = 0
    strategy: str = ""
    seconds: float = 0.0
    problem: str = ""


def kill_and_resume(devices: Sequence[DeviceInfo]) -> Survival | None:
    """Run on the first device, kill the process after some checkpoints, and resume on a device of another backend, or on the
    same where there is no other. The result is compared with NumPy's. None where there is no device.

    The programs go to a cache folder that is removed afterwards.
    """
    if not devices:
        return None
    first = devices[0]
    second = next((info for info in devices if info.backend != first.backend), first)
    try:
        with tempfile.TemporaryDirectory(prefix="kernelkeep-demo-", ignore_cleanup_errors=True) as folder:
            return _run_both(first.spec, second.spec, Path(folder) / "scramble.kkpt", Path(folder) / "cache")
    except (KernelKeepError, OSError, subprocess.SubprocessError) as error:
        return Survival(first.spec, second.spec, ok=False, problem=str(error))


def _run_both(first: str, second: str, path: Path, cache_dir: Path) -> Survival:
    start = time.perf_counter()
    _run_and_kill(first, path, cache_dir)
    with open_device(second) as device, ProgramCache(device, cache_dir, remote=[]) as cache:
        killed_at = newest_header(path).iteration
        end = killed_at + _ITERATIONS_AFTER
        program = _program()
        with resume(path, cache, program, end) as done:
            error = SCRAMBLE.largest_error(done.state, program, end)
            report = done.report
    ok = error == 0 and report.iteration == end
    problem = "" if ok else "the state is not what NumPy computes"
    seconds = time.perf_counter() - start
    return Survival(first, second, ok, killed_at, report.iteration, report.strategy, seconds, problem)


def _run_and_kill(spec: str, path: Path, cache_dir: Path) -> None:
    environment = python_environment(os.environ)
    environment["KERNELKEEP_CACHE_DIR"] = str(cache_dir)
    command = [sys.executable, "-P", "-m", __name__, spec, str(path)]
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as child:
        try:
            while not _has_checkpoint(path):
                if child.poll() is not None:
                    lines = child.stderr.read().strip().splitlines() if child.stderr else []
                    raise DeviceError(f"the process on {spec} ended early: {lines[-1] if lines else child.returncode}")
                if time.monotonic() > deadline:
                    raise DeviceError(f"the process on {spec} made no checkpoint in {_TIMEOUT_SECONDS} seconds")
                time.sleep(0.02)
        finally:
            child.kill()


def _has_checkpoint(path: Path) -> bool:
    try:
        return newest_header(path).iteration >= _ITERATIONS_BEFORE
    except CheckpointError:
        return False


def _program() -> StateProgram:
    return SCRAMBLE.program(_ITEMS)


if __name__ == "__main__":
    with open_device(sys.argv[1]) as this_device, ProgramCache(this_device, remote=[]) as this_cache:
        run(this_cache, _program(), 2**31 - 1, "buffered", checkpoint=sys.argv[2], checkpoint_every=0.05)
