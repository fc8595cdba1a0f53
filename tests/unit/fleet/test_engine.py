"""A fleet on this machine: parts are done once, lost ones again, failures are sentences, and there is one view of all."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import fleet
from kernelkeep.fleet.engine import run_parts
from kernelkeep.fleet.jobs import JobDone, read_jobs
from kernelkeep.fleet.parts import Part, PartFailed, PartLost, PartStatus, State
from kernelkeep.fleet.view import progress_view, summary, table_of
from kernelkeep.fleet.workers import Ended, Told, Workers, open_workers
from kernelkeep.testing import run_python

JOBS = """
import os, time
from pathlib import Path

def add(a, b=1):
    return a + b

def die_once(flag, *, whom):
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getppid() if whom == "the worker" else os.getpid(), 9)
        time.sleep(60)
    return "survived"

def fail(sentence):
    raise ValueError(sentence)
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(JOBS)
    return tmp_path


def test_jobs_run_in_processes_and_what_dies_is_done_again(jobs: Path) -> None:
    listed = jobs / "jobs.json"
    listed.write_text(
        json.dumps(
            {
                "jobs": [
                    {"call": "work.py:add", "args": [1], "kwargs": {"b": 41}},
                    {"call": "work.py:die_once", "name": "hit", "args": [f"{jobs}/1"], "kwargs": {"whom": "the job"}},
                    {"call": "work.py:die_once", "args": [f"{jobs}/2"], "kwargs": {"whom": "the worker"}},
                    {"call": "work.py:fail", "name": "bad", "args": ["two\nlines"]},
                ]
            }
        )
    )
    report = fleet.run(listed, cluster="local", workers=2)
    sums, hit, lost, bad = report.parts
    assert sums.result == JobDone(42, 0)
    assert hit.result.result == "survived" and hit.result.restarts == 1 and hit.losses == 0
    assert lost.result.result == "survived" and lost.result.restarts == 0 and lost.losses == 1
    assert not bad.ok and bad.error == "ValueError: two lines"
    assert not report.ok and report.failed == (bad,) and report.losses == 1
    assert str(report).splitlines()[1] == "failed: bad: ValueError: two lines"
    assert "3 of 4 done by 2 processes of this machine" in str(report)


class Scripted(Workers):
    """Workers whose outcomes are written down."""

    description = "a script"

    def __init__(self, *outcomes: object, room: int = 2) -> None:
        self._outcomes = list(outcomes)
        self._room = room
        self._running: list[int] = []
        self.started: list[str] = []
        self.interrupted = False

    def start(self, part: Part) -> int | None:
        if len(self._running) >= self._room:
            return None
        self.started.append(part.name)
        self._running.append(len(self.started))
        return len(self.started)

    def wait(self, seconds: float) -> Sequence[Told | Ended]:
        if not self._running:
            return []
        token = self._running.pop(0)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return [Told(token, "here:1", "a note"), Ended(token, outcome), Ended(99, "nobody's")]

    def interrupt(self) -> None:
        self.interrupted = True

    def close(self) -> None:
        return


def part(name: str) -> Part:
    return Part(name, lambda *arguments: None, None)


def ignore(statuses: Sequence[PartStatus]) -> None:
    return


def test_a_lost_part_is_done_again_and_one_that_kills_every_worker_is_given_up() -> None:
    workers = Scripted(PartLost("its machine is gone"), "b", "a")
    done = run_parts([part("a"), part("b")], workers, ignore)
    assert [(one.state, one.result, one.losses) for one in done] == [(State.DONE, "a", 1), (State.DONE, "b", 0)]
    assert workers.started == ["a", "b", "a"] and done[0].where == "here:1" and done[0].note == "a note"
    workers = Scripted(*[PartLost("its process died")] * 3)
    (given_up,) = run_parts([part("a")], workers, ignore, most_losses=2)
    assert given_up.state is State.FAILED
    assert given_up.error == "its worker was lost 3 times, the last time because its process died"


def test_ctrl_c_asks_the_workers_to_stop() -> None:
    workers = Scripted(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_parts([part("a")], workers, ignore)
    assert workers.interrupted


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    workers = Scripted("a", PartLost("x"), PartFailed("no"), "b", room=1)
    with progress_view("warm", 3, True) as show:
        statuses = run_parts([part("a"), part("b"), part("c")], workers, show)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 2 and re.fullmatch(r"warm: 3 of 3 parts in [\d.]+ s, 1 failed", lines[-1])
    with progress_view("warm", 3, False) as show:
        show(statuses)
    assert capsys.readouterr().err == ""
    assert summary("warm", statuses) == "warm: 3 of 3 parts, 1 failed, 0 running, 1 lost and done again"
    heard: list[kk.Progress] = []
    with progress_view("warm", 3, heard.append) as show:
        show(statuses)
    assert (heard[0].done, heard[0].total, heard[0].failed) == (3, 3, 1)
    table = table_of("warm", [*statuses, *(PartStatus(part(str(i))) for i in range(30))])
    assert len(table.rows) == 20 and table.caption == "and 13 more"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "holds no list of jobs"),
        ("[]", "jobs must not be empty"),
        ('[{"call": "a:b", "what": 1}]', "unknown field `what`"),
        ('[{"call": "a:b", "name": "x"}, {"call": "a:c", "name": "x"}]', "two jobs have the same name: x"),
        (
            '[{"call": "a:b", "checkpoint": "redis://:secret@h/0/x"}, {"call": "a:c", "checkpoint": "redis://:secret@h/0/x"}]',
            "two jobs have the same checkpoint: redis://h/0/x",
        ),
    ],
)
def test_a_bad_list_of_jobs_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(kk.ArgumentError) as error:
        read_jobs(tmp_path / "jobs.json")
    assert said in str(error.value) and "secret" not in str(error.value)


def test_jobs_in_python(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("jobs = [dict(call='math:sqrt', args=[float(i)]) for i in range(3)]")
    found = read_jobs(tmp_path / "jobs.py")
    assert [job.name for job in found] == ["math:sqrt 1", "math:sqrt 2", "math:sqrt 3"]
    assert "secret" not in repr(fleet.FleetJob(call="a:b", checkpoint="redis://:secret@h/0/x"))


def test_a_call_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    report = fleet.run([{"call": "no_such_module:f"}, {"call": "math:no"}], cluster="local", workers=1)
    first, second = report.parts
    assert first.error == "the module of no_such_module:f cannot be imported: No module named 'no_such_module'"
    assert second.error == "math:no must be a function, got None"


def test_the_package_has_the_fleet_without_loading_it() -> None:
    code = "import sys, kernelkeep as kk; print('kernelkeep.fleet' in sys.modules, kk.fleet.warm.__name__, 'ray' in sys.modules)"
    assert run_python(code).stdout.split() == ["False", "warm", "False"]


def test_without_ray_a_cluster_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(kk.Unsupported, match=r"pip install .*\[fleet\]'"):
        open_workers("somewhere:6379", [])
    with open_workers(None, []) as workers:
        assert "this machine" in workers.description
