"""Runs that are killed, interrupted, or cannot write: what was committed is never lost, and nothing is done twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.files import newest_checkpoint, read_header
from kernelkeep.samples.states import SCRAMBLE
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.strategy_parts.common import check, shared_programs

pytestmark = pytest.mark.slow

KILLS = 24
LANES = 4  # supervised runs at a time
SIZE = 97
ITERATIONS = 8_000
CHAINS, LENGTH = 64, 2_000

# What the workers run: an automaton that shows a lost iteration in every word, and a queue whose tasks count themselves.
WORK = f"""
import hashlib, json, os, random, sys, time
import numpy as np
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE

def scramble():
    return SCRAMBLE.program({SIZE})

def chains():
    return kk.StateProgram(
        "chains", coupling="queue", queue_capacity=8, group=64,
        state={{"visits": np.zeros({CHAINS}, "i4"), "total": np.zeros(1, "u4")}},
        tasks={{"chain": np.arange({CHAINS}, dtype="i4"), "left": np.full({CHAINS}, {LENGTH} - 1, "i4")}},
        body="kk_atomic_add(visits[chain], 1);\\n"
             "kk_atomic_add(total[0], kk_uint(left) * 2654435761u + kk_uint(chain));\\n"
             "if (left > 0) {{ kk_push(chain, left - 1); }}",
    )

PROGRAMS = {{"scramble": (scramble, {ITERATIONS}), "chains": (chains, None)}}
STRATEGIES = ("redispatch", "buffered", "mega", "checkpointed", "auto")

def digest(state):
    return {{key: hashlib.sha256(state[key].numpy().tobytes()).hexdigest() for key in state}}

def work(name, specs, programs, checkpoint, found):
    # Every worker is another one: another backend, another strategy.
    make, iterations = PROGRAMS[name]
    dice = random.Random()
    options = dict(
        strategy=dice.choice(STRATEGIES), checkpoint=checkpoint, checkpoint_iterations=1,
        iterations_per_dispatch=dice.choice((None, 2, 7)), in_place=dice.random() < 0.25,
        on_progress=lambda step: time.sleep(0.05),  # so that a run outlives many workers
    )
    with kk.open_device(dice.choice(specs)) as device, kk.ProgramCache(device, programs) as cache:
        if found is None:
            run = kk.run(cache, make(), iterations, **options)
        else:
            run = kk.resume(found, cache, make(), iterations, **options)
        return {{"iteration": run.iteration, "digest": digest(run.state)}}
"""
SUPERVISOR = """
if __name__ == "__main__":
    name, checkpoint, programs, *specs = sys.argv[1:]
    report = kk.run_supervised(work, checkpoint=checkpoint, args=(name, specs, programs, checkpoint), max_restarts=60)
    history = [{"what": one.what, "signal": one.signal, "line": str(one)} for one in report.history]
    print(json.dumps({"result": report.result, "restarts": report.restarts, "history": history}))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])}


def workers_of(supervisor: int) -> list[int]:
    """The processes that a supervisor has started for its work."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{supervisor}/task").iterdir():
            for child in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(int(child))
    return found


class Supervised:
    """One supervised run, and the killing of its workers."""

    def __init__(self, folder: Path, name: str, programs: str, specs: list[str], dice: random.Random) -> None:
        folder.mkdir()
        self.name = name
        self.checkpoint = folder / "work.kkpt"
        self.kills = 0
        self.looked = 0
        self._dice = dice
        self._victim: tuple[int, float | None] = (0, None)
        self._before = 0
        script = folder / "script.py"
        script.write_text(WORK + SUPERVISOR)
        self._errors = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(script), name, str(self.checkpoint), programs, *specs],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def kill_when_due(self) -> int:
        """Kill the worker if its time has come; how many were killed."""
        pids = workers_of(self.process.pid)
        if not pids:
            return 0
        pid, due = self._victim
        if pid != pids[-1]:
            # One in five as it starts, the others in the middle of their work: when they have written something.
            early = self._dice.random() < 0.2
            self._victim = pids[-1], time.monotonic() + 0.8 * self._dice.random() if early else None
            self._before = self._written()
            return 0
        if due is None and self._written() != self._before:
            self._victim = pid, time.monotonic() + 0.3 * self._dice.random()
        if due is None or time.monotonic() < due:
            return 0
        self._victim = pid, float("inf")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it came to its end
            return 0
        self.kills += 1
        return 1

    def _written(self) -> int:
        """Which file the checkpoint is."""
        try:
            return self.checkpoint.stat().st_ino
        except FileNotFoundError:
            return 0

    def look_at_what_is_committed(self, history: np.ndarray[Any, Any]) -> None:
        """Every checkpoint is whole, and is exactly the state of its iteration, whoever was killed."""
        if not self.checkpoint.exists():
            assert self.looked == 0, "what was there once is there for good"
            return
        found = newest_checkpoint(self.checkpoint)
        assert found.skipped == ()
        self.looked += 1
        header, arrays = found.checkpoint.header, found.checkpoint.arrays
        if self.name == "scramble":
            np.testing.assert_array_equal(arrays["word"], history[header.iteration])
            assert (arrays["count"] == header.iteration).all()
        else:
            assert arrays["visits"].sum() == header.queue_head
            assert header.queue_tail - header.queue_head == arrays["task chain"].size
            left = np.zeros(CHAINS, "i4")
            left[arrays["task chain"]] = arrays["task left"] + 1
            np.testing.assert_array_equal(arrays["visits"] + left, np.full(CHAINS, LENGTH))

    def result(self, timeout: float) -> dict[str, Any]:
        """What the supervisor printed at its end."""
        said, _ = self.process.communicate(timeout=timeout)
        self._errors.seek(0)
        assert self.process.returncode == 0, self._errors.read()
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()


def scramble_history() -> np.ndarray[Any, Any]:
    """The words after every iteration."""
    program = SCRAMBLE.program(SIZE)
    words = np.empty((ITERATIONS + 1, SIZE), "u4")
    words[0] = program.state["word"]
    for k in range(ITERATIONS):
        left, right = np.roll(words[k], 1), np.roll(words[k], -1)
        mixed = words[k] * np.uint32(1664525) + (left ^ (right >> np.uint32(3))) + np.uint32(k)
        words[k + 1] = mixed ^ (mixed >> np.uint32(15))
    np.testing.assert_array_equal(words[500], SCRAMBLE.reference(program, 500)["word"])
    return words


def digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def specs() -> list[str]:
    """One device of each backend here."""
    found: dict[str, str] = {}
    for info in kk.list_devices():
        found.setdefault(info.backend, info.spec)
    if not found:
        open_or_skip("opencl")
    return sorted(found.values())


@pytest.fixture(scope="module")
def programs(specs: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache with everything compiled: workers are killed while they work, not only while they compile."""
    folder = shared_programs(tmp_path_factory)
    made: dict[str, Any] = {"__name__": "work"}
    exec(WORK, made)
    for spec in specs:
        with kk.open_device(spec) as device, kk.ProgramCache(device, folder) as cache:
            for name in made["PROGRAMS"]:
                for strategy in ("redispatch", "mega", "checkpointed"):
                    kk.run(cache, made["PROGRAMS"][name][0](), 20, strategy).close()
    return folder


def test_workers_killed_at_random_moments_lose_nothing(tmp_path: Path, specs: list[str], programs: str) -> None:
    history = scramble_history()
    left = np.arange(LENGTH, dtype="u8")
    total = int((left * 2654435761 + 0).sum()) * CHAINS + LENGTH * sum(range(CHAINS))
    expected = {
        "scramble": {"word": digest(history[-1]), "count": digest(np.full(SIZE, ITERATIONS, "u4"))},
        "chains": {"visits": digest(np.full(CHAINS, LENGTH, "i4")), "total": digest(np.array([total % 2**32], "u4"))},
    }
    dice = random.Random()
    begun: list[Supervised] = []
    killed = looked = restarts = 0
    deadline = time.monotonic() + 400

    def begin() -> Supervised:
        run = Supervised(tmp_path / str(len(begun)), ("scramble", "chains")[len(begun) % 2], programs, specs, dice)
        begun.append(run)
        return run

    under_way: list[Supervised] = []
    try:
        while killed < KILLS or under_way:
            assert time.monotonic() < deadline, f"{killed} kills in {len(begun)} runs so far"
            while len(under_way) < LANES and killed < KILLS:
                under_way.append(begin())
            for run in list(under_way):
                if run.process.poll() is None:
                    if killed < KILLS and run.kill_when_due():
                        killed += 1
                        run.look_at_what_is_committed(history)
                    continue
                under_way.remove(run)
                said = run.result(10)
                assert said["result"]["digest"] == expected[run.name], said
                assert said["result"]["iteration"] == ITERATIONS or run.name == "chains"
                # The last one may have been killed on its way out, with its work done and told.
                assert said["restarts"] in (run.kills, run.kills - 1)
                assert [one["signal"] for one in said["history"]] == ["SIGKILL"] * said["restarts"], said["history"]
                run.look_at_what_is_committed(history)
                looked += run.looked
                restarts += said["restarts"]
            time.sleep(0.005)
    finally:
        for run in begun:
            run.close()
    assert restarts >= KILLS - len(begun) and looked >= KILLS // 2


@contextlib.contextmanager
def running(tmp_path: Path, spec: str, programs: str, strategy: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs without end, and says when its first iterations are done."""
    script = """
import sys, warnings
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE
spec, programs, checkpoint, strategy = sys.argv[1:]
told = []
def tell(step):
    if step.iteration > 100 and not told:
        told.append(print("running", flush=True))
with kk.open_device(spec) as device, kk.ProgramCache(device, programs) as cache:
    kk.run(cache, SCRAMBLE.program(97), 2**31 - 1, strategy, checkpoint=checkpoint, checkpoint_every=1000.0, on_progress=tell)
"""
    command = [sys.executable, "-c", script, spec, programs, str(tmp_path / "run.kkpt"), strategy]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "running"
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("strategy", ["redispatch", "mega", "buffered", "checkpointed"])
def test_ctrl_c_leaves_a_checkpoint(tmp_path: Path, specs: list[str], programs: str, strategy: str) -> None:
    spec = specs[0]
    with running(tmp_path, spec, programs, strategy) as child:
        time.sleep(0.1)
        assert not (tmp_path / "run.kkpt").exists(), "nothing was due yet"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGINT
    *_, raised, note = errors.rstrip().splitlines()
    assert raised == "KeyboardInterrupt" and note.startswith("the state at iteration ") and note.endswith("run.kkpt")
    header = read_header(tmp_path / "run.kkpt")
    assert header.iteration > 100 and not header.finished
    program = SCRAMBLE.program(97)
    end = header.iteration + 10
    with kk.open_device(spec) as device, kk.ProgramCache(device, programs) as cache:
        with kk.resume(tmp_path / "run.kkpt", cache, program, end) as done:
            assert done.report.iterations == 10
            assert (done.state["count"].numpy() == end).all()
            if end < 100_000:
                check(SCRAMBLE, done.state, program, end)


@pytest.fixture
def cache(specs: list[str], programs: str) -> Iterator[kk.ProgramCache]:
    with kk.open_device(specs[0]) as device, kk.ProgramCache(device, programs) as opened:
        yield opened


def test_a_folder_that_cannot_be_written_to_does_not_end_the_run(tmp_path: Path, cache: kk.ProgramCache) -> None:
    """Permissions do not stop root; a file in the place of the folder stops everybody."""
    (tmp_path / "folder").write_text("no folder")
    program = SCRAMBLE.program(SIZE)
    with pytest.warns(kk.CheckpointWarning, match="cannot be written") as caught:
        done = kk.run(
            cache, program, 2000, "redispatch", checkpoint=tmp_path / "folder" / "x.kkpt", checkpoint_iterations=1
        )
    check(SCRAMBLE, done.state, program, 2000)
    assert done.report.checkpoints == 0 and done.report.checkpoint_failures >= 1
    assert "failed" in str(done.report)
    assert len(caught) == 1, "it is said once"
    done.close()


FULL = """
import json, os, resource, sys, warnings
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE
spec, programs, checkpoint = sys.argv[1:]
program = SCRAMBLE.program(1001)
def warned():
    return [str(one.message) for one in caught if one.category is kk.CheckpointWarning]
def tell(step):
    # There is room again when it was said that there is none.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY if warned() else 3000, resource.RLIM_INFINITY))
def written(run):
    return bool(warned()) and os.path.exists(checkpoint)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with kk.open_device(spec) as device, kk.ProgramCache(device, programs) as cache:
        run = kk.run(
            cache, program, None, "redispatch", until=written, checkpoint=checkpoint, checkpoint_iterations=1, on_progress=tell
        )
        error = SCRAMBLE.largest_error(run.state, program, run.iteration)
        report = run.report
print(json.dumps([error, report.iteration, report.checkpoints, report.checkpoint_failures, warned()]))
"""


def test_a_disk_that_is_full_for_a_while_does_not_end_the_run(
    tmp_path: Path, specs: list[str], programs: str, cache: kk.ProgramCache
) -> None:
    path = tmp_path / "full.kkpt"
    error, end, written, failed, said = json.loads(run_python(FULL, specs[0], programs, path).stdout.splitlines()[-1])
    assert error == 0, "the run goes on as if nothing were"
    assert failed >= 1 and written >= 1
    assert len(said) == 1 and "the run goes on" in said[0]
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names[0] == path.name and len(names) <= 2, "nothing half-written is left"
    assert all(name.removeprefix(f"{path.name}.").isdigit() for name in names[1:])
    program = SCRAMBLE.program(1001)
    with kk.resume(path, cache, program, end + 5) as done:
        check(SCRAMBLE, done.state, program, end + 5)
        assert done.report.iterations == 5


def damage_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [damage_a_byte, cut_off, empty, Path.unlink])
def test_the_file_before_a_damaged_newest_one_is_used(tmp_path: Path, cache: kk.ProgramCache, harm: Any) -> None:
    path = tmp_path / "kept.kkpt"
    program = SCRAMBLE.program(SIZE)
    kk.run(cache, program, 30, "redispatch", checkpoint=path).close()
    kk.resume(path, cache, program, 50, "redispatch").close()
    assert read_header(path).iteration == 50
    harm(path)
    with pytest.warns(kk.CheckpointWarning, match="an older checkpoint is used") as caught:
        done = kk.resume(path, cache, program, 70, "mega")
    assert str(path) in str(caught[0].message)
    assert done.report.iterations == 40, "from the thirtieth on"
    assert done.report.resumed_from == f"{path} at iteration 30"
    check(SCRAMBLE, done.state, program, 70)
    done.close()
    # The bad file is not kept, and what was written now is good.
    with kk.resume(path, cache, program, 71) as again:
        assert again.report.iterations == 1
        check(SCRAMBLE, again.state, program, 71)


def test_resume_raises_where_all_files_are_damaged(tmp_path: Path, cache: kk.ProgramCache) -> None:
    path = tmp_path / "bad.kkpt"
    program = SCRAMBLE.program(SIZE)
    kk.run(cache, program, 30, "redispatch", checkpoint=path).close()
    kk.resume(path, cache, program, 50, "redispatch").close()
    for file in (path, path.with_name("bad.kkpt.1")):
        damage_a_byte(file)
    with pytest.raises(kk.CheckpointError, match="none of the 2 files") as caught:
        kk.resume(path, cache, program, 70)
    assert "bad.kkpt.1" in str(caught.value)
