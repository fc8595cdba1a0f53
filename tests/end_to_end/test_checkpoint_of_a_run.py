"""What happens to the files when a run begins, goes on or starts again; on a real device, as a user sees it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
    with kk.open_device() as device, kk.ProgramCache(device, tmp_path_factory.mktemp("programs")) as opened:
        yield opened


PROGRAM = SCRAMBLE.program(50)


def run(cache: kk.ProgramCache, path: Path, iterations: int, **options: object) -> kk.RunReport:
    options.setdefault("checkpoint_every", 3600.0)  # so that a slow machine writes no more files than a fast one
    with kk.run(cache, PROGRAM, iterations, "redispatch", checkpoint=path, **options) as done:  # type: ignore[arg-type]
        assert SCRAMBLE.largest_error(done.state, PROGRAM, iterations) == 0
        return done.report


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# --- an existing file


def test_an_existing_checkpoint_is_refused_resumed_or_kept_aside(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    run(cache, path, 30, resume=True)  # there is none: it starts
    run(cache, path, 40, resume=True)
    before = contents(tmp_path)
    assert list(before) == ["heat.kkpt", "heat.kkpt.1"]
    with pytest.raises(
        kk.CheckpointError, match=r"heat\.kkpt exists already \(iteration 40 of .*resume=True.*resume=False"
    ):
        run(cache, path, 50)
    assert contents(tmp_path) == before
    report = run(cache, path, 50, resume=True)
    assert report.iterations == 10 and report.resumed_from == f"{path} at iteration 40"
    with kk.run(cache, PROGRAM, 45, checkpoint=path, resume=True) as done:
        report = done.report
    assert report.iterations == 0
    assert report.reason.startswith("nothing was left to do: iteration 50 was reached before, and iterations=45 counts")
    before = contents(tmp_path)
    assert run(cache, path, 20, resume=False).iterations == 20
    (aside,) = (name for name in contents(tmp_path) if name.startswith("heat.kkpt.before-") and name.endswith("Z"))
    after = contents(tmp_path)
    assert after[aside] == before["heat.kkpt"] and after[f"{aside}.2"] == before["heat.kkpt.2"]
    assert kk.read_checkpoint(path).iteration == 20
    # The old run goes on under its new name, its older file included; nothing of the new one is touched.
    (tmp_path / aside).unlink()
    with pytest.warns(kk.CheckpointWarning, match="an older checkpoint is used"):
        kk.resume(_renamed(tmp_path / f"{aside}.2", tmp_path / aside), cache, PROGRAM, 60).close()
    assert contents(tmp_path)["heat.kkpt"] == after["heat.kkpt"]


def _renamed(file: Path, wanted: Path) -> Path:
    """The newest file is lost; its header still says for which name it was written, so the older one is put in its place."""
    data = file.read_bytes()
    wanted.write_bytes(data[:-1])
    return wanted


def test_a_run_that_is_refused_moves_nothing(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    run(cache, path, 3)
    before = contents(tmp_path)
    broken = kk.StateProgram(
        "broken", coupling="independent", state={"u": np.zeros(4, "f4")}, body="u_next[kk_item()] = nonsense;"
    )
    with pytest.raises(kk.CompileError):
        kk.run(cache, broken, 5, "redispatch", checkpoint=path, resume=False)
    for wrong in (1, "yes"):
        with pytest.raises(kk.ArgumentError, match="resume must be True, False or None"):
            run(cache, path, 5, resume=wrong)
    with pytest.raises(kk.ArgumentError, match="resume=True needs checkpoint="):
        kk.run(cache, PROGRAM, 5, resume=True)
    with pytest.raises(kk.CheckpointError, match="does not fit broken"):
        kk.run(cache, broken, 5, checkpoint=path, resume=True)
    (tmp_path / "other.kkpt").write_text("my thesis")
    with pytest.raises(kk.CheckpointError, match=r"other\.kkpt exists already: .* pass another checkpoint="):
        kk.resume(path, cache, PROGRAM, 9, checkpoint=tmp_path / "other.kkpt")
    with pytest.raises(kk.CheckpointError, match=r"cannot be resumed from \(.*other\.kkpt is not a checkpoint\)"):
        run(cache, tmp_path / "other.kkpt", 9)
    (tmp_path / "other.kkpt").unlink()
    assert contents(tmp_path) == before


def test_an_empty_file_is_overwritten(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "made-by-mkstemp.kkpt"
    path.touch()
    assert run(cache, path, 3).iterations == 3


# --- other people's files


def test_nothing_foreign_is_overwritten_removed_or_resumed_from(cache: kk.ProgramCache, tmp_path: Path) -> None:
    """Another run that is called run.1, a copy with a date, and files that are no checkpoints at all."""
    for name in ("run.1", "run.2"):
        run(cache, tmp_path / name, 7)
    run(cache, tmp_path / "run", 3)
    shutil.copy(tmp_path / "run", tmp_path / "run.20261115")
    shutil.copy(tmp_path / "run", tmp_path / "run.9")
    (tmp_path / "run.5").write_text("my notes")
    (tmp_path / "run.before-20261115T195238Z").write_text("mine")
    before = {name: data for name, data in contents(tmp_path).items() if name != "run"}
    for iterations in range(4, 14):
        run(cache, tmp_path / "run", iterations, resume=True, keep_checkpoints=2)
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 2
    for broken in ("cut", "gone"):
        (tmp_path / "run").write_bytes(after["run"][:-9]) if broken == "cut" else (tmp_path / "run").unlink()
        with pytest.warns(kk.CheckpointWarning, match="an older checkpoint is used"):
            report = run(cache, tmp_path / "run", 20, resume=True)
        assert report.resumed_from == f"{tmp_path / 'run'} at iteration 12", "not from a copy, nor from another run"
        for name in set(contents(tmp_path)) - set(after):
            (tmp_path / name).unlink()
        for name, data in after.items():
            (tmp_path / name).write_bytes(data)


def test_a_run_resumes_from_a_backup_that_is_put_back(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    run(cache, path, 3)
    shutil.copy(path, tmp_path / "backup")
    for iterations in (5, 6, 7):
        run(cache, path, iterations, resume=True)
    shutil.copy(tmp_path / "backup", path)
    assert run(cache, path, 9, resume=True).iterations == 6
    (aside,) = tmp_path.glob("heat.kkpt.before-*Z")
    assert aside.read_bytes() == (tmp_path / "backup").read_bytes()
    assert kk.read_checkpoint(f"{aside}.3").iteration == 6, "what the backup took the place of is kept with it"
    path.write_bytes(b"")
    with pytest.raises(kk.CheckpointError, match="is not a checkpoint"):
        kk.resume(path, cache, PROGRAM, 9)


# --- two runs on one file

HOLDER = """
import sys, time
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE
with kk.open_device() as device, kk.ProgramCache(device, sys.argv[2]) as cache:
    print("running", flush=True)
    kk.run(cache, SCRAMBLE.program(50), 2**31 - 1, "redispatch", checkpoint=sys.argv[1], checkpoint_iterations=1)
"""


def test_a_second_run_on_a_file_is_refused_until_the_first_one_dies(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    command = [sys.executable, "-c", HOLDER, str(path), str(cache.cache_dir)]
    env = {**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])}
    with subprocess.Popen(command, env=env) as holder:
        try:
            deadline = time.monotonic() + 60
            while not path.exists():
                assert holder.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(holder.pid, signal.SIGSTOP)  # a holder that does nothing is waited for no longer
            begun = time.monotonic()
            for resume in (None, True, False):
                with pytest.raises(kk.CheckpointError, match=rf"heat\.kkpt is in use: a run in process {holder.pid}"):
                    run(cache, path, 5, resume=resume)
            with pytest.raises(kk.CheckpointError, match="is in use"):
                kk.resume(path, cache, PROGRAM, 5)
            assert time.monotonic() - begun < 10
            assert kk.read_checkpoint(path).iteration >= 1, "looking is free"
        finally:
            holder.kill()
    middle = kk.read_checkpoint(path).iteration
    assert run(cache, path, middle + 5, resume=True).iterations == 5
    assert not list(tmp_path.glob(".*")), "no lock is left"


def test_a_second_run_in_another_thread_is_refused(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    told: list[BaseException] = []

    def second() -> None:
        try:
            run(cache, tmp_path / "folder" / ".." / "heat.kkpt", 5, resume=True)
        except BaseException as error:
            told.append(error)

    def begin_another(_: object) -> None:
        if not told:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    run(cache, path, 20, on_progress=begin_another)
    assert isinstance(told[0], kk.CheckpointError) and "another run in this process" in str(told[0])
    run(cache, path, 25, resume=True)


def test_a_run_that_ends_releases_its_file(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(cache, path, 5, on_progress=fail, resume=False)
    assert run(cache, path, 5, resume=False).iterations == 5


# --- a worker that is replaced

SUPERVISED = """
import contextlib, os, signal, sys, time
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE

def work(checkpoint, programs, resume, old):
    # The first one dies when a checkpoint of its own is there. The next is not told where to go on from.
    died = checkpoint + ".died"
    def die(step):
        time.sleep(0.01)
        with contextlib.suppress(kk.CheckpointError):
            if not os.path.exists(died) and kk.read_checkpoint(checkpoint).lineage != old:
                open(died, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
    with kk.open_device() as device, kk.ProgramCache(device, programs) as cache:
        options = {"checkpoint": checkpoint, "checkpoint_iterations": 1, "on_progress": die, "resume": resume}
        until = lambda run: os.path.exists(died)
        with kk.run(cache, SCRAMBLE.program(50), None, "redispatch", until=until, **options) as done:
            error = SCRAMBLE.largest_error(done.state, SCRAMBLE.program(50), done.iteration)
            return done.report.resumed_from is not None, error

if __name__ == "__main__":
    checkpoint, programs, choice, old = sys.argv[1:]
    choice = {"None": None, "True": True, "False": False}[choice]
    report = kk.run_supervised(work, checkpoint=checkpoint, args=(checkpoint, programs, choice, old))
    print(report.result[0], report.result[1] == 0, report.restarts == 1)
"""


@pytest.mark.parametrize("resume", [None, False])
def test_a_worker_that_replaces_another_resumes_by_itself(
    cache: kk.ProgramCache, tmp_path: Path, resume: bool | None
) -> None:
    path = tmp_path / "files" / "heat.kkpt"
    script = tmp_path / "script.py"
    script.write_text(SUPERVISED)
    env = {**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])}
    old = ""
    if resume is False:
        run(cache, path, 60)
        old = kk.read_checkpoint(path).lineage
    command = [sys.executable, str(script), str(path), str(cache.cache_dir), str(resume), old]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["True"] * 3, done.stderr
    asides = list(path.parent.glob("*.before-*"))
    assert len(asides) == (resume is False), "what was there before is kept once, and no worker starts over"
    if resume is None:  # the file of an earlier run is not gone on from unasked
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode and "exists already" in done.stderr


# --- what is not a file


@pytest.mark.parametrize("kind", ["device", "link to a device", "pipe", "folder"])
def test_a_checkpoint_path_that_is_not_a_file_is_refused(cache: kk.ProgramCache, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "special"
    if kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError as error:
            pytest.skip(f"no device can be made here: {error.strerror}")
    elif kind == "link to a device":
        path.symlink_to("/dev/null")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = path.lstat()
    for resume in (None, True, False):
        with pytest.raises(kk.CheckpointError, match=r"special cannot be a checkpoint: it is a .*, not a regular file"):
            run(cache, path, 5, resume=resume)
    for call in (
        lambda: kk.resume(path, cache, PROGRAM, 5),
        lambda: kk.read_checkpoint(path),
        lambda: kk.run_supervised(print, checkpoint=path),
    ):
        with pytest.raises(kk.CheckpointError, match="not a regular file"):
            call()
    after = path.lstat()
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)
    assert [file.name for file in tmp_path.iterdir()] == ["special"]


def test_a_pipe_that_takes_the_place_of_the_file_during_a_run_stays(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"

    def swap(_: object) -> None:
        if not path.exists():
            os.mkfifo(path)

    with pytest.warns(kk.CheckpointWarning, match="it is a named pipe, not a regular file"):
        report = run(cache, path, 5, on_progress=swap)
    assert report.checkpoint_failures and stat.S_ISFIFO(path.stat().st_mode)


# --- reading one


def test_read_checkpoint_gives_the_state_back(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"
    heat = kk.StateProgram(
        "heat",
        coupling="independent",
        state={"u": np.arange(8, dtype="f4")},
        scalars={"k": np.float32(0.1), "n": 3},
        body="u_next[kk_item()] = u[kk_item()] + k * n;",
    )
    with kk.run(cache, heat, 12, checkpoint=path) as done:
        expected = done.state["u"].numpy()
    found = kk.read_checkpoint(path)
    assert (found.program, found.iteration, found.phase, found.finished) == ("heat", 12, 0, False)
    np.testing.assert_array_equal(found.state["u"], expected)
    assert found.scalars == {"k": np.float32(0.1), "n": np.int32(3)} and found.scalars["k"].dtype == "f4"
    assert found.body == heat.body and found.tasks == {} and found.coupling == "independent" and found.items == 8
    assert len(found.lineage) == 32 and abs(found.created.timestamp() - time.time()) < 60
    assert repr(found).startswith("<Checkpoint: iteration 12 of heat (generation") and "u float32 (8,)" in repr(found)
    found.state["u"][0] = 5  # ours to change
    with pytest.raises(kk.CheckpointError, match="there is no checkpoint"):
        kk.read_checkpoint(tmp_path / "no.kkpt")


def test_a_refused_resume_says_everything_that_differs(cache: kk.ProgramCache, tmp_path: Path) -> None:
    path = tmp_path / "heat.kkpt"

    def heat(
        k: float = 0.1, size: int = 8, dtype: str = "f4", body: str = "u_next[kk_item()] = u[kk_item()] * k;"
    ) -> kk.StateProgram:
        return kk.StateProgram(
            "heat", coupling="independent", state={"u": np.ones(size, dtype)}, scalars={"k": np.float32(k)}, body=body
        )

    kk.run(cache, heat(), 3, checkpoint=path).close()

    def refusal(program: kk.StateProgram) -> str:
        with pytest.raises(kk.CheckpointError) as caught:
            kk.resume(path, cache, program, 9)
        return str(caught.value)

    said = refusal(heat(k=0.2))
    assert said.startswith(f"the checkpoint {path} does not fit heat: scalar k: 0.1 → 0.2; ")
    assert f"initial_state=kk.read_checkpoint('{path}'))" in said
    with kk.run(
        cache, heat(k=0.2), 9, initial_state=kk.read_checkpoint(path), checkpoint=tmp_path / "changed.kkpt"
    ) as done:
        assert done.report.iterations == 6, "it does what was said"
    said = refusal(heat(k=0.2, size=9, dtype="f8", body="int i = 1;\nu_next[kk_item()] = u[kk_item()] * k;"))
    for words in (
        "items: 8 → 9", "dtype of u: <f4 → <f8", "shape of u: (8,) → (9,)", "scalar k: 0.1 → 0.2",
        "the body differs, first in line 1: 'u_next[kk_item()] = u[kk_item()] * k;' → 'int i = 1;'",
    ):  # fmt: skip
        assert words in said
    assert "initial_state" not in said, "that would not fit either"
    kk.resume(path, cache, heat(), 9).close()
