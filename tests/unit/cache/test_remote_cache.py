"""A program cache with shared stores: one machine compiles, the others find it; nothing unsigned, and nothing asked too often.

Machines are caches with folders of their own. The servers are real ones.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.cache.tiers.remote import stored_name
from kernelkeep.processes import python_environment
from kernelkeep.remote.address import open_store, parse_remotes
from kernelkeep.remote.deadline import in_parallel
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.servers import NginxServer, Proxy, RedisServer
from kernelkeep.testing.warned import one_warning

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'kernelkeep[remote]'")
SECRET = b"a shared secret"
PATIENT_SECONDS = 60.0  # two busy cores
MakeCache = Callable[..., kk.ProgramCache]


def adder(term: int) -> kk.Source:
    text = f'def adder(y: "i4[]", n: "i4"):\n    y[:n] += {term}\n'
    return kk.Source(text, name=f"adder{term}", language="python")


def origin(cache: kk.ProgramCache, source: kk.Source) -> str:
    with cache.get(source) as lease:
        return lease.origin


@pytest.fixture(autouse=True)
def no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("KERNELKEEP_REMOTE", raising=False)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def machine(device: FakeDevice, tmp_path: Path) -> Iterator[MakeCache]:
    """Makes a cache with a folder of its own."""
    made: list[kk.ProgramCache] = []

    def make(remote: object, folder: str = "", **options: object) -> kk.ProgramCache:
        given = {"signing_key": SECRET, "remote_timeout": PATIENT_SECONDS} | options
        cache = kk.ProgramCache(device, tmp_path / (folder or f"machine{len(made)}"), remote=remote, **given)  # type: ignore[arg-type]
        made.append(cache)
        return cache

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def redis(redis_server: RedisServer, namespace: str) -> str:
    return f"{redis_server.url}?namespace={namespace}"


def stored(url: str, cache: kk.ProgramCache) -> list[str]:
    (remote,) = parse_remotes(url, timeout_seconds=PATIENT_SECONDS)
    return sorted(open_store(remote).list(stored_name(cache.device.fingerprint.digest, "")))


def test_another_machine_finds_what_one_compiled(
    machine: MakeCache, redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than any load takes, however busy the machine is.
    monkeypatch.setattr("kernelkeep.testing.fake.device._COMPILE_SECONDS", 1.0)
    first = machine(redis)
    assert origin(first, adder(1)) == "compiled"
    first.finish_saving()
    assert first.stats().remote_stored == 1 and len(stored(redis, first)) == 1
    second = machine(redis)
    assert origin(second, adder(1)) == "remote"
    stats = second.stats()
    assert (stats.hits_remote, stats.misses, stats.compiles, stats.on_disk) == (1, 0, 0, 1)
    assert stats.compile_seconds_saved > 0 and "remote hits" in str(stats)
    second.close()
    again = machine(redis, "machine1")
    assert origin(again, adder(1)) == "disk", "a remote hit is kept on disk"
    assert again.stats().compile_seconds_saved > 0
    assert again.lifetime_stats().hits_remote == 1


def test_every_kind_of_store(machine: MakeCache, nginx_server: NginxServer, namespace: str, tmp_path: Path) -> None:
    for url in (nginx_server.url, (tmp_path / "shared").as_uri()):
        remote = kk.Remote(url, namespace=namespace)
        first = machine(remote)
        assert origin(first, adder(1)) == "compiled"
        first.finish_saving()
        assert origin(machine(remote), adder(1)) == "remote"


def test_a_socket_of_this_machine(machine: MakeCache, redis_server: RedisServer, namespace: str) -> None:
    url = f"unix://{redis_server.socket_path}?db=0&namespace={namespace}"
    with machine(url) as first:
        assert origin(first, adder(1)) == "compiled"
    assert origin(machine(url), adder(1)) == "remote"


@pytest.mark.parametrize("seconds", [-1, float("nan"), True, "1", None])
def test_compile_wait_seconds_must_be_a_number_of_seconds(machine: MakeCache, seconds: object) -> None:
    with pytest.raises(kk.ArgumentError, match="compile_wait_seconds must be a number of seconds, 0 or more"):
        machine([], compile_wait_seconds=seconds)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True])
def test_workers_of_preload_must_be_a_positive_integer(machine: MakeCache, workers: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="workers must be a positive integer"):
        machine([]).preload([adder(1)], workers=workers)


def test_threads_may_wait_for_ever(machine: MakeCache, device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, build = machine([], compile_wait_seconds=float("inf")), device.build

    def build_slowly(source: kk.Source) -> Any:
        time.sleep(0.3)
        return build(source)

    monkeypatch.setattr(device, "build", build_slowly)
    assert sorted(in_parallel(lambda number: origin(cache, adder(1)), range(3))) == ["compiled", "memory", "memory"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, True, "1", None])
def test_remote_timeout_must_be_a_number_of_seconds(machine: MakeCache, seconds: object) -> None:
    with pytest.raises(kk.ArgumentError, match="remote_timeout must be a positive number of seconds"):
        machine([], remote_timeout=seconds)


def test_closing_writes_what_waits(machine: MakeCache, redis: str) -> None:
    with machine(redis) as first:
        for term in range(20):
            first.get(adder(term)).release()
    assert len(stored(redis, first)) == 20


def test_a_program_that_ripens_is_stored_again(pocl: str, tmp_path: Path, redis: str) -> None:
    number = uuid.uuid4().int % 10**9  # nothing that the driver's own cache has
    text = (
        f"__kernel void f(__global int* y, int n) {{ int i = get_global_id(0); if (i < n) y[i] += i * {number} + n; }}"
    )
    source = kk.Source(text, name="f", language="opencl")
    with kk.open_device(pocl, cache_dir=tmp_path / "a") as device:
        options: dict[str, Any] = {"remote": redis, "signing_key": SECRET, "remote_timeout": PATIENT_SECONDS}
        with kk.ProgramCache(device, tmp_path / "a", **options) as cache:
            with cache.get(source) as lease:
                lease.kernel().launch(1, (device.array(np.zeros(5, "i4")), np.int32(5)), 64)
            cache.finish_saving()
            assert cache.stats().ripened == 1 and cache.stats().remote_stored in (1, 2), (
                "the later takes the earlier's place"
            )
        with kk.ProgramCache(device, tmp_path / "b", **options) as second:
            found = second.chain.find(second.identify(source)[1], source.name)
            assert found is not None and (found[1], found[0].facts.ripened) == ("remote", 1)


# --- several remotes


def test_several_remotes_are_asked_in_order_and_filled(machine: MakeCache, redis: str, tmp_path: Path) -> None:
    folder = (tmp_path / "shared").as_uri()
    first = machine(folder)
    first.get(adder(1)).release()
    first.finish_saving()
    second = machine([redis, folder])
    assert origin(second, adder(1)) == "remote"
    second.finish_saving()
    assert len(stored(redis, second)) == 1, "the nearer one has it from now on"
    assert second.chain.counts()["remote"].filled == 1 and second.chain.counts()["remote 2"].hits == 1


def test_a_read_only_remote_is_read_and_never_written(machine: MakeCache, redis: str) -> None:
    first = machine(redis)
    first.get(adder(1)).release()
    first.finish_saving()
    second = machine(f"{redis}&read_only=1")
    assert origin(second, adder(1)) == "remote" and origin(second, adder(2)) == "compiled"
    second.finish_saving()
    stats = second.stats()
    assert len(stored(redis, second)) == 1
    assert (stats.remote_stored, stats.remote_failed, stats.remote_dropped, stats.remote_skipped) == (0, 0, 0, 0)


def test_namespaces_are_kept_apart(machine: MakeCache, redis_server: RedisServer, namespace: str) -> None:
    first = machine(kk.Remote(redis_server.url, namespace=namespace))
    first.get(adder(1)).release()
    first.finish_saving()
    assert origin(machine(kk.Remote(redis_server.url, namespace=f"{namespace}x")), adder(1)) == "compiled"


def test_entries_expire(machine: MakeCache, redis_server: RedisServer, namespace: str) -> None:
    first = machine(kk.Remote(redis_server.url, namespace=namespace, ttl_seconds=1000))
    first.get(adder(1)).release()
    first.finish_saving()
    key = f"kernelkeep:{namespace}:{stored(f'{redis_server.url}?namespace={namespace}', first)[0]}"
    assert 0 < int(redis_server.ask("TTL", key)[1:].split()[0]) <= 1000


def test_another_machine_can_pull_what_was_stored_after_the_first_entries_expired(
    machine: MakeCache, redis: str, tmp_path: Path
) -> None:
    cache = machine(f"{redis}&ttl_seconds=2")
    for term in range(2):
        origin(cache, adder(term))
        cache.finish_saving()
        if term == 0:
            until_nothing_is_stored(redis, cache)
    (report,) = kk.pull_cache(tmp_path / "elsewhere", redis, signing_key=SECRET)
    assert report.copied == 1


def until_nothing_is_stored(url: str, cache: kk.ProgramCache) -> None:
    deadline = time.monotonic() + PATIENT_SECONDS
    while stored(url, cache):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_variable_names_remotes(machine: MakeCache, redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_REMOTE", redis)
    first = machine(None)
    first.get(adder(1)).release()
    first.finish_saving()
    assert origin(machine(None), adder(1)) == "remote"
    assert origin(machine([]), adder(1)) == "compiled", "an empty list is none"


# --- trust


def test_a_remote_without_a_key_is_refused_with_a_way_out(machine: MakeCache, redis: str, tmp_path: Path) -> None:
    with pytest.raises(kk.ArgumentError, match=r"allow_unsigned=True") as caught:
        machine(redis, signing_key=None)
    assert "kernelkeep keys new" in str(caught.value) and "redis://" in str(caught.value)
    first = machine(redis, signing_key=None, allow_unsigned=True)
    assert origin(first, adder(1)) == "compiled"
    first.finish_saving()
    assert origin(machine(redis, signing_key=None, allow_unsigned=True), adder(1)) == "remote"


def test_a_folder_of_ones_own_needs_no_key_and_one_that_others_write_to_does(
    machine: MakeCache, reachable_path: Path
) -> None:
    own = (reachable_path / "own").as_uri()
    first = machine(own, signing_key=None)
    first.get(adder(1)).release()
    first.finish_saving()
    assert origin(machine(own, signing_key=None), adder(1)) == "remote"
    others = reachable_path / "others"
    others.mkdir()
    others.chmod(0o777)
    with pytest.raises(kk.ArgumentError, match="allow_unsigned=True"):
        machine(others.as_uri(), signing_key=None)


def test_what_another_key_signed_is_refused_and_left_in_the_store(machine: MakeCache, redis: str) -> None:
    first = machine(redis)
    first.get(adder(1)).release()
    first.finish_saving()
    stranger = machine(f"{redis}&read_only=1", signing_key=b"another secret")
    with one_warning("not trusted"):
        assert origin(stranger, adder(1)) == "compiled"
    stats = stranger.stats()
    assert (stats.remote_refused, stats.hits_remote, stats.corrupt_entries) == (1, 0, 0)
    assert "remote entries refused" in str(stats)
    assert origin(machine(redis), adder(1)) == "remote", "a reader that trusts other keys destroys nothing"


def test_what_the_driver_refuses_is_compiled_and_stored_again(
    machine: MakeCache, redis: str, device: FakeDevice
) -> None:
    first = machine(redis)
    first.get(adder(1)).release()
    first.finish_saving()
    second = machine(redis)
    device.faults.fail("load", kk.BinaryRejected("no"))
    assert origin(second, adder(1)) == "compiled"
    second.finish_saving()
    assert (second.stats().corrupt_entries, second.stats().remote_stored) == (1, 1)
    assert origin(machine(redis), adder(1)) == "remote"


# --- how often the server is asked


def test_opening_a_cache_and_disk_hits_ask_the_server_nothing(machine: MakeCache, redis_server: RedisServer) -> None:
    with Proxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0?namespace=none-of-it"
        local = machine([])
        local.get(adder(1)).release()
        local.close()
        cache = machine(url, "machine0")
        assert origin(cache, adder(1)) == "disk" and origin(cache, adder(1)) == "memory"
        cache.close()
        assert proxy.connections == 0


def test_a_warm_disk_hit_loads_no_library_of_the_store(machine: MakeCache, tmp_path: Path) -> None:
    local = machine([], "warm")
    local.get(adder(1)).release()
    local.close()
    code = """
import sys
import kernelkeep as kk
kk.ProgramCache
print([name for name in sys.modules if name.startswith("kernelkeep.remote")])
from kernelkeep.testing import FakeDevice
text = 'def adder(y: "i4[]", n: "i4"):\\n    y[:n] += 1\\n'
with FakeDevice() as device:
    for remote in (None, "redis://127.0.0.1:1/0"):
        with kk.ProgramCache(device, sys.argv[1], remote=remote, signing_key=b"a shared secret") as cache:
            print(cache.get(kk.Source(text, name="adder1", language="python")).origin)
        print([name for name in ("redis", "obstore", "cryptography") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "warm")],
        env=python_environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["[]", "disk", "[]", "disk", "[]"], done.stderr


def test_preloading_asks_once_for_all(
    machine: MakeCache, redis_server: RedisServer, redis: str, namespace: str
) -> None:
    first = machine(redis)
    sources = [adder(term) for term in range(30)]
    first.preload(sources[:20])
    first.finish_saving()
    second = machine(redis)
    second.get(sources[0]).release()
    before = commands(redis_server)
    report = second.preload(sources)
    after = commands(redis_server)
    assert (report.memory, report.remote, report.compiled, report.failed) == (1, 19, 10, ())
    assert after.get("mget", 0) - before.get("mget", 0) == 2, "one to see whether it answers, one for the rest"
    assert after.get("get", 0) - before.get("get", 0) <= 30, "only for the 10 that it does not have"
    assert second.stats().on_disk == 30 and second.stats().hits_remote == 20
    third = machine(redis, "machine1")
    assert third.preload(sources).disk == 30


def commands(server: RedisServer) -> dict[str, int]:
    lines = server.ask("INFO", "commandstats").decode().splitlines()
    found = [line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_")]
    return {name: int(rest.split(",")[0]) for name, rest in found}


def test_explain_says_that_it_is_in_a_shared_store(machine: MakeCache, redis: str) -> None:
    first = machine(redis)
    first.get(adder(1)).release()
    first.finish_saving()
    assert "in a shared store" in str(machine(redis).explain(adder(1)))
