"""A Ray cluster of two nodes: work is spread, a killed worker's part is done again, and a lost machine's jobs go on elsewhere.

Ray runs in processes of its own: a helper that has the cluster, and `kernelkeep fleet` as a person runs it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.files import newest_header
from kernelkeep.kernels.catalogue import find_kernel
from kernelkeep.processes import python_environment
from kernelkeep.testing import skip_backend
from kernelkeep.testing.servers import RedisServer
from kernelkeep.variants.records import Records
from kernelkeep.variants.sharing import take_from

pytestmark = pytest.mark.slow

CLUSTER = """
import os, shutil, sys, tempfile
memory = 80 << 20
folder = tempfile.mkdtemp(prefix="kk-ray-")  # a short path: Ray makes sockets in it
os.environ["RAY_TMPDIR"] = folder
os.mkdir(os.path.join(folder, "ray"))  # where it writes the cluster's address, and does not make the folder
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args=dict(temp_dir=folder,
    num_cpus=1, object_store_memory=memory, include_dashboard=False, env_vars={"KERNELKEEP_CACHE_DIR": sys.argv[1]},
    _system_config={"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}))
second = cluster.add_node(num_cpus=1, object_store_memory=memory, env_vars={"KERNELKEEP_CACHE_DIR": sys.argv[2]})
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(second, allow_graceful=False)
    print("killed", flush=True)
cluster.shutdown()
shutil.rmtree(folder, ignore_errors=True)
"""
WORK = """
import os, time
from pathlib import Path
import kernelkeep as kk
from kernelkeep.samples.states import SCRAMBLE

def die_once(flag):
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getppid(), 9)  # the worker of the cluster
        time.sleep(60)
    return "survived"

def bad():
    raise ValueError("no good")

def scramble(checkpoint, go, spec):
    # Ends on the first machine only: on the second it must not end between the machine's end and its own.
    with kk.open_device(spec) as device, kk.ProgramCache(device) as cache:
        program = SCRAMBLE.program(97)
        ends = os.environ["KERNELKEEP_CACHE_DIR"].endswith("first")
        run = kk.run(cache, program, 1 << 30, checkpoint=checkpoint, checkpoint_iterations=1, resume=True,
                     on_progress=lambda step: time.sleep(0.02), until=lambda run: ends and Path(go).exists())
        wrong = SCRAMBLE.largest_error(run.state, program, run.iteration) if run.iteration < 200_000 else 0
        return [run.iteration, run.report.resumed_from, wrong, os.environ["KERNELKEEP_CACHE_DIR"]]
"""
KERNELS = """
import kernelkeep as kk

template = kk.Template(
    "for (int k = 0; k < PER; k++) { int i = kk_global_id(0) * PER + k; if (i < n) y[i] = 2.0f * x[i]; }",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4")],
    group=32,
    grid=lambda v: -(-v["n"] // (32 * v["PER"])),
)
scale = kk.Tuned("scale", template, kk.VariantSpace(PER=[1, 2]), reference=lambda x: 2 * x)
kernels = [
    kk.PortableKernel(f"k{i}", params=[kk.Buffer("x", "f4", "rw")], body=f"x[kk_global_id(0)] += {i}.0f;") for i in range(4)
]
k0, k1, k2, k3 = kernels
broken = kk.PortableKernel("broken", params=[kk.Buffer("x", "f4", "rw")], body="nonsense;")
"""


class RayCluster:
    """The helper process."""

    def __init__(self, folder: Path) -> None:
        self.caches = [str(folder / "first"), str(folder / "second")]
        self._log = (folder / "log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLUSTER, *self.caches],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self._process.communicate()
            self._log.seek(0)
            raise AssertionError(f"the cluster ended: {self._log.read()[-2000:]}")
        return line

    def kill_second_machine(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        assert self._line() == "killed"

    def close(self) -> None:
        self._process.communicate(timeout=60)
        self._log.close()


def environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return python_environment({**variables, "RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    if importlib.util.find_spec("ray") is None:
        skip_backend("ray", "Ray is not installed; to get it: pip install 'kernelkeep[fleet]'")
    made = RayCluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kernelkeep", "fleet", *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, Any, str]:
    output, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors, errors
    return process.returncode, json.loads(output) if output.startswith("{") else output, errors


def test_programs_are_compiled_across_the_cluster_into_the_store(
    cluster: RayCluster, redis_server: RedisServer, namespace: str, folder: Path, pocl: str
) -> None:
    store = f"{redis_server.url}?namespace={namespace}&allow_unsigned=1"
    names = [f"{folder / 'kernels.py'}:{name}" for name in ("k0", "k1", "k2", "broken")]
    where = ("--target", pocl, "--remote", store, "--cluster", cluster.address, "--cache-dir", folder / "cache")
    code, text, errors = end(start("warm", *names, *where))
    assert code == 1 and "warm: 3 of 4 done by a Ray cluster of 2 machines with 2 CPUs" in text
    progress = [line for line in errors.splitlines() if line.startswith("warm: ")]
    assert progress[-1].startswith("warm: 4 of 4 parts in ") and progress[-1].endswith(", 1 failed")
    (sentence,) = [line for line in errors.splitlines() if line.startswith("kernelkeep: ")]
    assert sentence.startswith("kernelkeep: broken for") and sentence.endswith("line 1: unknown name nonsense")
    with kk.open_device(pocl) as device:
        with kk.ProgramCache(device, folder / "third", remote=store, remote_timeout=5) as cache:
            source = kk.PortableKernel("k2", params=[kk.Buffer("x", "f4", "rw")], body="x[kk_global_id(0)] += 2.0f;")
            with cache.get(source) as lease:
                assert lease.origin == "remote"


def test_problems_are_tuned_one_on_each_machine_and_shared(
    cluster: RayCluster, redis_server: RedisServer, namespace: str, folder: Path, pocl: str
) -> None:
    store = f"{redis_server.url}?namespace={namespace}&allow_unsigned=1"
    kernel = f"{folder / 'kernels.py'}:scale"
    command = ["tune", kernel, "--problem", "n=3000", "--problem", "n=5000", "--device", pocl, "--remote", store]
    code, found, _ = end(start(*command, "--cluster", cluster.address, "--cache-dir", folder / "cache", "--json"))
    assert code == 0, found
    assert len({part["where"] for part in found["parts"]}) == 2
    assert all(part["result"]["measured"] == 2 for part in found["parts"])
    with kk.open_device(pocl) as device, kk.ProgramCache(device, folder / "cache") as cache:
        tuned = find_kernel(kernel).tuned_for(device, None)
        assert {tuned.select(cache, {"n": n}).basis for n in (3000, 5000)} == {"exact"}, "brought here"
    with Records(None) as records:
        take_from(store, records)
        assert len(records.of_device("scale", device.fingerprint.digest)) == 4, "and to whoever else asks"


def test_what_is_lost_is_done_again_and_what_fails_is_reported(
    cluster: RayCluster,
    redis_server: RedisServer,
    namespace: str,
    folder: Path,
    pocl: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker is killed, and then a machine, whose job goes on from its checkpoint on the other one. The last test here."""
    monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(folder / "reader"))
    addresses = [f"{redis_server.url}/{namespace}-{i}.kkpt?allow_unsigned=1" for i in range(2)]
    go = folder / "go"
    options = {"go": str(go), "spec": pocl}
    jobs: list[dict[str, Any]] = [
        {"call": "work.py:die_once", "name": "hit", "args": [f"{folder}/flag"]},
        {"call": "work.py:bad"},
        {"call": "work.py:bad", "num_gpus": 8},
        *({"call": "work.py:scramble", "checkpoint": address, "kwargs": options} for address in addresses),
    ]
    (folder / "jobs.json").write_text(json.dumps({"jobs": jobs}))
    process = start("run", folder / "jobs.json", "--cluster", cluster.address, "--json")
    before = iterations_of(addresses, process)
    cluster.kill_second_machine()
    go.touch()  # the other machine's job ends, and makes room
    code, found, errors = end(process)
    assert code == 1 and not found["ok"], (found, errors)
    hit, bad, unplaced, *runs = found["parts"]
    assert hit["ok"] and hit["losses"] == 1 and hit["result"]["result"] == "survived"
    assert bad["error"] == "ValueError: no good" and not bad["losses"]
    assert unplaced["error"] == "no machine of the cluster has 1 CPUs and 8 GPUs"
    assert any(part["losses"] for part in runs), runs
    lost = next(part for part in runs if part["losses"])
    number = runs.index(lost)
    iteration, resumed, wrong, where = lost["result"]["result"]
    assert resumed.startswith(addresses[number].partition("?")[0]), "from its checkpoint, on the other machine"
    assert int(resumed.rpartition(" ")[2].replace(",", "")) >= before[number] > 0
    assert where == cluster.caches[0] and wrong == 0 and iteration >= before[number]


def iterations_of(addresses: list[str], process: subprocess.Popen[str]) -> list[int]:
    """How far runs are, once each has stored a checkpoint."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return [newest_header(address).iteration for address in addresses]
        except kk.CheckpointError:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
