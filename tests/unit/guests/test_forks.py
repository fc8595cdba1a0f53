"""Forked processes: what they put is in the shared store, once, however they end; what they find is counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelkeep.cache.stats import read_guests
from kernelkeep.cache.tiers.remote import stored_name
from kernelkeep.guests.guest_cache import GuestCache
from kernelkeep.remote.address import Remote, open_store, parse_remotes
from kernelkeep.testing import run_python
from kernelkeep.testing.servers import RedisServer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no process forks here")

WAITING, ENDS = 20, ("at once", "in order", "killed", "multiprocessing")
SCRIPT = """
import multiprocessing, os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads, which this is about
from kernelkeep.guests.guest_cache import guest_cache

cache = guest_cache("probe")
key = lambda name: cache.key({"name": name})
assert cache.get(key("first"), "first") is None and cache.put(key("first"), "first", b"first")
cache.chain.flush()
stop = threading.Event()

def look():
    while not stop.is_set():  # so that locks are held when the process forks
        cache.find(key("first"), "first"), cache.find(key("none"), "none")

looking = threading.Thread(target=look)
looking.start()
for number in range(int(sys.argv[1])):  # written in the background; most of them still wait at the forks
    cache.put(key(f"parent {number}"), "parent", os.urandom(20_000))

def work(name):
    assert cache.find(key("first"), "first") == b"first"
    assert cache.get(key(name), "child") is None and cache.put(key(name), "child", name.encode() * 1000)

def fork(end):
    child = os.fork()
    if child:
        return child
    work(end)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0) if end == "at once" else sys.exit(0)

children = [fork(end) for end in ("at once", "in order", "killed")]
context = multiprocessing.get_context("fork")
process = context.Process(target=work, args=("multiprocessing",))
process.start()
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
process.join()
stop.set()
looking.join()
assert [*ended, process.exitcode] == [0, 0, -signal.SIGKILL, 0], (ended, process.exitcode)
"""


@pytest.fixture
def redis(redis_server: RedisServer, namespace: str) -> str:
    return f"{redis_server.url}?namespace={namespace}&allow_unsigned=1"


def stored(remote: Remote) -> set[str]:
    prefix = stored_name(GuestCache("probe").fingerprint.digest, "")
    return {name.removeprefix(prefix) for name in open_store(remote).list(prefix)}


@pytest.mark.parametrize("kind", ["redis", "folder"])
def test_what_a_forked_process_puts_is_stored_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("redis") if kind == "redis" else f"file://{tmp_path}/store"
    monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELKEEP_REMOTE", f"{address}{'&' if '?' in address else '?'}timeout_seconds=20")
    run_python(SCRIPT, WAITING)
    names = ["first", *(f"parent {number}" for number in range(WAITING)), *ENDS]
    key = GuestCache("probe").key
    (remote,) = parse_remotes(None)
    assert stored(remote) == {key({"name": name}).digest for name in names}
    counts = read_guests(tmp_path / "cache" / "cache_stats.json")["probe"]
    assert (counts["compiles"], counts["remote_stored"]) == (len(names), len(names))
    assert counts["remote_failed"] == counts["remote_dropped"] == 0


HITS = """
import multiprocessing
from kernelkeep.guests.guest_cache import guest_cache

cache = guest_cache("probe")
key = cache.key({"name": "a"})
if cache.get(key, "a") is None:
    cache.put(key, "a", b"a")
def work():
    for _ in range(5):
        assert cache.get(key, "a") == b"a"
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
assert cache.stats().hits_disk == 0, "those are the child's"
"""


def test_what_a_forked_process_finds_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(tmp_path / "cache"))
    run_python(HITS)
    counts = read_guests(tmp_path / "cache" / "cache_stats.json")["probe"]
    assert (counts["hits_disk"], counts["misses"], counts["compiles"]) == (5, 1, 1)
