"""The cache commands as a person runs them: their output and their exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk

SOURCES = str(Path(kk.__file__).parents[1])
SCALE = """#ifndef FACTOR
#define FACTOR 2
#endif
__kernel void scale(__global float* x) { x[get_global_id(0)] *= FACTOR; }
"""
Command = Callable[..., subprocess.CompletedProcess[str]]
OFFLINE = ("ls", "stats", "verify", "prune", "clear")


def kernelkeep(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelkeep", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": SOURCES, "NO_COLOR": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)


def fields(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernelkeep: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture(scope="module")
def warmed(opencl_device: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with two versions of one program; the tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("warmed")
    (folder / "scale.cl").write_text(SCALE)
    for define in ("FACTOR=2", "FACTOR=3"):
        done = kernelkeep(
            "warm", folder / "scale.cl", "-D", define, "--device", opencl_device, "--cache-dir", folder / "cache"
        )
        assert done.returncode == 0, done.stderr
        assert "1 compiled" in done.stdout
    return folder


@pytest.fixture
def copy(warmed: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", warmed / "cache", tmp_path / "cache"], check=True)
    return tmp_path / "cache"


@pytest.fixture
def without_gpu_libraries(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing a GPU library fails."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("pyopencl", "cuda", "OpenGL", "moderngl"):
        (broken / f"{name}.py").write_text("raise RuntimeError('a GPU library was imported')\n")
    return {"PYTHONPATH": f"{broken}{os.pathsep}{SOURCES}"}


def only_device(found: dict[str, Any]) -> dict[str, Any]:
    """What `stats --json` says about the only device that has programs; PoCL's own folder is counted apart."""
    (folder,) = (folder for folder in found["folders"] if not folder["folder"].startswith("opencl_pocl_"))
    assert isinstance(folder, dict)
    return folder


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/programs/*/*.bin"))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# --- without a cache


@pytest.mark.parametrize("command", [*OFFLINE, "show"])
def test_an_empty_cache_is_fine_and_stays_empty(run_here: Command, command: str, tmp_path: Path) -> None:
    extra = {"clear": ("--yes",), "show": ("anything",)}.get(command, ())
    done = run_here(command, *extra, "--cache-dir", tmp_path / "none")
    assert done.returncode == (1 if command == "show" else 0), done.stderr
    assert not (tmp_path / "none").exists()


def test_help_names_every_command() -> None:
    done = kernelkeep("--help")
    for command in (*OFFLINE, "show", "explain", "warm"):
        assert command in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "extra"),
        ("show",),
        ("explain",),
        ("warm",),
        ("prune", "--max-bytes", "5X"),
        ("prune", "--max-bytes", "-1"),
        ("prune", "--max-age-days", "soon"),
        ("prune", "--max-age-days", "-1"),
        ("prune", "--max-age-days", "nan"),
        ("clear", "--json"),
        ("verify", "--mend"),
        ("explain", "there-is-no.cl"),
        ("explain", "scale"),
        ("explain", "abcd"),
        ("warm", "there-is-no.cl"),
        ("warm", __file__),
        ("ls", "--device", "abacus"),
        ("warm", "--device", "abacus", __file__),
    ],
)
def test_wrong_use_is_one_sentence_and_2(run_here: Command, arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(*arguments, "--cache-dir", tmp_path / "cache")
    assert done.returncode == 2, done.stdout
    one_sentence(done)


def test_a_cache_dir_that_is_a_file(run_here: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for command in OFFLINE:
        done = run_here(command, *(("--yes",) if command == "clear" else ()), "--cache-dir", tmp_path / "file")
        assert done.returncode == 2, done.stdout
        assert f"{tmp_path / 'file'} is not a folder" in one_sentence(done)
    assert (tmp_path / "file").read_text() == "mine"


def test_clear_leaves_folders_that_are_not_the_cache_s(run_here: Command, tmp_path: Path) -> None:
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "manifest.json").write_text("{}")
    assert run_here("clear", "--yes", "--cache-dir", tmp_path).returncode == 0
    assert run_here("prune", "--max-age-days", "0", "--max-bytes", "0", "--cache-dir", tmp_path).returncode == 0
    assert (tmp_path / "extension" / "manifest.json").exists()


# --- looking


def test_ls(run_here: Command, warmed: Path) -> None:
    done = run_here("ls", "--cache-dir", warmed / "cache")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("scale") >= 2
    assert "2 programs" in done.stdout
    assert "damaged" not in done.stdout


@pytest.mark.parametrize("columns", [120, 80, 60])
@pytest.mark.parametrize("command", ["ls", "stats"])
def test_a_piped_table_follows_the_columns_asked_for(
    run_here: Command, warmed: Path, command: str, columns: int
) -> None:
    done = run_here(command, "--cache-dir", warmed / "cache", COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if str(warmed) not in line]  # a path is never torn apart
    assert any(set(line) == {"─"} for line in lines)
    assert max(map(len, lines)) <= columns
    assert not any(line != line.rstrip() for line in done.stdout.splitlines())


def test_ls_as_json_follows_the_environment(warmed: Path) -> None:
    done = kernelkeep("ls", "--json", KERNELKEEP_CACHE_DIR=str(warmed / "cache"))
    listed = fields(done)["entries"]
    assert [entry["name"] for entry in listed] == ["scale", "scale"]
    for entry in listed:
        assert entry["kernels"] == ["scale"]
        assert entry["compile_seconds"] > 0
        assert abs(entry["last_used"] - time.time()) < 600
        assert entry["bytes"] == Path(entry["path"]).stat().st_size
        assert entry["damage"] is None


@pytest.mark.parametrize("command", OFFLINE)
def test_no_device_and_no_gpu_library_is_needed(
    command: str, copy: Path, without_gpu_libraries: dict[str, str]
) -> None:
    extra = ("--yes",) if command == "clear" else ()
    done = kernelkeep(command, *extra, "--cache-dir", copy, **without_gpu_libraries)
    assert done.returncode == 0, done.stderr
    assert fields(kernelkeep(command, *extra, "--json", "--cache-dir", copy, **without_gpu_libraries))


def test_device_restricts_to_its_folder(run_here: Command, warmed: Path, opencl_device: str, copy: Path) -> None:
    (own,) = (path.parent for path in copy.glob("*/manifest.json"))
    own.rename(copy / "another-gpu")
    assert len(fields(run_here("ls", "--json", "--cache-dir", copy))["entries"]) == 2
    done = run_here("ls", "--json", "--device", opencl_device, "--cache-dir", copy)
    assert (done.returncode, fields(done)["entries"]) == (0, [])
    done = run_here("clear", "--yes", "--device", opencl_device, "--cache-dir", copy)
    assert done.returncode == 0
    assert len(entries(copy)) == 2


def test_show_by_name_and_by_key(run_here: Command, warmed: Path) -> None:
    done = run_here("show", "scale", "--cache-dir", warmed / "cache")
    assert done.returncode == 0, done.stderr
    assert "define FACTOR: 2" in done.stdout
    assert "define FACTOR: 3" in done.stdout
    found = fields(run_here("show", "scale", "--json", "--cache-dir", warmed / "cache"))["entries"]
    assert {entry["key"]["define FACTOR"] for entry in found} == {"2", "3"}
    one = run_here("show", found[0]["digest"][:10], "--json", "--cache-dir", warmed / "cache")
    assert fields(one)["entries"] == found[:1]


def test_show_of_an_unknown_name_is_1(run_here: Command, warmed: Path) -> None:
    done = run_here("show", "scal", "--cache-dir", warmed / "cache")
    assert done.returncode == 1 and "(did you mean scale?); `kernelkeep ls` lists what is kept" in done.stderr
    done = run_here("show", "../../etc/passwd", "--cache-dir", warmed / "cache")
    assert done.returncode == 1
    assert "etc/passwd" in one_sentence(done)


def test_stats(run_here: Command, warmed: Path) -> None:
    done = run_here("stats", "--cache-dir", warmed / "cache")
    assert done.returncode == 0, done.stderr
    assert "hit rate" in done.stdout
    found = fields(run_here("stats", "--json", "--cache-dir", warmed / "cache"))
    assert found["lifetime"]["compiles"] == 2
    assert found["lifetime"]["misses"] == 2
    folder = only_device(found)
    assert (folder["entries"], folder["bytes"]) == (2, sum(path.stat().st_size for path in entries(warmed / "cache")))
    assert folder["fingerprint"]["backend"] == "opencl"


# --- explain and warm


def test_explain_hits_and_misses(run_here: Command, warmed: Path, opencl_device: str) -> None:
    where = ("--device", opencl_device, "--cache-dir", warmed / "cache")
    hit = run_here("explain", warmed / "scale.cl", "-DFACTOR=3", *where)
    assert hit.returncode == 0, hit.stderr
    assert "found on disk" in hit.stdout
    miss = run_here("explain", warmed / "scale.cl", "-D", "FACTOR=4", *where, "--json")
    assert miss.returncode == 0, miss.stderr
    explanation = fields(miss)["explanation"]
    assert explanation["found"] is None
    assert [(d["field"], d["asked"]) for d in explanation["differences"]] == [("define FACTOR", "4")]


def test_explain_names_an_option_and_a_header(
    run_here: Command, warmed: Path, opencl_device: str, tmp_path: Path
) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "factor.h").write_text("#define FACTOR 5\n")
    (tmp_path / "scale.cl").write_text('#include "factor.h"\n' + SCALE)
    where = ("--device", opencl_device, "--cache-dir", tmp_path / "cache")
    done = run_here(
        "explain", tmp_path / "scale.cl", "-I", tmp_path / "include", "--option=-cl-mad-enable", *where, "--json"
    )
    assert done.returncode == 0, done.stderr
    labels = fields(done)["explanation"]["fields"]
    assert "header factor.h" in labels
    assert "-cl-mad-enable" in labels.values()
    missing = run_here("explain", tmp_path / "scale.cl", *where)
    assert missing.returncode == 1
    assert "factor.h" in one_sentence(missing)


def test_a_source_of_another_language_is_wrong_use(run_here: Command, opencl_device: str, tmp_path: Path) -> None:
    (tmp_path / "fill.comp").write_text("#version 430\nvoid main() {}\n")
    done = run_here("explain", tmp_path / "fill.comp", "--device", opencl_device, "--cache-dir", tmp_path / "cache")
    assert done.returncode == 2
    assert "glsl" in one_sentence(done)


def test_warm_finds_what_is_there(run_here: Command, warmed: Path, opencl_device: str, copy: Path) -> None:
    done = run_here(
        "warm", warmed / "scale.cl", "-D", "FACTOR=2", "--json", "--device", opencl_device, "--cache-dir", copy
    )
    (report,) = fields(done)
    assert (done.returncode, report["ok"], report["disk"], report["compiled"]) == (0, True, 1, 0)
    assert fields(run_here("stats", "--json", "--cache-dir", copy))["lifetime"]["hits_disk"] == 1


def test_warm_that_fails_is_1_names_the_line_and_keeps_the_rest(
    run_here: Command, opencl_device: str, tmp_path: Path
) -> None:
    (tmp_path / "good.cl").write_text(SCALE)
    (tmp_path / "bad.cl").write_text("__kernel void bad(__global float* x) {\n  x[0] = nonsense;\n}\n")
    where = ("--device", opencl_device, "--cache-dir", tmp_path / "cache")
    done = run_here("warm", tmp_path / "good.cl", tmp_path / "bad.cl", *where)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].endswith("1 compiled, 1 failed")
    # PoCL's compiler writes to stderr too.
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("kernelkeep: "))
    assert said.startswith("kernelkeep: bad, line 2: ")
    assert said.endswith(": x[0] = nonsense;")
    assert "Traceback" not in done.stderr
    assert [path.name.split("-")[0] for path in entries(tmp_path / "cache")] == ["good"]
    again = run_here("warm", tmp_path / "bad.cl", *where, "--json")
    assert again.returncode == 1
    (failure,) = fields(again)[0]["failed"]
    assert (failure["name"], failure["line"]) == ("bad", 2)
    assert "nonsense" in failure["log"]


# --- damage


def test_damage_is_shown_found_and_repaired(run_here: Command, copy: Path) -> None:
    bad, good = entries(copy)
    damage(bad)
    listed = run_here("ls", "--cache-dir", copy)
    assert listed.returncode == 0
    assert listed.stdout.count("damaged") >= 1
    assert "damaged" in run_here("show", "scale", "--cache-dir", copy).stdout

    found = run_here("verify", "--cache-dir", copy)
    assert found.returncode == 1
    assert bad.name in found.stdout
    assert "checksum" in found.stdout
    as_json = run_here("verify", "--json", "--cache-dir", copy)
    assert as_json.returncode == 1
    (damaged,) = fields(as_json)["damaged"]
    assert Path(damaged["path"]) == bad
    assert bad.exists(), "verify alone changes nothing"

    repaired = run_here("verify", "--repair", "--cache-dir", copy)
    assert repaired.returncode == 0, repaired.stderr
    assert "set aside" in repaired.stdout
    assert entries(copy) == [good]
    assert run_here("verify", "--cache-dir", copy).returncode == 0
    folder = only_device(fields(run_here("stats", "--json", "--cache-dir", copy)))
    assert (folder["entries"], folder["bytes"], folder["set_aside"]) == (1, good.stat().st_size, 1)


def test_verify_sees_folders_links_and_foreign_files_in_the_place_of_entries(run_here: Command, copy: Path) -> None:
    first, second = entries(copy)
    first.unlink()
    first.mkdir()
    data = second.read_bytes()
    second.unlink()
    second.symlink_to("/etc/hostname")
    (second.parent / "foreign.bin").write_bytes(b"hello")
    (second.parent / f"swapped-{'0' * 64}.bin").write_bytes(data)
    done = run_here("verify", "--json", "--cache-dir", copy)
    assert done.returncode == 1
    assert len(fields(done)["damaged"]) == 4
    assert run_here("verify", "--repair", "--cache-dir", copy).returncode == 0
    assert entries(copy) == []
    assert Path("/etc/hostname").exists()


def test_a_damaged_manifest_and_statistics_break_nothing(
    run_here: Command, copy: Path, warmed: Path, opencl_device: str
) -> None:
    (manifest,) = copy.glob("*/manifest.json")
    for text in ("", "[1]", '{"entries": "many", "last_used": "never", "machines": 3, "schema": 1}', "\0" * 50):
        manifest.write_text(text)
        (copy / "cache_stats.json").write_text(text)
        for command in ("ls", "stats", "verify", "prune"):
            done = run_here(command, "--cache-dir", copy)
            assert done.returncode == 0, (command, text, done.stderr)
    manifest.write_text("{")
    done = run_here("warm", warmed / "scale.cl", "-DFACTOR=2", "--device", opencl_device, "--cache-dir", copy)
    assert (done.returncode, "1 from disk" in done.stdout) == (0, True), done.stderr
    folder = only_device(fields(run_here("stats", "--json", "--cache-dir", copy)))
    assert folder["entries"] == 2, "a lost manifest is counted again"


# --- removing


def test_prune_by_bytes_tries_dry_first(run_here: Command, copy: Path) -> None:
    for own in copy.glob("opencl_pocl_*"):  # it counts as well
        shutil.rmtree(own)
    largest = max(path.stat().st_size for path in entries(copy))
    dry = run_here("prune", "--max-bytes", str(largest), "--dry-run", "--json", "--cache-dir", copy)
    assert fields(dry)["pruned"]["entries"] == 1
    assert len(entries(copy)) == 2
    done = run_here("prune", "--max-bytes", str(largest), "--json", "--cache-dir", copy)
    assert fields(done)["pruned"] == fields(dry)["pruned"]
    assert len(entries(copy)) == 1


def test_prune_takes_sizes_as_people_write_them(run_here: Command, copy: Path) -> None:
    for text in ("500M", "2G", "1.5GiB", "100mb", "4096k"):
        done = run_here("prune", "--max-bytes", text, "--cache-dir", copy)
        assert done.returncode == 0, done.stderr
    assert len(entries(copy)) == 2


def test_prune_by_age(run_here: Command, copy: Path) -> None:
    old, young = entries(copy)
    then = time.time() - 40 * 86400
    os.utime(old, (then, then))
    said = run_here("prune", "--max-age-days", "60", "--cache-dir", copy).stdout
    assert "0 programs" in said and "limits: unused for 60 days (--max-age-days), no limit of size" in said
    assert "1 program," in run_here("prune", "--dry-run", "--cache-dir", copy).stdout
    done = run_here("prune", "--cache-dir", copy)
    assert "1 program," in done.stdout
    assert entries(copy) == [young]


def test_prune_gone_keeps_what_is_here(run_here: Command, copy: Path, opencl_device: str) -> None:
    (own,) = (path.parent for path in copy.glob("*/manifest.json"))
    subprocess.run(["cp", "-a", own, copy / "opencl_an-old-driver"], check=True)
    done = run_here("prune", "--gone", "--json", "--cache-dir", copy)
    assert done.returncode == 0, done.stderr
    assert fields(done)["pruned"]["folders"] == ["opencl_an-old-driver"]
    assert {path.parents[2] for path in entries(copy)} == {own}


def test_clear_asks(run_here: Command, copy: Path) -> None:
    no = run_here("clear", "--cache-dir", copy, typed="n\n")
    assert (no.returncode, len(entries(copy))) == (1, 2)
    nobody = run_here("clear", "--cache-dir", copy)
    assert (nobody.returncode, len(entries(copy))) == (2, 2)
    assert "--yes" in nobody.stderr
    yes = run_here("clear", "--cache-dir", copy, typed="y\n")
    assert (yes.returncode, len(entries(copy))) == (0, 0), yes.stderr
    assert (copy / "cache_stats.json").exists()


def test_clear_as_json(run_here: Command, copy: Path) -> None:
    done = run_here("clear", "--yes", "--json", "--cache-dir", copy)
    assert done.returncode == 0, done.stderr
    assert fields(done)["removed"]["entries"] == 2
    assert fields(run_here("ls", "--json", "--cache-dir", copy))["entries"] == []
