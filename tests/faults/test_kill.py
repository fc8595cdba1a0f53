"""`kill -9` at any moment: no reader ever sees a bad entry, and no lock is left that blocks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.key import key_of
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry

pytestmark = pytest.mark.slow

# One process imports everything and forks: a writer costs milliseconds, so that a hundred can be killed.
KILLING = """
import json, os, random, signal, sys, time
from pathlib import Path
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.storage.files import Damaged
from kernelkeep.cache.stats import add_to_file
from kernelkeep.testing.entries import sample_entry

root, kills = Path(sys.argv[1]), int(sys.argv[2])
PROGRAMS, WRITERS = 24, 4
rng = random.Random(20)

def tier(max_bytes=1 << 30):
    return DiskChain(root, "gpu", {"model": "GPU"}, max_bytes)

def entry(number, size):
    return sample_entry(number, size=size, compressible=size % 2 == 0)

def write(seed):
    rng = random.Random(seed)
    writer = tier(rng.choice((1 << 30, 600_000)))
    while True:
        one = entry(rng.randrange(PROGRAMS), rng.choice((200, 201, 5000, 5001, 60_001, 300_000)))
        action = rng.random()
        if action < 0.8:
            with writer.alone(one.facts.key.digest, 5):
                writer.put(one)
        elif action < 0.9:
            writer.reject(one.facts.key.digest, one.facts.name, "the driver refuses it")
        elif action < 0.95:
            writer.prune(max_bytes=rng.choice((0, 100_000, 400_000)))
        else:
            add_to_file(root / "cache_stats.json", {"misses": 1})

def read():
    reader = tier().folder
    while True:
        for number in range(PROGRAMS):
            one = sample_entry(number)
            try:
                reader.read_entry(one.facts.key.digest, one.facts.name)
            except Damaged as damage:
                print("a reader saw:", damage, flush=True)
                os._exit(1)
            except OSError:
                pass

def forked(work, *arguments):
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(1)
    return child

watch = tier()
reader = forked(read)
done, slowest, unexpected, whole = 0, 0.0, 0, 0
writers = [forked(write, seed) for seed in range(WRITERS)]
while done < kills:
    time.sleep(rng.uniform(0.001, 0.015))
    victim = writers.pop(rng.randrange(WRITERS))
    os.kill(victim, signal.SIGKILL)
    unexpected += os.WTERMSIG(os.waitpid(victim, 0)[1]) != signal.SIGKILL
    done += 1
    writers.append(forked(write, WRITERS + done))
    if done % 20 == 0:  # all at once, and look at what is left
        for victim in writers:
            os.kill(victim, signal.SIGKILL)
            unexpected += os.WTERMSIG(os.waitpid(victim, 0)[1]) != signal.SIGKILL
        done += len(writers)
        for stored in watch.scan():
            assert stored.facts is not None, (stored.path, stored.damage)
            whole += 1
        for number in (*range(PROGRAMS), 1000 + done):
            one = entry(number, 777)
            start = time.monotonic()
            with watch.alone(one.facts.key.digest, 5) as locked:
                assert locked
                assert watch.put(one)
            assert watch.get(one.facts.key.digest, one.facts.name) == one
            slowest = max(slowest, time.monotonic() - start)
        writers = [forked(write, 10_000 + done + seed) for seed in range(WRITERS)]
for victim in writers:
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
assert os.waitpid(reader, os.WNOHANG) == (0, 0), "the reader is still well"
os.kill(reader, signal.SIGKILL)
os.waitpid(reader, 0)
print(json.dumps({"kills": done, "slowest": slowest, "unexpected": unexpected, "whole": whole}))
"""


def test_writers_killed_at_a_hundred_random_moments(tmp_path: Path) -> None:
    said = json.loads(run_python(KILLING, tmp_path / "cache", 100).stdout.splitlines()[-1])
    assert said["kills"] >= 100 and said["unexpected"] == 0, "no writer ended by itself"
    assert said["whole"] > 10, "there were entries to damage, also where writers had just pruned"
    assert said["slowest"] < 1, "no lock of a killed process blocks"
    tier = DiskChain(tmp_path / "cache", "gpu", {}, 1 << 30)
    entries, size = tier.recount()
    files = list(tier.folder.path.glob("programs/*/*.bin"))
    assert entries == len(files) and size == sum(path.stat().st_size for path in files)
    # What killed writers left is cleared away in time.
    for leftover in (tier.folder.path / "tmp").iterdir():
        os.utime(leftover, (time.time() - 7200,) * 2)
    DiskChain(tmp_path / "cache", "gpu", {}, 1 << 30)
    assert not list((tier.folder.path / "tmp").iterdir())
    json.loads((tmp_path / "cache" / "cache_stats.json").read_text())


COMPILING = """
import json, sys
import kernelkeep as kk
spec, root, text = sys.argv[1:4]
with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
    print("ready", flush=True)
    sys.stdin.readline()
    with cache.get(kk.Source(text, name="slow")) as lease:
        print(json.dumps({"origin": lease.origin, "compiles": cache.stats().compiles}), flush=True)
"""


@contextmanager
def compiling(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has opened the device and compiles at the next line of input."""
    paths = [str(Path(kk.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    ours = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "POCL_KERNEL_CACHE": "0"}
    environment = {**os.environ, **ours}
    command = [sys.executable, "-c", COMPILING, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "ready"
            yield child
        finally:
            child.kill()


@pytest.mark.opencl
def test_a_killed_compiler_is_taken_over(tmp_path: Path) -> None:
    with open_or_skip("opencl") as device:
        lines = "\n".join(f"v = v * {n}.5f + sin(v + {n}.25f);" for n in range(60))
        text = f"__kernel void slow(__global float* x) {{ float v = x[get_global_id(0)];\n{lines}\nx[0] = v; }}"
        digest = key_of(kk.Source(text, name="slow"), device.fingerprint.digest).digest
        lock = tmp_path / "cache" / device.fingerprint.folder / "locks" / f"{digest}.lock"
        arguments = (device.spec, tmp_path / "cache", text)
    with compiling(*arguments) as first, compiling(*arguments) as second:
        assert first.stdin and second.stdin and second.stdout
        first.stdin.write("\n")
        deadline = time.monotonic() + 20
        while not lock.exists():
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        first.send_signal(signal.SIGSTOP)  # in the middle of its compile, for as long as we like
        assert lock.exists()
        second.stdin.write("\n")
        time.sleep(0.5)
        assert not list((tmp_path / "cache").glob("*/programs/*/*.bin")), "the second waits"
        first.kill()
        first.wait()
        said = json.loads(second.stdout.readline())
        assert said == {"origin": "compiled", "compiles": 1}
        assert second.wait(20) == 0
    assert not lock.exists()
    assert len(list((tmp_path / "cache").glob("*/programs/*/*.bin"))) == 1


def test_the_samples_differ() -> None:
    """Guards the test above: what is overwritten is not the same bytes."""
    assert sample_entry(1, size=200) != sample_entry(1, size=5000)
    assert sample_entry(1, size=200) != sample_entry(2, size=200)
