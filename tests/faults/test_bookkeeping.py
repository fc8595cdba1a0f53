"""The cache's books beside other processes: stopped ones, ones that clear it, and what stands in the place of files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.stats import add_to_file, read_file
from kernelkeep.cache.tiers.disk import gpu_folders
from kernelkeep.cache.upkeep import clear_root, prune_root, verify_root
from kernelkeep.testing import open_or_skip, run_python
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry

GPU = "opencl_gpu_driver_compiler_0123456789ab"
SOURCES = str(Path(kk.__file__).parents[1])

HOLDING = """
import os, signal, sys
from pathlib import Path
from kernelkeep.storage.locks import FileLock
for path in sys.argv[1:]:
    FileLock(Path(path)).acquire(5)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextlib.contextmanager
def stopped_holder(*paths: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that was stopped while it held these locks."""
    command = [sys.executable, "-c", HOLDING, *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "held\n"
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            yield child
        finally:
            child.kill()


def test_a_stopped_process_blocks_nobody_and_loses_no_count(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    tier = DiskChain(root, GPU, {"model": "GPU"}, 1 << 30)
    stats = root / "cache_stats.json"
    for number in range(3):
        assert tier.put(sample_entry(number))
    assert add_to_file(stats, {"compiles": 3})
    with stopped_holder(root / GPU / "locks" / "folder.lock", root / ".cache_stats.json.lock"):
        start = time.monotonic()
        again = DiskChain(root, GPU, {"model": "GPU"}, 1 << 30)
        for number in range(3, 6):
            assert again.put(sample_entry(number))
            assert again.get(sample_entry(number).facts.key.digest, f"program{number}") == sample_entry(number)
            assert add_to_file(stats, {"compiles": 1, "compile_seconds": 0.5})
        again.reject(sample_entry(0).facts.key.digest, "program0", "the driver refuses it")
        assert again.count()[0] == 5 and read_file(stats)["compiles"] == 6, "what waits to be added is counted"
        assert again.prune(max_bytes=again.count()[1] - 1).entries == 1
        assert prune_root(root, max_age_days=0).entries == 4
        assert again.put(sample_entry(7))
        other = DiskChain(root, "opencl_other_driver_compiler_0123456789ab", {"model": "new"}, 1 << 30)
        assert other.put(sample_entry(8))
        assert verify_root(root, repair=True).entries == 2
        # One call alone took 10 to 30 s before.
        assert time.monotonic() - start < 9
    assert add_to_file(stats, {"compiles": 1})
    assert tier.put(sample_entry(9)) and tier.count()[0] == 2
    manifest = json.loads((root / GPU / "manifest.json").read_text())
    assert (manifest["entries"], json.loads(stats.read_text())["compiles"]) == (2, 7)
    assert json.loads(stats.read_text())["compile_seconds"] == 1.5
    assert not list(root.rglob("*.note")), "all was added up"
    assert tier.recount() == tier.count()


KILLED = """
import os, sys
from pathlib import Path
from kernelkeep.cache.stats import add_to_file
from kernelkeep.storage import shared_counts
real = Path.unlink
def unlink(self, *arguments, **named):
    if self.name.endswith(".note"):
        os.kill(os.getpid(), 9)
    return real(self, *arguments, **named)
Path.unlink = unlink
add_to_file(Path(sys.argv[1]), {"misses": 1})
"""


def test_a_process_killed_while_it_adds_up_counts_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "cache_stats.json"
    with stopped_holder(tmp_path / ".cache_stats.json.lock"):
        for _ in range(5):
            assert add_to_file(path, {"misses": 1})
    assert len(list(tmp_path.glob(".*.note"))) == 5
    assert run_python(KILLED, path, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".*.note"))) == 5 and read_file(path)["misses"] == 6
    assert add_to_file(path, {"misses": 1})
    assert read_file(path)["misses"] == 7 and not list(tmp_path.glob(".*.note"))
    assert add_to_file(path, {"misses": 1})
    assert set(json.loads(path.read_text())) == {"schema", "misses"}


COMPILING = """
import json, sys, warnings
import kernelkeep as kk
spec, root, number = sys.argv[1:4]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with kk.open_device(spec, cache_dir=root) as device, kk.ProgramCache(device, root) as cache:
        for index in range(4):
            body = f"y[kk_global_id(0)] = {number} * 100 + {index};"
            cache.get(kk.PortableKernel("f", params=[kk.Buffer("y", "i4", "w")], body=body, group=8)).release()
        print(json.dumps([cache.stats().compiles, [str(warning.message) for warning in caught]]))
"""


@pytest.mark.opencl
def test_no_count_is_lost_while_the_cache_is_cleared(tmp_path: Path) -> None:
    with open_or_skip("opencl") as device:
        spec = device.spec
    root = tmp_path / "cache"
    with ThreadPoolExecutor(3) as pool:
        children = [pool.submit(run_python, COMPILING, spec, root, number) for number in range(3)]
        cleared = []
        while not all(child.done() for child in children):
            cleared.append(clear_root(root))
            time.sleep(0.01)
    said = [json.loads(child.result().stdout) for child in children]
    assert [warned for _, warned in said] == [[], [], []]
    assert [count for count, _ in said] == [4, 4, 4]
    assert read_file(root / "cache_stats.json")["compiles"] == 12
    assert sum(went.entries for went in cleared) > 0
    assert [path for went in cleared for path in went.left] == []
    assert any(name.startswith("opencl_pocl") for went in cleared for name in went.in_use), "PoCL was at work there"
    clear_root(root)
    assert [path.name for path in root.iterdir()] == ["cache_stats.json"]


# --- what a manifest claims


def test_a_manifest_that_claims_too_much_removes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    tier = DiskChain(root, GPU, {"model": "GPU"}, 1 << 30)
    for number in range(5):
        assert tier.put(sample_entry(number))
    driver = tier.folder.path / "driver"
    driver.mkdir(mode=0o700)
    (driver / "shader").write_bytes(b"x" * 100)
    os.utime(driver / "shader", (1, 1))
    path = tier.folder.path / "manifest.json"
    true = json.loads(path.read_text())
    for claimed in (3 << 30, 1 << 59):
        path.write_text(json.dumps(true | {"bytes": claimed, "entries": claimed}))
        other = DiskChain(root, "opencl_other_driver_compiler_0123456789ab", {}, 1 << 30)
        assert other.put(sample_entry(100)), "this is what used to wipe it"
        assert tier.put(sample_entry(5))
        assert all(tier.get(sample_entry(n).facts.key.digest, f"program{n}") for n in range(6))
        assert (driver / "shader").exists()
        assert tier.folder.manifest.count() == tier.recount(), "the claim is mended"


# --- clearing


def test_clear_leaves_folders_that_are_not_ours(tmp_path: Path) -> None:
    """A folder that looks like one of ours in all but its schema and fingerprint."""
    root = tmp_path / "cache"
    DiskChain(root, GPU, {"model": "GPU"}, 1 << 30).put(sample_entry(1))
    foreign = root / "extension"
    for name in ("programs/abc", "driver", "names", "tmp"):
        (foreign / name).mkdir(parents=True)
        (foreign / name / f"x-{'0' * 64}.bin").write_text("precious")
    before = sorted(foreign.rglob("*"))
    for manifest in ("{}", '{"schema": "1", "fingerprint": {}}', '{"schema": 1, "fingerprint": "x"}', "[]"):
        (foreign / "manifest.json").write_text(manifest)
        assert clear_root(root).folders in ((GPU,), ())
        prune_root(root, max_age_days=0, max_bytes=0, gone=lambda folder: True)
        verify_root(root, repair=True)
        assert (foreign / "manifest.json").read_text() == manifest
        assert [path for path in sorted(foreign.rglob("*")) if path.name != "manifest.json"] == before
    assert [path.name for path in root.iterdir()] == ["extension"]


def test_a_folder_with_a_damaged_manifest_is_still_ours_to_clear(tmp_path: Path) -> None:
    tier = DiskChain(tmp_path, GPU, {"model": "GPU"}, 1 << 30)
    tier.put(sample_entry(1))
    (tier.folder.path / "manifest.json").write_bytes(b"\0" * 100)
    went = clear_root(tmp_path)
    assert (went.entries, went.folders, went.left) == (1, (GPU,), ())
    assert not tier.folder.path.exists()


STUCK = """
import os, sys
from pathlib import Path
import encodings.ascii, encodings.idna, zoneinfo
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.cli import main
from kernelkeep.testing.entries import sample_entry
for arguments in (["--json"], []):  # loads all that this user can no longer read below
    assert main(["clear", "--yes", "--cache-dir", "/nowhere", *arguments]) == 0
print("---")
if os.geteuid() == 0:
    os.setgid(12345)
    os.setuid(12345)
root = Path(sys.argv[1])
tier = DiskChain(root, sys.argv[2], {}, 1 << 30)
for number in range(4):
    assert tier.put(sample_entry(number))
stuck = root / sys.argv[2] / "programs" / sample_entry(0).facts.key.digest[:3]
stuck.chmod(0o500)
for arguments in (["--json"], []):
    print(main(["clear", "--yes", "--cache-dir", str(root), *arguments]))
stuck.chmod(0o700)
print(main(["clear", "--yes", "--cache-dir", str(root)]))
"""


def test_clear_reports_what_was_removed_and_fails_when_something_stays(reachable_path: Path) -> None:
    home = reachable_path / "home"
    home.mkdir()
    if os.geteuid() == 0:
        os.chown(home, 12345, 12345)
    done = run_python(STUCK, home / "cache", GPU)
    shown, _, rest = done.stdout.partition("---\n")[2].partition("\n}\n")
    removed = json.loads(shown + "}")["removed"]
    assert (removed["entries"], removed["folders"]) == (3, [])
    assert len(removed["left"]) == 2 and all("Permission denied" in path for path in removed["left"])
    assert rest.splitlines()[:3] == ["1", f"0 programs, 0 B, removed from {home / 'cache'}", "1"]
    assert rest.splitlines()[3].startswith("1 program, ") and rest.splitlines()[4] == "0"
    assert len([line for line in done.stderr.splitlines() if "could not be removed" in line]) == 2


def test_a_lock_that_is_held_survives_clearing(tmp_path: Path) -> None:
    """Or two processes would compile the same program."""
    tier = DiskChain(tmp_path, GPU, {}, 1 << 30)
    with tier.alone("0" * 64, 1) as locked:
        assert locked
        clear_root(tmp_path)
        with tier.alone("0" * 64, 0) as again:
            assert not again
    clear_root(tmp_path)
    assert gpu_folders(tmp_path) == []


# --- pipes, sockets, folders and links in the place of files

IN_PLACE = """
import os, sys, socket
from pathlib import Path
from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.cache.stats import add_to_file, read_file
from kernelkeep.cache.upkeep import clear_root, list_entries, prune_root, survey_root, verify_root
from kernelkeep.devices import driver_cache
from kernelkeep.storage.files import remove
from kernelkeep.testing.entries import sample_entry
root, gpu, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
tier = DiskChain(root, gpu, {"model": "GPU"}, 1 << 30)
one = sample_entry(1)
tier.put(one)
add_to_file(root / "cache_stats.json", {"misses": 1})
driver_cache.remember("opengl", root, {"mesa": "opengl_x"})
folder = root / gpu
(entry,) = folder.glob("programs/*/*.bin")
(folder / "locks").mkdir(exist_ok=True)
for path in (
    folder / "manifest.json", folder / "names" / "program1", folder / "diary", entry,
    entry.with_suffix(".meta"), folder / "locks" / "folder.lock", folder / "locks" / f"{one.facts.key.digest}.lock",
    root / "cache_stats.json", root / ".cache_stats.json.lock", root / "opengl-devices.json", folder / "tmp" / "x",
    root / ".cache_stats.json.1-2.note", folder / ".manifest.json.1-2.note",
    *((folder / "driver", folder / "set-aside") if kind in ("pipe", "socket") else ()),
):
    remove(path)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.chdir(path.parent)
        socket.socket(socket.AF_UNIX).bind(path.name)
        os.chdir("/")
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    tier = DiskChain(root, gpu, {"model": "GPU"}, 1 << 30)
    add_to_file(root / "cache_stats.json", {"misses": 1})
    read_file(root / "cache_stats.json")
    tier.get(one.facts.key.digest, "program1")
    tier.find_name("program1")
    with tier.alone(one.facts.key.digest, 0):
        assert tier.put(one), path
    assert tier.get(one.facts.key.digest, "program1") == one, path
    tier.count(), list(list_entries(root)), survey_root(root), verify_root(root)
    prune_root(root, max_age_days=30, max_bytes=1 << 30)
    prune_root(root, max_bytes=10)
    verify_root(root, repair=True)
    driver_cache._read_names("opengl", root)
    driver_cache.remember("opengl", root, {"mesa": "opengl_x"})
    assert tier.put(one), path
    if path.is_fifo() or path.is_symlink() or path.is_socket():
        path.unlink()
    elif path.is_dir() and path.name.endswith((".lock", ".note")):
        path.rmdir()
clear_root(root)
print("done", sorted(path.name for path in root.iterdir()))
"""


@pytest.mark.parametrize("kind", ["pipe", "socket", "link", "folder"])
def test_a_pipe_socket_link_or_folder_in_the_place_of_a_file_never_hangs(tmp_path: Path, kind: str) -> None:
    said = run_python(IN_PLACE, tmp_path / "cache", GPU, kind, timeout_seconds=60).stdout
    assert said.startswith("done") and GPU not in said
