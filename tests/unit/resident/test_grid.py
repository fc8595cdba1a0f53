"""The program and the launches of a grid, with a device that compiles nothing and only takes notes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.programs.languages import find_language
from kernelkeep.programs.task_program import TaskArray
from kernelkeep.resident.grid import DeviceGrid
from kernelkeep.resident.protocol import EXIT, RUN, Layout
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


def test_short_tasks_are_in_the_loop_several_times_and_long_or_labelled_ones_once() -> None:
    def copies(body: Any) -> str:
        return str(source(table({"one": body})).text).partition("#define KK_COPIES ")[2].partition("\n")[0]

    assert copies("(int i) { x[i] = 1; }") == "4"
    assert copies(f"(int i) {{ {'x[i] += 1; ' * 300} }}") == "1"
    included = 'extern "C" __device__ void one(float* x, int i) { x[i] = of_a_header(i); }'
    for directive in ("#include", "#  include", "#\tinclude"):
        assert copies(kk.Source(f'{directive} "header.h"\n{included}', name="one", language="cuda")) == "1"
    written = 'extern "C" __device__ void one(float* x, int i) { asm("NEAR: bra NEAR;"); x[i] = 1; }'
    assert copies(kk.Source(written, name="one", language="cuda")) == "1"


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


class Memory:
    """An array of the device."""

    def __init__(self, place: Place, host: Any) -> None:
        self.place, self.now = place, host.copy()

    def copy_from(self, host: Any) -> None:
        self.place.step("zero")
        self.now[:] = host


class Place:
    """Where a grid runs: it writes into its memory, and ends when it is told to. `fails` in one of the steps raises `error`."""

    def __init__(self) -> None:
        self.fails, self.error = "", BaseException()
        self.running: Memory | None = None
        self.begun_with: list[int] = []  # the sum of each grid's memory before
        self.grid: DeviceGrid
        self.gone = False

    def step(self, name: str) -> None:
        if name == self.fails:
            raise self.error

    def map_memory(self, ring: Any) -> int:
        return 0

    def address_of(self, memory: Any) -> Any:
        return memory

    def launch(self, program: Any, blocks: int, arguments: Any) -> None:
        self.step("launch")
        assert self.running is None, "two grids run"
        self.running = arguments[1]
        assert self.running is not None
        self.begun_with.append(int(self.running.now.sum()))
        self.running.now[:] = 1
        self.step("after launch")

    def launched(self, program: Any, blocks: int) -> None:
        self.step("launched")

    def wait(self, timeout_seconds: float) -> bool:
        if self.gone:
            raise kk.DeviceError("the device failed")
        if self.running is not None and self.grid.view.command[0] == EXIT:
            self.running = None
        return self.running is None


@pytest.fixture
def place() -> Place:
    place = Place()
    array = lambda host: Memory(place, host)  # noqa: E731
    device = SimpleNamespace(spec="fake", open_resident_blocks=lambda sms: place, array=array)
    place.grid = DeviceGrid(SimpleNamespace(device=device), sms=None, timeline=0)  # type: ignore[arg-type]
    layout = Layout(lanes=1, capacity=8, slot=16)
    ring = np.zeros(layout.total_bytes, "u1")
    layout.initialize(ring)
    place.grid.place(ring, layout, [], 1)
    program = SimpleNamespace(make_resident=lambda: None)
    place.grid.use(SimpleNamespace(program=program, release=lambda: None))  # type: ignore[arg-type]
    place.grid.is_wanted = True
    return place


@pytest.mark.parametrize("error", [KeyboardInterrupt(), kk.DeviceError("no"), ValueError("no")], ids=repr)
@pytest.mark.parametrize("step", ["launch", "after launch", "launched", "zero"])
def test_no_grid_runs_after_a_launch_that_was_interrupted_and_the_next_begins_with_zeros(
    place: Place, step: str, error: BaseException
) -> None:
    grid = place.grid
    for _ in range(3):
        grid.resume()
        grid.suspend()
    place.fails, place.error = step, error
    with pytest.raises(type(error)):
        grid.resume()
    assert place.running is None and not grid.runs
    assert grid.view.command[0] == RUN
    with pytest.raises(kk.DeviceError):
        grid.check()  # whoever waits for tasks hears of it
    place.fails = ""
    for _ in range(3):
        grid.resume()
        assert grid.runs
        grid.check()
        grid.suspend()
    assert not any(place.begun_with)


def test_a_launch_that_the_device_did_not_survive_leaves_no_grid(place: Place) -> None:
    place.fails, place.error, place.gone = "launch", kk.DeviceError("it is gone"), True
    with pytest.raises(kk.DeviceError, match="it is gone"):
        place.grid.resume()
    assert not place.grid.runs
    place.grid.suspend()  # as `stop` does


@pytest.mark.parametrize("was_wanted", [False, True])
def test_a_start_that_fails_leaves_what_is_wanted_as_it_was(place: Place, was_wanted: bool) -> None:
    """A paused grid stays paused: whoever closes it has to start it for the tasks that wait, and then hears what is wrong."""

    def add(grid: DeviceGrid) -> None:
        raise kk.OutOfMemory("no memory for code")

    place.add = add  # type: ignore[attr-defined]
    place.grid.is_wanted = was_wanted
    with pytest.raises(kk.OutOfMemory):
        place.grid.start()
    assert place.grid.is_wanted is was_wanted
