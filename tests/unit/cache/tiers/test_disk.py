"""Programs on disk: the layout, the bounds, and what happens where the disk does not play along."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelkeep.cache import gpu_folder
from kernelkeep.cache.entry import Entry
from kernelkeep.cache.entry_files import slug
from kernelkeep.cache.tiers.disk import DiskTier, gpu_folders
from kernelkeep.errors import CacheWarning
from kernelkeep.testing import run_python
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.warned import one_warning

DAY = 86400.0
GPU = "opencl_gpu_driver_compiler_0123456789ab"


def open_tier(root: Path, folder: str = GPU, max_bytes: int = 1 << 30) -> DiskChain:
    return DiskChain(root, folder, {"model": "GPU"}, max_bytes)


@pytest.fixture
def tier(tmp_path: Path) -> DiskChain:
    return open_tier(tmp_path / "cache")


def digest_of(entry: Entry) -> str:
    return entry.facts.key.digest


def get(tier: DiskChain, entry: Entry) -> Entry | None:
    return tier.get(digest_of(entry), entry.facts.name)


def file_of(tier: DiskChain, entry: Entry) -> Path:
    (path,) = tier.folder.path.glob(f"programs/*/*-{digest_of(entry)}.bin")
    return path


class Clock:
    """The time the cache's modules see, and the modification times files get from it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.time()
        monkeypatch.setattr(time, "time", lambda: self.now)

    def put(self, tier: DiskChain, entry: Entry) -> None:
        assert tier.put(entry)
        for path in tier.folder.path.glob(f"programs/*/*-{digest_of(entry)}.bin"):
            os.utime(path, (self.now, self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


# --- layout


def test_put_writes_the_documented_layout(tier: DiskChain) -> None:
    entry = sample_entry(1, name="saxpy")
    assert get(tier, entry) is None
    assert tier.put(entry)
    assert get(tier, entry) == entry
    digest = digest_of(entry)
    folder = tier.root / GPU
    path = folder / "programs" / digest[:3] / f"saxpy-{digest}.bin"
    assert path.is_file()
    meta = json.loads(path.with_suffix(".meta").read_text())
    assert meta == msgspec.to_builtins(entry.facts) | {"kernels": ["saxpy"]}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["fingerprint"] == {"model": "GPU"}
    assert (manifest["schema"], manifest["entries"], manifest["bytes"]) == (1, 1, path.stat().st_size)
    assert tier.find_name("saxpy") == [digest]
    assert not list((folder / "tmp").iterdir()) and not list((folder / "locks").iterdir())


def test_everything_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        tier = open_tier(tmp_path / "made" / "cache")
        tier.put(sample_entry(1))
        path = file_of(tier, sample_entry(1))
        path.write_bytes(b"bad")
        get(tier, sample_entry(1))
        tier.put(sample_entry(1))
        with tier.alone(digest_of(sample_entry(2)), 1):
            found = [tier.root, *tier.root.rglob("*")]
            modes = {str(p.relative_to(tmp_path)): stat.S_IMODE(p.stat().st_mode) for p in found}
    finally:
        os.umask(before)
    assert len(modes) > 10
    # What was set aside keeps what it had.
    wrong = {p: oct(m) for p, m in modes.items() if m & 0o077 and "set-aside/" not in p}
    assert not wrong


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd",
        "/absolute",
        "a/b",
        "..",
        ".",
        "x" * 300,
        "🚀",
        "🚀saxpy🚀",
        " ",
        "a\0b",
        "a\nb",
        "con",
        "-rf",
    ],
)
def test_programs_with_any_name_are_kept(tmp_path: Path, name: str) -> None:
    tier = open_tier(tmp_path / "cache")
    entry = sample_entry(1, name=name)
    assert tier.put(entry)
    assert get(tier, entry) == entry
    path = file_of(tier, entry)
    assert path.parent.parent == tier.folder.path / "programs"
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,47}-[0-9a-f]{64}\.bin", path.name)
    assert {p.name for p in tmp_path.iterdir()} == {"cache"}
    assert tier.find_name(name) == [digest_of(entry)]
    assert slug(slug(name)) == slug(name)


def test_a_name_that_cannot_be_written_down_is_not_kept(tier: DiskChain) -> None:
    """Such names come from undecodable file names."""
    entry = sample_entry(1, name="bad\udc80name")
    assert not tier.put(entry)
    assert get(tier, entry) is None
    assert tier.is_writable and tier.put(sample_entry(2)), "it is no trouble of the disk"
    assert not list((tier.folder.path / "tmp").iterdir())


def test_a_program_is_found_under_another_name(tier: DiskChain) -> None:
    entry = sample_entry(1, name="one")
    tier.put(entry)
    assert tier.get(digest_of(entry), "two") == entry
    renamed = Entry(msgspec.structs.replace(entry.facts, name="two"), entry.payload)
    tier.put(renamed)
    assert len(list(tier.folder.path.glob("programs/*/*.bin"))) == 1, "one program, one file"
    assert tier.count()[0] == 1
    assert tier.get(digest_of(entry), "one") == renamed


def test_put_replaces_an_older_entry(tier: DiskChain) -> None:
    small, large = sample_entry(1, size=100), sample_entry(1, size=5000)
    tier.put(small)
    tier.put(large)
    assert get(tier, large) == large
    assert tier.count() == (1, file_of(tier, large).stat().st_size)


def test_the_meta_file_may_lie_or_be_missing(tier: DiskChain) -> None:
    one, other = sample_entry(1), sample_entry(2)
    tier.put(one)
    tier.put(other)
    meta = file_of(tier, one).with_suffix(".meta")
    meta.write_bytes(file_of(tier, other).with_suffix(".meta").read_bytes())
    assert get(tier, one) == one
    meta.write_bytes(b"\xff")
    assert get(tier, one) == one
    meta.unlink()
    assert get(tier, one) == one and tier.rejected == 0


# --- what stands where an entry should be


def truncated(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def swapped(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def foreign(path: Path, other: Path) -> None:
    path.write_bytes(b"\x7fELF" + b"x" * 1000)


def empty(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("something")


def a_link(path: Path, other: Path) -> None:
    outside = path.parents[4] / "outside.bin"
    path.rename(outside)
    path.symlink_to(outside)


def a_dangling_link(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


def a_pipe(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [truncated, flipped, swapped, foreign, empty, a_folder, a_link, a_dangling_link, a_pipe],
    ids=lambda f: f.__name__,
)
def test_a_bad_file_is_set_aside_counted_and_replaced(tier: DiskChain, spoil: Any) -> None:
    one, other = sample_entry(1), sample_entry(2)
    tier.put(one)
    tier.put(other)
    path, bytes_before = file_of(tier, one), file_of(tier, other).read_bytes()
    spoil(path, file_of(tier, other))
    assert get(tier, one) is None
    assert tier.rejected == 1
    assert not os.path.lexists(path), "it is out of the way"
    assert len(list((tier.folder.path / "set-aside").iterdir())) == 1, "and kept to look at"
    assert tier.put(one) and get(tier, one) == one
    assert file_of(tier, other).read_bytes() == bytes_before and get(tier, other) == other
    assert tier.rejected == 1
    assert tier.count()[0] == 2
    outside = tier.root.parent / "outside.bin"
    if outside.exists():
        assert outside.is_file(), "what a link pointed to is untouched"


def test_only_the_last_few_bad_files_are_kept(tier: DiskChain) -> None:
    for number in range(30):
        tier.put(sample_entry(number))
        file_of(tier, sample_entry(number)).write_bytes(b"bad")
        assert get(tier, sample_entry(number)) is None
    assert tier.rejected == 30
    assert len(list((tier.folder.path / "set-aside").iterdir())) == 20


@pytest.mark.parametrize("place", ["names/program1", "diary", "names", "tmp", "set-aside", "shard", "manifest.json"])
@pytest.mark.parametrize("obstacle", ["file", "folder"])
def test_a_file_in_the_place_of_a_folder_does_not_stop_writing(tmp_path: Path, place: str, obstacle: str) -> None:
    entry = sample_entry(1)
    folder = tmp_path / "cache" / GPU
    path = folder / (f"programs/{digest_of(entry)[:3]}" if place == "shard" else place)
    path.parent.mkdir(parents=True)
    if obstacle == "folder":
        path.mkdir()
    else:
        path.write_text("not ours")
    tier = open_tier(tmp_path / "cache")
    assert tier.put(entry) and get(tier, entry) == entry
    file_of(tier, entry).write_bytes(b"bad")
    assert get(tier, entry) is None and tier.put(entry) and get(tier, entry) == entry


# --- bounds


def test_the_bound_is_kept_and_the_least_recently_used_go(tmp_path: Path, clock: Clock) -> None:
    size = len(sample_entry(0).payload) + 500
    tier = open_tier(tmp_path / "cache", max_bytes=10 * size)
    clock.now -= 30 * DAY
    entries = [sample_entry(number) for number in range(25)]
    for number, entry in enumerate(entries):
        clock.put(tier, entry)
        clock.now += DAY / 2
        if number >= 4:
            assert get(tier, entries[2]) is not None, "what is used stays"
        total = sum(path.stat().st_size for path in tier.folder.path.glob("programs/*/*.bin"))
        assert total <= tier.max_bytes
        assert tier.count()[1] == total
    left = [number for number, entry in enumerate(entries) if get(tier, entry) is not None]
    newest = list(range(25 - len(left) + 1, 25))
    assert left == [2, *newest]
    assert len(left) >= 7, "not more went than had to"


def test_a_program_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "cache", max_bytes=2000)
    tier.put(sample_entry(1, size=500))
    tier.put(sample_entry(2, size=5000))
    assert tier.count()[1] <= 2000


def test_the_bound_is_for_all_gpus_together(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "cache"
    old = open_tier(root, "opencl_old_gpu", max_bytes=20_000)
    clock.now -= 20 * DAY
    for number in range(10):
        clock.put(old, sample_entry(number))
    clock.now += 10 * DAY
    new = open_tier(root, "opencl_new_gpu", max_bytes=20_000)
    for number in range(100, 112):
        clock.put(new, sample_entry(number))
    total = sum(path.stat().st_size for path in root.glob("*/programs/*/*.bin"))
    assert total <= 20_000
    assert all(get(new, sample_entry(number)) for number in range(100, 112)), "the old GPU's entries went first"
    assert old.count()[0] < 10


def test_the_bound_is_kept_in_a_folder_that_held_more(tmp_path: Path) -> None:
    large = open_tier(tmp_path / "cache")
    now = time.time()
    for number in range(30):
        large.put(sample_entry(number))
        os.utime(file_of(large, sample_entry(number)), (now - DAY * (40 - number),) * 2)
    tier = open_tier(tmp_path / "cache", max_bytes=20_000)
    for number in range(100, 105):
        tier.put(sample_entry(number))
        assert sum(path.stat().st_size for path in tier.folder.path.glob("programs/*/*.bin")) <= 20_000
    assert all(get(tier, sample_entry(number)) for number in (*range(25, 30), *range(100, 105))), "the oldest went"


def test_prune_by_age_removes_what_was_not_used_since(tier: DiskChain, clock: Clock) -> None:
    clock.now -= 100 * DAY
    for number in range(10):
        clock.put(tier, sample_entry(number))
        clock.now += 10 * DAY
    assert get(tier, sample_entry(0)) is not None  # used now
    pruned = tier.prune(max_age_days=55)
    assert pruned.entries == 4, "those of 90, 80, 70 and 60 days ago"
    assert [number for number in range(10) if get(tier, sample_entry(number))] == [0, 5, 6, 7, 8, 9]
    assert tier.count()[0] == 6
    assert not list(tier.folder.path.glob(f"programs/*/*{digest_of(sample_entry(1))}*")), "the .meta went too"
    assert tier.prune(max_age_days=55).entries == 0
    clock.now += 60
    assert tier.prune(max_age_days=0).entries == 6, "looking was using"


def test_prune_by_bytes_removes_the_least_recently_used(tier: DiskChain, clock: Clock) -> None:
    clock.now -= 10 * DAY
    for number in range(10):
        clock.put(tier, sample_entry(number))
        clock.now += DAY
    before = tier.count()[1]
    pruned = tier.prune(max_bytes=before // 2)
    assert pruned.entries == 5 and pruned.bytes == before - tier.count()[1]
    assert [number for number in range(10) if get(tier, sample_entry(number))] == [5, 6, 7, 8, 9]
    assert tier.prune(max_bytes=0).entries == 5
    assert tier.count() == (0, 0)


def test_prune_removes_folders_that_are_gone(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    tiers = {name: open_tier(root, name) for name in ("gpu_a", "gpu_b", "gpu_c")}
    for tier in tiers.values():
        tier.put(sample_entry(1))
    (root / "not a gpu").mkdir()
    (root / "not a gpu" / "precious").write_text("keep")
    pruned = tiers["gpu_a"].prune(gone=lambda folder: folder.path.name != "gpu_b")
    assert pruned.folders == ("gpu_c",), "never the folder of the device in use"
    assert pruned.entries == 1
    assert [folder.path.name for folder in gpu_folders(root)] == ["gpu_a", "gpu_b"]
    assert (root / "not a gpu" / "precious").read_text() == "keep"


def test_a_used_entry_is_refreshed_at_most_twice_a_day(tier: DiskChain, clock: Clock) -> None:
    entry = sample_entry(1)
    clock.now -= 3 * DAY
    clock.put(tier, entry)
    used = clock.now
    for step, refreshed in ((720, False), (21600, False), (28800, True), (720, False), (44400, True)):
        clock.now += step
        assert get(tier, entry) == entry
        used = clock.now if refreshed else used
        assert file_of(tier, entry).stat().st_mtime == pytest.approx(used, abs=1)


# --- cost


EVENTS = ("os.listdir", "os.scandir", "open", "os.rename")


@pytest.fixture(scope="session")
def seen_events() -> Counter[str]:
    """Every file system event of this process; hooks cannot be taken away, so there is one."""
    counter: Counter[str] = Counter()

    def hook(event: str, arguments: object) -> None:
        if event in EVENTS:
            counter[event] += 1

    sys.addaudithook(hook)
    return counter


def test_no_step_but_pruning_grows_with_the_number_of_entries(tmp_path: Path, seen_events: Counter[str]) -> None:
    """Each file looked at is an event or part of a folder that is read; neither grows."""

    def cost(number: int) -> dict[str, dict[str, int]]:
        root = tmp_path / str(number)
        tier = open_tier(root)
        for index in range(number):
            tier.put(sample_entry(index, size=50))
        costs = {}

        def measure(name: str, work: Any) -> None:
            seen_events.clear()
            work()
            costs[name] = dict(seen_events)

        measure("open", lambda: open_tier(root))
        measure("put", lambda: tier.put(sample_entry(-1, size=50)))
        measure("get", lambda: get(tier, sample_entry(5, size=50)))
        measure("miss", lambda: get(tier, sample_entry(-2, size=50)))
        measure("count", tier.count)
        return costs

    assert cost(10) == cost(1000)


def test_pruning_by_bytes_removes_no_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    tier = open_tier(tmp_path / "cache")
    clock.now -= 50 * DAY
    for number in range(200):
        clock.put(tier, sample_entry(number, size=50))
        clock.now += DAY / 4
    read: list[Path] = []
    total = tier.count()[1]
    with monkeypatch.context() as patched:
        patched.setattr(gpu_folder, "read_regular", lambda path, *_: read.append(path))
        pruned = tier.prune(max_bytes=total - 1)
    assert pruned.entries == 1 and read == [], "entries are counted, not read"
    assert get(tier, sample_entry(0, size=50)) is None and get(tier, sample_entry(1, size=50)) is not None


def test_the_diary_of_an_older_version_is_removed(tier: DiskChain) -> None:
    """Older versions kept the order of uses in a diary; the files' times, which they kept as well, are enough."""
    tier.put(sample_entry(1))
    (tier.folder.path / "diary").mkdir(mode=0o700)
    (tier.folder.path / "diary" / "2026-01-01").write_text("0 x y\n")
    manifest = tier.folder.path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"last_used": time.time() - DAY}))
    again = open_tier(tier.root)
    assert not (tier.folder.path / "diary").exists()
    assert get(again, sample_entry(1)) == sample_entry(1)


# --- trouble


READ_ONLY = """
import os, sys, warnings
from pathlib import Path
import encodings.ascii, kernelkeep.cache.upkeep  # before this user may no longer read the interpreter's folder
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.warned import one_warning
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tier = DiskChain(Path(sys.argv[1]), sys.argv[2], {}, 1 << 30)
    for number in range(1, 4):
        kept = tier.put(sample_entry(number))
        found = tier.get(sample_entry(number).facts.key.digest, f"program{number}")
        with tier.alone(sample_entry(number).facts.key.digest, 1):
            pass
        print(kept, found == sample_entry(number))
    tier.prune(max_age_days=1, max_bytes=0)
print([w.category.__name__ for w in caught])
"""


@pytest.mark.parametrize("age", [0, 7200])
def test_a_read_only_cache_serves_and_warns_once(reachable_path: Path, age: float) -> None:
    tier = open_tier(reachable_path / "cache")
    tier.put(sample_entry(1))
    manifest = tier.folder.path / "manifest.json"
    changed = json.loads(manifest.read_text())
    changed["last_used"] -= age
    manifest.write_text(json.dumps(changed))
    for path in (tier.root, *tier.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        said = run_python(READ_ONLY, tier.root, GPU).stdout.splitlines()
    finally:
        for path in (tier.root, *tier.root.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert said == ["False True", "False False", "False False", "['CacheWarning']"]
    assert get(tier, sample_entry(1)) == sample_entry(1)


def test_a_cache_that_cannot_be_read_warns_once(reachable_path: Path) -> None:
    tier = open_tier(reachable_path / "cache")
    tier.put(sample_entry(1))
    tier.root.chmod(0)
    try:
        said = run_python(READ_ONLY, tier.root, GPU).stdout.splitlines()
    finally:
        tier.root.chmod(0o700)
    assert said == ["False False"] * 3 + ["['CacheWarning']"]


def test_missing_parents_are_made(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "a" / "b" / "c")
    assert tier.put(sample_entry(1)) and get(tier, sample_entry(1))


@pytest.mark.parametrize("where", ["root", "parent", "folder"])
def test_a_file_where_the_cache_should_be(tmp_path: Path, where: str) -> None:
    root = tmp_path / "parent" / "cache"
    path = {"root": root, "parent": root.parent, "folder": root / GPU}[where]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tier = open_tier(root)
        for number in range(3):
            assert not tier.put(sample_entry(number))
            assert get(tier, sample_entry(number)) is None
    assert [warning.category for warning in caught] == [CacheWarning]
    assert "memory only" in str(caught[0].message)
    assert path.read_text() == "precious"
    assert tier.count() == (0, 0) and tier.prune(max_age_days=1, max_bytes=0).entries == 0


def test_pruning_that_fails_is_one_warning_and_writing_pauses(tier: DiskChain, monkeypatch: pytest.MonkeyPatch) -> None:
    tier.put(sample_entry(1))

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    monkeypatch.setattr(gpu_folder, "unlink_entry", refuse)
    with one_warning("not yours"):
        assert tier.prune(max_bytes=0).entries == 0
    assert get(tier, sample_entry(1)) is not None, "reading goes on"
    assert not tier.put(sample_entry(2))


def test_a_warning_that_is_an_error_breaks_nothing(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not open_tier(root).put(sample_entry(1))


def test_a_failed_folder_is_tried_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskTier, "retry_seconds", (0.05, 0.05))
    root = tmp_path / "cache"
    root.write_text("")
    with pytest.warns(CacheWarning):
        tier = open_tier(root)
    assert not tier.is_writable
    root.unlink()
    time.sleep(0.06)
    assert tier.is_writable and tier.put(sample_entry(1)) and get(tier, sample_entry(1))


def test_a_folder_removed_under_a_running_program(tier: DiskChain) -> None:
    import shutil

    tier.put(sample_entry(1))
    shutil.rmtree(tier.root)
    assert get(tier, sample_entry(1)) is None
    with tier.alone("0" * 64, 1) as locked:
        assert locked
    assert tier.put(sample_entry(1)) and get(tier, sample_entry(1)) == sample_entry(1)


# --- files that two versions or a crash left


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xff",
        b'{"entries": "many", "bytes": null, "last_used": "x", "machines": 3}',
        b'{"schema": 1, "entries": NaN, "bytes": Infinity, "last_used": NaN}',
        b'{"entries": ' + b"9" * 1000 + b', "bytes": 1e999, "last_used": ' + b"9" * 1000 + b"}",
        b'{"schema": 1, "entries": -5, "bytes": -5, "last_used": 1e17}',
        b"[" * 100_000,
    ],
    ids=range(10),
)
def test_a_damaged_manifest_is_replaced(tier: DiskChain, content: bytes) -> None:
    tier.put(sample_entry(1))
    (tier.folder.path / "manifest.json").write_bytes(content)
    tier.put(sample_entry(2))
    assert get(tier, sample_entry(1)) and get(tier, sample_entry(2))
    (tier.folder.path / "manifest.json").write_bytes(content)
    again = open_tier(tier.root)
    assert again.put(sample_entry(3))
    assert all(get(again, sample_entry(number)) for number in (1, 2, 3))
    assert again.count()[0] in ((3,) if b"-5" not in content else range(4))
    again.prune(max_age_days=1, max_bytes=1 << 40)
    assert again.folder.manifest.used_here
    again.recount()
    assert again.count()[0] == 3


def test_what_another_version_wrote_into_the_manifest_stays(tier: DiskChain) -> None:
    path = tier.folder.path / "manifest.json"
    ours = json.loads(path.read_text())
    path.write_text(json.dumps(ours | {"schema": 2, "tuned": {"a": [1, 2]}, "last_used": 0}))
    again = open_tier(tier.root)
    again.put(sample_entry(1))
    again.prune(max_age_days=1)
    after = json.loads(path.read_text())
    assert after["tuned"] == {"a": [1, 2]} and after["schema"] == 2 and after["entries"] == 1


def test_an_entry_of_a_newer_schema_is_not_read(tier: DiskChain) -> None:
    """A newer schema cannot be read here; it is set aside like any other file we do not understand, and never loaded."""
    entry = sample_entry(1)
    tier.put(entry)
    path = file_of(tier, entry)
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)
    assert get(tier, entry) is None


def test_temporary_files_of_killed_writers_are_cleared_away(tier: DiskChain) -> None:
    tmp = tier.folder.path / "tmp"
    (tmp / "old").write_text("x")
    (tmp / "new").write_text("x")
    os.utime(tmp / "old", (time.time() - DAY,) * 2)
    open_tier(tier.root)
    assert [path.name for path in tmp.iterdir()] == ["new"], "one may be under way"


def test_scan_lists_whole_and_damaged_entries(tier: DiskChain) -> None:
    for number in range(4):
        tier.put(sample_entry(number))
    file_of(tier, sample_entry(2)).write_bytes(b"bad")
    found = {stored.digest: stored for stored in tier.scan()}
    assert len(found) == 4
    for number in range(4):
        stored = found[digest_of(sample_entry(number))]
        assert (stored.facts == sample_entry(number).facts) is (number != 2)
        assert bool(stored.damage) is (number == 2)


@pytest.fixture(autouse=True)
def no_file_is_left_open() -> Iterator[None]:
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
