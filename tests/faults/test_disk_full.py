"""A disk that is full in the middle of writing: no partial entry, one warning, and writing goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.errors import CacheWarning
from kernelkeep.testing import run_python
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"DISK FULL NOT TESTED on a real file system: mount said {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


def whole(tier: DiskChain) -> int:
    """How many entries there are; a damaged one fails the test."""
    found = list(tier.scan())
    assert [stored.damage for stored in found if stored.facts is None] == []
    return len(found)


def test_a_full_disk_warns_once_and_is_tried_again(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskTier, "retry_seconds", (0.05, 0.05))
    tier = DiskChain(small_disk / "cache", "gpu", {}, 1 << 30)
    kept = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(40):
            if tier.put(sample_entry(number, size=50_000)):
                kept.append(number)
            time.sleep(0.06 if number % 5 == 0 else 0)  # now and then it is tried again
    assert 5 < len(kept) < 40
    assert [warning.category for warning in caught] == [CacheWarning]
    assert "No space left" in str(caught[0].message)
    assert whole(tier) == len(kept)
    assert not list((tier.folder.path / "tmp").iterdir()), "nothing half-written is left"
    for number in kept:
        entry = sample_entry(number, size=50_000)
        assert tier.get(entry.facts.key.digest, entry.facts.name) == entry

    # There is no room for anything at all, not even a line in a list of names.
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        fill(filler)
    time.sleep(0.06)
    assert not tier.put(sample_entry(100, size=10))
    assert tier.get(sample_entry(100).facts.key.digest, "program100") is None
    entry = sample_entry(kept[0], size=50_000)
    assert tier.get(entry.facts.key.digest, entry.facts.name) == entry, "what is there is still served"
    DiskChain(small_disk / "cache", "gpu", {}, 1 << 30)  # opening it breaks nothing either

    # Space returns.
    filler.unlink()
    pruned = tier.prune(max_bytes=200_000)
    assert pruned.entries >= len(kept) - 4
    time.sleep(0.06)
    assert tier.put(sample_entry(200, size=50_000))
    assert whole(tier) == len(list(tier.folder.path.glob("programs/*/*.bin"))) == tier.count()[0]


LIMITED = """
import resource, sys, warnings
from pathlib import Path
from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
DiskTier.retry_seconds = (0.0, 0.0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tier = DiskChain(Path(sys.argv[1]), "gpu", {}, 1 << 30)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
    print([tier.put(sample_entry(number, size=size)) for number, size in enumerate((1000, 200_000, 2000, 300_000))])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(tier.put(sample_entry(1, size=200_000)))
print([warning.category.__name__ for warning in caught])
"""


def test_a_truncated_write_leaves_no_partial_entry(tmp_path: Path) -> None:
    """The kernel takes 64 KiB of a file and refuses the rest: this needs no file system of our own."""
    said = run_python(LIMITED, tmp_path / "cache").stdout.splitlines()
    assert said == ["[True, False, True, False]", "True", "['CacheWarning']"]
    tier = DiskChain(tmp_path / "cache", "gpu", {}, 1 << 30)
    assert whole(tier) == 3
    assert not list((tier.folder.path / "tmp").iterdir())
    assert tier.count() == (3, sum(os.path.getsize(p) for p in tier.folder.path.glob("programs/*/*.bin")))  # noqa: PTH202


ON_A_FULL_DISK = """
import sys, warnings
import numpy as np
import kernelkeep as kk
spec, root = sys.argv[1:3]
kernel = kk.PortableKernel("f", params=[kk.Buffer("y", "i4", "w")], body="y[kk_global_id(0)] = 5;", group=8)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
        for _ in range(2):
            with cache.get(kernel) as lease:
                y = device.array(np.zeros(8, "i4"))
                lease.kernel().launch(1, (y,))
                print(lease.origin, (y.numpy() == 5).all())
        cache.persist()
        print(cache.stats().compiles, cache.lifetime_stats().compiles)
print([warning.category.__name__ for warning in caught])
"""


@pytest.mark.opencl
def test_a_program_on_a_full_disk_works(small_disk: Path) -> None:
    import kernelkeep as kk

    try:
        spec = kk.open_device("opencl").spec
    except kk.DeviceError as error:
        pytest.skip(str(error))
    with pytest.raises(OSError, match="No space"):
        fill(small_disk / "filler")
    said = run_python(ON_A_FULL_DISK, spec, small_disk / "cache").stdout.splitlines()
    assert said == ["compiled True", "memory True", "1 1", "['CacheWarning']"]


JOURNAL_ON_A_FULL_DISK = """
import sys
from pathlib import Path
import numpy as np
import kernelkeep as kk
root, disk = map(Path, sys.argv[1:3])
journal = disk / "work.kkj"
tasks = {"put": "(int i, int v) { if (kk_local_id(0) == 0) x[i] = v; }"}
with kk.open_device("reference") as device, kk.ProgramCache(device, root) as cache:
    def opened(path, **options):
        return kk.Resident.emulated(cache, tasks, {"x": np.zeros(4, "i4")}, blocks=1, journal=path, **options)
    resident = opened(journal, capacity=16)
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass
    for number in range(3):
        resident.add("n" * 200 + str(number), tasks["put"])
    for number in range(40):
        resident.submit("put", 1, number).result(60)
    resident.pause()
    resident.submit("put", 2, 7)
    resident.stop()
    before = journal.read_bytes()
    for path in (journal, disk / "another.kkj"):
        try:
            opened(path, capacity=32)
        except kk.ArgumentError as error:
            print(error)
    assert journal.read_bytes() == before
    assert sorted(one.name for one in disk.iterdir() if one.name[0] != ".") == ["filler", "work.kkj"]
    (disk / "filler").unlink()
    with opened(journal, capacity=32) as resident:
        print(resident.recovered.tasks, resident.submitted)
"""


def test_a_journal_on_a_full_disk_works_and_a_new_one_is_refused(small_disk: Path, tmp_path: Path) -> None:
    """It is written through a mapping, where the system ends the process that writes to a hole."""
    said = run_python(JOURNAL_ON_A_FULL_DISK, tmp_path, small_disk).stdout.splitlines()
    assert said == [
        f"the journal {small_disk / 'work.kkj'} cannot be written: No space left on device",
        f"the journal {small_disk / 'another.kkj'} cannot be written: No space left on device",
        "(('put', (2, 7)),) (41,)",
    ]
