"""Cache folders that cannot be used: one warning, programs in memory, and never an exception."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.cache.program_cache import ProgramCache
from kernelkeep.devices import driver_cache
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.warned import one_warning

ENTRY = sample_entry(1)
DIGEST = ENTRY.facts.key.digest


def too_long(path: Path) -> str:
    return f"{path}/{'x' * 300}"


def too_long_in_all(path: Path) -> str:
    return f"{path}/" + "/".join(["y" * 200] * 30)


def too_deep(path: Path) -> str:
    return f"{path}/" + "a/" * 3000


def null(path: Path) -> str:
    return f"{path}/a\0b"


def no_text(path: Path) -> str:
    return f"{path}/\ud800"


def a_file(path: Path) -> str:
    (path / "file").write_text("precious")
    return f"{path}/file"


def below_a_file(path: Path) -> str:
    (path / "file").write_text("precious")
    return f"{path}/file/cache"


def a_device(path: Path) -> str:
    return "/dev/null"


def a_pipe(path: Path) -> str:
    os.mkfifo(path / "pipe")
    return f"{path}/pipe"


def a_loop(path: Path) -> str:
    (path / "loop").symlink_to(path / "loop")
    return f"{path}/loop"


def links_without_end(path: Path) -> str:
    (path / "link").symlink_to("link/x")
    return f"{path}/link/cache"


def no_file_system(path: Path) -> str:
    return "/proc/self/cache"


KINDS = (
    too_long, too_long_in_all, too_deep, null, no_text, a_file, below_a_file, a_device, a_pipe, a_loop,
    links_without_end, no_file_system,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_folder_that_cannot_be_used(tmp_path: Path, kind: object) -> None:
    named = kind(tmp_path)  # type: ignore[operator]
    before = sorted(tmp_path.rglob("*"))
    with one_warning("memory only"):
        tier = DiskChain(settings.cache_dir(named), "gpu", {}, 1 << 30)
        for _ in range(2):
            assert tier.get(DIGEST, "program1") is None and not tier.put(ENTRY)
        assert tier.count() == (0, 0) and list(tier.scan()) == [] and tier.find_name("program1") == []
        assert tier.prune(max_age_days=0, max_bytes=0).entries == 0 and tier.disk.folders() == []
        assert not tier.disk.add_to_sums({"misses": 1}) and tier.disk.read_sums()["misses"] == 0
        with tier.alone(DIGEST, 1) as locked:
            assert not locked
    assert sorted(tmp_path.rglob("*")) == before
    driver_cache.remember("opengl", settings.cache_dir(named), {"mesa": "opengl_x"})
    assert driver_cache._read_names("opengl", settings.cache_dir(named)) == {}


def test_a_deep_folder_works(tmp_path: Path) -> None:
    """Deeper than Python may recurse; making it must not."""
    top = tmp_path / "top"
    tier = DiskChain(settings.cache_dir(f"{top}/" + "a/" * 1100), "gpu", {}, 1 << 30)
    try:
        assert tier.put(ENTRY) and tier.get(DIGEST, "program1") == ENTRY
    finally:  # pytest's own clearing away recurses
        subprocess.run(["rm", "-rf", top], check=True)


def test_the_target_of_a_dangling_link_is_created(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there/cache")
    tier = DiskChain(tmp_path / "link", "gpu", {}, 1 << 30)
    assert tier.put(ENTRY) and (tmp_path / "there" / "cache" / "gpu").is_dir()


UNSEARCHABLE = """
import os, sys, warnings
from pathlib import Path
import encodings.ascii, pwd, kernelkeep.cache.upkeep
from kernelkeep import settings
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry
if os.geteuid() == 0:
    os.setgid(12345)
    os.setuid(12345)
base = Path(sys.argv[1])
for name, mode in (("unsearchable", 0o600), ("unwritable", 0o500)):
    (base / name).mkdir()
    (base / name).chmod(mode)
os.mkdir(base / "gone")
os.chdir(base / "gone")
os.rmdir(base / "gone")
for named in (base / "unsearchable" / "cache", base / "unwritable" / "cache", Path("relative")):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tier = DiskChain(settings.cache_dir(named), "gpu", {}, 1 << 30)
        print(tier.put(sample_entry(1)), tier.get(sample_entry(1).facts.key.digest, "program1"), tier.count())
    print(len(caught), "memory only" in str(caught[0].message))
"""


def test_an_unreachable_folder_or_removed_current_folder_warns_once(reachable_path: Path) -> None:
    home = reachable_path / "home"
    home.mkdir()
    if os.geteuid() == 0:
        os.chown(home, 12345, 12345)
    try:
        said = run_python(UNSEARCHABLE, home).stdout.splitlines()
    finally:
        for folder in home.iterdir():
            folder.chmod(0o700)
    assert said == ["False None (0, 0)", "1 True"] * 3


@pytest.mark.parametrize("wrong", [3, b"bytes", ["x"], "~no such user/x"])
def test_what_is_not_a_path_is_an_argument_error(wrong: object) -> None:
    with pytest.raises(kk.ArgumentError, match="cache_dir must be"):
        settings.cache_dir(wrong)  # type: ignore[arg-type]


def test_without_a_home_no_folder_is_created(tmp_path: Path) -> None:
    """A container with a user nobody knows: `~` cannot be expanded, and must not become a folder of that name."""
    tier = None
    with one_warning("home folder"):
        tier = DiskChain(Path("~/.cache/kernelkeep"), "gpu", {}, 1 << 30)
    assert not tier.put(ENTRY) and not Path("~").exists()


@pytest.mark.opencl
def test_a_program_runs_without_a_usable_cache_folder(tmp_path: Path) -> None:
    source = kk.Source("__kernel void f(__global int* y) { y[get_global_id(0)] = 5; }", name="f")
    with open_or_skip("opencl") as device:
        for kind in (too_deep, null):
            with one_warning("memory only"), ProgramCache(device, kind(tmp_path)) as cache:
                for origin in ("compiled", "memory"):
                    with cache.get(source) as lease:
                        assert lease.origin == origin
                assert cache.persist() == 0 and cache.prune(0).entries == 0 and cache.preload([source]).ok
                assert cache.explain(source).found == "memory"
                assert (cache.stats().on_disk, cache.lifetime_stats().compiles) == (0, 1)
