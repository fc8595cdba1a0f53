"""The program of a grid, with a device that compiles nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelkeep import settings
from kernelkeep.programs.languages import find_language
from kernelkeep.programs.task_program import TaskArray
from kernelkeep.resident.grid import DeviceGrid
from kernelkeep.resident.task import Task
from kernelkeep.resident.task_table import TaskTable

ARRAYS = [TaskArray("x", "f4"), TaskArray("y", "f4")]
TASKS = {
    "put": "(int i, float v) { x[i] = v; }",
    "get": Task("kk_result(y[i]);", args={"i": "i4"}, result="f4"),
}


def table(tasks: dict[str, Any] = TASKS) -> TaskTable:
    return TaskTable.of(tasks, ARRAYS, 64, find_language("cuda"))


def source(tasks: TaskTable) -> Any:
    device = SimpleNamespace(language="cuda", open_resident_blocks=lambda sms: None)
    grid = DeviceGrid(SimpleNamespace(device=device), sms=None, timeline=0)  # type: ignore[arg-type]
    return grid.program_of(tasks.numbered, ARRAYS, 32, 1024, 64)


def test_the_settings_for_idle_blocks_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source(table())
    monkeypatch.setattr(settings, "RESIDENT_SPINS", 7)
    monkeypatch.setattr(settings, "RESIDENT_NAPS", 3)
    after = source(table())
    assert (after.program.constants["SPINS"], after.program.constants["NAPS"]) == (7, 3)
    assert "#define KK_SPINS 7\n" in after.text
    assert before.key_text != after.key_text


def test_a_task_takes_the_arrays_that_its_body_names() -> None:
    put, get = table().numbered
    assert [one.name for one in put.parts.signature.params or ()] == ["x", "i", "v"]
    assert [one.name for one in get.parts.signature.params or ()] == ["y", "kkresult", "i"]


def test_numbers_keep_their_meaning() -> None:
    first = table()
    same = first.with_task("put", "(int i, float v) { x[i] = 2.0f * v; }", ARRAYS, 64, find_language("cuda"))
    assert [task.number for task in same.numbered] == [0, 1]
    assert same.numbered[0].parts != first.numbered[0].parts
    other = same.with_task("put", "(float v) { x[0] = v; }", ARRAYS, 64, find_language("cuda"))
    assert [task.number for task in other.numbered] == [0, 1, 2]
    assert other.numbered[0] == same.numbered[0]  # for what waits
    assert other.named["put"].number == 2
    assert list(other.named) == ["put", "get"]
    added = other.with_task("more", "() { }", ARRAYS, 64, find_language("cuda"))
    assert added.named["more"].number == 3
