"""Tuning results in a store: signed, merged as imported files are, and complete when several machines share at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.keyring import Keyring
from kernelkeep.remote.signing import Keys, keys_for
from kernelkeep.remote.store import Store
from kernelkeep.testing.servers import RedisServer
from kernelkeep.variants.records import Choice, Record, Records
from kernelkeep.variants.sharing import fetch_records, share_records, share_with, take_from

DEVICE = "d" * 64


def record(number: int = 1, **changes: Any) -> Record:
    facts: dict[str, Any] = dict(
        tuned="my gemm",
        source=f"{number:064x}",
        space="0123",
        device=DEVICE,
        device_name="cuda_h200",
        architecture="sm_90",
        problem={"m": 256},
        variant={"TILE": number},
        samples_ms=[1.5, 1.25],
        verified=True,
        tolerance=1e-5,
    )
    return Record(**facts | changes)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    Keyring().new("a machine")
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o777)  # others can write
    return Remote(url=f"file://{tmp_path}/store")


@pytest.fixture
def store(remote: Remote) -> Iterator[Store]:
    made = open_store(remote)
    yield made
    made.close()


@pytest.fixture
def keys(remote: Remote) -> Keys:
    return keys_for(remote)


def test_another_machine_takes_what_was_shared(store: Store, keys: Keys) -> None:
    with Records(None) as first, Records(None) as second:
        first.add_all([record(1), record(2, failure="wrong", samples_ms=[]), record(3, device="e" * 64)])
        first.choose(Choice(tuned="my gemm", device=DEVICE, problem={"m": 256}, variant={"TILE": 1}))
        shared = share_records(store, keys, first)
        assert (shared.records, shared.stored, shared.refused) == (3, 2, ())
        taken = fetch_records(store, keys, second, device=DEVICE)
        assert len(taken.names) == 1 and taken.changed == 3
        assert second.known("my gemm", DEVICE, {"m": 256}) == first.known("my gemm", DEVICE, {"m": 256})
        chosen = second.choice("my gemm", DEVICE, {"m": 256})
        assert chosen is not None and chosen.variant == {"TILE": 1}
        assert not second.of_device("my gemm", "e" * 64), "another device's"
        assert fetch_records(store, keys, second, device=DEVICE).changed == 0
        assert fetch_records(store, keys, second, tuned="other").names == ()
        assert fetch_records(store, keys, second).changed == 1


def test_sharing_again_leaves_one_object_with_everything(store: Store, keys: Keys) -> None:
    for number in range(4):
        with Records(None) as records:
            records.add(record(number, samples_ms=[float(number)]))
            assert share_records(store, keys, records).records == number + 1, "with what the others have shared"
    assert len(list(store.list("tuning/"))) == 1
    with Records(None) as records:
        assert fetch_records(store, keys, records).changed == 4
        assert share_records(store, keys, records).stored == 0


def test_machines_that_share_at_once_lose_nothing(redis_server: RedisServer, namespace: str) -> None:
    remote = Remote(url=redis_server.url, namespace=namespace, allow_unsigned=True, timeout_seconds=20)
    barrier = threading.Barrier(6)

    def machine(number: int) -> None:
        with Records(None) as records:
            records.add(record(number))
            barrier.wait()
            share_with(remote, records)

    threads = [threading.Thread(target=machine, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Records(None) as records:
        take_from(remote, records)
        assert len(records.of_device("my gemm", DEVICE)) == 6


def test_a_pin_stays_on_its_machine(store: Store, keys: Keys) -> None:
    with Records(None) as first, Records(None) as second:
        first.add(record())
        first.choose(Choice(tuned="my gemm", device=DEVICE, problem={"m": 256}, variant={"TILE": 1}, pinned=True))
        share_records(store, keys, first)
        fetch_records(store, keys, second)
        assert second.choice("my gemm", DEVICE, {"m": 256}) is None


def test_what_is_not_trusted_is_neither_read_nor_removed(store: Store, keys: Keys, tmp_path: Path) -> None:
    with Records(None) as records:
        records.add(record())
        share_records(store, keys, records)
        (name,) = store.list("tuning/")
        envelope = store.get(name)
        assert envelope is not None and envelope[:4] == b"KKSG"
        bad = {f"{name[:-1]}x": envelope, f"{name[:-1]}y": envelope[104:], f"{name[:-1]}z": envelope[:-3] + b"1}\n"}
        for other, data in bad.items():  # copied to another name, unsigned, changed
            store.put(other, data)
    with Records(None) as records:
        records.add(record(5))
        shared = share_records(store, keys, records)
        assert sorted(refused for refused, _ in shared.refused) == sorted(bad)
        assert shared.records == 2
    assert set(bad) <= set(store.list("tuning/"))


def test_errors_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("KERNELKEEP_REMOTE", raising=False)
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o777)
    with Records(None) as records:
        with pytest.raises(kk.ArgumentError, match="remote must name a shared store"):
            share_with(None, records)
        with pytest.raises(kk.ArgumentError, match="signing_key must be given"):
            share_with(f"file://{tmp_path}/store", records)
        with pytest.raises(kk.RemoteError, match=r"127\.0\.0\.1:1") as said:
            take_from("redis://me:pa55word@127.0.0.1:1/0?allow_unsigned=1", records)
        assert "pa55word" not in str(said.value)
