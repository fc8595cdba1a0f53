"""Servers that are killed, paused, full, slow or lie: the program runs, the time lost is bounded, the counts say what happened,
and the cache uses the server again when it is back. Real servers, and a proxy that breaks connections."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.cache.tiers.remote import RemoteTier
from kernelkeep.testing import FakeDevice, run_python
from kernelkeep.testing.servers import NginxServer, Proxy, RedisServer, S3Server, free_port

SECRET = b"a shared secret"
REMOTE_TIMEOUT = 0.3
# How much longer than `REMOTE_TIMEOUT` anything may take on two busy cores. What is tested would otherwise take for ever,
# or many times as long.
SLACK_SECONDS = 10.0
PATIENT_SECONDS = 60.0


def adder(term: int) -> kk.Source:
    text = f'def adder(y: "i4[]", n: "i4"):\n    y[:n] += {term}\n'
    return kk.Source(text, name=f"adder{term}", language="python")


@pytest.fixture(autouse=True)
def short_pauses_and_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("KERNELKEEP_REMOTE", raising=False)
    monkeypatch.setattr(RemoteTier, "retry_seconds", (0.3, 2.0))  # a second and a minute are long for tests


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


class Machines:
    """Caches with a folder each and one store. Warnings are the expected kind, and are kept."""

    def __init__(self, device: FakeDevice, folder: Path) -> None:
        self._device, self._folder, self._made = device, folder, 0

    def cache(self, url: str, **options: object) -> kk.ProgramCache:
        self._made += 1
        given = {"signing_key": SECRET, "remote_timeout": REMOTE_TIMEOUT} | options
        return kk.ProgramCache(self._device, self._folder / f"machine{self._made}", remote=url, **given)  # type: ignore[arg-type]

    def fill(self, url: str, terms: range) -> None:
        with self.cache(url, remote_timeout=PATIENT_SECONDS) as cache:
            for term in terms:
                cache.get(adder(term)).release()
        assert cache.stats().remote_stored == len(terms)


@pytest.fixture
def machines(device: FakeDevice, tmp_path: Path) -> Iterator[Machines]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kk.CacheWarning)
        yield Machines(device, tmp_path)


def origins(cache: kk.ProgramCache, terms: range) -> list[str]:
    found: list[str] = []
    for term in terms:
        with cache.get(adder(term)) as lease:
            found.append(lease.origin)
    return found


def until(condition: Callable[[], bool]) -> None:
    """The server is asked again with back-off, in the background."""
    deadline = time.monotonic() + PATIENT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def check_bounded(cache: kk.ProgramCache, terms: range) -> None:
    """Twenty programs with a server that is of no use: all compiled, and the time of one lookup lost, not of twenty."""
    assert timed(lambda: origins(cache, terms)) < REMOTE_TIMEOUT + SLACK_SECONDS
    stats = cache.stats()
    assert stats.compiles == len(terms) and stats.hits_remote == 0
    assert stats.remote_failed >= 1 and stats.remote_skipped >= len(terms) - 2


def check_recovers(machines: Machines, cache: kk.ProgramCache, url: str, term: int) -> None:
    """Another machine stores a program, and the cache that had done without the server finds it."""
    machines.fill(url, range(term, term + 1))
    cache.get(adder(-1)).release()  # nobody asks the server while nothing is needed

    def asks_again() -> bool:
        cache.get(adder(-int(time.monotonic() * 1000))).release()
        counts = cache.chain.counts()["remote"]
        return counts.misses + counts.hits > before

    counts = cache.chain.counts()["remote"]
    before = counts.misses + counts.hits
    until(asks_again)
    assert origins(cache, range(term, term + 1)) == ["remote"]


TERMS = range(20)


def test_redis_that_is_killed_and_comes_back_empty(machines: Machines) -> None:
    with RedisServer() as server:
        machines.fill(server.url, TERMS)
        with machines.cache(server.url) as cache:
            server.kill()
            check_bounded(cache, TERMS)
            server.start()
            check_recovers(machines, cache, server.url, 100)
        assert cache.stats().remote_stored >= 1, "what waited was stored when it was back"


def test_redis_that_is_paused(machines: Machines) -> None:
    with RedisServer() as server:
        machines.fill(server.url, TERMS)
        with machines.cache(server.url) as cache:
            server.pause()
            check_bounded(cache, TERMS)
            assert not cache.chain.flush(PATIENT_SECONDS), "nobody waits for a server that is known to hang"
            server.resume()
            check_recovers(machines, cache, server.url, 100)


def test_closing_does_not_wait_for_a_paused_server(machines: Machines) -> None:
    with RedisServer() as server:
        cache = machines.cache(server.url)
        cache.get(adder(0)).release()
        assert cache.chain.flush(PATIENT_SECONDS)
        server.pause()
        for term in range(1, 5):
            cache.get(adder(term)).release()
        assert timed(cache.close) < settings.REMOTE_STALLED_SECONDS + SLACK_SECONDS
        assert cache.stats().remote_dropped >= 1
        server.resume()


def test_closing_waits_as_long_as_a_slow_server_takes_entries(
    machines: Machines, redis_server: RedisServer, namespace: str
) -> None:
    with Proxy(redis_server.port) as proxy:
        proxy.latency_seconds = 0.25
        url = f"redis://127.0.0.1:{proxy.port}/0?namespace={namespace}"
        with machines.cache(url, remote_timeout=PATIENT_SECONDS) as cache:
            cache.preload([adder(term) for term in range(6)])
        assert cache.stats().remote_stored == 6, "which takes longer than any one of them may"


def test_redis_that_is_full(machines: Machines) -> None:
    with RedisServer("--maxmemory", "1mb", "--maxmemory-policy", "noeviction") as server:
        with machines.cache(server.url, remote_timeout=PATIENT_SECONDS) as cache:
            assert origins(cache, range(3)) == ["compiled"] * 3
            until(lambda: cache.stats().remote_failed >= 1)
            assert cache.stats().remote_stored == 0
            server.ask("CONFIG", "SET", "maxmemory", "100mb")
            until(lambda: cache.stats().remote_stored == 3)


def test_redis_with_a_password(machines: Machines) -> None:
    with RedisServer("--requirepass", "rightpassword") as server:
        right = f"redis://:rightpassword@127.0.0.1:{server.port}/0"
        machines.fill(right, range(1))
        with machines.cache(right, remote_timeout=PATIENT_SECONDS) as cache:
            assert origins(cache, range(1)) == ["remote"]
        for wrong in (f"redis://:wrongpassword@127.0.0.1:{server.port}/0", server.url):
            with warnings.catch_warnings(record=True) as seen, machines.cache(wrong) as cache:
                warnings.simplefilter("always")
                check_bounded(cache, TERMS)
            assert seen and not any("wrongpassword" in str(warning.message) for warning in seen)
            assert "wrongpassword" not in repr(cache) + str(cache.stats()) + repr(cache.chain.counts())


def test_tls_to_a_plain_port(machines: Machines, redis_server: RedisServer) -> None:
    with machines.cache(f"rediss://127.0.0.1:{redis_server.port}/0") as cache:
        check_bounded(cache, TERMS)


FAULTS: dict[str, Callable[[Proxy], None]] = {
    "silent": lambda proxy: setattr(proxy, "silent", True),
    "slow": lambda proxy: setattr(proxy, "latency_seconds", 5.0),
    "dribbling": lambda proxy: setattr(proxy, "bytes_per_second", 50),
    "garbage": lambda proxy: setattr(proxy, "garbage", b"\x00\xffnot an answer\r\n" * 10),
    "endless": lambda proxy: setattr(proxy, "garbage", b"$1000000000\r\n" + b"x" * 60_000),
    "cut off": lambda proxy: setattr(proxy, "cut_after", 30),
    "half-closed": lambda proxy: setattr(proxy, "half_close", True),
    "refusing": lambda proxy: setattr(proxy, "refusing", True),
}


ASKED = [
    *(("redis", fault) for fault in FAULTS),
    *(("nginx", fault) for fault in ("silent", "garbage", "cut off", "dribbling")),
]


@pytest.mark.parametrize(("kind", "fault"), ASKED)
def test_connections_that_break(
    machines: Machines, kind: str, fault: str, request: pytest.FixtureRequest, namespace: str
) -> None:
    server: RedisServer | NginxServer = request.getfixturevalue(f"{kind}_server")
    with Proxy(server.port) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port)) + f"?namespace={namespace}"
        direct = f"{server.url}?namespace={namespace}"
        machines.fill(direct, range(2))
        FAULTS[fault](proxy)
        with machines.cache(url) as cache:
            began = time.monotonic()
            found = origins(cache, TERMS)
            assert time.monotonic() - began < REMOTE_TIMEOUT + SLACK_SECONDS
            stats = cache.stats()
            assert stats.compiles + stats.hits_remote == len(TERMS)
            assert set(found) == {"compiled"} and stats.remote_failed >= 1, stats
            proxy.heal()
            proxy.drop()
            check_recovers(machines, cache, direct, 100)


@pytest.mark.parametrize("kind", ["redis", "nginx"])
def test_connections_that_take_longer_than_a_lookup(
    machines: Machines, kind: str, request: pytest.FixtureRequest, namespace: str
) -> None:
    """As with TLS to a server far away: a lookup does not wait for it, and the connection is there for the next ones."""
    server: RedisServer | NginxServer = request.getfixturevalue(f"{kind}_server")
    terms = range(60)
    machines.fill(f"{server.url}?namespace={namespace}", terms)
    with Proxy(server.port) as proxy:
        proxy.connect_seconds = 2 * REMOTE_TIMEOUT
        url = server.url.replace(str(server.port), str(proxy.port)) + f"?namespace={namespace}"
        with machines.cache(url) as cache:
            for term in terms:
                if origins(cache, terms[term : term + 1]) == ["remote"]:
                    break
                time.sleep(0.3)
            assert cache.stats().hits_remote == 1 and cache.stats().remote_failed >= 1


def test_an_s3_server_that_is_paused(machines: Machines, s3_server: S3Server, namespace: str) -> None:
    with Proxy(s3_server.port) as proxy:
        url = s3_server.url_on(proxy.port) + f"&namespace={namespace}"
        machines.fill(f"{s3_server.url}&namespace={namespace}", range(2))
        with machines.cache(url, remote_timeout=PATIENT_SECONDS) as cache:
            assert origins(cache, range(1)) == ["remote"]
        proxy.silent = True
        proxy.drop()
        with machines.cache(url) as cache:
            check_bounded(cache, TERMS)
            proxy.heal()
            check_recovers(machines, cache, f"{s3_server.url}&namespace={namespace}", 100)


def test_a_host_that_does_not_exist(machines: Machines) -> None:
    with machines.cache("redis://kernelkeep.invalid:6379/0") as cache:
        check_bounded(cache, TERMS)


def test_several_remotes_share_the_time_of_a_lookup(machines: Machines, redis_server: RedisServer) -> None:
    with Proxy(redis_server.port) as first, Proxy(redis_server.port) as second, Proxy(redis_server.port) as third:
        for proxy in (first, second, third):
            proxy.silent = True
        urls = ",".join(f"redis://127.0.0.1:{proxy.port}/0" for proxy in (first, second, third))
        remotes = [kk.Remote(url, timeout_seconds=2.0, signing_key=SECRET) for url in urls.split(",")]
        with machines.cache(remotes, remote_timeout=2.0) as cache:  # type: ignore[arg-type]
            seconds = timed(lambda: origins(cache, range(1)))
            assert seconds < 4.0, "one timeout, and not three"
            assert first.connections >= 1 and third.connections == 0
            for proxy in (first, second, third):
                proxy.heal()  # closing need not wait then


def test_with_the_server_gone_a_process_starts_and_ends(tmp_path: Path) -> None:
    code = """
import sys, time, warnings
import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.testing import FakeDevice
warnings.simplefilter("ignore")
text = 'def adder(y: "i4[]", n: "i4"):\\n    y[:n] += %d\\n'
with FakeDevice() as device:
    cache = kk.ProgramCache(device, sys.argv[1], remote=sys.argv[2], signing_key=b"a shared secret")
    for term in range(20):
        cache.get(kk.Source(text % term, name="adder", language="python")).release()
    print(cache.stats().compiles)
"""
    with Proxy(free_port()) as proxy:
        proxy.silent = True
        for url in (f"redis://127.0.0.1:{free_port()}/0", f"http://127.0.0.1:{proxy.port}/x"):
            seconds = timed(lambda url=url: run_python(code, tmp_path / str(free_port()), url))  # type: ignore[misc]
            assert seconds < 30
