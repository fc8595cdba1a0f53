"""`verify --remote`: every object that would be refused is found, with the reason, in a real Redis."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.entry import encode
from kernelkeep.cache.sync import push_cache
from kernelkeep.observe.remote_check import check_remote
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.keys import PrivateKey, SharedKey
from kernelkeep.remote.signing import Keys, keys_for
from kernelkeep.remote.trusted_keys import TrustedKeys
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.servers import RedisServer
from kernelkeep.variants.records import Record, Records
from kernelkeep.variants.sharing import share_records

SECRET = b"a secret that all machines share"
FINGERPRINT = "f" * 64


def entry(number: int) -> tuple[str, bytes]:
    made = sample_entry(number)
    return f"{FINGERPRINT}/{made.facts.key.digest}", encode(made)


def test_every_kind_of_refusal_is_listed(
    redis_server: RedisServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    revoked = PrivateKey.generate()
    kk.Keyring().revoke(revoked.id)
    remote = Remote(redis_server.url, namespace=namespace, signing_key=SECRET)
    store, keys = open_store(remote), keys_for(remote)

    def by(key: PrivateKey) -> Keys:
        return Keys(TrustedKeys(key), namespace=namespace)

    past = Keys(TrustedKeys(SharedKey(SECRET)), namespace=namespace, clock=lambda: time.time() - 100)
    bad: dict[str, str] = {}
    for number in range(20):
        name, data = entry(number)
        store.put(f"programs/{name}", keys.seal("program", name, data))
    assert check_remote(remote).ok
    changed = bytearray(keys.seal("program", entry(1)[0], entry(1)[1]))
    changed[-1] ^= 1
    for number, kind, data in (
        (1, "tampered", bytes(changed)),
        (2, "unsigned", entry(2)[1]),
        (3, "stranger", by(PrivateKey.generate()).seal("program", entry(3)[0], entry(3)[1])),
        (4, "revoked", by(revoked).seal("program", entry(4)[0], entry(4)[1])),
        (5, "expired", past.seal("program", entry(5)[0], entry(5)[1], ttl_seconds=50)),
        (6, "tampered", keys.seal("program", entry(7)[0], entry(7)[1])),  # copied from another name
        (8, "damaged", keys.seal("program", entry(8)[0], b"signed by a trusted key, and no entry")),
        (9, "tampered", keys.seal("tuning", entry(9)[0], entry(9)[1])),
    ):
        store.put(f"programs/{entry(number)[0]}", data)
        bad[f"programs/{entry(number)[0]}"] = kind
    store.put("leases/somebody", b"compiles")
    store.put("a/file/of/another/program", b"whatever")
    found = check_remote(remote)
    assert {one.name: one.kind for one in found.refused} == bad
    assert (found.objects, found.others, found.ok) == (20, 1, False)
    assert all(one.reason and one.bytes for one in found.refused)
    # Where unsigned entries are allowed, that one is no longer refused; the others are.
    allowed = check_remote(Remote(redis_server.url, namespace=namespace, signing_key=SECRET, allow_unsigned=True))
    assert len(allowed.refused) == len(bad) - 1


def test_an_empty_namespace(redis_server: RedisServer, namespace: str) -> None:
    found = check_remote(Remote(redis_server.url, namespace=namespace, signing_key=SECRET))
    assert found.ok and found.objects == 0


def test_a_store_that_is_not_there() -> None:
    with pytest.raises(kk.RemoteError) as caught:
        check_remote(Remote("redis://user:pass-word@127.0.0.1:1/0", signing_key=SECRET))
    assert "pass-word" not in str(caught.value)


def test_everything_that_kernelkeep_stores_is_known_to_the_check(
    redis_server: RedisServer, namespace: str, tmp_path: Path
) -> None:
    """Programs of a cache, a folder that was pushed, and tuning results: each opens under the name that its writer signed."""
    remote = Remote(redis_server.url, namespace=namespace, signing_key=SECRET, timeout_seconds=60)
    text = 'def adder(y: "i4[]", n: "i4"):\n    y[:n] += 1\n'
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path / "cache", remote=remote, remote_timeout=60) as cache:
        cache.get(kk.Source(text, name="adder", language="python")).release()
        cache.finish_saving()
    push_cache(tmp_path / "cache", remote)
    record = Record(
        tuned="my gemm",
        source="0" * 64,
        space="0123",
        device="d" * 64,
        device_name="a GPU",
        architecture="sm_90",
        problem={"m": 256},
        variant={"TILE": 1},
        samples_ms=[1.0],
        verified=True,
        tolerance=1e-5,
    )
    with Records(None) as records:
        records.add(record)
        share_records(open_store(remote), keys_for(remote), records)
    found = check_remote(remote)
    kinds = {name.partition("/")[0] for name in open_store(remote).list("")}
    assert kinds - {"leases", "lease-tokens"} == {"programs", "folders", "tuning"}
    assert found.ok, found.refused
    assert (found.objects, found.others) == (3, 0)
