"""Supervised work in real processes: killed, crashed, hung and failing workers are replaced, and the work gets done."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.continuous.heartbeat import RECORD, Pulse
from kernelkeep.continuous.supervision.incident import Incident
from kernelkeep.continuous.supervision.worker_main import is_transient

pytestmark = pytest.mark.slow

# A light imitation of kk.run: counts to 20, with a heartbeat for each and a checkpoint for every fifth.
PREFACE = """
import json, os, signal, sys, time
import kernelkeep as kk
from kernelkeep.continuous.heartbeat import beat

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "count.kkpt")

def save(iteration):
    import numpy as np
    from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
    from kernelkeep.continuous.checkpoints.files import write_checkpoint
    from kernelkeep.continuous.checkpoints.header import CheckpointHeader
    header = CheckpointHeader(program="count", program_digest="", layout_digest="", coupling="independent", items=1,
                    iteration=iteration, generation=iteration)
    write_checkpoint(PATH, Checkpoint(header, {"sum": np.array(iteration)}))

def load(path):
    if path is None:
        return 0
    from kernelkeep.continuous.checkpoints.files import newest_checkpoint
    return int(newest_checkpoint(path).checkpoint.arrays["sum"])

def first_time(what):
    try:
        os.close(os.open(os.path.join(HERE, what), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

def count(path, trouble, pause=0.0):
    import kernelkeep.continuous.checkpoints.files  # before the first heartbeat: on a busy machine it takes its time
    start = load(path)
    for iteration in range(start + 1, 21):
        time.sleep(pause)
        if iteration % 5 == 0:
            save(iteration)
        beat(iteration)
        trouble(iteration)
    return {"from": start, "to": iteration}

def show(report):
    print(json.dumps({"result": report.result, "restarts": report.restarts, "text": str(report), "note": report.note,
          "history": [{name: getattr(one, name) for name in one.__struct_fields__} for one in report.history]}))
"""


def script(folder: Path, body: str) -> list[str]:
    path = folder / "script.py"
    path.write_text(PREFACE + body)
    return [sys.executable, str(path)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])}


def supervise(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        script(folder, body), capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def shown(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_report_has_the_result_of_the_target(tmp_path: Path) -> None:
    body = """
def target(a, b, path):
    print("said by the worker", path, flush=True)
    return count(path, lambda iteration: None) | {"args": [a, b], "pid": os.getpid() != PARENT}

def without():
    return lambda: 5

PARENT = os.getppid()
if __name__ == "__main__":
    show(kk.run_supervised(target, checkpoint=PATH, args=("x", 2)))
    show(kk.run_supervised(without, checkpoint=None))
    show(kk.run_supervised(sys.exit, checkpoint=None))
"""
    done = supervise(tmp_path, body)
    lines = done.stdout.splitlines()
    assert lines[0] == "said by the worker None"
    first, second, third = (json.loads(line) for line in lines[1:])
    assert first["result"] == {"from": 0, "to": 20, "args": ["x", 2], "pid": True}
    assert (first["restarts"], first["history"], first["note"]) == (0, [], "")
    assert first["text"].startswith("done in ") and "no restart" in first["text"]
    assert second["result"] is None and "a function, cannot be pickled" in second["note"]
    assert third["result"] is None and third["restarts"] == 0


def test_killed_crashed_exited_and_faulty_workers_are_replaced(tmp_path: Path) -> None:
    body = """
def trouble(iteration):
    if iteration == 6 and first_time("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if iteration == 11 and first_time("crashed"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if iteration == 16 and first_time("exited"):
        os._exit(3)
    if iteration == 17 and first_time("left"):
        sys.exit(4)
    if iteration == 18 and first_time("faulty"):
        raise kk.DeviceError("the device fell off the bus")
    if iteration == 19 and first_time("silent"):
        os._exit(0)

def target(path):
    return count(path, trouble)

if __name__ == "__main__":
    seen = []
    report = kk.run_supervised(target, checkpoint=PATH, heartbeat_seconds=20, max_restarts=5,
                               on_event=seen.append)
    assert tuple(seen) == report.history
    show(report)
"""
    done = supervise(tmp_path, body)
    report = shown(done)
    assert report["result"] == {"from": 15, "to": 20}
    assert report["restarts"] == 6
    whats = [incident["what"] for incident in report["history"]]
    expected = [
        "was killed by SIGKILL",
        "was killed by SIGSEGV",
        "exit code 3",
        "exit code 4",
        "failed with DeviceError: the device fell off the bus",
        "exit code 0",
    ]
    for what, words in zip(whats, expected, strict=True):
        assert words in what
    assert [incident["signal"] for incident in report["history"]] == ["SIGKILL", "SIGSEGV", None, None, None, None]
    assert [incident["exit_code"] for incident in report["history"]] == [None, None, 3, 4, 1, 0]
    assert report["history"][4]["last_iteration"] == 18, "an exception tells it exactly"
    assert "fell off the bus" in report["history"][4]["traceback"]
    held = [incident["checkpoint"] for incident in report["history"]]
    for text, iteration in zip(held, (5, 10, 15, 15, 15, 15), strict=True):
        assert f"count.kkpt holds iteration {iteration} of count" in text
    assert len(report["text"].splitlines()) == 7
    # The diagnosis was said when it happened, a line each, and nothing else was.
    said = done.stderr.splitlines()
    assert len(said) == 6 and all(line.startswith("worker ") and "last heartbeat" in line for line in said)


def test_a_hanging_worker_is_killed(tmp_path: Path) -> None:
    body = """
def trouble(iteration):
    if iteration == 17 and first_time("hung"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(1000)

def target(path):
    return count(path, trouble, pause=0.05)

def mute(path):
    if first_time("mute"):
        time.sleep(1000)
    return "spoke"

if __name__ == "__main__":
    show(kk.run_supervised(target, checkpoint=PATH, heartbeat_seconds=1.5, start_seconds=60))
    show(kk.run_supervised(mute, checkpoint=PATH, heartbeat_seconds=30, start_seconds=3))
"""
    done = supervise(tmp_path, body)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["result"] == {"from": 15, "to": 20} and first["restarts"] == 1
    (incident,) = first["history"]
    assert "hung (no heartbeat for 1.5 s)" in incident["what"]
    assert 5 <= incident["last_iteration"] <= 17 and 1.4 < incident["heartbeat_age_seconds"] < 10
    assert second["result"] == "spoke"
    assert second["history"][0]["heartbeat_age_seconds"] is None
    assert "never gave a heartbeat" in second["text"]


def test_a_worker_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    body = """
def target(path):
    with open(os.path.join(HERE, "pid"), "w") as file:
        file.write(str(os.getpid()))
    os.replace(os.path.join(HERE, "pid"), os.path.join(HERE, "pids-" + str(os.getpid())))
    return count(path, lambda iteration: None, pause=0.05)

if __name__ == "__main__":
    show(kk.run_supervised(target, checkpoint=PATH))
"""
    command = script(tmp_path, body)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as run:
        first = wait_for(lambda: list(tmp_path.glob("pids-*")))[0]
        wait_for((tmp_path / "count.kkpt").exists)
        os.kill(int(first.name[5:]), signal.SIGKILL)
        out, _ = run.communicate(timeout=120)
    report = json.loads(out.splitlines()[-1])
    assert report["restarts"] == 1
    assert report["history"][0]["signal"] == "SIGKILL" and report["history"][0]["pid"] == int(first.name[5:])
    assert report["result"]["from"] >= 5 and report["result"]["to"] == 20


def test_the_supervisor_gives_up_with_the_history(tmp_path: Path) -> None:
    body = """
from kernelkeep.continuous.supervision import supervisor

def no_progress(path):
    beat(3)
    os.kill(os.getpid(), signal.SIGKILL)

def progress(path):
    start = load(path)
    save(start + 1)
    raise OSError("again")

def again(path):
    save(7)
    raise RuntimeError("no further")

def give_up(target, **options):
    try:
        kk.run_supervised(target, checkpoint=PATH, **options)
    except kk.SupervisionError as error:
        print(json.dumps({"text": str(error), "history": len(error.history), "whats": sorted({o.what for o in error.history}),
                          "cause": repr(error.__cause__)}))

if __name__ == "__main__":
    give_up(no_progress, max_restarts=2)
    give_up(no_progress, max_restarts=0)
    give_up(again, max_restarts=1)
    supervisor.RESTART_CAP = 3
    give_up(progress, max_restarts=1)
"""
    done = supervise(tmp_path, body)
    stuck, never, same, capped = (json.loads(line) for line in done.stdout.splitlines())
    assert stuck["history"] == 3 and stuck["text"].startswith("gave up after 2 restarts: worker ")
    assert "killed by SIGKILL" in stuck["text"] and stuck["cause"] == "None"
    assert never["history"] == 1 and "after 0 restarts" in never["text"]
    # A file that is only written again is no progress.
    assert same["history"] == 2 and same["cause"] == "RuntimeError('no further')"
    # Each of these got further, so only the cap ends it: here three times max_restarts.
    assert capped["history"] == 4 and capped["cause"] == "OSError('again')"


def test_permanent_failures_are_raised_at_once(tmp_path: Path) -> None:
    body = """
def compiles():
    raise kk.CompileError("f, line 3: no", log="the whole log", line=3, name="f")

def lacks(path):
    raise kk.Unsupported("cooperative")

def odd():
    class Local(ValueError):
        pass
    raise Local("cannot be pickled")

def imports():
    import no_such_module

def raised(target, checkpoint=None):
    try:
        kk.run_supervised(target, checkpoint=checkpoint)
    except Exception as error:
        print(json.dumps({"type": type(error).__name__, "text": str(error), "notes": getattr(error, "__notes__", []),
                          "line": getattr(error, "line", None)}))

def resumes(path):
    load(path)

if __name__ == "__main__":
    for target in (compiles, lacks, odd, imports):
        raised(target)
    with open(PATH, "w") as file:
        file.write("not a checkpoint")
    raised(resumes, PATH)
    raised(lambda: 5)
"""
    done = supervise(tmp_path, body)
    compiles, lacks, odd, imports, resumes, local = (json.loads(line) for line in done.stdout.splitlines())
    assert (compiles["type"], compiles["text"], compiles["line"]) == ("CompileError", "f, line 3: no", 3)
    assert "in compiles" in compiles["notes"][0] and "In the worker process:" in compiles["notes"][0]
    assert lacks["type"] == "Unsupported"
    assert odd["type"] == "SupervisionError" and "Local: cannot be pickled" in odd["text"]
    assert imports["type"] == "ModuleNotFoundError"
    assert resumes["type"] == "CheckpointError" and "is not a checkpoint" in resumes["text"]
    assert local["type"] == "ArgumentError" and "cannot be sent to another process" in local["text"]


def test_a_script_without_a_main_guard_is_reported(tmp_path: Path) -> None:
    body = """
def target():
    return 1
try:
    kk.run_supervised(target, checkpoint=None)
except kk.SupervisionError as error:
    print(error)
"""
    done = supervise(tmp_path, body)
    assert "if __name__ == '__main__':" in done.stdout and "before the target was called" in done.stdout


FOREVER = """
def target(path):
    with open(os.path.join(HERE, "pid.new"), "w") as file:
        file.write(str(os.getpid()))
    os.replace(os.path.join(HERE, "pid.new"), os.path.join(HERE, "pid"))
    iteration = 0
    try:
        while True:
            time.sleep(PAUSE)
            iteration += 1
            beat(iteration)
    except KeyboardInterrupt:
        save(iteration)
        print("stopped cleanly", flush=True)
        if STUBBORN:
            time.sleep(1000)

PAUSE, STUBBORN = 0.01, False
if __name__ == "__main__":
    try:
        kk.run_supervised(target, checkpoint=PATH)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def running(folder: Path, body: str) -> tuple[subprocess.Popen[str], int]:
    run = subprocess.Popen(
        script(folder, body),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    written = folder / "pid"
    wait_for(lambda: written.exists() and written.read_text() != "")  # it is there before its text is
    pid = int(written.read_text())
    assert is_alive(pid)
    return run, pid


@pytest.mark.parametrize("busy", [True, False])
def test_a_worker_does_not_outlive_its_supervisor(tmp_path: Path, busy: bool) -> None:
    run, pid = running(tmp_path, FOREVER if busy else FOREVER.replace("0.01", "1000"))
    run.kill()
    run.communicate(timeout=120)
    wait_for(lambda: not is_alive(pid), 5)
    assert not (tmp_path / "count.kkpt").exists()


def test_ctrl_c_stops_the_worker_once_and_cleanly(tmp_path: Path) -> None:
    run, pid = running(tmp_path, FOREVER)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    out, err = run.communicate(timeout=120)
    assert out.splitlines() == ["stopped cleanly", "interrupted"]
    assert "Traceback" not in err and f"worker {pid} is asked to stop" in err
    assert not is_alive(pid) and (tmp_path / "count.kkpt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_supervisor_lets_the_worker_make_its_checkpoint(tmp_path: Path, number: int) -> None:
    run, pid = running(tmp_path, FOREVER)
    run.send_signal(number)  # to the supervisor alone, as a container's init is stopped
    _, err = run.communicate(timeout=120)
    assert run.returncode == -number and "Traceback" not in err
    assert not is_alive(pid) and (tmp_path / "count.kkpt").exists()


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    run, pid = running(tmp_path, FOREVER.replace("STUBBORN = 0.01, False", "STUBBORN = 0.01, True"))
    run.send_signal(signal.SIGINT)
    wait_for((tmp_path / "count.kkpt").exists)
    time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=120)
    assert out.splitlines() == ["stopped cleanly", "interrupted"]
    assert not is_alive(pid)


def test_a_supervisor_that_was_stopped_does_not_kill_its_worker(tmp_path: Path) -> None:
    body = """
def target(path):
    with open(os.path.join(HERE, "pid"), "w") as file:
        file.write(str(os.getpid()))
    for iteration in range(35):
        time.sleep(0.05)
        beat(iteration)
    return "done"

if __name__ == "__main__":
    show(kk.run_supervised(target, checkpoint=None, heartbeat_seconds=2.0))
"""
    run, pid = running(tmp_path, body)
    for stopped in (run.pid, pid):
        os.kill(stopped, signal.SIGSTOP)
    time.sleep(2.6)
    for stopped in (run.pid, pid):
        os.kill(stopped, signal.SIGCONT)
    out, _ = run.communicate(timeout=120)
    report = json.loads(out.splitlines()[-1])
    assert (report["result"], report["restarts"]) == ("done", 0)


def test_beats_are_few_and_never_block() -> None:
    reading, writing = multiprocessing.Pipe(duplex=False)
    with reading, writing:
        pulse = Pulse(writing, 3600)
        for iteration in range(1000):
            pulse.beat(iteration)
        pulse.beat(None)
        assert len(os.read(reading.fileno(), 1 << 16)) == RECORD.size
        assert pulse.iteration == 999
        eager = Pulse(writing, 0)
        for iteration in range(20_000):  # far more than a pipe holds
            eager.beat(iteration)


def test_wrong_use() -> None:
    for wrong in (
        {"heartbeat_seconds": 0},
        {"max_restarts": -1},
        {"start_seconds": 0},
        {"heartbeat_seconds": "x"},
        {"args": 5},
        {"args": (1, 2, 3)},
    ):
        options: dict[str, Any] = {"checkpoint": None, **wrong}
        with pytest.raises(kk.ArgumentError):
            kk.run_supervised(test_beats_are_few_and_never_block, **options)
    with pytest.raises(kk.ArgumentError, match="cannot be called"):
        kk.run_supervised(5, checkpoint=None)  # type: ignore[arg-type]


def test_what_is_transient() -> None:
    transient = (kk.DeviceError("x"), kk.OutOfMemory("x"), OSError("x"), RuntimeError("x"), MemoryError())
    lasting = (kk.CompileError("x"), kk.ArgumentError("x"), kk.CheckpointError("x"), KeyError("x"), TypeError("x"))
    assert all(is_transient(error) for error in transient)
    assert not any(is_transient(error) for error in lasting)


def test_an_incident_is_one_line() -> None:
    incident = Incident(
        1.0, "hung", 7, 3.21, last_iteration=1200, heartbeat_age_seconds=0.44, checkpoint="x.kkpt holds y"
    )
    assert str(incident) == (
        "worker 7 hung after 3.2 s; its last heartbeat was 0.4 s before, at iteration 1,200; x.kkpt holds y"
    )
