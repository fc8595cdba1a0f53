"""Many machines miss the same programs at the same moment: each program is compiled once, also when compiling machines die.

A machine is a process with a cache folder of its own; in one test it has a network of its own too. Compiles are counted by
the compiler: it appends a line to a file when it begins and one when it has finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelkeep.processes import python_environment
from kernelkeep.testing import run_python
from kernelkeep.testing.servers import RedisServer, S3Server

MACHINES, PROGRAMS = 32, 20
FEWER = 12  # machines, where one is killed and one is paused
PATIENCE = 120.0

# One process loads the modules and forks the machines, before any of them opens a device or a connection: 32 interpreters
# that load the same modules would be most of the test's time. From then on they share nothing but the log and the store.
MACHINE = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy, redis, obstore
import kernelkeep as kk
from kernelkeep.cache.tiers import remote  # loaded before the fork
from kernelkeep.testing import FakeDevice

url, namespace, root, machines, programs = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
killed, paused = sys.argv[6], sys.argv[7]

def note(what, name):
    line = f"{what} {name} {os.getpid()}\\n".encode()
    descriptor = os.open(root / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)

def first(what):
    try:
        os.close(os.open(root / what, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

class CountingDevice(FakeDevice):
    def compile_program(self, source):
        note("begin", source.name)
        time.sleep(0.05)
        if source.name == killed and first("killed"):
            note("killed", source.name)
            os.kill(os.getpid(), signal.SIGKILL)
        if source.name == paused and first("paused"):
            note("paused", source.name)
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.05)
        compiled = super().compile_program(source)
        note("end", source.name)
        return compiled

def kernel(number):
    body = f"int i = kk_global_id(0); y[i] = i * {number + 2} + {number};"
    return kk.PortableKernel(f"program{number}", params=[kk.Buffer("y", "i4", "w")], body=body, group=32)

def machine(number):
    with CountingDevice() as device:
        shared = kk.Remote(url, namespace=namespace, timeout_seconds=60)
        with kk.ProgramCache(device, root / str(number), remote=shared, signing_key=b"a shared secret") as cache:
            wanted = list(range(programs))
            random.Random(number).shuffle(wanted)
            time.sleep(max(0, start - time.time()))
            origins = []
            for program in wanted:
                with cache.get(kernel(program)) as lease:
                    y = device.array(numpy.zeros(32, "i4"))
                    lease.kernel().launch(1, (y,))
                    assert (y.numpy() == numpy.arange(32) * (program + 2) + program).all()
                    origins.append(lease.origin)
            done = root / f"{number}.done"
            done.write_text(json.dumps(origins))
            done.rename(root / f"{number}.json")  # so that nobody reads a part of it

start = time.time() + 0.7
children = []
for number in range(machines):
    pid = os.fork()
    if pid == 0:
        try:
            machine(number)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    children.append(pid)
print(json.dumps([os.waitpid(pid, 0)[1] for pid in children]))
"""


def read_log(root: Path, what: str) -> list[str]:
    """The programs of the lines that begin with a word."""
    lines = (root / "log").read_text().splitlines() if (root / "log").exists() else []
    return [line.split()[1] for line in lines if line.split()[0] == what]


def paused_process(root: Path) -> int:
    return next(int(line.split()[2]) for line in (root / "log").read_text().splitlines() if line.startswith("paused"))


def finished(root: Path) -> list[list[str]]:
    return [json.loads(path.read_text()) for path in root.glob("*.json")]


def test_32_machines_compile_20_programs_20_times(redis_server: RedisServer, namespace: str, tmp_path: Path) -> None:
    done = run_python(
        MACHINE, redis_server.url, namespace, tmp_path, MACHINES, PROGRAMS, "", "", timeout_seconds=PATIENCE
    )
    assert json.loads(done.stdout) == [0] * MACHINES, done.stderr
    names = {f"program{number}": 1 for number in range(PROGRAMS)}
    assert Counter(read_log(tmp_path, "begin")) == Counter(read_log(tmp_path, "end")) == names
    origins = Counter(origin for machine in finished(tmp_path) for origin in machine)
    assert origins == {"compiled": PROGRAMS, "remote": (MACHINES - 1) * PROGRAMS}


@pytest.mark.parametrize("place", ["redis", "s3"])
def test_a_program_whose_compiler_is_killed_or_paused_is_compiled_by_another_machine(
    place: str, request: pytest.FixtureRequest, namespace: str, tmp_path: Path
) -> None:
    server: RedisServer | S3Server = request.getfixturevalue(f"{place}_server")
    arguments = (server.url, namespace, tmp_path, FEWER, PROGRAMS, "program7", "program3")
    names = {f"program{number}": 1 for number in range(PROGRAMS)}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_python, MACHINE, *arguments, timeout_seconds=PATIENCE)
        try:
            deadline = time.monotonic() + PATIENCE
            while len(finished(tmp_path)) < FEWER - 2:  # one was killed, one is paused
                assert time.monotonic() < deadline and not running.done(), running
                time.sleep(0.05)
            assert Counter(read_log(tmp_path, "end")) == names
            assert Counter(read_log(tmp_path, "begin")) == Counter(names) + Counter(["program7", "program3"])
        finally:
            with contextlib.suppress(StopIteration, OSError):
                os.kill(paused_process(tmp_path), signal.SIGCONT)
        statuses = json.loads(running.result().stdout)
    assert sorted(statuses) == [0] * (FEWER - 1) + [signal.SIGKILL]
    # The one that was paused finished what it had begun, too late, and did no harm.
    assert Counter(read_log(tmp_path, "end")) == Counter(names) + Counter(["program3"])
    assert read_log(tmp_path, "killed") == ["program7"] and read_log(tmp_path, "paused") == ["program3"]
    assert len(finished(tmp_path)) == FEWER - 1


REAL = """
import json, sys, time
import numpy as np
import kernelkeep as kk

spec, url, namespace, root, start = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5])
with kk.open_device(spec, cache_dir=root) as device:
    shared = kk.Remote(url, namespace=namespace, timeout_seconds=60)
    with kk.ProgramCache(device, root, remote=shared, signing_key=b"a shared secret") as cache:
        time.sleep(max(0, start - time.time()))
        for number in range(3):
            body = f"int i = kk_global_id(0); y[i] = i * {number + 2} + {number};"
            kernel = kk.PortableKernel(f"program{number}", params=[kk.Buffer("y", "i4", "w")], body=body, group=32)
            with cache.get(kernel) as lease:
                y = device.array(np.zeros(32, "i4"))
                lease.kernel().launch(1, (y,))
                assert (y.numpy() == np.arange(32) * (number + 2) + number).all()
        stats = cache.stats()
    print(json.dumps([stats.compiles, stats.hits_remote]))
"""


@pytest.mark.opencl
def test_real_programs_are_compiled_once(pocl: str, redis_server: RedisServer, namespace: str, tmp_path: Path) -> None:
    start = time.time() + 2

    def machine(number: int) -> list[int]:
        root = tmp_path / str(number)
        done = run_python(REAL, pocl, redis_server.url, namespace, root, start)
        compiles_and_hits: list[int] = json.loads(done.stdout)
        return compiles_and_hits

    with ThreadPoolExecutor(4) as pool:
        each = list(pool.map(machine, range(4)))
    assert sum(compiles for compiles, _ in each) == 3
    assert [compiles + hits for compiles, hits in each] == [3] * 4


# --- machines with networks of their own

HOST = "10.213.77.1"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def networks() -> Iterator[list[str]]:
    """Three network namespaces on one bridge, as three machines on a switch. The host is reached as `HOST`."""
    bridge, names = f"kkbr{os.getpid() % 10000}", [f"kk{os.getpid()}-{number}" for number in range(3)]
    made = []
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{HOST}/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for number, name in enumerate(names):
                _ip("netns", "add", name)
                made.append(name)
                here, there = f"kkh{os.getpid() % 10000}{number}", f"kkn{os.getpid() % 10000}{number}"
                _ip("link", "add", here, "type", "veth", "peer", "name", there)
                _ip("link", "set", here, "master", bridge, "up")
                _ip("link", "set", there, "netns", name)
                _ip("-n", name, "addr", "add", f"10.213.77.{number + 10}/24", "dev", there)
                _ip("-n", name, "link", "set", there, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or error
            pytest.skip(f"this user may not make network namespaces: {str(said).strip()}")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        if shutil.which("ip"):
            subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def test_three_networks_compile_once(networks: list[str], namespace: str, tmp_path: Path) -> None:
    with RedisServer("--bind", f"127.0.0.1 {HOST}", "--protected-mode", "no") as server:
        url = f"redis://{HOST}:{server.port}/0"

        def machine(number: int) -> subprocess.CompletedProcess[str]:
            root = tmp_path / str(number)
            root.mkdir()
            script = ["-c", MACHINE, url, namespace, str(root), "1", "5", "", ""]
            command = ["ip", "netns", "exec", networks[number], sys.executable, *script]
            variables = python_environment(dict(os.environ))
            return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False)

        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(machine, range(3)))
        assert [one.stdout.strip() for one in done] == ["[0]"] * 3, [one.stderr for one in done]
        compiled = Counter(name for number in range(3) for name in read_log(tmp_path / str(number), "end"))
        assert compiled == {f"program{number}": 1 for number in range(5)}
