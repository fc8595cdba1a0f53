"""Runs ended by a signal, an error or `sys.exit`: the last commit is in the checkpoint, and the process ends as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.files import read_header
from kernelkeep.samples.states import SCRAMBLE
from kernelkeep.testing import open_or_skip
from kernelkeep.testing.strategy_parts.common import shared_programs
from kernelkeep.words import StrategyName

SIZE = 97
SCRIPT = f"""
import signal, sys
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE

mode, programs, checkpoint = sys.argv[1:]
if mode == "own":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
told = []
def tell(step):
    if step.iteration > 100 and not told:
        told.append(print("running", flush=True))
with kk.open_device("opencl") as device, kk.ProgramCache(device, programs) as cache:
    kk.run(
        cache, SCRAMBLE.program({SIZE}), 2**31 - 1, "buffered", checkpoint=checkpoint if mode != "nothing" else None,
        checkpoint_every=1000.0, on_progress=tell,
    )
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return shared_programs(tmp_path_factory)


@pytest.fixture(scope="module")
def cache(programs: str) -> Iterator[kk.ProgramCache]:
    with open_or_skip("opencl") as device, kk.ProgramCache(device, programs) as opened:
        yield opened


def _end(mode: str, programs: str, path: Path, *signals: int) -> int:
    """Start a run in a process of its own, send it signals, and return how it ended."""
    environment = {**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode, programs, str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "running"
            assert not path.exists(), "nothing was due yet"
            for number in signals:
                child.send_signal(number)
            return child.wait(timeout=180)
        finally:
            child.kill()


def _check(cache: kk.ProgramCache, path: Path) -> None:
    """The file holds the state of the iteration that it names."""
    header = read_header(path)
    assert header.iteration > 100 and not header.finished
    end = header.iteration + 10
    with kk.resume(path, cache, SCRAMBLE.program(SIZE), end) as done:
        assert done.report.iterations == 10
        assert (done.state["count"].numpy() == end).all()


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("mode", "signals", "status"),
    [
        ("plain", [signal.SIGTERM], -signal.SIGTERM),
        ("plain", [signal.SIGHUP], -signal.SIGHUP),
        # Ignored it stays ignored, as under nohup, and the caller's own handler is called.
        ("own", [signal.SIGHUP, signal.SIGTERM], 3),
    ],
)
def test_a_signal_leaves_a_checkpoint(
    tmp_path: Path, cache: kk.ProgramCache, programs: str, mode: str, signals: list[int], status: int
) -> None:
    path = tmp_path / "run.kkpt"
    assert _end(mode, programs, path, *signals) == status
    _check(cache, path)


@pytest.mark.opencl
def test_without_a_checkpoint_a_signal_ends_the_process_at_once(
    tmp_path: Path, cache: kk.ProgramCache, programs: str
) -> None:
    assert _end("nothing", programs, tmp_path / "run.kkpt", signal.SIGTERM) == -signal.SIGTERM
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    kk.run(cache, SCRAMBLE.program(SIZE), 3, checkpoint=tmp_path / "short.kkpt").close()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


class Enough(Exception):
    pass


def _raise(error: BaseException, iteration: int) -> None:
    if iteration > 100:
        raise error


@pytest.mark.opencl
@pytest.mark.parametrize("strategy", ["redispatch", "mega", "checkpointed", "buffered"])
@pytest.mark.parametrize(
    ("error", "options"),
    [
        (Enough("of it"), lambda error: {"on_progress": lambda step: _raise(error, step.iteration)}),
        (SystemExit(5), lambda error: {"on_progress": lambda step: _raise(error, step.iteration)}),
        (KeyboardInterrupt(), lambda error: {"until": lambda run: _raise(error, run.iteration)}),
        (
            Enough("of it"),
            lambda error: {"on_state": lambda iteration, _: _raise(error, iteration), "state_iterations": 7},
        ),
    ],
    ids=["on_progress", "sys.exit", "until", "on_state"],
)
def test_an_error_leaves_a_checkpoint(
    tmp_path: Path,
    cache: kk.ProgramCache,
    strategy: StrategyName,
    error: BaseException,
    options: Callable[[BaseException], dict[str, Any]],
) -> None:
    path = tmp_path / "run.kkpt"
    with pytest.raises(type(error)) as caught:
        kk.run(
            cache, SCRAMBLE.program(SIZE), 10**6, strategy, checkpoint=path, checkpoint_every=1000.0, **options(error)
        )
    assert any(f"is in {path}" in note for note in caught.value.__notes__)
    _check(cache, path)


@pytest.mark.opencl
def test_an_error_before_anything_was_done_leaves_no_checkpoint(tmp_path: Path, cache: kk.ProgramCache) -> None:
    def at_once(run: kk.Run) -> bool:
        raise Enough

    path = tmp_path / "run.kkpt"
    with pytest.raises(Enough):
        kk.run(cache, SCRAMBLE.program(SIZE), 1000, checkpoint=path, until=at_once)
    assert not path.exists()


def test_on_state_comes_before_the_checkpoint_of_its_iteration(tmp_path: Path, cache: kk.ProgramCache) -> None:
    shown: list[int] = []

    def fail(step: kk.Progress) -> None:
        if step.iteration >= 10:
            raise RuntimeError("mine")

    path, program = tmp_path / "a.kkpt", SCRAMBLE.program(SIZE)
    show: Any = {"on_state": lambda iteration, state: shown.append(iteration), "state_iterations": 10}
    with pytest.raises(RuntimeError, match="mine"):
        kk.run(cache, program, 20, "redispatch", checkpoint=path, on_progress=fail, **show)
    assert read_header(path).iteration == 10
    kk.resume(path, cache, program, 20, "redispatch", **show).close()
    assert shown == [10, 20]


def test_an_error_says_when_the_last_state_could_not_be_saved(tmp_path: Path, cache: kk.ProgramCache) -> None:
    def fail(step: kk.Progress) -> None:
        if step.iteration >= 1:
            raise RuntimeError("mine")

    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="mine") as caught, pytest.warns(kk.CheckpointWarning):
        kk.run(
            cache, SCRAMBLE.program(SIZE), 20, "redispatch", checkpoint=tmp_path / "file" / "a.kkpt", on_progress=fail
        )
    assert "could not be saved: the checkpoint" in caught.value.__notes__[-1]
