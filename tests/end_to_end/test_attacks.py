"""Somebody who can write to the shared store: nothing of theirs runs, and every program still gives the right result.

The attacker knows everything but the keys. The store is a real Redis; the programs run.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.pretty import pretty_repr

import kernelkeep as kk
from kernelkeep.cache.entry import Entry, decode, encode
from kernelkeep.cache.tiers.remote import stored_name
from kernelkeep.cli import main
from kernelkeep.observe.remote_check import check_remote
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.keys import PrivateKey
from kernelkeep.remote.signing import HEAD_BYTES, Keys
from kernelkeep.remote.store import Store
from kernelkeep.remote.trusted_keys import TrustedKeys
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.servers import RedisServer

SECRET = b"a secret that the attacker lacks"
PATIENT_SECONDS = 60.0  # two busy cores
TEXT = "__kernel void f(__global int* y) { y[0] = VALUE; }"


def source(value: int) -> kk.Source:
    return kk.Source(TEXT, name="f", language="opencl", defines={"VALUE": value})


def adder(term: int) -> kk.Source:
    text = f'def adder(y: "i4[]", n: "i4"):\n    y[:n] += {term}\n'
    return kk.Source(text, name=f"adder{term}", language="python")


def run(cache: kk.ProgramCache, value: int) -> tuple[int, str]:
    """What the program computes, and where it came from."""
    with cache.get(source(value)) as lease:
        y = cache.device.array(np.zeros(1, "i4"))
        lease.kernel("f").launch(1, (y,), 1)
        return int(y.numpy()[0]), lease.origin


class Attacker:
    """Reads and writes the store as it is."""

    def __init__(self, store: Store, fingerprint: str) -> None:
        self.store, self.fingerprint = store, fingerprint

    def name(self, digest: str) -> str:
        return stored_name(self.fingerprint, digest)

    def take(self, digest: str) -> bytes:
        data = self.store.get(self.name(digest))
        assert data is not None
        return data

    def entry(self, digest: str) -> Entry:
        return decode(self.take(digest)[HEAD_BYTES:], digest)

    def forge(self, digest: str, payload_of: str) -> bytes:
        """A flawless entry under one key, with the code of another program."""
        honest = self.entry(digest)
        payload = self.entry(payload_of).payload
        facts = msgspec.structs.replace(honest.facts, payload_bytes=len(payload))
        return encode(Entry(facts, payload))

    def put(self, digest: str, data: bytes) -> None:
        self.store.put(self.name(digest), data)


def test_nothing_of_an_attacker_runs(pocl: str, redis_server: RedisServer, namespace: str, tmp_path: Path) -> None:
    remote = Remote(redis_server.url, namespace=namespace, timeout_seconds=PATIENT_SECONDS)
    with kk.open_device(pocl, cache_dir=tmp_path / "driver") as device:

        def machine(name: str, **trust: object) -> kk.ProgramCache:
            options = {"remote": remote, "remote_timeout": PATIENT_SECONDS, **trust}
            return kk.ProgramCache(device, tmp_path / name, **options)  # type: ignore[arg-type]

        values = range(1, 7)
        with machine("honest", signing_key=SECRET) as honest:
            assert [run(honest, value) for value in values] == [(value, "compiled") for value in values]
            digests = {value: honest.key(source(value)).digest for value in values}
        with machine("friend", signing_key=SECRET) as friend:
            assert [run(friend, value) for value in values] == [(value, "remote") for value in values]

        attacker = Attacker(open_store(remote), device.fingerprint.digest)
        one, two, three, six = (attacker.take(digests[value]) for value in (1, 2, 3, 6))
        stranger = Keys(TrustedKeys(PrivateKey.generate()), namespace=namespace)
        forged_four = attacker.forge(digests[4], digests[5])
        forged_five = attacker.forge(digests[5], digests[4])
        attacker.put(digests[1], two)  # swapped
        attacker.put(digests[2], one)
        attacker.put(digests[3], three[:-20] + bytes([three[-20] ^ 4]) + three[-19:])  # edited
        attacker.put(digests[4], forged_four)  # replaced, without a signature
        attacker.put(digests[5], stranger.seal("program", f"{device.fingerprint.digest}/{digests[5]}", forged_five))
        attacker.put(digests[6], six[:-1])

        # The attack is a real one: who allows unsigned entries runs the attacker's code.
        with machine("gullible", allow_unsigned=True, signing_key=None) as gullible:
            assert run(gullible, 4) == (5, "remote")

        refused = check_remote(msgspec.structs.replace(remote, signing_key=SECRET)).refused
        assert sorted(one.kind for one in refused) == [
            "stranger",
            "tampered",
            "tampered",
            "tampered",
            "tampered",
            "unsigned",
        ]

        with machine("victim", signing_key=SECRET) as victim, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [run(victim, value) for value in values] == [(value, "compiled") for value in values]
            stats = victim.stats()
            assert (stats.remote_refused, stats.hits_remote, stats.compiles) == (6, 0, 6)
            assert "remote entries refused" in str(stats)
        assert any("is not read from redis://" in str(one.message) for one in caught)

        # The victim's own entries have taken the place of the attacker's.
        assert check_remote(msgspec.structs.replace(remote, signing_key=SECRET)).ok
        with machine("third", signing_key=SECRET) as third:
            assert [run(third, value) for value in values] == [(value, "remote") for value in values]


# --- keys, with programs that need no driver

MakeMachine = Callable[[str], kk.ProgramCache]


@pytest.fixture
def machine(
    redis_server: RedisServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeMachine]:
    """A machine by its name: its cache folder and its keyring are its own. Its keyring is the current one then."""
    made: list[kk.ProgramCache] = []
    with FakeDevice() as device:

        def make(name: str) -> kk.ProgramCache:
            monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / name / "keys"))
            remote = Remote(redis_server.url, namespace=namespace)
            folder = tmp_path / name / f"cache{len(made)}"
            cache = kk.ProgramCache(device, folder, remote=remote, remote_timeout=PATIENT_SECONDS)
            made.append(cache)
            return cache

        yield make
        for cache in made:
            cache.close()


def keyring(tmp_path: Path, name: str) -> kk.Keyring:
    return kk.Keyring(tmp_path / name / "keys")


def origin(cache: kk.ProgramCache, term: int) -> str:
    with cache.get(adder(term)) as lease:
        found = lease.origin
    cache.finish_saving()
    return found


def test_trust_rotation_and_revocation_across_machines(machine: MakeMachine, tmp_path: Path) -> None:
    with pytest.raises(kk.ArgumentError, match=r"signing_key must be given where others can write"):
        machine("server")
    line = keyring(tmp_path, "server").new("server").line
    assert line is not None
    assert origin(machine("server"), 1) == "compiled"

    keyring(tmp_path, "laptop").new("laptop")
    with pytest.warns(kk.CacheWarning, match="which is not trusted here"):
        assert origin(machine("laptop"), 1) == "compiled"
    # The laptop has stored its own; the server does not trust that one.
    with pytest.warns(kk.CacheWarning, match="which is not trusted here"):
        assert origin(machine("server"), 1) == "compiled"

    old = keyring(tmp_path, "laptop").trust(line)
    assert origin(machine("laptop"), 1) == "remote"

    new, _ = keyring(tmp_path, "server").rotate()
    assert origin(machine("server"), 1) == "remote", "what the old key signed is still used"
    assert origin(machine("server"), 2) == "compiled"
    with pytest.warns(kk.CacheWarning, match="which is not trusted here"):
        assert origin(machine("laptop"), 2) == "compiled"
    assert new.line is not None
    keyring(tmp_path, "laptop").trust(new.line)

    keyring(tmp_path, "laptop").revoke(old.id)
    laptop = machine("laptop")
    with pytest.warns(kk.CacheWarning, match="which was revoked"):
        assert origin(laptop, 1) == "compiled"
    assert laptop.stats().remote_refused == 1


def test_a_keyring_that_breaks_does_not_break_the_program(machine: MakeMachine, tmp_path: Path) -> None:
    keyring(tmp_path, "server").new()
    assert origin(machine("server"), 1) == "compiled"
    (tmp_path / "server" / "keys").chmod(0o777)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = machine("server")
        assert origin(cache, 1) == "compiled"
        assert cache.stats().hits_remote == 0
    assert any("may be written to by others" in str(one.message) for one in caught)


# --- secrets


def test_a_cache_whose_store_fails_shows_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings, logs, statistics, reports and commands, with a password in the address and a key in the options."""
    planted = "planted-secret"
    said: list[str] = []
    with (
        RedisServer("--requirepass", "another password") as locked,
        FakeDevice() as device,
        caplog.at_level(logging.DEBUG),
    ):
        for number, address in enumerate(
            (
                f"redis://user:{planted}@127.0.0.1:1/0",
                f"redis://user:{planted}@127.0.0.1:{locked.port}/0",
                f"http://user:{planted}@127.0.0.1:1/x?an_option={planted}",
                f"s3://bucket/x?endpoint=http://127.0.0.1:1&allow_http=true&access_key_id={planted}&secret_access_key={planted}",
            )
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                key = f"{planted} signing key".encode()
                cache = kk.ProgramCache(
                    device, tmp_path / str(number), remote=address, signing_key=key, remote_timeout=PATIENT_SECONDS
                )
                with cache:
                    cache.get(adder(1)).release()
                    cache.finish_saving()
                    stats = cache.stats()
                    report = cache.preload([adder(2)])
                    said += map(
                        str, (cache, repr(cache), stats, repr(stats), vars(cache), report, cache.explain(adder(1)))
                    )
                    said.append(pretty_repr(cache))
            assert caught, "a store that fails is worth a warning"
            assert stats.compiles == 1
            said += (str(one.message) for one in caught)
            monkeypatch.setenv("KERNELKEEP_REMOTE", address)
            monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "no keys"))
            for command in (["stats", "--json"], ["verify", "--remote"], ["verify", "--remote", "--json"]):
                main([*command, "--cache-dir", str(tmp_path / str(number))])
        main(["doctor", "--json", "--cache-dir", str(tmp_path / "doctor")])
    captured = capfd.readouterr()
    assert "backend" in captured.out and "127.0.0.1:1" in captured.err
    assert planted not in "\n".join((*said, caplog.text, captured.out, captured.err))
