"""Programs that were compiled ahead for an architecture are found where this very device has none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.entry import Entry, Facts, encode
from kernelkeep.cache.gpu_folder import GpuFolder
from kernelkeep.cache.key import key_of
from kernelkeep.cache.tiers.remote import RemoteTier
from kernelkeep.remote.signing import keys_for
from kernelkeep.storage.private import make_private_folder
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.cache_parts.common import adder, check_adder
from kernelkeep.testing.fake import ahead
from kernelkeep.testing.process import run_python


def compiled_ahead(
    root: Path, source: kk.Source, *, term: int | None = None, architecture: str = "any", only: bool = True
) -> Path:
    """Put a program into the folder of an architecture; with `term`, the binary is that of another program."""
    fingerprint = ahead.fingerprint(architecture)
    other = kk.Source(source.text.replace("+ 5", f"+ {term}"), source.name, source.language)
    binary = ahead.compile(source if term is None else other, architecture)
    facts = Facts(
        name=source.name,
        language=source.language,
        device=fingerprint.folder,
        key=key_of(source, fingerprint.digest, fingerprint.folder),
        created=time.time(),
        compile_seconds=0.02,
        version="0",
        compiler="a compiler elsewhere",
    )
    make_private_folder(root)
    folder = GpuFolder(root / fingerprint.folder)
    folder.prepare({"fingerprint": fingerprint.facts}, used_here=False)
    folder.write(facts.key.digest, encode(Entry(facts, binary)))
    paths = folder.files()
    assert not only or len(paths) == 1
    return paths[0]


def origin_of(cache: kk.ProgramCache, source: kk.Source) -> str:
    with cache.get(source) as lease:
        return lease.origin


def test_it_is_found_on_disk_and_nothing_is_compiled(tmp_path: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        source = adder(device, 5)
        compiled_ahead(tmp_path, source)
        with cache.get(source) as lease:
            assert lease.origin == "disk"
            check_adder(device, lease, 5)
        assert origin_of(cache, source) == "memory"
        stats = cache.stats()
        assert (stats.compiles, stats.misses, stats.hits_disk, stats.corrupt_entries) == (0, 0, 1, 0)
        assert cache.stats().on_disk == 0, "it was copied"


def test_another_architecture_is_not_found(tmp_path: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        compiled_ahead(tmp_path, adder(device, 5), architecture="other")
        assert origin_of(cache, adder(device, 5)) == "compiled"


def test_a_program_of_this_very_device_is_preferred(tmp_path: Path) -> None:
    with FakeDevice() as device:
        source = adder(device, 5)
        with kk.ProgramCache(device, tmp_path) as cache:
            assert origin_of(cache, source) == "compiled"
        compiled_ahead(tmp_path, source, term=6)
        with kk.ProgramCache(device, tmp_path) as cache, cache.get(source) as lease:
            check_adder(device, lease, 5)


@pytest.mark.parametrize("kind", ["flipped", "cut off", "refused"])
def test_a_bad_one_is_set_aside_and_compiled(tmp_path: Path, kind: str) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        source = adder(device, 5)
        path = compiled_ahead(tmp_path, source)
        data = path.read_bytes()
        if kind == "flipped":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        elif kind == "cut off":
            path.write_bytes(data[:-7])
        else:
            device.faults.fail("load", kk.BinaryRejected("not for this one"))
        with cache.get(source) as lease:
            assert lease.origin == "compiled"
            check_adder(device, lease, 5)
        assert cache.stats().corrupt_entries == 1
        assert not path.exists() and len(list((path.parents[2] / "set-aside").iterdir())) == 1


def test_one_that_is_refused_when_it_is_made_resident_is_set_aside(tmp_path: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        source = adder(device, 5)
        path = compiled_ahead(tmp_path, source)
        lease = cache.get(source)
        cache.reject(lease, "the driver refuses it")
        assert not path.exists()
        lease.release()
        assert origin_of(cache, source) == "compiled"


def test_explain_says_where_it_was_found(tmp_path: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        source = adder(device, 5)
        compiled_ahead(tmp_path, source)
        found = cache.explain(source)
        assert found.found == "disk"
        assert "compiled ahead by a compiler elsewhere" in found.note and ahead.fingerprint("any").folder in found.note
        missed = cache.explain(adder(device, 6))
        assert missed.found is None and {one.field for one in missed.differences} == {"source", "fingerprint"}


def test_preloading_by_name_finds_it_and_loads_it_once(tmp_path: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        source = adder(device, 5, name="add")
        compiled_ahead(tmp_path, source)
        report = cache.preload(["add", "nothing"])
        assert (report.disk, report.compiled, len(report.failed)) == (1, 0, 1)
        with cache.get(source) as lease:
            assert lease.origin == "memory"
            check_adder(device, lease, 5)
        assert cache.stats().programs == 1 and origin_of(cache, source) == "memory"


@pytest.mark.parametrize("signed", [True, False])
def test_a_shared_store_has_it_too(tmp_path: Path, signed: bool) -> None:
    pytest.importorskip("obstore")
    url, key = f"file://{tmp_path}/store", b"a secret that machines share" if signed else None
    with FakeDevice() as device:
        source = adder(device, 5)
        with kk.ProgramCache(
            device, tmp_path / "here", remote=url, signing_key=key, allow_unsigned=not signed, remote_timeout=20.0
        ) as cache:
            data = compiled_ahead(tmp_path / "elsewhere", source).read_bytes()
            (place,) = cache.places_ahead(source)
            remote = kk.Remote(url=url, signing_key=key, allow_unsigned=key is None)
            RemoteTier(remote, keys_for(remote), device.fingerprint.digest).put_ahead(place, data)
            assert origin_of(cache, source) == "remote" and cache.stats().compiles == 0
            cache.finish_saving()
        assert len(list((tmp_path / "here" / place.folder).rglob("*.bin"))) == 1, "it was not kept on disk"
        with kk.ProgramCache(device, tmp_path / "here") as cache:
            assert origin_of(cache, source) == "disk"


def test_a_shared_store_is_not_asked_for_what_is_on_disk(tmp_path: Path) -> None:
    pytest.importorskip("redis")
    with FakeDevice() as device:
        sources = [adder(device, term, name=f"add{term}") for term in (5, 6)]
        for source in sources:
            folder = compiled_ahead(tmp_path, source, only=False).parents[2]
        nobody = "redis://127.0.0.1:1/0"
        with kk.ProgramCache(device, tmp_path, remote=nobody, allow_unsigned=True) as cache:
            assert cache.preload(sources).disk == 2 and folder.is_dir()
            assert cache.chain.counts()["remote"].failed == 0, "the store was asked"


READ_ONLY = """
import os, sys, warnings
import encodings.ascii, pwd, unittest, numpy.testing, kernelkeep as kk, kernelkeep.cache.upkeep
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.cache_parts.common import adder, check_adder
if os.geteuid() == 0:
    os.setgid(12345)
    os.setuid(12345)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with FakeDevice() as device, kk.ProgramCache(device, sys.argv[1]) as cache:
        for term in (5, 6):
            with cache.get(adder(device, term)) as lease:
                check_adder(device, lease, term)
                print(lease.origin)
        print((cache.cache_dir / device.fingerprint.folder).exists())
print(len(caught), "Permission denied" in str(caught[0].message))
"""


def test_a_read_only_folder_serves_what_was_compiled_ahead(reachable_path: Path) -> None:
    """As in the image of a container: this process cannot make the folder of its device."""
    root = reachable_path / "cache"
    with FakeDevice() as device:
        compiled_ahead(root, adder(device, 5))
    for path in (root, *root.rglob("*")):  # what chmod -R a+rX,a-w does
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        said = run_python(READ_ONLY, root).stdout.splitlines()
    finally:
        for path in (root, *root.rglob("*")):
            path.chmod(0o700)
    assert said == ["disk", "compiled", "False", "1 True"]
