"""Somebody stores more than fits in memory under the name of a program."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.tiers.remote import stored_name
from kernelkeep.remote.address import open_store
from kernelkeep.storage.files import Damaged
from kernelkeep.testing import FakeDevice

SECRET = b"a secret that all machines share"
MOST_KILOBYTES = 1 << 20


def plant(path: Path) -> None:
    """A file of 8 GiB that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 33)


def test_a_far_too_large_object_is_not_read(tmp_path: Path) -> None:
    plant(tmp_path / "store" / "team" / "programs" / "x")
    store = open_store(kk.Remote((tmp_path / "store").as_uri(), namespace="team", timeout_seconds=60))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Damaged, match="far too large"):
        store.get("programs/x")
    store.put("programs/y", b"good")
    assert store.get_many(["programs/x", "programs/y"]) == {"programs/y": b"good"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KILOBYTES


def test_a_program_with_a_far_too_large_object_is_compiled(tmp_path: Path) -> None:
    text = 'def adder(y: "i4[]", n: "i4"):\n    y[:n] += 1\n'
    source = kk.Source(text, name="adder", language="python")
    remote = kk.Remote((tmp_path / "store").as_uri(), namespace="team")
    with FakeDevice() as device:
        with kk.ProgramCache(device, tmp_path / "cache", remote=remote, signing_key=SECRET, remote_timeout=60) as cache:
            path = tmp_path / "store" / "team" / stored_name(device.fingerprint.digest, cache.key(source).digest)
            plant(path)
            with cache.get(source) as lease:
                assert lease.origin == "compiled"
            cache.finish_saving()
            assert cache.stats().remote_failed == 0, "one bad object is no reason to do without the store"
    assert path.stat().st_size < 1 << 20, "the good entry took its place"
