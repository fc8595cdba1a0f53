"""`kill -9` at any moment of writing a checkpoint: one that was reported as written is never lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelkeep.continuous.checkpoints.files import newest_checkpoint
from kernelkeep.testing import run_python

pytestmark = pytest.mark.slow

COMMON = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.continuous.checkpoints.files import newest_checkpoint, read_checkpoint, write_checkpoint
from kernelkeep.continuous.checkpoints.run_claim import claim_for_run, claim_to_continue
from kernelkeep.continuous.checkpoints.writer import CheckpointWriter

path = Path(sys.argv[1]) / "heat.kkpt"

def header(iteration):
    return CheckpointHeader(program="heat", program_digest="p", layout_digest="l", coupling="neighbours", items=8,
                  iteration=iteration, generation=iteration)

def arrays(iteration, size=1000):
    noise = np.random.default_rng(iteration).integers(0, 256, size, dtype="u1")
    return {"u": np.full(size, iteration, "i4"), "noise": noise}

def check(found):
    iteration = found.header.iteration
    assert (found.arrays["u"] == iteration).all()
    assert np.array_equal(found.arrays["noise"], arrays(iteration, found.arrays["noise"].size)["noise"])
    return iteration

def forked(work, *arguments):
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(1)
    return child
"""

RANDOM = (
    COMMON
    + """
rng = random.Random(8)

def write(seed, first, told):
    rng = random.Random(seed)
    keep = rng.choice((1, 2, 2, 4))
    def tell(iteration, written):
        os.write(told, iteration.to_bytes(8, "little"))
    if seed % 2:
        writer = CheckpointWriter(claim_to_continue(path), keep)
        for iteration in range(first, first + 1_000_000):
            writer.submit(header(iteration), arrays(iteration, rng.choice((10, 5000, 400_000, 400_000))),
                          lambda written, iteration=iteration: written and tell(iteration, written))
            time.sleep(rng.uniform(0, 0.01))
    for iteration in range(first, first + 1_000_000):
        size = rng.choice((10, 5000, 400_000, 400_000))
        tell(iteration, write_checkpoint(path, Checkpoint(header(iteration), arrays(iteration, size)), keep=keep))

last = kills = passed_over = 0
writes = set()
while kills < int(sys.argv[2]):
    reading, writing = os.pipe()
    child = forked(write, kills, last + 1, writing)
    os.close(writing)
    told = b""
    if kills % 3:  # most of them after they have written something, however busy the machine is
        told = os.read(reading, 8)
        time.sleep(rng.uniform(0, 0.03))
    else:
        time.sleep(rng.uniform(0.003, 0.06))
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, "no writer ended by itself"
    kills += 1
    told += os.read(reading, 1 << 20)
    os.close(reading)
    last = max([last, *(int.from_bytes(told[at : at + 8], "little") for at in range(0, len(told), 8))])
    if not last:
        continue
    found = newest_checkpoint(path)
    passed_over += len(found.skipped)
    iteration = check(found.checkpoint)
    assert iteration >= last, (iteration, last)
    check(read_checkpoint(path))  # its own name is there at every moment
    last = iteration
    writes.add(last)
print(json.dumps({"kills": kills, "last": last, "passed_over": passed_over, "different": len(writes)}))
"""
)


def test_a_writer_killed_at_random_moments_leaves_a_good_file(tmp_path: Path) -> None:
    said = json.loads(run_python(RANDOM, tmp_path, 60).stdout.splitlines()[-1])
    assert said["kills"] == 60 and said["passed_over"] == 0
    assert said["different"] > 20, "writers get on between two kills"
    assert newest_checkpoint(tmp_path / "heat.kkpt").checkpoint.iteration == said["last"]


STEPS = (
    COMMON
    + """
keep = int(sys.argv[2])

def die_at(step):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.listdir", "os.scandir", "os.truncate"):
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def one_more(iteration, step):
    die_at(step)
    write_checkpoint(path, Checkpoint(header(iteration), arrays(iteration)), keep=keep)

last = step = 0
for last in range(1, 4):
    write_checkpoint(path, Checkpoint(header(last), arrays(last)), keep=keep)
while True:
    step += 1
    child = forked(one_more, last + 1, step)
    status = os.waitpid(child, 0)[1]
    found = newest_checkpoint(path)
    assert not found.skipped, found.skipped
    iteration = check(found.checkpoint)
    assert iteration == check(read_checkpoint(path)) and iteration in (last, last + 1)
    kept = len([name for name in os.listdir(path.parent) if not name.startswith(".")])
    assert kept >= keep - 1, (step, kept)
    last = iteration
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    last += 1  # and the next writer finds its way in whatever was left
    write_checkpoint(path, Checkpoint(header(last), arrays(last)), keep=keep)
    assert not [name for name in os.listdir(path.parent) if name.startswith(".")], "no leftover"
assert check(found.checkpoint) == last
print(step)
"""
)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_writer_killed_before_any_step_leaves_a_good_file(tmp_path: Path, keep: int) -> None:
    """Each call that touches the folder is the last of one writer."""
    steps = int(run_python(STEPS, tmp_path, keep).stdout)
    assert steps > 8
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == keep and names[0] == "heat.kkpt"


OVERWRITING = (
    COMMON
    + """
from kernelkeep.platforms import system
keep = int(sys.argv[2])
# Everything that changes a file or a name, in the order in which it happens: nothing else is written by a second thread.
import kernelkeep.storage.large_file as large_file
large_file._MOST_THREADS = 1
SIZE = 330_000  # 1.6 MiB in all: 21 blocks and 6

def state(iteration):
    still = np.arange(SIZE, dtype="i4")
    still[iteration % 20 * 16384] = -iteration  # in one block
    return {"still": still, "noise": np.resize(np.arange(251, dtype="u1"), SIZE)}

def check(found):
    iteration = found.header.iteration
    for name, expected in state(iteration).items():
        assert np.array_equal(found.arrays[name], expected)
    return iteration

def die_at(step):
    count = 0
    def pass_by(call):
        def passed(*arguments):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)
        return passed
    def half(call):  # a write is cut in two: what was written before is there
        def passed(descriptor, data, offset):
            middle = len(data) // 8192 * 4096
            done = call(descriptor, data[:middle], offset) if middle else 0
            return done + pass_by_write(descriptor, data[done:], offset + done)
        pass_by_write = pass_by(call)
        return passed
    for name in ("sync", "sync_folder", "replace"):
        setattr(system, name, pass_by(getattr(system, name)))
    system.write_at = half(system.write_at)
    for name in ("rename", "link", "unlink"):
        setattr(os, name, pass_by(getattr(os, name)))


def one_more(iteration, step, told):
    claim = claim_to_continue(path)
    die_at(step)
    written = claim.write(Checkpoint(header(iteration), state(iteration)), keep=keep)
    os.write(told, written.written_bytes.to_bytes(8, "little"))

def whole_ones():
    return [read_checkpoint(path.parent / name) for name in os.listdir(path.parent) if not name.startswith(".")]

last = step = 0
reading, writing = os.pipe()
while True:
    for _ in range(keep + 1):
        last += 1
        written = write_checkpoint(path, Checkpoint(header(last), state(last)), keep=keep)
    assert written.written_bytes < 500_000, written
    assert not [name for name in os.listdir(path.parent) if name.startswith(".") and name.endswith(".tmp")], "no leftover"
    step += 1
    newest = path.read_bytes()
    status = os.waitpid(forked(one_more, last + 1, step, writing), 0)[1]
    found = newest_checkpoint(path)
    assert not found.skipped, found.skipped
    iteration = check(found.checkpoint)
    assert iteration == check(read_checkpoint(path)) and iteration in (last, last + 1), (step, iteration, last)
    if iteration == last:
        assert path.read_bytes() == newest
    kept = sorted(map(check, whole_ones()))
    assert len(kept) >= keep - 1, (step, kept)
    last = iteration
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
assert int.from_bytes(os.read(reading, 8), "little") < 500_000, "the file was overwritten in place"
print(step)
"""
)


@pytest.mark.parametrize("keep", [2, 3])
def test_a_writer_killed_while_it_overwrites_an_older_file_leaves_the_newer_ones(tmp_path: Path, keep: int) -> None:
    """Each write and each change of a name is the last of one writer; a write is done in part."""
    assert int(run_python(OVERWRITING, tmp_path, keep).stdout) > 8
    names = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("."))
    assert len(names) == keep and names[0] == "heat.kkpt"


START_OVER = (
    COMMON
    + """
def die_at(step):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.listdir", "os.scandir"):
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def start_over(step):
    die_at(step)
    claim, goes_on = claim_for_run(path, False)
    claim.begin()
    claim.write(Checkpoint(header(9), arrays(9)))

for last in range(1, 4):
    write_checkpoint(path, Checkpoint(header(last), arrays(last)), keep=3)
for step in range(1, 1000):
    status = os.waitpid(forked(start_over, step), 0)[1]
    places = [path, *path.parent.glob("heat.kkpt.before-*Z")]
    held = {check(newest_checkpoint(place).checkpoint) for place in places if place.exists()}
    assert 3 in held, (step, held)  # the old one is somewhere, whole, with a name to go on from
    everything = {check(read_checkpoint(path.parent / name)) for name in os.listdir(path.parent) if not name.startswith(".")}
    assert everything >= {1, 2, 3}, (step, everything)
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    for name in os.listdir(path.parent):  # back to the beginning
        os.unlink(path.parent / name)
    for last in range(1, 4):
        write_checkpoint(path, Checkpoint(header(last), arrays(last)), keep=3)
assert check(read_checkpoint(path)) == 9
print(step)
"""
)


def test_a_run_killed_before_any_step_of_starting_over_keeps_the_old_file(tmp_path: Path) -> None:
    assert int(run_python(START_OVER, tmp_path).stdout) > 8
