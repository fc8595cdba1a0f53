"""Other users of the machine: what they could have written is never executed, and ours is never theirs to read."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.program_cache import ProgramCache
from kernelkeep.cache.upkeep import clear_root, list_entries
from kernelkeep.storage.private import NotPrivate, Trust, make_private_folder
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.warned import one_warning

GPU = "opencl_gpu_driver_compiler_0123456789ab"
MALLORY = 12345
ENTRY = sample_entry(1)
DIGEST, NAME = ENTRY.facts.key.digest, ENTRY.facts.name
two_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")


def open_tier(root: Path, trust: Trust | None = None) -> DiskChain:
    return DiskChain(root, GPU, {"model": "GPU"}, 1 << 30, trust)


def fill(root: Path) -> DiskChain:
    tier = open_tier(root)
    assert tier.put(ENTRY)
    return tier


def give(path: Path, *, all_of_it: bool = False) -> None:
    for found in (path, *(path.rglob("*") if all_of_it else ())):
        os.chown(found, MALLORY, MALLORY, follow_symlinks=False)


# --- each step of the way


def root_of_another(root: Path) -> None:
    give(root)


def everything_of_another(root: Path) -> None:
    give(root, all_of_it=True)


def parent_of_another(root: Path) -> None:
    give(root.parent)


def folder_of_another(root: Path) -> None:
    give(root / GPU)


def programs_of_another(root: Path) -> None:
    give(root / GPU / "programs")


def shard_of_another(root: Path) -> None:
    give(root / GPU / "programs" / DIGEST[:3])


def writable_root(root: Path) -> None:
    root.chmod(0o777)


def sticky_root(root: Path) -> None:
    root.chmod(0o1777)


def writable_by_group(root: Path) -> None:
    root.chmod(0o770)


def writable_parent(root: Path) -> None:
    root.parent.chmod(0o777)


def writable_folder(root: Path) -> None:
    (root / GPU).chmod(0o775)


def writable_shard(root: Path) -> None:
    (root / GPU / "programs" / DIGEST[:3]).chmod(0o777)


def link_into_their_tree(root: Path) -> None:
    theirs = root.parent.parent / "theirs"
    theirs.mkdir()
    root.rename(theirs / "cache")
    give(theirs, all_of_it=True)
    root.symlink_to(theirs / "cache")


def folder_is_a_link_into_their_tree(root: Path) -> None:
    theirs = root.parent.parent / "theirs"
    theirs.mkdir()
    (root / GPU).rename(theirs / "gpu")
    give(theirs, all_of_it=True)
    (root / GPU).symlink_to(theirs / "gpu")


def link_of_another(root: Path) -> None:
    real = root.rename(root.with_name("real"))
    root.symlink_to(real)
    give(root)


def link_through_their_folder(root: Path) -> None:
    """Ours in the end, but they choose where the way leads."""
    theirs = root.parent.parent / "theirs"
    theirs.mkdir()
    (theirs / "way").symlink_to(root.parent / "real")
    root.rename(root.parent / "real")
    root.symlink_to(theirs / "way")
    give(theirs, all_of_it=True)


@two_users
@pytest.mark.parametrize(
    "spoil",
    [
        root_of_another, everything_of_another, parent_of_another, folder_of_another, programs_of_another,
        shard_of_another, writable_root, sticky_root, writable_by_group, writable_parent, writable_folder,
        writable_shard, link_into_their_tree, folder_is_a_link_into_their_tree, link_of_another,
        link_through_their_folder,
    ],
    ids=lambda spoil: spoil.__name__,
)  # fmt: skip
def test_a_path_that_others_could_change_is_not_used(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    root = tmp_path / "parent" / "cache"
    fill(root)
    spoil(root)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    with one_warning("memory only"):
        tier = open_tier(root)
        assert tier.get(DIGEST, NAME) is None
        assert not tier.put(sample_entry(2)), "nothing is written there either"
        assert tier.get(DIGEST, NAME) is None
    assert tier.rejected == 0
    assert tier.count() == (0, 0) and list(tier.scan()) == [] and tier.find_name(NAME) == []
    after = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    # Opening prepares the folder before the part of it that is asked for is looked at.
    assert {p for p in after if p not in before} == set()


@two_users
@pytest.mark.parametrize("how", ["owner", "group", "others"])
def test_an_entry_that_others_could_have_written_is_set_aside(tmp_path: Path, how: str) -> None:
    """Planted while the folder was open to them: closing the folder later is not enough."""
    tier = fill(tmp_path / "cache")
    (path,) = tier.folder.path.glob("programs/*/*.bin")
    if how == "owner":
        give(path)
    else:
        path.chmod(0o660 if how == "group" else 0o606)
    (stored,) = list_entries(tier.root)
    assert stored.facts is None and ("belongs to" in stored.damage or "written to by others" in stored.damage)
    with one_warning("set aside"):
        tier = open_tier(tmp_path / "cache")
        assert tier.get(DIGEST, NAME) is None
        assert tier.put(ENTRY) and tier.get(DIGEST, NAME) == ENTRY
    assert tier.rejected == 1


@two_users
def test_manifests_that_others_could_have_written_are_not_read(tmp_path: Path) -> None:
    tier = fill(tmp_path / "cache")
    for name in ("manifest.json", f"names/{NAME}"):
        give(tier.folder.path / name)
    tier = open_tier(tmp_path / "cache")
    assert tier.count()[0] == 1, "counted anew"
    assert tier.find_name(NAME) == []
    assert tier.prune(max_bytes=1 << 20).entries == 0
    assert tier.get(DIGEST, NAME) == ENTRY


@two_users
def test_an_owner_may_be_trusted_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    nobody = pwd.getpwnam("nobody")
    root = tmp_path / "cache"
    fill(root)
    for path in (root, *root.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    for owner in ("nobody", nobody.pw_uid, str(nobody.pw_uid)):
        assert open_tier(root, Trust(owner)).get(DIGEST, NAME) == ENTRY
    monkeypatch.setenv("KERNELKEEP_TRUSTED_OWNER", "nobody")
    assert open_tier(root).get(DIGEST, NAME) == ENTRY
    root.chmod(0o777)
    with one_warning("written to by others"):
        assert open_tier(root).get(DIGEST, NAME) is None


@pytest.mark.parametrize("owner", ["no such user", "", "a\0b", -1, 1.5, True, b"root"])
def test_trusted_owner_must_be_a_user(owner: object) -> None:
    with pytest.raises(kk.ArgumentError, match="trusted_owner must be"):
        Trust(owner)  # type: ignore[arg-type]


@two_users
def test_upkeep_of_a_folder_that_is_not_private_raises(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    fill(root)
    give(root)
    for work in (lambda: list(list_entries(root)), lambda: clear_root(root)):
        with pytest.raises(NotPrivate, match="belongs to"):
            work()
    assert list(root.glob("*/programs/*/*.bin"))
    command = [sys.executable, "-m", "kernelkeep", "clear", "--yes", "--cache-dir", str(root)]
    environment = {**os.environ, "PYTHONPATH": str(Path(kk.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1 and "belongs to" in done.stderr and done.stderr.count("\n") == 1


def test_a_sticky_folder_above_is_fine_and_a_link_of_ours_too(tmp_path: Path) -> None:
    above = tmp_path / "like tmp"
    above.mkdir()
    above.chmod(0o1777)
    fill(above / "cache")
    (tmp_path / "link").symlink_to("like tmp/../like tmp/cache")
    assert open_tier(tmp_path / "link").get(DIGEST, NAME) == ENTRY


def test_a_folder_that_pruning_finds_open_to_others_is_not_read_any_more(tmp_path: Path) -> None:
    tier = fill(tmp_path / "cache")
    tier.root.chmod(0o777)
    with one_warning("may be written to by others"):
        assert tier.prune(max_age_days=1).entries == 0
        assert tier.get(DIGEST, NAME) is None and not tier.put(ENTRY)


@two_users
def test_a_folder_that_another_user_created_meanwhile_is_not_used(tmp_path: Path) -> None:
    """In a folder like /tmp anybody may make a new one of that name."""
    above = tmp_path / "like tmp"
    above.mkdir()
    above.chmod(0o1777)
    tier = fill(above / "cache")
    shutil.copytree(tier.root, tmp_path / "copy")
    shutil.rmtree(tier.root)
    (tmp_path / "copy").rename(tier.root)
    give(tier.root, all_of_it=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tier.get(DIGEST, NAME) is None
        assert not tier.put(sample_entry(2))
        assert tier.get(DIGEST, NAME) is None
    assert len(caught) == 1
    assert len(list(tier.root.glob("*/programs/*/*"))) <= 2


# --- as another user

AS_MALLORY = """
import os, sys, warnings
from pathlib import Path
import encodings.ascii, encodings.idna, pwd, kernelkeep.cache.upkeep
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
os.setgid(12345)
os.setuid(12345)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tier = DiskChain(Path(sys.argv[1]), sys.argv[2], {"model": "GPU"}, 1 << 30)
    print(tier.put(sample_entry(2)), tier.get(sample_entry(1).facts.key.digest, "program1") is not None)
print([str(warning.message) for warning in caught])
"""


@two_users
def test_a_user_does_not_run_what_another_planted(reachable_path: Path) -> None:
    """The other way round: a folder of somebody who is not root, found by a user who is not root."""
    root = reachable_path / "cache"
    fill(root)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, 54321, 54321)
    said = run_python(AS_MALLORY, root, GPU).stdout
    assert said.startswith("False False\n") and "belongs to user 54321" in said
    for path in (root, *root.rglob("*")):
        os.chown(path, 0, 0)
    said = run_python(AS_MALLORY, root, GPU).stdout
    assert said.startswith("False True\n"), "root's is read"


UMASKED = """
import os, stat, sys
from pathlib import Path
import encodings.ascii, kernelkeep.cache.upkeep
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.cache.stats import add_to_file
from kernelkeep.cache.upkeep import clear_root
from kernelkeep.testing.entries import sample_entry
if os.geteuid() == 0:
    os.setgid(12345)
    os.setuid(12345)
os.umask(int(sys.argv[2], 8))
root = Path(sys.argv[1]) / "a" / "b"
tier = DiskChain(root, "opencl_gpu_0123456789ab", {}, 1 << 30)
for _ in range(2):
    assert tier.put(sample_entry(1))
    assert add_to_file(root / "cache_stats.json", {"misses": 1})
    with tier.alone(sample_entry(2).facts.key.digest, 1) as locked:
        assert locked
        for path in (root.parent, root, *root.rglob("*")):
            print(f"{stat.S_IMODE(path.stat().st_mode):o}", "folder" if path.is_dir() else "file", path.relative_to(root.parent))
    if _ == 0:
        clear_root(root)
assert tier.get(sample_entry(1).facts.key.digest, "program1")
"""


@pytest.mark.parametrize("umask", ["000", "002", "077", "0777"])
def test_everything_is_private_under_any_umask(reachable_path: Path, umask: str) -> None:
    home = reachable_path / "home"
    home.mkdir()
    if os.geteuid() == 0:
        give(home)
    said = run_python(UMASKED, home, umask).stdout.splitlines()
    assert len(said) > 20
    wrong = [line for line in said if line.split()[:2] not in (["700", "folder"], ["600", "file"])]
    assert not wrong


def test_new_folders_are_private_and_existing_ones_unchanged(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    make_private_folder(tmp_path / "open" / "a" / "b")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "open").rglob("*")] == [0o700, 0o700]


# --- in a program


@pytest.mark.opencl
@two_users
def test_root_with_the_home_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo` that keeps HOME: the programs of that user are not root's to run."""
    monkeypatch.delenv("KERNELKEEP_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    source = kk.Source("__kernel void f(__global int* y) { y[get_global_id(0)] = 5; }", name="f")
    with open_or_skip("opencl") as device:
        with ProgramCache(device) as cache:
            cache.get(source).release()
            assert cache.cache_dir.is_relative_to(home)
        give(home, all_of_it=True)
        with one_warning("belongs to"), ProgramCache(device) as cache:
            for origin in ("compiled", "memory"):
                with cache.get(source) as lease:
                    assert lease.origin == origin
            assert cache.persist() == 0 and cache.prune(0).entries == 0
            assert cache.explain(source).found == "memory" and cache.lifetime_stats().compiles == 1
        with ProgramCache(device, trusted_owner=MALLORY) as cache, cache.get(source) as lease:
            assert lease.origin == "disk"
