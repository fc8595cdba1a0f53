"""What a cache leaves in the diary of its folder, and what upkeep does with it."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.activity.diary import FILE_NAME, read_records
from kernelkeep.cache.upkeep import clear_root, prune_root
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.cache_parts.common import adder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KERNELKEEP_DIARY", raising=False)
    return tmp_path / "cache"


def records(root: Path, kind: str) -> list[dict[str, Any]]:
    return [record for record in read_records(root) if record["kind"] == kind]


def sums(root: Path) -> dict[str, float]:
    total: dict[str, float] = {}
    for record in records(root, "counts"):
        for name, amount in record["counts"].items():
            total[name] = total.get(name, 0) + amount
    return total


def test_a_compile_and_the_counts_are_recorded(root: Path) -> None:
    with FakeDevice() as device:
        for _ in range(2):
            with kk.ProgramCache(device, root) as cache:
                for _ in range(3):
                    cache.get(adder(device, 1)).release()
        folder = device.fingerprint.folder
    (compiled,) = records(root, "compile")
    assert compiled["name"] == "adder" and compiled["device"] == folder and compiled["seconds"] >= 0
    assert compiled["fields"]["fingerprint"] == folder and len(compiled["digest"]) == 64
    first, second = records(root, "counts")
    assert first["counts"].items() >= {"misses": 1, "compiles": 1, "hits_memory": 2}.items()
    assert second["counts"].items() >= {"hits_disk": 1, "hits_memory": 2}.items()
    assert first["since"] <= first["at"] and second["device"] == folder and second["pid"] == os.getpid()


def test_a_compile_that_fails_is_recorded_with_what_the_compiler_said(root: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, root) as cache:
        with pytest.raises(kk.CompileError):
            cache.get(kk.Source("no kernel at all", name="broken", language=device.language))
    (compiled,) = records(root, "compile")
    assert compiled["name"] == "broken" and compiled["error"]


def test_a_running_process_records_its_counts(root: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, root) as cache:
        cache.get(adder(device, 1)).release()
        cache.get(adder(device, 1)).release()
        cache.save_counts()
        assert sums(root)["hits_memory"] == 1
        cache.save_counts()  # nothing new
        assert len(records(root, "counts")) == 1
    assert sums(root)["hits_memory"] == 1, "closing adds what is new only"


def test_the_counts_of_a_cache_that_nobody_closed_are_recorded(root: Path) -> None:
    with FakeDevice() as device:
        cache = kk.ProgramCache(device, root)
        cache.get(adder(device, 1)).release()
        del cache
        gc.collect()
        with kk.ProgramCache(device, root):
            pass
    assert sums(root)["misses"] == 1


def test_nothing_is_recorded_where_that_is_switched_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_DIARY", "0")
    with FakeDevice() as device, kk.ProgramCache(device, root) as cache:
        cache.get(adder(device, 1)).release()
    assert not (root / FILE_NAME).exists()


def test_a_folder_that_others_may_write_to_gets_no_diary(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    with FakeDevice() as device, kk.ProgramCache(device, root) as cache:
        cache.get(adder(device, 1)).release()
    assert not (root / FILE_NAME).exists()


def test_clear_removes_the_diary_and_prune_its_old_records(root: Path) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, root) as cache:
        cache.get(adder(device, 1)).release()
        folder = device.fingerprint.folder
    with (root / FILE_NAME).open("a") as file:
        file.write(json.dumps({"kind": "run", "at": 1000.0, "program": "old"}) + "\n")
    prune_root(root, max_age_days=30, dry_run=True)
    assert len(records(root, "run")) == 1
    prune_root(root, max_age_days=30)
    assert not records(root, "run") and len(records(root, "compile")) == 1
    clear_root(root, only={folder})
    assert records(root, "compile"), "the diary is that of all devices"
    clear_root(root)
    assert not (root / FILE_NAME).exists()
