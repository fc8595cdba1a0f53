"""Runs whose checkpoints are in a store: killed, moved to another machine and backend, and cut off from the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints import ownership
from kernelkeep.continuous.checkpoints.files import newest_header
from kernelkeep.processes import python_environment
from kernelkeep.samples.states import SCRAMBLE
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.servers import RedisServer, S3Server
from kernelkeep.testing.strategy_parts.common import check, shared_programs

pytestmark = pytest.mark.slow

SIZE = 4001
WORK = f"""
import json, sys, time
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE
spec, programs, url, iterations, pause = sys.argv[1:]
with kk.open_device(spec) as device, kk.ProgramCache(device, programs) as cache:
    kk.run(cache, SCRAMBLE.program({SIZE}), int(iterations), checkpoint=url, checkpoint_iterations=1, resume=True,
           on_progress=lambda step: time.sleep(float(pause)))
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return shared_programs(tmp_path_factory)


@pytest.fixture(scope="module")
def cache(pocl: str, programs: str) -> Iterator[kk.ProgramCache]:
    with open_or_skip(pocl) as device, kk.ProgramCache(device, programs) as opened:
        yield opened


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process's folders: its home and its cache."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def address(server: S3Server | RedisServer, *options: str) -> str:
    path, _, query = server.url.partition("?")
    return f"{path}/{uuid.uuid4().hex}.kkpt?{'&'.join([*filter(None, [query]), 'allow_unsigned=1', *options])}"


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """A run on a machine of its own."""
    variables = {**os.environ, "HOME": str(folder / "home"), "KERNELKEEP_CACHE_DIR": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", WORK, *map(str, arguments)],
        env=python_environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def iteration_at(url: str) -> int:
    try:
        return newest_header(url).iteration
    except kk.CheckpointError:
        return -1


def is_beyond(url: str, iteration: int) -> bool:
    return iteration_at(url) > iteration


def wait_for(condition: Any, process: subprocess.Popen[str] | None = None, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate())
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_runs_killed_on_one_machine_end_on_another_and_on_another_backend(
    s3_server: S3Server, machine: Path, pocl: str, programs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "DEAD_SECONDS", 3.0)  # as long as this machine watches for signs of life
    url = address(s3_server)
    at = -1
    for _ in range(2):  # on the same machine: the claim of the one that was killed is taken over at once
        process = start(machine / "first", pocl, programs, url, 10_000_000, 0.02)
        wait_for(partial(is_beyond, url, at), process)
        kill(process)
        at = iteration_at(url)
    try:
        other = next(info.spec for info in kk.list_devices() if info.backend != pocl.partition(":")[0])
    except StopIteration:
        other = pocl
    began = time.monotonic()
    with open_or_skip(other) as device, kk.ProgramCache(device, programs) as cache:
        program = SCRAMBLE.program(SIZE)
        with kk.resume(url, cache, program, at + 100) as run:
            assert run.report.resumed_from == f"{url.partition('?')[0]} at iteration {at:,}"
            check(SCRAMBLE, run.state, program, at + 100)
        assert time.monotonic() - began > 3, "another machine first watches whether the run there is alive"
    assert kk.read_checkpoint(url).iteration == at + 100


def test_killed_in_the_middle_of_an_upload_the_old_object_stays(machine: Path, pocl: str, programs: str) -> None:
    with S3Server() as server:
        url = address(server)
        process = start(machine / "first", pocl, programs, url, 10_000_000, 0.02)
        wait_for(lambda: iteration_at(url) > 0, process)
        server.pause()  # takes the connection, and never answers
        time.sleep(1)
        kill(process)
        server.resume()
        assert kk.read_checkpoint(url).iteration > 0


def test_a_server_that_is_away_for_a_while_does_not_disturb_the_run(machine: Path, cache: kk.ProgramCache) -> None:
    program = SCRAMBLE.program(SIZE)
    with RedisServer() as server:
        url = address(server, "timeout_seconds=20")
        seen: list[int] = []

        def progress(step: kk.Progress) -> None:
            if not seen and iteration_at(url) > 0:
                server.kill()
                seen.append(step.iteration)
            elif len(seen) == 1 and said:
                server.start()  # empty
                seen.append(step.iteration)
            time.sleep(0.01)

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with kk.run(
                cache,
                program,
                checkpoint=url,
                checkpoint_iterations=1,
                until=lambda run: len(seen) == 2 and run.iteration > seen[-1] + 10,
                on_progress=progress,
            ) as run:
                check(SCRAMBLE, run.state, program, run.iteration)
                end = run.iteration
        texts = [str(one.message) for one in said]
        assert len(texts) == 1 and "cannot be written" in texts[0] and texts[0].endswith("the run goes on"), texts
        assert kk.read_checkpoint(url).iteration == end
        server.kill()
        with pytest.raises(kk.CheckpointError, match=r"kkpt cannot be reached"):
            kk.run(cache, program, 10, checkpoint=url, resume=True)


SUPERVISED = """
import json, os, sys, time
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE
def work(spec, programs, url, found):
    def die_once(step):
        time.sleep(0.05)
        if found is None and step.seconds > 1:
            os.kill(os.getpid(), 9)
    with kk.open_device(spec) as device, kk.ProgramCache(device, programs) as cache:
        run = kk.run(cache, SCRAMBLE.program(101), 1 << 30, checkpoint=url, checkpoint_iterations=1,
                     on_progress=die_once, until=lambda run: found is not None and run.iteration > 100)
        return [run.iteration, run.report.resumed_from]
if __name__ == "__main__":
    spec, programs, url = sys.argv[1:]
    report = kk.run_supervised(work, checkpoint=url, args=(spec, programs, url))
    print(json.dumps([report.result, report.restarts, [str(one) for one in report.history]]))
"""


def test_a_supervised_worker_is_replaced_and_goes_on_from_the_address(
    s3_server: S3Server, machine: Path, pocl: str, programs: str
) -> None:
    url = address(s3_server)
    script = machine / "supervised.py"
    script.write_text(SUPERVISED)
    code = f"import runpy, sys; sys.argv = [{str(script)!r}, *sys.argv[1:]]; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = run_python(code, pocl, programs, url)
    (iteration, resumed), restarts, history = json.loads(done.stdout.splitlines()[-1])
    assert iteration > 100 and restarts == 1
    assert resumed.startswith(url.partition("?")[0])
    assert "something" not in done.stdout + done.stderr, "a secret of the address"
    assert f"{url.partition('?')[0]} holds iteration" in history[0]
    assert kk.read_checkpoint(url).iteration == iteration
